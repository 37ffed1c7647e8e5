"""Finds the columns of bytes that hold only text, among the records of a conversion."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.columns.types import innermost, is_bytes, is_list
from penstock.verbs.inspect.observe import all_text


class TextColumns:
    """Columns of bytes, or of lists of bytes. A column stays as long as all its values are text."""

    def __init__(self, schema: pa.Schema, columns: list[str]) -> None:
        self._columns = {
            number: name
            for number, (name, field) in enumerate(zip(columns, schema, strict=True))
            if not isinstance(field.type, pa.BaseExtensionType) and is_bytes(innermost(field.type))
        }
        self._has_values: set[int] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        for number in list(self._columns):
            values: Any = batch.column(number)
            while is_list(values.type) or pa.types.is_dictionary(values.type):
                is_coded = pa.types.is_dictionary(values.type)
                values = values.dictionary if is_coded else values.flatten()
            if not all_text(values):
                del self._columns[number]
            elif any(value.is_valid and len(value.as_py()) for value in values[:_SAMPLE]):
                self._has_values.add(number)

    def names(self) -> tuple[str, ...]:
        return tuple(name for number, name in self._columns.items() if number in self._has_values)


_SAMPLE = 100
