"""Adds columns to those of a file. An added column has one value for all records, such as null."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.numbers import as_arrow
from penstock.columns.selection import Projection, Selection
from penstock.conditions import Bound
from penstock.contract.format import (
    Chunk,
    Delivered,
    Format,
    Options,
    Reader,
)
from penstock.contract.opening import open_shard
from penstock.contract.wrapped import WrappedReader
from penstock.errors import SchemaError
from penstock.storage.base import Source


def open_with_nulls(fmt: Format, source: Source, options: Options) -> Reader:
    """Open a file with the caller's schema, if there is one. If the file lacks a nullable column, that column has only
    nulls.

    Raises:
        SchemaError: the file lacks a column that must not be null, or has none of the columns.
        The errors of `open_shard`.
    """
    asked = options.schema
    try:
        return open_shard(fmt, source, options)
    except SchemaError as error:
        lacks = set(error.lacks)
        if not lacks or lacks.issuperset(asked.names):
            raise
    for field in asked:
        if field.name in lacks and not field.nullable:
            raise SchemaError(
                "the file does not have this column, and the schema does not let it be null",
                file=source.path,
                field=field.name,
                hint=f"schema= with pa.field({field.name!r}, ..., nullable=True), for nulls",
            )
    stored = pa.schema([field for field in asked if field.name not in lacks], asked.metadata)
    base = open_shard(fmt, source, replace(options, schema=stored))
    return AddedReader(base, asked, {name: pa.nulls(1, asked.field(name).type) for name in lacks})


class AddedReader(WrappedReader):
    """Wraps the reader of a file, and adds columns.

    Args:
        base: the reader of the file.
        schema: all columns. Those of the file have the same order as in `base`.
        added: an array of one value for each added column. It replaces a column of the file with the same name.
    """

    def __init__(self, base: Reader, schema: pa.Schema, added: Mapping[str, pa.Array]) -> None:
        self.base = base
        self.schema = schema
        self._added = added
        self._replaces = not added.keys().isdisjoint(base.schema.names)

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        return self.base.parts(chunk, self._stored(columns))

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        return self.base.record_numbers(chunk)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        return self.base.pick(records)

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        values = {name: array[0].as_py() for name, array in self._added.items()}
        for bound in bounds:
            if bound.field in values:
                value = values[bound.field]
                if not bound.may_hold(value, value, has_nulls=False):
                    return False
        return self.base.may_hold(chunk, [one for one in bounds if one.field not in values])

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._with_added(self.base.decode(chunk, records, self._stored(columns)), columns)

    def lent(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._with_added(self.base.lent(chunk, records, self._stored(columns)), columns)

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        found = self.base.delivered(chunk, records, self._stored(columns))
        return found._replace(batch=self._with_added(found.batch, columns))

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        batch = self.base.at_once(records, self._stored(columns))
        return None if batch is None else self._with_added(batch, columns)

    def _stored(self, columns: Projection) -> Projection:
        """The columns to read from the file."""
        if columns is None and not self._replaces:
            return None
        names = self.schema.names if columns is None else columns
        return [name for name in names if name not in self._added]

    def _with_added(self, batch: pa.RecordBatch, columns: Projection) -> pa.RecordBatch:
        names = self.schema.names if columns is None else list(columns)
        if not any(name in self._added for name in names):
            return batch
        stored = iter(zip(batch.schema, batch.columns, strict=True))
        found: list[tuple[pa.Field, pa.Array]] = []
        for name in names:
            if name in self._added:
                array = repeated(self._added[name], batch.num_rows)
                found.append((self.schema.field(name), array))
            else:
                found.append(next(stored))
        metadata = self.schema.metadata if columns is None else batch.schema.metadata
        schema = pa.schema([field for field, _ in found], metadata)
        return pa.RecordBatch.from_arrays([array for _, array in found], schema=schema)


def repeated(value: pa.Array, count: int) -> pa.Array:
    """Repeat the value of an array of length 1 `count` times."""
    if value.null_count:
        return pa.nulls(count, value.type)
    return value.take(as_arrow(np.zeros(count, np.uint64)))
