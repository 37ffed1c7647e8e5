"""Views of a dataset: the same files, with only some of their records, in the same order.

A `Choice` says which records. `ChosenFiles` wraps the readers of the files, as overlays do, so verbs and loaders need
not know of views.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.selection import Projection, Selection
from penstock.conditions import Filter, Where, filter_of, holds_of_shard, holds_where_readable
from penstock.contract.format import Chunk, Delivered, Readable, Reader, SkippedRegion, Stretch
from penstock.datasets._no_records import NoRecords
from penstock.datasets._numbered import numbered
from penstock.datasets._portable import portable
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.datasets.take import reordered
from penstock.engine.locks import Lock
from penstock.errors import FormatError, UnsupportedError
from penstock.storage.skipped import SkippedFile


class Choice(View):
    """Which records of some files are in a view."""

    def files(self, base: Files) -> ChosenFiles:
        return ChosenFiles(base, self)

    def fixed(self, base: Files) -> ByNumber:
        numbers = self.numbers(base)  # which also finds what is skipped
        return ByNumber(numbers, self.skipped)

    @abstractmethod
    def numbers(self, files: Files) -> Sequence[np.ndarray]:
        """Return for each file the numbers of its chosen records, int64, ascending."""
        ...

    @property
    def skipped(self) -> Sequence[SkippedRegion]:
        """The regions that were skipped when the records were chosen."""
        return ()

    @abstractmethod
    def reader(self, files: Files, shard: int) -> Reader:
        """Return the reader of a file's chosen records."""
        ...

    def all_read(self) -> None:
        """Called when a scan has delivered all chosen records."""


class ByNumber(Choice):
    """Records chosen by their numbers."""

    def __init__(
        self, numbers: Sequence[np.ndarray], skipped: Sequence[SkippedRegion] = ()
    ) -> None:
        self._numbers = numbers
        self._skipped = tuple(skipped)

    @property
    def skipped(self) -> Sequence[SkippedRegion]:
        return self._skipped

    @classmethod
    def of(cls, numbers: np.ndarray, firsts: np.ndarray) -> ByNumber:
        """Make a choice from ascending record numbers of the dataset and the number of each file's first record."""
        ends = np.searchsorted(numbers, firsts)
        pairs = zip(ends[:-1], ends[1:], firsts[:-1], strict=True)
        return cls([numbers[begin:end] - first for begin, end, first in pairs])

    def numbers(self, files: Files) -> Sequence[np.ndarray]:
        return self._numbers

    def reader(self, files: Files, shard: int) -> Reader:
        return ChosenReader(files.reader(shard), lambda: self._numbers[shard], files.options.damage)


class ByCondition(Choice):
    """Records chosen by a condition. A scan evaluates it as it reads. Access by number first needs a pass over the
    data."""

    def __init__(self, where: Where, schema: pa.Schema, reads: Sequence[str] | None = None) -> None:
        self._where = where
        self._schema = schema
        self._names = list(schema.names)
        self._reads = reads
        self._filter = filter_of(where, self._names, reads, schema)
        self._lock = Lock()
        self._found: list[np.ndarray] | None = None
        self._skipped: list[SkippedRegion] = []

    @property
    def columns(self) -> list[str] | None:
        """The columns on which the condition depends; None for all."""
        return self._filter.names

    @property
    def skipped(self) -> Sequence[SkippedRegion]:
        return self._skipped

    def __reduce__(self) -> Any:
        return ByCondition, (portable(self._where), self._schema, self._reads)

    def numbers(self, files: Files) -> Sequence[np.ndarray]:
        with self._lock:
            if self._found is None:
                self._found = self._evaluated(files)
            return self._found

    def _evaluated(self, files: Files) -> list[np.ndarray]:
        every = range(len(files.paths))
        answers = [self._answer(files, shard) for shard in every]
        found: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in every]
        for shard in every:
            if answers[shard]:
                found[shard].append(np.arange(files.reader(shard).num_records))
        read = [shard for shard in every if answers[shard] is None]
        self._skipped = []
        for shard, numbers, batch in numbered(files, self._filter.columns, read, self._skipped):
            found[shard].append(numbers[self._holds(files, shard, numbers, batch)])
        self._filter.warn()
        return [np.concatenate(parts) for parts in found]

    def _holds(
        self, files: Files, shard: int, numbers: np.ndarray, batch: pa.RecordBatch
    ) -> np.ndarray:
        path = files.paths[shard]
        if files.options.damage == "error":
            return holds_of_shard(self._filter, batch, path, lambda: numbers)

        def skip(row: int, reason: str) -> None:
            region = _region_of(files.reader(shard), path, int(numbers[row]), reason)
            self._skipped.append(region)

        return holds_where_readable(self._filter, batch, skip)

    def all_read(self) -> None:
        self._filter.warn()

    def _answer(self, files: Files, shard: int) -> bool | None:
        answer = files.answer(shard, self._filter)
        # If damage is skipped, even a file of which all records are chosen is read, to find those that can be read.
        return None if answer and files.options.damage != "error" else answer

    def reader(self, files: Files, shard: int) -> Reader:
        answer = self._answer(files, shard)
        if answer is not None:
            return files.reader(shard) if answer else NoRecords(files.schema)
        numbers = lambda: self.numbers(files)[shard]  # noqa: E731
        names = self._names
        return FilteredReader(
            files.reader(shard), numbers, files.options.damage, self._filter, names
        )


