"""Reads groups of an HDF5 file as one table. Each group holds a table, such as one demonstration of a robot."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import check_records, conform, empty_columns, projected
from penstock.columns.selection import Projection, Selection
from penstock.contract.added import AddedReader
from penstock.contract.format import Chunk, Options, Reader
from penstock.engine.locks import Lock
from penstock.errors import SchemaError
from penstock.formats.hdf5._about_groups import attribute_columns, in_split
from penstock.formats.hdf5._file import MOST_DATASETS, h5py_or_error, open_file, translated
from penstock.storage.base import Source

EPISODE = "episode"
_DIGITS = re.compile(r"(\d+)")


class Group(NamedTuple):
    """A group of a file, by its path and its handle in h5py."""

    path: str
    handle: Any


def matching(file: Any, pattern: str) -> list[Group]:
    """Return the groups whose paths match a pattern such as "data/demo_*", in which * and ? stand for parts of one
    name. They are sorted, with numbers in names as numbers. Only hard links are followed.

    Raises:
        SchemaError: no group matches.
    """
    found = [Group("", file.id)]
    for part in pattern.strip("/").split("/"):
        found = [inner for group in found for inner in _inside(group, part)]
    if not found:
        known = ", ".join(group.path for group in _inside(Group("", file.id), "*"))
        raise SchemaError(f"no group matches {pattern!r}; groups of the file: {known}", hint=_HINT)
    return found[:MOST_DATASETS]


def _inside(group: Group, pattern: str) -> list[Group]:
    h5py = h5py_or_error()
    names: list[bytes] = []
    group.handle.links.iterate(names.append, order=h5py.h5.ITER_NATIVE)
    found: list[Group] = []
    for raw in names:
        name = raw.decode("utf-8", "replace")
        is_hard = group.handle.links.get_info(raw).type == h5py.h5l.TYPE_HARD
        if is_hard and fnmatchcase(name, pattern):
            handle = h5py.h5o.open(group.handle, raw)
            if isinstance(handle, h5py.h5g.GroupID):
                found.append(Group(f"{group.path}/{name}".strip("/"), handle))
    return sorted(found, key=lambda one: natural(one.path))


def natural(name: str) -> list[Any]:
    """Return a sort key that puts demo_2 before demo_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name)]


def shown_names(groups: Sequence[Group], pattern: str) -> list[str]:
    """Return the paths of groups without their first parts, for which the pattern has no wildcard."""
    parts = pattern.strip("/").split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not re.search(r"[*?\[]", parts[fixed]):
        fixed += 1
    return ["/".join(group.path.split("/")[fixed:]) for group in groups]


class Within(NamedTuple):
    """An open file, its lock, and the group in it to read."""

    file: Any
    lock: Lock
    group: Group


class Chosen(NamedTuple):
    """Which groups to read, and which of their attributes become columns."""

    pattern: str
    attributes: Sequence[str] = ()
    mask: str | None = None


def open_groups(
    source: Source, options: Options, chosen: Chosen, open_table: Callable[..., Reader]
) -> GroupsReader:
    """Open the groups that match a pattern, with the schema of the first group that has datasets.

    Args:
        open_table: opens one group, given `source`, `options` and `within`.
    """
    pattern = chosen.pattern
    lock, file = Lock(), open_file(source)
    tables: list[Reader] = []
    used: list[Group] = []
    inside: Options | None = None
    try:
        with translated(source.path):
            groups = matching(file, pattern)
            if chosen.mask is not None:
                groups = _in_mask(groups, chosen.mask, source, options, file, lock, open_table)
            for group in groups:
                within = Within(file, lock, group)
                if inside is None:
                    first = open_table(source, replace(options, schema=None), within=within)
                    if not len(first.schema):
                        continue
                    inside = _inside_options(options, first.schema, chosen.attributes)
                tables.append(_opened(source, options, inside, within, open_table))
                used.append(group)
            if not tables:
                raise SchemaError(f"the groups {pattern!r} have no datasets with a first axis")
            added = attribute_columns(used, chosen.attributes, options.limits)
        own = tables[0].schema.names
        for name in chosen.attributes:
            if name in own:
                raise SchemaError("a dataset has the name of this attribute", field=name)
        if EPISODE not in {*own, *added}:
            names = pa.array(shown_names(used, pattern), pa.string())
            codes = pa.array(range(len(names)), pa.int32())
            added = {EPISODE: pa.DictionaryArray.from_arrays(codes, names), **added}
        reader = GroupsReader(source, file, lock, tables, added, options.schema)
    except BaseException:
        file.close()
        raise
    weakref.finalize(reader, file.close)  # also when Python exits
    return reader


def _in_mask(
    groups: list[Group],
    split: str,
    source: Source,
    options: Options,
    file: Any,
    lock: Lock,
    open_table: Callable[..., Reader],
) -> list[Group]:
    masks = next(iter(_inside(Group("", file.id), "mask")), None)

    def read(name: str) -> list[Any]:
        assert masks is not None, "only the splits in it are read"
        within = Within(file, lock, masks)
        table = open_table(source, replace(options, schema=None), within=within, chosen=(name,))
        found = [table.decode(chunk, None, None).column(0) for chunk in table.chunks()]
        return [value for part in found for value in part.to_pylist()]

    return in_split(groups, split, None if masks is None else masks.handle, read)


