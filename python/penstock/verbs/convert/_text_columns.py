"""Finds the columns of bytes that hold only text, among the records of a conversion."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.columns.types import innermost, is_bytes, is_bytes_view, is_list
from penstock.verbs.inspect.observe import first_are_text, is_utf_8


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
            # The look of the first values is a check in Python, so it is done once.
            is_known = number in self._has_values
            if not ((is_known or first_are_text(values)) and is_utf_8(values)):
                del self._columns[number]
            elif not is_known and _has_bytes(values):
                self._has_values.add(number)

    def names(self) -> tuple[str, ...]:
        return tuple(name for number, name in self._columns.items() if number in self._has_values)


def _has_bytes(values: Any) -> bool:
    """Whether a value is not empty."""
    import pyarrow.compute as pc  # slow to import

    plain = values.cast(pa.binary()) if is_bytes_view(values.type) else values
    return bool(pc.max(pc.binary_length(plain)).as_py())
