"""Converts decimals for formats that hold none: whole numbers become int64, and others float64."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from penstock.columns import nearest
from penstock.columns.casts import map_values
from penstock.columns.losses import Losses
from penstock.columns.types import innermost
from penstock.errors import SchemaError


class Decimals:
    """The conversion of the columns of decimals of a schema, and of lists of decimals. Types in structs stay.

    Example:
        >>> import pyarrow as pa
        >>> from decimal import Decimal
        >>> batch = pa.record_batch({"sum": [Decimal(3)], "share": [Decimal("0.5")]})
        >>> found = Decimals(batch.schema, exact=True)
        >>> next(found.convert([batch])).to_pylist(), found.notes[0]
        ([{'sum': 3, 'share': 0.5}], "field 'sum': decimal128(1, 0) is stored as int64")
    """

    def __init__(self, schema: pa.Schema, *, exact: bool) -> None:
        self._losses = Losses(exact=exact)
        self._columns: dict[int, pa.DataType] = {}
        self.schema = schema
        """The schema of the converted batches."""
        for place, field in enumerate(schema):
            wanted = map_values(field.type, _instead)
            if wanted is None or not pa.types.is_decimal(innermost(field.type)):
                continue
            self._columns[place] = wanted
            self.schema = self.schema.set(place, field.with_type(wanted))
            self._losses.tell(field.name, f"{field.type} is stored as {_named(wanted)}")

    def __bool__(self) -> bool:
        return bool(self._columns)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._losses.notes

    def convert(self, batches: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches with converted columns.

        Raises:
            SchemaError: a whole number does not fit int64, or `exact` is set and float64 does not hold a value.
        """
        done = 0
        for batch in batches:
            for place, wanted in self._columns.items():
                made = self._column(
                    batch.column(place), wanted, self.schema.field(place).name, done
                )
                batch = batch.set_column(place, self.schema.field(place), made)
            yield batch
            done += batch.num_rows

    def _column(self, column: Any, wanted: pa.DataType, name: str, first: int) -> Any:
        try:
            made = nearest.cast(column, wanted)
        except pa.ArrowInvalid:
            row = next(n for n in range(len(column)) if not _fits(column.slice(n, 1), wanted))
            raise SchemaError(
                f"the decimal {column[row].as_py()} does not fit int64, as which this format stores whole numbers",
                record=first + row,
                field=name,
                hint="cast it to float64 or text, or write Parquet or Arrow, which hold decimals",
            ) from None
        if self._losses.exact and pa.types.is_float64(innermost(wanted)):
            for row, (given, stored) in enumerate(zip(column, made, strict=True)):
                if not _same(given.as_py(), stored.as_py()):
                    self._losses.add(name, f"float64 does not hold {given.as_py()}", first + row)
        return made


def _instead(type_: pa.DataType) -> pa.DataType:
    if not pa.types.is_decimal(type_):
        return type_
    return pa.float64() if type_.scale > 0 else pa.int64()


def _fits(column: Any, wanted: pa.DataType) -> bool:
    try:
        nearest.cast(column, wanted)
    except pa.ArrowInvalid:
        return False
    return True


def _same(given: Any, stored: Any) -> bool:
    if isinstance(given, list):
        return all(map(_same, cast("list[Any]", given), stored))
    return given is None or Decimal(stored) == given


def _named(type_: pa.DataType) -> str:
    return str(type_).replace("double", "float64")  # as NumPy and penstock's options call it