def _region_of(reader: Reader, path: str, record: int, reason: str) -> SkippedRegion:
    """The region of a record, as a scan that skips it describes it."""
    chunk, _ = next(iter(reader.pick(np.array([record]))))
    found = reader.readable(chunk)
    if found is not None:
        at = int(np.searchsorted(found.records + chunk.first_record, record))
        return SkippedRegion(path, int(found.starts[at]), int(found.ends[at]), 1, reason)
    place = reader.place(record) or (path, chunk.start_byte, chunk.end_byte)
    return SkippedRegion(*place, 1, f"record {record}: {reason}")


def readable(files: Files, skipped: Callable[[SkippedRegion], None]) -> ByNumber:
    """Choose the records that can be read, and call `skipped` with the regions that cannot. This reads all data."""
    regions: list[SkippedRegion] = []
    found: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in files.paths]
    for shard, numbers, _ in numbered(files, None, range(len(files.paths)), regions):
        found[shard].append(numbers)
    for region in regions:
        skipped(region)
    return ByNumber([np.concatenate(parts) for parts in found], regions)


class ChosenFiles(ViewFiles):
    """Files with only the chosen records."""

    @property
    def choice(self) -> Choice:
        return self.view

    def all_read(self) -> None:
        self.choice.all_read()
        super().all_read()

    def reader(self, shard: int) -> Reader:
        return self.choice.reader(self.base, shard)

    @property
    def firsts(self) -> np.ndarray:
        if self._firsts is None:
            found = super().firsts
            self.uncounted += self._skipped_to_choose()
            return found
        return self._firsts

    def _skipped_to_choose(self) -> list[SkippedRegion]:
        """The regions that were skipped to choose the records, here and in the view that this one is a view of."""
        base = self.base
        earlier = base._skipped_to_choose() if isinstance(base, ChosenFiles) else []
        return [*earlier, *self.choice.skipped]

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        return self.base.in_file(shard, self.choice.numbers(self.base)[shard][numbers])

    def check_fields(self, shard: int, batch: pa.RecordBatch, *, whole: bool) -> None:
        self.base.check_fields(shard, batch, whole=whole)

    def is_added(self, column: str) -> bool:
        return self.base.is_added(column)

    @property
    def choice_digest(self) -> str:
        digest = hashlib.blake2b(self.base.choice_digest.encode(), digest_size=16)
        for numbers in self.choice.numbers(self.base):
            digest.update(len(numbers).to_bytes(8, "little") + numbers.tobytes())
        return digest.hexdigest()


class Inner(NamedTuple):
    """`Chunk.data` of a chunk in a view: the chunk of the file, and which of its rows are in the view (None: all)."""

    chunk: Chunk[Any]
    rows: Selection


