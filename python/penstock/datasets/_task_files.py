"""The files of a read task: some files of a dataset that was opened elsewhere, or a part of one of them.

Nothing is looked for or inferred: the schema is settled, and each file must be in the state in which it was planned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.contract.format import Chunk, Options, Reader
from penstock.datasets._chosen import ChosenReader, Inner
from penstock.datasets._hive import HiveColumns
from penstock.datasets._opened import options_of
from penstock.datasets._other_fields import FieldChecks
from penstock.datasets._unlisted import Every
from penstock.datasets.files import Files, Types
from penstock.errors import ChangedError, StaleIndexError, shown
from penstock.overlay.overlays import Overlays
from penstock.overlay.places import OverlayFolder, places_of
from penstock.storage.base import FileState, Source
from penstock.storage.local import LocalStorage

_HINT = "open the data again, and make new tasks"


class Known(NamedTuple):
    """What the files of all tasks of a plan have in common."""

    call: dict[str, Any]
    """The arguments of `open`, without the files."""
    types: Types
    settled: pa.Schema | None
    """The schema of the files, unless the caller gave one."""
    schema: pa.Schema
    """The same with the fields of overlays and of the names of folders."""
    fields: dict[str, pa.Field] | None
    """The fields of overlays; None if no file has one."""
    origin: tuple[str, int] | None
    """See Options.origin."""


class TaskShard(NamedTuple):
    """A file of a task."""

    path: str
    state: FileState
    num_records: int | None
    """All records of the file; None if unknown."""
    is_kept: bool = False
    """Whether the schema comes from a sidecar of this file."""
    added: Sequence[str] = ()
    """The digests of its overlays."""


Columns = tuple[str, Sequence[tuple[Any, ...]]]
"""Files as their pickle has them: what their paths begin with, and the facts of all files, one after another."""


def to_columns(shards: Sequence[TaskShard]) -> Columns:
    """The files of a task in less space."""
    begin = os.path.commonprefix([shard.path for shard in shards])  # noqa: RUF071  of texts
    return begin, list(
        zip(*((s.path[len(begin) :], *s.state, *s[2:]) for s in shards), strict=True)
    )


def from_columns(columns: Columns) -> list[TaskShard]:
    """What `to_columns` was given."""
    begin, facts = columns
    return [
        TaskShard(begin + rest, FileState(*own[:4]), *own[4:])
        for rest, *own in zip(*facts, strict=True)
    ]


class TaskFiles(Files):
    """The files of a task. With `part`, there is one, and only these records of it are read."""

    def __init__(
        self,
        known: Known,
        shards: Sequence[TaskShard],
        part: Chunk[None] | None,
        hive: HiveColumns | None,
    ) -> None:
        call = known.call
        self.shards, self.part = shards, part
        self.paths = tuple(shard.path for shard in shards)
        self.storage = call["storage"] or LocalStorage()
        self.options = replace(_options(options_of(call), part), origin=known.origin)
        self._format, self.hive, self.listed = call["format"], call["hive"], None
        self._firsts, self.uncounted = None, []
        self._hive = hive
        self.types, self._settled, self.schema = known.types, known.settled, known.schema
        self._num_kept = sum(shard.is_kept for shard in shards)  # the first ones
        self._names = None if known.fields is None else known.schema.names
        overlays = call["overlays"]
        self.overlay_folder = overlays if isinstance(overlays, OverlayFolder) else None
        self.overlay_places = places_of(self.storage, self.overlay_folder)
        self._overlays = None if known.fields is None else self._same_overlays(known.fields)
        self._forget_readers()
        # Only the first records of a file can show that it has none of the fields.
        is_checked = self.found_types != "given" and (part is None or not part.first_record)
        alike = set(range(self._num_kept)) if is_checked else Every()
        self._checks = FieldChecks(alike, whole=set())
        self._has_warned = True

    def _same_overlays(self, fields: dict[str, pa.Field]) -> Overlays:
        """The overlays of the files, if they are those that were planned."""
        found = Overlays(self.paths, self.overlay_places, self.options.limits, fields)
        for number, shard in enumerate(self.shards):
            if tuple(found.digests(number)) != shard.added:
                raise _changed("the overlays of the file were changed", shard.path)
        return found

    @classmethod
    def known_of(cls, files: Files, call: dict[str, Any]) -> Known:
        """What the tasks of a dataset have in common. `call` has the arguments of `open`."""
        beside = {"source": None, "columns": None, "hive": False}
        bare = {**call, **beside, "complete": files.options.complete}
        fields = None if files._overlays is None else files._overlays.fields
        origin = files.options.origin
        return Known(bare, files.types, files._settled, files.schema, fields, origin)

    @classmethod
    def hive_of(cls, files: Files) -> HiveColumns | None:
        """The columns from the names of folders."""
        return files._hive

    @classmethod
    def shards_of(
        cls, files: Files, shards: range, *, are_named: bool, are_counted: bool
    ) -> list[TaskShard]:
        """Consecutive files of a dataset, as its tasks have them. The paths of this machine are absolute, unless they
        `are_named` as the caller named them."""
        found: list[TaskShard] = []
        listed = files.states_of(shards, are_counted=files.counts_records and are_counted)
        for shard, (path, state, num_records) in zip(shards, listed, strict=True):
            is_here = files.storage.is_here(path) and not are_named
            full = os.path.abspath(path) if is_here else path
            overlays = files._overlays
            added = () if overlays is None else tuple(overlays.digests(shard))
            found.append(TaskShard(full, state, num_records, shard < files._num_kept, added))
        return found

    def _source_of(self, shard: int) -> Source:
        path, state = self.shards[shard][:2]
        try:
            return self.storage.pinned(path, state, mmap=self.options.mmap)
        except ChangedError:
            raise _changed("the file was changed", path) from None
        except FileNotFoundError:
            raise _changed("the file is not there: it was removed", path) from None

    def reader(self, shard: int) -> Reader:
        found = super().reader(shard)
        return found if self.part is None else PartReader(found, self.part)

    def scanned(self, shard: int, *, whole: bool) -> Reader:
        if self.part is None:
            return super().scanned(shard, whole=whole)
        reader, own = self.reader(shard), self.own(shard)
        if whole and not own.reads_ahead() and self.part.end_byte:
            self.source(shard).read_in_order(self.part.start_byte, self.part.end_byte)
        return reader

    def begin(
        self, shards: Iterable[int], *, length: int | None = None, by_number: bool = False
    ) -> None:
        super().begin(shards, length=length if self.part is None else None)

    def check_scanned(self, shard: int, num_records: int) -> None:
        of = self.shards[shard].num_records if self.part is None else self.part.num_records
        if of is not None and num_records != of:
            raise StaleIndexError(
                "the file does not have the number of records that were planned",
                file=shown(self.paths[shard]),
                expected=of,
                found=num_records,
                hint=_HINT,
            )


def _options(options: Options, part: Chunk[None] | None) -> Options:
    """The options with which a task reads. A plan has the positions that an index would have."""
    needs_index = options.damage != "error" or options.checksums == "index"
    is_found = part is None or part.end_byte > 0
    index = "never" if is_found and not needs_index else options.index
    return replace(options, index=index, stores_index=False)


def _changed(what: str, path: str) -> ChangedError:
    return ChangedError(f"{what} since the tasks were made", file=shown(path), hint=_HINT)


class PartReader(ChosenReader):
    """Reads consecutive records of a shard, which are numbered from 0."""

    def __init__(self, base: Reader, part: Chunk[None]) -> None:
        self._first, self._end = part.first_record, part.first_record + part.num_records
        super().__init__(base, lambda: np.arange(self._first, self._end), "error")
        self._part = part

    @property
    def num_records(self) -> int:
        return self._part.num_records

    def chunks(self) -> Iterator[Chunk[Any]]:
        for chunk in self._base.found_in(self._part):
            first = chunk.first_record
            begin = max(self._first - first, 0)
            end = min(self._end - first, chunk.num_records)
            if begin < end:
                rows = None if end - begin == chunk.num_records else np.arange(begin, end)
                place = first + begin - self._first
                inner = Inner(chunk, rows)
                yield Chunk(place, end - begin, chunk.start_byte, chunk.end_byte, inner)