def _opened(
    source: Source,
    options: Options,
    inside: Options,
    within: Within,
    open_table: Callable[..., Reader],
) -> Reader:
    """Open one group. With the caller's schema, fields that the group lacks are null."""
    try:
        return open_table(source, inside, within=within)
    except SchemaError as error:
        lacks = set(error.lacks)
        asked = inside.schema
        is_nullable = all(asked.field(name).nullable for name in lacks)
        if options.schema is None or not (lacks and is_nullable) or lacks.issuperset(asked.names):
            # A new error without `lacks`, which would mean that the whole file lacks these fields.
            message = f"the group {within.group.path}: {error.message}"
            raise SchemaError(message, field=error.field, hint=error.hint) from None
    stored = pa.schema([field for field in asked if field.name not in lacks], asked.metadata)
    table = open_table(source, replace(inside, schema=stored), within=within)
    return AddedReader(table, asked, {name: pa.nulls(1, asked.field(name).type) for name in lacks})


def _inside_options(options: Options, first: pa.Schema, attributes: Sequence[str]) -> Options:
    """Return the options for opening each group: with the caller's schema, or else with the schema `first`."""
    if options.schema is None:
        return replace(options, schema=first, settled=frozenset(first.names))
    added = {EPISODE, *attributes}.difference(first.names)
    own = [f for f in options.schema if f.name not in added]
    return replace(options, schema=pa.schema(own, options.schema.metadata))


class GroupsReader(Reader):
    """The records of several tables of a file, one table after another.

    Args:
        added: columns that have one value for each table, such as its name.
    """

    def __init__(
        self,
        source: Source,
        file: Any,
        lock: Lock,
        tables: list[Reader],
        added: dict[str, pa.Array],
        asked: pa.Schema | None,
    ) -> None:
        self._source = source
        self._file = file
        self._lock = lock
        self._tables = tables
        self._added = added
        self._firsts = np.cumsum([0, *(table.num_records for table in tables)])
        self._own = tables[0].schema
        fields = [*self._own, *(pa.field(name, array.type) for name, array in added.items())]
        made = pa.schema(fields, self._own.metadata)
        self.schema: pa.Schema = made if asked is None else asked

    @property
    def lost_in_a_rewrite(self) -> str:
        """The groups, which become one table."""
        return (
            f"the {len(self._tables)} groups became one table, and what was beside them is left out"
        )

    @property
    def num_records(self) -> int:
        return int(self._firsts[-1])

    @property
    def compression(self) -> str | None:
        return self._tables[0].compression

    def chunks(self) -> Iterator[Chunk[tuple[int, Chunk[Any]]]]:
        for number, table in enumerate(self._tables):
            first = int(self._firsts[number])
            for inner in table.chunks():
                yield Chunk(
                    first + inner.first_record, inner.num_records, inner.start_byte, inner.end_byte, (number, inner)
                )  # fmt: skip

    def pick(
        self, records: np.ndarray
    ) -> Iterable[tuple[Chunk[tuple[int, Chunk[Any]]], np.ndarray]]:
        check_records(records, self.num_records, self._source.path)
        tables = np.searchsorted(self._firsts, records, "right") - 1
        for run in np.split(np.arange(len(records)), np.flatnonzero(np.diff(tables)) + 1):
            if len(run):
                number = int(tables[run[0]])
                first = int(self._firsts[number])
                for inner, chosen in self._tables[number].pick(records[run] - first):
                    at = first + inner.first_record
                    chunk = Chunk(at, inner.num_records, 0, self._source.size, (number, inner))
                    assert chosen is not None, "a table of HDF5 picks records by number"
                    yield chunk, chosen

    def decode(
        self, chunk: Chunk[tuple[int, Chunk[Any]]], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        schema: Any = projected(self.schema, columns, self._source.path)
        number, inner = chunk.data
        own = [name for name in schema.names if name in self._own.names]
        batch = self._tables[number].decode(inner, records, own)
        count = inner.num_records if records is None else len(records)
        if len(own) == len(schema.names):
            return batch if own else empty_columns(count)
        arrays = [
            batch.column(name) if name in own else self._repeated(name, number, count)
            for name in schema.names
        ]
        made = pa.RecordBatch.from_arrays(arrays, schema.names, metadata=schema.metadata)
        return conform(made, schema, self._source.path)

    def _repeated(self, name: str, number: int, count: int) -> pa.Array:
        """The value of an added column for a table, `count` times. All batches have the same dictionary."""
        return self._added[name].take(pa.array(np.full(count, number, np.int64)))

    def close(self) -> None:
        with self._lock:
            self._file.close()
        self._source.close()


_HINT = 'open(..., group="data/*") reads the groups directly in data'
