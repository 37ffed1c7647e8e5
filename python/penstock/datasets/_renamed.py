"""Views of a dataset whose columns have other names: the same files and records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.selection import Projection, Selection
from penstock.conditions import Bound, Filter
from penstock.contract.format import Chunk, Delivered, Reader
from penstock.contract.wrapped import WrappedReader
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.errors import SchemaError


def stored_names(visible: Sequence[str], renames: Any) -> dict[str, str]:
    """The name in the files of each column, by its new name. `renames` is {old name: new name}; renames happen at the
    same time, so two columns may swap names.

    Raises:
        SchemaError: there is no such column, or two columns would have the same name.
        TypeError: `renames` is not a dict of names.
    """
    if not isinstance(renames, Mapping) or not all(isinstance(n, str) for n in renames.values()):
        raise TypeError(f"rename takes a dict, {{old name: new name}}, not {renames!r}")
    for old in renames:
        if old not in visible:
            raise SchemaError(f"no such column; there are: {', '.join(visible)}", field=old)
    found: dict[str, str] = {}
    for name in visible:
        new = renames.get(name, name)
        if new in found:
            message = f"the columns {found[new]!r} and {name!r} would have the same name"
            raise SchemaError(
                message, field=new, hint="another name, or select without one of them"
            )
        found[new] = name
    return found


class Renamed(View):
    """Other names of columns. `stored` has the name in the dataset of each visible column."""

    keeps_columns = False

    def __init__(self, stored: Mapping[str, str]) -> None:
        self.stored = dict(stored)

    def files(self, base: Files) -> RenamedFiles:
        return RenamedFiles(base, self)

    def fixed(self, base: Files) -> Renamed:
        return self

    def schema_of_files(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([f.with_name(self.stored.get(f.name, f.name)) for f in schema])


class RenamedFiles(ViewFiles):
    """Files with other names of columns."""

    def __init__(self, base: Files, view: Renamed) -> None:
        super().__init__(base, view)
        self.stored = stored = view.stored
        lost = [old for old in stored.values() if old not in base.schema.names]
        if lost:
            known = ", ".join(base.schema.names)
            raise SchemaError(f"no such column; there are: {known}", field=lost[0])
        # Metadata of the schema may name columns.
        self.schema = pa.schema(
            [base.schema.field(old).with_name(new) for new, old in stored.items()]
        )

    def reader(self, shard: int) -> Reader:
        return RenamedReader(self.base.reader(shard), self.schema, self.stored)

    def check_fields(self, shard: int, batch: pa.RecordBatch, *, whole: bool) -> None:
        names = [self.stored[field.name] for field in batch.schema]
        self.base.check_fields(shard, _named(batch, names), whole=whole)

    @property
    def is_view(self) -> bool:
        return self.base.is_view

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        return self.base.in_file(shard, numbers)

    @property
    def choice_digest(self) -> str:
        digest = hashlib.blake2b(self.base.choice_digest.encode(), digest_size=16)
        digest.update(repr(sorted(self.stored.items())).encode("utf-8", "replace"))
        return digest.hexdigest()

    def is_added(self, column: str) -> bool:
        stored = self.stored.get(column, column)
        return stored != column or self.base.is_added(column)

    def answer(self, shard: int, condition: Filter) -> bool | None:
        read = condition.names
        is_same = read is not None and all(self.stored.get(name) == name for name in read)
        return self.base.answer(shard, condition) if is_same else None


class RenamedReader(WrappedReader):
    """Reads a shard with other names of columns. `stored` has the name in `base` of each column of `schema`."""

    def __init__(self, base: Reader, schema: pa.Schema, stored: Mapping[str, str]) -> None:
        self.base = base
        self.schema = schema
        self._stored = stored

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        return self.base.parts(chunk, self._wanted(columns))

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        return self.base.record_numbers(chunk)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        return self.base.pick(records)

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        own = [replace(one, field=self._stored.get(one.field, one.field)) for one in bounds]
        return self.base.may_hold(chunk, own)

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._shown(self.base.decode(chunk, records, self._wanted(columns)), columns)

    def lent(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._shown(self.base.lent(chunk, records, self._wanted(columns)), columns)

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        found = self.base.delivered(chunk, records, self._wanted(columns))
        return found._replace(batch=self._shown(found.batch, columns))

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        batch = self.base.at_once(records, self._wanted(columns))
        return None if batch is None else self._shown(batch, columns)

    def _wanted(self, columns: Projection) -> Projection:
        names = self.schema.names if columns is None else columns
        return [self._stored[name] for name in names]

    def _shown(self, batch: pa.RecordBatch, columns: Projection) -> pa.RecordBatch:
        return _named(batch, self.schema.names if columns is None else list(columns))


def _named(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    if not names:
        return batch
    fields = [field.with_name(name) for field, name in zip(batch.schema, names, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
