"""Sources of the values of new fields: arrays, tables, tables matched by a key, constants, functions.

Each source returns the new columns for some records of a shard. Errors that do not depend on the records (a name, a
type, a length, a repeated key) are raised when the source is created.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from penstock import describe
from penstock.columns.numbers import as_arrow
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.verbs.fields._computed_fields import Computed
from penstock.verbs.fields._rows import Rows
from penstock.verbs.fields._values import (
    SCALARS,
    NewFields,
    digest,
    one_batch,
    part,
    scalar,
    table_of,
)


# Complexity: one branch for each form of the values.
def new_fields(
    dataset: Dataset,
    fields: Any,
    *,
    by: str | Mapping[str, str] | None = None,
    missing: str = "error",
    reads: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    unchanged: Dataset | None = None,
) -> NewFields:
    """Return the source for the arguments of `penstock.add_fields`. If a killed job has already changed some files,
    `unchanged` has the files that still have the old fields."""
    _check_options(dataset, missing, reads)
    by_name = _with_typed_nulls(dataset, fields) if isinstance(fields, Mapping) else {}
    fields = by_name or fields
    if columns is not None and (callable(fields) or by_name):
        raise ValueError("columns= names the columns of a table, but no table is given")
    if callable(fields) or any(map(_is_function, by_name.values())):
        _check_functions(by_name, by)
        return Computed(dataset, fields, reads, unchanged or dataset)
    if reads:
        raise ValueError("reads= names the fields passed to a function, but no function is given")
    constants = {k: v for k, v in by_name.items() if isinstance(v, SCALARS)}
    if not constants:
        return _columns(dataset, fields, by, missing, columns)
    if len(constants) == len(by_name):
        return _Constant(constants)
    arrays = {k: v for k, v in by_name.items() if k not in constants}
    parts = [_Constant(constants), _columns(dataset, arrays, by, missing, columns)]
    return _Joined(list(by_name), parts)


def _with_typed_nulls(dataset: Dataset, fields: Any) -> dict[str, Any]:
    """Return the values by name, and each None as a null of the old field's type."""
    found = dict(cast("Mapping[str, Any]", fields))
    for name in [name for name, value in found.items() if value is None]:
        if name not in dataset.schema.names:
            raise SchemaError(
                "null has no type, and the records have no such field",
                field=name,
                hint="pa.scalar(None, pa.string()) is a null with a type; penstock fields add SOURCE --from TABLE takes "
                "the types of a table",
            )
        found[name] = pa.scalar(None, dataset.schema.field(name).type)
    return found


def _check_options(dataset: Dataset, missing: str, reads: Sequence[str]) -> None:
    if missing not in ("error", "null", "keep"):
        raise ValueError(f"missing={missing!r} is not one of 'error', 'null', 'keep'")
    for name in reads:
        _check_old(dataset, name)


def _columns(
    dataset: Dataset,
    fields: Any,
    by: str | Mapping[str, str] | None,
    missing: str,
    columns: Sequence[str] | None,
) -> NewFields:
    field, key = _keys_of(by)
    table = table_of(fields, _with_key(dataset.schema, field, key), dataset.files.storage)
    known = table.schema.names
    keys = [] if key is None else [key]
    wanted = [*keys, *(name for name in (known if columns is None else columns) if name != key)]
    for name in wanted:
        if name not in known:
            raise SchemaError(
                f"the table has no such column; it has: {', '.join(known)}",
                field=name,
                hint="by={'field': 'column'} joins by columns of two names",
            )
    if field is None or key is None:
        return _Aligned(dataset, table.select(wanted))
    _check_old(dataset, field)
    if field != key and field in wanted:
        message = "the table has a column of this name besides the key, which cannot be added"
        raise SchemaError(message, field=field, hint="columns= names the columns to use")
    names = [field, *wanted[1:]]
    return _Keyed(dataset, table.select(wanted).rename_columns(names), field, missing)


def _with_key(schema: pa.Schema, field: str | None, key: str | None) -> pa.Schema:
    """The fields of the records, and the key under the name that it has in the table."""
    if field is None or key is None or field == key or field not in schema.names:
        return schema
    kept = [one for one in schema if one.name != key]
    return pa.schema([*kept, schema.field(field).with_name(key)])


