"""Finds the columns of bytes that hold only text, while a conversion reads the records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.columns.types import innermost, is_bytes, is_bytes_view, is_list
from penstock.verbs.inspect.observe import first_are_text, is_utf_8


class TextColumns:
    """The columns of bytes, or of lists of bytes, whose values so far are all text."""

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
            # `first_are_text` is a slow check in Python, so it runs only until a value is found.
            is_known = number in self._has_values
            if not ((is_known or first_are_text(values)) and is_utf_8(values)):
                del self._columns[number]
            elif not is_known and _has_bytes(values):
                self._has_values.add(number)

    def join(self, other: TextColumns) -> None:
        """Add what was found in other records of the same columns."""
        self._columns = {n: name for n, name in self._columns.items() if n in other._columns}
        self._has_values |= other._has_values

    def names(self) -> tuple[str, ...]:
        return tuple(name for number, name in self._columns.items() if number in self._has_values)


def _has_bytes(values: Any) -> bool:
    """Whether any value is not empty."""
    import pyarrow.compute as pc  # slow to import

    plain = values.cast(pa.binary()) if is_bytes_view(values.type) else values
    return bool(pc.max(pc.binary_length(plain)).as_py())
