"""The laws about values at the edges of their types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.columns.types import is_bytes, is_text
from penstock.testing._checks import check_same
from penstock.testing._records import RecordLaws

_BYTES = (b"", b"\x00", b"\xff\xfe", bytes(range(256)))
_TEXTS = ("", "\x00", " \n", "\u00e9\U0001f600")


class EdgeLaws(RecordLaws):
    """Tests with values that are easily lost: the empty text, nulls, NaN, the largest integers, empty lists."""

    def edges(self, field: pa.Field) -> list[Any]:
        """Values that the laws write into a column of `table`. Override it for a column that the format recognises by its
        values, such as encoded images: return other values, or none."""
        return edges_of(field.type, nullable=field.nullable)

    def test_edge_values_are_kept_or_refused(self, tmp_path: Path) -> None:
        """The values of `edges` read back as they were written, or writing them raises an error of penstock. If they are
        refused together, each is tried alone."""
        table = self.table(20)
        for number, field in enumerate(table.schema):
            values = self.edges(field)[: table.num_rows - 2]
            if values and not self._keeps(tmp_path, table, number, values):
                for value in values:
                    self._keeps(tmp_path, table, number, [value])

    def _keeps(self, folder: Path, table: pa.Table, number: int, values: list[Any]) -> bool:
        """Check that the first records of a column may have these values. False if they are refused."""
        field = table.schema.field(number)
        rest = table.column(number).to_pylist()[len(values) :]
        column = pa.array([*values, *rest], field.type)
        table = table.set_column(number, field, column)
        try:
            path = self.write(folder, table, "edges")
        except ps.PenstockError:
            return False
        shown = values[0] if len(values) == 1 else values
        what = f"{shown!r} in column {field.name!r}: "
        check_same(self.open(path, folder).to_table(), table, what)
        return True


def edges_of(type_: pa.DataType, *, nullable: bool) -> list[Any]:
    """Values of a type that are easily lost, with None if it may be null; none for types that have no such values."""
    found = _edges(type_)
    return [*found[:1], None, *found[1:]] if found and nullable else found


# Complexity: one branch for each kind of type.
def _edges(type_: Any) -> list[Any]:
    kinds = pa.types
    if kinds.is_fixed_size_binary(type_):
        return [b"\x00" * type_.byte_width, b"\xff" * type_.byte_width]
    if is_text(type_):
        return list(_TEXTS)
    if is_bytes(type_):
        return list(_BYTES)
    if kinds.is_boolean(type_):
        return [False, True]
    if kinds.is_integer(type_):
        limits = np.iinfo(type_.to_pandas_dtype())
        return [int(limits.min), 0, int(limits.max)]
    if kinds.is_floating(type_):
        kind = type_.to_pandas_dtype()
        ends = np.finfo(kind)
        numbers = (np.nan, -0.0, np.inf, -np.inf, ends.max, ends.min, ends.smallest_subnormal)
        return [kind(number) for number in numbers]
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        inner = edges_of(type_.value_type, nullable=type_.value_field.nullable)
        return [[], *([value] for value in inner), inner] if inner else [[]]
    return []