def _keys_of(by: str | Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """The key's name in the records, and that in the table."""
    if by is None or isinstance(by, str):
        return by, by
    if len(by) != 1:
        raise ValueError(f"by= takes one key, as {{field: column}}, and not {len(by)}")
    return next(iter(by.items()))


def _is_function(value: Any) -> bool:
    arrays = ("__arrow_c_array__", "__arrow_c_stream__", "__array__")
    return callable(value) and not any(hasattr(value, name) for name in arrays)


def _check_functions(by_name: Mapping[str, Any], by: object) -> None:
    for name, value in by_name.items():
        if not callable(value) and not isinstance(value, SCALARS):
            message = "arrays and functions cannot be mixed in one call"
            raise SchemaError(message, field=name, hint="add them in two calls")
    if by is not None:
        raise ValueError("by= is for tables; a function gets the records themselves")


def _check_old(dataset: Dataset, name: str) -> None:
    if name not in dataset.schema.names:
        known = ", ".join(dataset.schema.names)
        raise SchemaError(f"no such field; there are: {known}", field=name, file=dataset.paths[0])


class _Constant(NewFields):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: scalar(name, value) for name, value in values.items()}
        super().__init__(pa.schema([(name, v.type) for name, v in self._values.items()]))

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        del shard, first, old
        arrays = [
            pa.repeat(value, num_records) if value.is_valid else pa.nulls(num_records, value.type)
            for value in self._values.values()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def facts(self) -> Any:
        return [*super().facts(), [repr(value) for value in self._values.values()]]


class Baked(NewFields):
    """The fields of a dataset's overlays. `shards` has the number of each shard in the job."""

    def __init__(self, dataset: Dataset, names: list[str], shards: Sequence[int]) -> None:
        super().__init__(pa.schema([dataset.schema.field(name) for name in names]))
        self._firsts = dict(zip(shards, map(int, dataset.files.firsts[:-1]), strict=True))
        self._shown = dataset.reopened(columns=names)

    def of_shard(self, shard: int) -> NewFields:
        place = list(self._firsts).index(shard)
        one = self._shown.reopened(source=[self._shown.paths[place]], schema=self._shown.schema)
        return Baked(one, self.schema.names, [0])

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        del old
        begin = self._firsts[shard] + first
        return self._shown.take(np.arange(begin, begin + num_records))


class _Aligned(NewFields):
    """A table with one row for every record of the dataset, in order."""

    def __init__(self, dataset: Dataset, table: pa.Table) -> None:
        super().__init__(table.schema)
        if table.num_rows != len(dataset):
            raise SchemaError(
                "the new fields do not have a value for each record",
                expected=f"{len(dataset)} records",
                found=f"{table.num_rows} values",
                hint="by= joins a table by a key",
            )
        self._firsts = dataset.files.firsts
        self._table = table

    def of_shard(self, shard: int) -> NewFields:
        first, end = self._firsts[shard : shard + 2].tolist()
        one = copy.copy(self)
        one._table, one._firsts = self._table.slice(first, end - first), np.array([0, end - first])
        return one

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        del old
        return part(self._table, int(self._firsts[shard]) + first, num_records)

    def some(
        self, shard: int, first: int, rows: np.ndarray, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        del old
        chosen = self._table.take(as_arrow(int(self._firsts[shard]) + first + rows))
        return one_batch(chosen.combine_chunks())

    def facts(self) -> Any:
        return [*super().facts(), digest(self._table)]

    def emptied(self) -> list[str]:
        return with_nulls(self._table)


class _Keyed(NewFields):
    """A table whose rows are matched to records by the value of one of its columns."""

    def __init__(self, dataset: Dataset, table: pa.Table, by: str, missing: str) -> None:
        self._by, self._missing = by, missing
        self._paths = dataset.paths
        self._given = table
        self._rows = Rows(table.column(by), by)
        self._table = table.drop_columns([by]).combine_chunks()
        super().__init__(self._table.schema, [by])

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        del num_records
        assert old is not None, "asked for by reads"
        keys = self._keys(old)
        rows = self._rows.of(keys)
        self._check(shard, first, keys, rows)
        taken = self._table.take(pa.array(rows, mask=rows < 0))
        return one_batch(taken.combine_chunks())

    @property
    def checked(self) -> tuple[str, ...]:
        return (self._by,) if self._missing == "error" else ()

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        keys = self._keys(old)
        self._check(shard, first, keys, self._rows.of(keys))

    def _check(self, shard: int, first: int, keys: pa.Array, rows: np.ndarray) -> None:
        lost = np.flatnonzero(rows < 0)
        if len(lost) and self._missing == "error":
            at = int(lost[0])
            raise SchemaError(
                f"the table has no row for {keys[at].as_py()!r}",
                file=self._paths[shard],
                record=first + at,
                field=self._by,
                hint='missing="null" leaves the new fields out of such records; "keep", in replace_fields, '
                "leaves them their old values",
            )

    def matched(self, old: pa.RecordBatch) -> np.ndarray:
        return self._rows.of(self._keys(old)) >= 0

    def emptied(self) -> list[str]:
        return with_nulls(self._table)

    def notes(self, old: Dataset, threads: int | None) -> tuple[str, ...]:
        if self._missing == "error":
            return ()  # each record has a row, or else there is an error
        is_used = np.zeros(self._given.num_rows, bool)
        has_value = _has_value(self._table)
        num_records = num_matched = num_filled = 0
        for batch in old.scan([self._by], threads=threads):
            rows = self._rows.of(self._keys(batch))
            rows = rows[rows >= 0]
            is_used[rows] = True
            num_records += batch.num_rows
            num_matched += len(rows)
            num_filled += int(np.count_nonzero(has_value[rows]))
        if num_records and len(is_used) and not num_matched:
            raise SchemaError("no row of the table has the key of a record", field=self._by)
        note = changed_note(num_filled, num_records)
        if self._missing == "null" and num_filled < num_records:
            note += f" and {describe.count(num_records - num_filled)} got null"
        return (note + _unused_note(is_used),)

    def _keys(self, old: pa.RecordBatch) -> pa.Array:
        return old.column(old.schema.get_field_index(self._by))

    def facts(self) -> Any:
        return [*super().facts(), self._missing, digest(self._given)]


def _has_value(table: pa.Table) -> np.ndarray:
    """Return which rows have a value in some column, as booleans."""
    found = np.zeros(table.num_rows, bool)
    for column in table.columns:
        found |= column.is_valid().to_numpy()
    return found


def with_nulls(table: pa.Table) -> list[str]:
    return [name for name in table.schema.names if table.column(name).null_count]


def changed_note(num_matched: int, num_records: int) -> str:
    return f"{describe.count(num_matched)} of {describe.records(num_records)} got new values"


def _unused_note(is_used: np.ndarray) -> str:
    unused = int(np.count_nonzero(~is_used))
    if not unused:
        return ""
    word, match = ("row", "matches") if unused == 1 else ("rows", "match")
    return f"; {describe.count(unused)} {word} of the table {match} no record"


class _Joined(NewFields):
    def __init__(self, names: list[str], parts: list[NewFields]) -> None:
        self._parts = parts
        known = [field for part in parts for field in part.schema]
        extra = [field.name for field in known if field.name not in names]
        by_name = {field.name: field for field in known}
        schema = pa.schema([by_name[n] for n in [*names, *extra] if n in by_name])
        super().__init__(schema, [name for part in parts for name in part.reads])

    def of_shard(self, shard: int) -> NewFields | None:
        one = copy.copy(self)
        one._parts = [part.of_shard(shard) or part for part in self._parts]
        return None if one._parts == self._parts else one

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        return self._joined([part.batch(shard, first, num_records, old) for part in self._parts])

    def some(
        self, shard: int, first: int, rows: np.ndarray, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        return self._joined([part.some(shard, first, rows, old) for part in self._parts])

    def emptied(self) -> list[str]:
        return [name for part in self._parts for name in part.emptied()]

    def notes(self, old: Dataset, threads: int | None) -> tuple[str, ...]:
        return tuple(note for part in self._parts for note in part.notes(old, threads))

    def matched(self, old: pa.RecordBatch) -> np.ndarray:
        return np.logical_and.reduce([part.matched(old) for part in self._parts])

    @property
    def checked(self) -> tuple[str, ...]:
        return tuple(name for part in self._parts for name in part.checked)

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        for one in self._parts:
            if one.checked:
                one.check(shard, first, old)

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        columns = {n: c for b in batches for n, c in zip(b.schema.names, b.columns, strict=True)}
        return pa.RecordBatch.from_arrays(
            [columns[n] for n in self.schema.names], self.schema.names
        )

    def facts(self) -> Any:
        return [part.facts() for part in self._parts]