class ChosenReader(Reader):
    """Reads some records of a shard through the reader of the whole shard."""

    def __init__(self, base: Reader, numbers: Callable[[], np.ndarray], damage: str) -> None:
        self._base = base
        self._numbers = numbers
        self._damage = damage
        self.schema = base.schema

    @property
    def num_records(self) -> int:
        return len(self._numbers())

    @property
    def compression(self) -> str | None:
        return self._base.compression

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        return self._base.skipped_files

    def chunks(self) -> Iterator[Chunk[Any]]:
        self._settle_numbers()
        for chunk in self._base.chunks():
            yield from self._chosen(chunk)

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        return self.chunks() if self._damage == "error" else self._with_skipped()

    def _settle_numbers(self) -> None:
        """See `Reader.numbers`."""
        if self._damage != "error":
            _ = self._base.num_records

    def _with_skipped(self) -> Iterator[Stretch]:
        self._settle_numbers()
        for found in self._base.found_by(1):
            for stretch in found() if callable(found) else (found,):
                if isinstance(stretch, SkippedRegion):
                    yield stretch
                else:
                    yield from self._chosen(stretch)

    def _chosen(self, chunk: Chunk[Any]) -> Iterator[Chunk[Any]]:
        """Yield the chosen records of a chunk as a chunk, if there are any."""
        numbers, own = self._numbers(), self._base.numbers(chunk)
        kept = np.flatnonzero(own >= 0)
        if not len(kept):
            return
        first = own[kept[0]]
        begin, end = np.searchsorted(numbers, [first, first + len(kept)]).tolist()
        if begin < end:
            is_whole = end - begin == chunk.num_records
            inner = Inner(chunk, None if is_whole else kept[numbers[begin:end] - first])
            yield Chunk(begin, end - begin, chunk.start_byte, chunk.end_byte, inner)

    def parts(self, chunk: Chunk[Inner], columns: Projection) -> Iterator[Chunk[Any]]:
        for part in self._base.parts(chunk.data.chunk, columns):
            yield from self._chosen(part)

    def place(self, record: int) -> tuple[str, int, int] | None:
        return self._base.place(record)  # the number in the file, as in `record_numbers`

    def record_numbers(self, chunk: Chunk[Inner]) -> np.ndarray:
        inner, rows = chunk.data
        numbers = self._base.record_numbers(inner)
        return numbers if rows is None else numbers[rows]

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        for chunk, rows in self._base.pick(self._numbers()[records]):
            inner = Inner(chunk, None)
            count = chunk.num_records
            yield Chunk(-1, count, chunk.start_byte, chunk.end_byte, inner), rows

    def decode(
        self, chunk: Chunk[Inner], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        return self._base.decode(chunk.data.chunk, _rows(chunk, records), columns)

    def lent(self, chunk: Chunk[Inner], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._base.lent(chunk.data.chunk, _rows(chunk, records), columns)

    def delivered(self, chunk: Chunk[Inner], records: Selection, columns: Projection) -> Delivered:
        inner, rows = chunk.data
        if records is None and rows is not None and self._damage != "error":
            return self._around_damage(inner, rows, columns)
        found = self._base.delivered(inner, _rows(chunk, records), columns)
        if rows is None:
            return found
        if found.records is None or self._damage == "error":  # all of them could be read
            return Delivered(found.batch, records, found.skipped)
        return Delivered(found.batch, np.searchsorted(rows, found.records), found.skipped)

    def _around_damage(self, inner: Chunk[Any], rows: np.ndarray, columns: Projection) -> Delivered:
        """Read a whole chunk, because only then are its skipped regions reported, and choose from its good records."""
        try:
            found = self._base.delivered(inner, None, columns)
        except FormatError:  # perhaps of a record that is not chosen
            found = self._base.delivered(inner, rows, columns)
            return Delivered(found.batch, None, found.skipped)
        if found.records is None:
            return Delivered(reordered(found.batch, rows), None, found.skipped)
        if (found.records < 0).any():
            raise UnsupportedError(
                "records after the damage have no numbers, so which of them were chosen is unknown;"
                " repair the file first, or choose by a condition"
            )
        place = np.flatnonzero(np.isin(found.records, rows))
        numbers = np.searchsorted(rows, found.records[place])
        return Delivered(reordered(found.batch, place), numbers, found.skipped)

    def readable(self, chunk: Chunk[Inner]) -> Readable | None:
        inner, rows = chunk.data
        found = self._base.readable(inner)
        if found is None or rows is None:
            return found
        keep = np.isin(found.records, rows)
        numbers = np.searchsorted(rows, found.records[keep])
        return Readable(numbers, found.starts[keep], found.ends[keep], found.skipped)

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        return self._base.at_once(self._numbers()[records], columns)

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        return self._base.compares(None if chunk is None else chunk.data.chunk)

    def checks(self) -> Iterable[Callable[[], None]]:
        return self._base.checks()

    def options_alike(self) -> Any:
        return self._base.options_alike()

    def close(self) -> None:
        self._base.close()


def _rows(chunk: Chunk[Inner], records: Selection) -> Selection:
    """Return the rows of the file's chunk for some records of the view's chunk."""
    rows = chunk.data.rows
    if rows is None or records is None:
        return rows if records is None else records
    return rows[records]


class FilteredReader(ChosenReader):
    """Reads the records for which a condition is true. A scan needs no separate pass to find them."""

    def __init__(
        self,
        base: Reader,
        numbers: Callable[[], np.ndarray],
        damage: str,
        condition: Filter,
        names: Sequence[str],
    ) -> None:
        super().__init__(base, numbers, damage)
        self._condition = condition
        self._names = names

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        return self.found_for(None, threads)

    def found_for(
        self, columns: Projection, threads: int
    ) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        for found in self._base.found_for(self._wanted(columns), threads):
            if callable(found):
                yield lambda found=found: [one for each in found() for one in self._unread(each)]
            else:
                yield from self._unread(found)

    def _unread(self, stretch: Stretch) -> Iterator[Stretch]:
        """Yield a chunk whose records are still to be chosen, unless statistics exclude all of them."""
        if isinstance(stretch, SkippedRegion):
            yield stretch
        elif self._base.may_hold(stretch, self._condition.bounds):
            yield self._of(stretch)

    def _of(self, chunk: Chunk[Any]) -> Chunk[Any]:
        count, start, end = chunk.num_records, chunk.start_byte, chunk.end_byte
        return Chunk(chunk.first_record, count, start, end, _Unread(chunk))

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        if not isinstance(chunk.data, _Unread):
            yield from super().parts(chunk, columns)
            return
        for part in self._base.parts(chunk.data.chunk, self._wanted(columns)):
            yield self._of(part)

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        if isinstance(chunk.data, _Unread):
            return self._base.record_numbers(chunk.data.chunk)
        return super().record_numbers(chunk)

    def numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        if not isinstance(chunk.data, _Unread):
            return super().numbers(chunk)
        chosen, own = self._numbers(), self._base.numbers(chunk.data.chunk)
        places = np.searchsorted(chosen, own)
        is_in = places < len(chosen)
        is_in[is_in] = chosen[places[is_in]] == own[is_in]
        return np.where(is_in, places, -1)

    def readable(self, chunk: Chunk[Any]) -> Readable | None:
        if isinstance(chunk.data, _Unread):
            return self._base.readable(chunk.data.chunk)
        return super().readable(chunk)

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        if not isinstance(chunk.data, _Unread):
            return super().delivered(chunk, records, columns)
        found = self._base.delivered(chunk.data.chunk, records, self._wanted(columns))
        first = chunk.data.chunk.first_record
        numbers = partial(_numbers, first, found.records, found.batch.num_rows)
        rows = np.flatnonzero(holds_of_shard(self._condition, found.batch, None, numbers))
        numbers = rows if found.records is None else found.records[rows]
        batch = found.batch if columns is None else _selected(found.batch, columns)
        chosen = batch if len(rows) == batch.num_rows else reordered(batch, rows)
        return Delivered(chosen, numbers, found.skipped)

    def _wanted(self, columns: Projection) -> Projection:
        """Return the requested columns and those that the condition reads."""
        if columns is None:
            return None
        reads = self._names if self._condition.columns is None else self._condition.columns
        return list(dict.fromkeys([*columns, *reads]))


def _numbers(first: int, records: Selection, count: int) -> np.ndarray:
    """The numbers in the file of some records of a chunk, or of all `count`; -1 where there is none."""
    inside = np.arange(count) if records is None else records
    return np.where(inside < 0, -1, first + inside)


class _Unread(NamedTuple):
    """`Chunk.data` of a chunk on which the condition has not been evaluated yet."""

    chunk: Chunk[Any]


def _selected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    return batch.select(list(columns)) if columns else empty_columns(batch.num_rows)
