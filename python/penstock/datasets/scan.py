"""Reads all records in order. Threads decode the chunks of all shards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.columns.selection import Selection
from penstock.contract.around import Found, around, is_of_a_batch, joined, number_of, place_of
from penstock.contract.format import Chunk, Readable, Reader, SkippedRegion, Stretch
from penstock.datasets._opened import Opened
from penstock.engine.pipeline import checked_threads, in_order
from penstock.errors import (
    FormatError,
    PenstockError,
    SchemaError,
    StaleIndexError,
    UnsupportedError,
    command,
)
from penstock.tuned import BUDGET_BYTES

Task = tuple[int, Reader, Stretch | Callable[[], Sequence[Stretch]]]
"""A stretch of a shard (a chunk or a skipped region), or a function that finds the next stretches."""
Part = tuple[int, Reader, Chunk[Any]]
"""A chunk, or a part of a chunk that is too large for one batch."""


class Read(NamedTuple):
    """Records that were read."""

    batch: pa.RecordBatch
    numbers: np.ndarray | None
    """Their numbers in the shard (`Reader.numbers`), if the caller asked for them."""


Result = tuple[int, Read | SkippedRegion | list[Part]]
"""The number of a shard, and records, a skipped region, or parts that remain to be decoded."""
Failed = tuple[int, Exception]
"""The number of a shard, and an error, which is raised only if reading gets that far."""
T = TypeVar("T")
_SKIP_HINT = 'open(..., damage="skip") leaves such records out'


def scan(
    dataset: Opened, columns: Sequence[str] | None, batch_records: int | None, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """See Dataset.scan."""
    batches = _chunk_batches(dataset, columns, threads, is_cautious=False)
    return batches if batch_records is None else rebatch(batches, batch_records)


def cautious_scan(dataset: Opened, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield all records, for a caller that may stop after a few. What is read ahead grows with what was taken."""
    return _chunk_batches(dataset, columns, None, is_cautious=True)


def _chunk_batches(
    dataset: Opened, columns: Sequence[str] | None, threads: int | None, *, is_cautious: bool
) -> Iterator[pa.RecordBatch]:
    reading = _Scan(dataset, columns, threads, dataset.add_skipped, is_cautious=is_cautious)
    for _, read in reading.batches(range(len(dataset.paths))):
        yield read.batch
    dataset.files.all_read()


def shard_batches(
    dataset: Opened,
    columns: Sequence[str] | None,
    threads: int | None,
    shards: Sequence[int] | None = None,
    skipped: Callable[[SkippedRegion], None] | None = None,
    *,
    is_cautious: bool = False,
) -> Generator[tuple[int, pa.RecordBatch]]:
    """Yield all records of some shards (None: of all), as batches with the number of their shard. `skipped` is called
    with each skipped region when the scan reaches it; by default, the dataset lists the region. `is_cautious`: see
    `cautious_scan`."""
    every = range(len(dataset.paths))
    add = skipped or dataset.add_skipped
    reading = _Scan(dataset, columns, threads, add, is_cautious=is_cautious)
    with closing(reading.batches(every if shards is None else shards)) as found:
        for shard, read in found:
            yield shard, read.batch


def numbered_batches(
    dataset: Opened,
    columns: Sequence[str] | None,
    skipped: Callable[[SkippedRegion], None],
    shards: Sequence[int] | None = None,
    threads: int | None = None,
) -> Iterator[tuple[int, np.ndarray, pa.RecordBatch]]:
    """Like `shard_batches`, with the number of each record in its shard, by which `take` finds it, int64.

    Raises:
        UnsupportedError: a readable record has no number, because damage hides how many records come before it.
    """
    every = range(len(dataset.paths)) if shards is None else shards
    for shard in every:
        _ = dataset.files.reader(
            shard
        ).num_records  # builds the index, which determines the numbers
    reading = _Scan(dataset, columns, threads, skipped, is_numbered=True)
    for shard, (batch, numbers) in reading.batches(every):
        assert numbers is not None, "they were asked for"
        if (numbers < 0).any():
            raise UnsupportedError(
                "records after the damage have no numbers, so they cannot be chosen",
                file=dataset.paths[shard],
                hint=command("penstock", "repair", dataset.paths[shard], "--into", "NEW"),
            )
        yield shard, numbers, batch


def lost_with(
    dataset: Opened, shard: int, number: int, columns: Sequence[str] | None
) -> tuple[np.ndarray, list[SkippedRegion]]:
    """The records of a chunk that a scan skips, by their numbers in the shard, and the regions that it reports, for the
    chunk that has the record `number`."""
    reader = dataset.files.reader(shard)
    for chunk in reader.chunks():
        numbers = reader.numbers(chunk)
        if (numbers == number).any():
            reading = _Scan(dataset, columns, 1, dataset.add_skipped, is_numbered=True)
            return reading.lost((shard, reader, chunk), numbers)
    return np.arange(0), []


class _Scan:
    def __init__(
        self,
        dataset: Opened,
        columns: Sequence[str] | None,
        threads: int | None,
        skipped: Callable[[SkippedRegion], None],
        *,
        is_cautious: bool = False,
        is_numbered: bool = False,
    ) -> None:
        self._dataset = dataset
        self._columns = columns
        self._is_cautious = is_cautious
        self._is_numbered = is_numbered
        self._taken_bytes = 0
        self._skipped = skipped
        self._threads = checked_threads(threads)
        self._stopped: set[int] = set()

    def batches(self, shards: Sequence[int]) -> Generator[tuple[int, Read]]:
        options = self._dataset.options
        for shard, result in self._counted(shards):
            if shard in self._stopped:
                continue
            if isinstance(result, Exception):
                try:
                    raise result
                finally:
                    del result  # otherwise its traceback keeps the files open
            if isinstance(result, SkippedRegion):
                if options.damage == "stop":
                    self._stopped.add(shard)
                self._skipped(result)
            else:
                yield shard, result

    def _counted(
        self, shards: Sequence[int]
    ) -> Iterator[tuple[int, Read | SkippedRegion | Exception]]:
        """The results of these shards. When all of a shard were taken, its records are compared with what is known."""
        at = count = 0
        files = self._dataset.files
        for shard, result in self._results(shards):
            while shards[at] != shard:
                files.check_scanned(shards[at], count)
                at, count = at + 1, 0
            yield shard, result
            count += result.batch.num_rows if isinstance(result, Read) else 0
        for shard in shards[at:]:
            files.check_scanned(shard, count)
            count = 0

    def _results(
        self, shards: Sequence[int]
    ) -> Iterator[tuple[int, Read | SkippedRegion | Exception]]:
        streams = [lambda shard=shard: _late(shard, self._tasks(shard)) for shard in shards]
        threads = self._threads
        # Of storage with slow access, what is on its way takes memory, too.
        is_slow = self._dataset.files.storage.reads_at_once is not None
        most = BUDGET_BYTES // 2 if is_slow else BUDGET_BYTES
        budget = self._budget if self._is_cautious else most
        found = in_order(streams, self._done, _held_bytes, threads, budget)
        for shard, result in found:
            if not isinstance(result, list):
                yield shard, result
                self._taken_bytes += _held_bytes((shard, result))
            elif shard not in self._stopped:
                # Decoded here, so that the parts of a chunk are never all in memory.
                parts = partial(iter, result)
                for _, done in in_order([parts], self._done_part, _held_bytes, threads, budget):
                    assert not isinstance(done, list), "parts are not divided again"
                    yield shard, done
                    self._taken_bytes += _held_bytes((shard, done))

    def lost(self, part: Part, numbers: np.ndarray) -> tuple[np.ndarray, list[SkippedRegion]]:
        """The numbers of a chunk's records that cannot be read, and the regions that are skipped."""
        regions: list[SkippedRegion] = []
        waiting = [iter(self._decode(part))]
        while waiting:
            for _, result in waiting.pop():
                if isinstance(result, SkippedRegion):
                    regions.append(result)
                elif isinstance(result, list):
                    waiting += [self._decode_part(one) for one in reversed(result)]
                elif result.numbers is not None:
                    numbers = np.setdiff1d(numbers, result.numbers)
        return numbers, regions

    def _budget(self) -> float:
        """The bytes that a cautious scan may read ahead: none before the consumer asks for the second batch, then twice
        what was taken."""
        return min(2 * self._taken_bytes, BUDGET_BYTES) if self._taken_bytes else -inf

    def _tasks(self, shard: int) -> Iterator[Task]:
        files = self._dataset.files
        whole = self._columns is None
        if self._is_cautious:
            reader = files.reader(shard)
        else:
            files.begin_scan(shard, whole=whole)
            reader = files.scanned(shard, whole=whole)
        found = reader.found_for(self._columns, self._threads)
        while shard not in self._stopped and (stretch := next(found, None)) is not None:
            yield shard, reader, stretch

    def _done(self, task: Task | Failed) -> Iterator[Result | Failed]:
        return iter((task,)) if len(task) == 2 else _late(task[0], self._decode(task))

    def _done_part(self, part: Part) -> Iterator[Result | Failed]:
        return _late(part[0], self._decode_part(part))

    def _decode(self, task: Task) -> Iterator[Result]:
        """Yield the records of a stretch, or the parts of a large chunk, which remain to be decoded."""
        shard, reader, found = task
        for stretch in found() if callable(found) else (found,):
            if isinstance(stretch, SkippedRegion):
                yield shard, stretch
                continue
            parts = self._parts(reader, stretch)
            if len(parts) == 1:
                yield from self._decode_part((shard, reader, parts[0]))
            else:
                yield shard, [(shard, reader, part) for part in parts]

    def _parts(self, reader: Reader, chunk: Chunk[Any]) -> list[Chunk[Any]]:
        try:
            return list(reader.parts(chunk, self._columns))
        except (SchemaError, FormatError):
            return [chunk]  # decoding raises the same error, which is handled there

    def _decode_part(self, part: Part) -> Iterator[Result]:
        """Yield the records of a chunk, and handle faults as `damage=` requires."""
        shard, reader, chunk = part
        dataset = self._dataset
        files = dataset.files
        try:
            if files.options.mmap:
                files.check_read(shard, chunk)  # pages of a truncated file must not be accessed
            batch, rows, skipped = reader.delivered(chunk, None, self._columns)
            files.check_read(shard, chunk)
        except StaleIndexError:
            files.forget_index(shard)
            raise
        except (SchemaError, FormatError) as error:
            files.check_read(shard, chunk)  # if the file was changed, that is the better error
            fault = error.at(file=files.paths[shard])
        else:
            files.check_fields(shard, batch, whole=self._columns is None)
            yield shard, self._read(reader, chunk, batch, rows)
            for region in _in_order(dict.fromkeys(skipped)):
                yield shard, region
            return
        try:
            yield from self._around(part, fault)
        finally:
            del fault  # otherwise its traceback keeps the files open

    def _read(
        self, reader: Reader, chunk: Chunk[Any], batch: pa.RecordBatch, rows: Selection
    ) -> Read:
        if not self._is_numbered:
            return Read(batch, None)
        numbers = reader.numbers(chunk)
        return Read(batch, numbers if rows is None else np.where(rows < 0, -1, numbers[rows]))

    def _around(self, part: Part, fault: PenstockError) -> Iterator[Result]:
        """Yield the good records of a chunk with a fault and the skipped regions, or raise the fault."""
        shard, reader, chunk = part
        around = _Around(self._dataset, shard, reader, chunk, self._columns)
        try:
            for batch in around.batches(fault):
                yield shard, self._read(reader, chunk, batch, around.rows)
        except (SchemaError, FormatError) as error:
            for region in around.skipped():
                yield shard, region
            if self._dataset.options.damage != "stop" or isinstance(error, SchemaError):
                raise
            start = chunk.start_byte if error.byte is None else error.byte
            end = max(self._dataset.files.num_bytes(shard), start)
            yield shard, SkippedRegion(error.file or "", start, end, None, error.message)
            return
        finally:
            del fault
        for region in around.skipped():
            yield shard, region


def _late(shard: int, items: Iterator[T]) -> Iterator[T | Failed]:
    """Yield the items, and, as the last item, the error that ends them."""
    try:
        yield from items
    except Exception as error:  # noqa: BLE001  raised later, in order
        yield shard, error


def _held_bytes(result: tuple[int, Read | SkippedRegion | list[Part] | Exception]) -> int:
    held = result[1]
    if isinstance(held, list):
        return sum(chunk.end_byte - chunk.start_byte for _, _, chunk in held)
    # At least 1, so that a cautious scan counts empty batches, too.
    return int(held.batch.get_total_buffer_size()) or 1 if isinstance(held, Read) else 0


def _in_order(regions: Iterable[SkippedRegion]) -> list[SkippedRegion]:
    return sorted(regions, key=lambda region: region.start_byte)


class _Around:
    """Reads the good records of a chunk with a fault, and collects the regions that cannot be read."""

    def __init__(
        self,
        dataset: Opened,
        shard: int,
        reader: Reader,
        chunk: Chunk[Any],
        columns: Sequence[str] | None,
    ) -> None:
        self._path = dataset.files.paths[shard]
        self._regions: list[SkippedRegion] = []
        self._undecoded: list[SkippedRegion] = []
        self._dataset = dataset
        self._reader = reader
        self._chunk = chunk
        self._columns = columns
        self._skipping = dataset.options.damage == "skip"
        self._numbers = np.arange(0)
        self.rows: Selection = None
        """The rows of the chunk that the latest batch has."""
        self._readable: Readable | None = None

    def batches(self, error: PenstockError) -> Iterator[pa.RecordBatch]:
        """Yield all good records, or, if damage is not skipped, those before the first fault, and raise it."""
        found: Iterator[Found] = iter(())
        part: Any = None
        try:
            self._readable = self._reader.readable(self._chunk) if self._skipping else None
            if self._readable is not None:
                # Records with damaged headers are already known to be damaged, and are not requested.
                self._numbers = self._readable.records
                self._regions += self._readable.skipped
            elif number_of(error) is None and not is_of_a_batch(error):
                # The position of the fault is unknown, and the record count may be wrong.
                self._skip_or_raise(error, None, self._chunk.num_records)
                return
            else:
                self._numbers = np.arange(self._chunk.num_records)
            found = around(self._read, self._place_of, 0, len(self._numbers), error)
            found = joined(found) if self._skipping else found
            for first, end, part in found:
                if isinstance(part, pa.RecordBatch):
                    yield part
                else:
                    bad = first if end == first + 1 else None
                    self._skip_or_raise(part, bad, end - first)
        finally:
            del error, found, part  # otherwise a traceback keeps the files open

    def skipped(self) -> list[SkippedRegion]:
        """The skipped regions in file order. The reader reports the same region at each read, so these are made unique;
        records that could not be decoded are not, because two of them may look the same."""
        return _in_order([*dict.fromkeys(self._regions), *self._undecoded])

    def _read(self, first: int, end: int) -> pa.RecordBatch:
        numbers = self._numbers[first:end]
        found = self._reader.delivered(self._chunk, numbers, self._columns)
        self._regions += found.skipped
        self.rows = found.records
        return found.batch

    def _place_of(self, error: PenstockError) -> int | None:
        """The index, among the requested numbers, of the record with an error, or None."""
        number = number_of(error)
        if number is None:
            return None
        record = place_of(self._reader, self._chunk, number)
        place = int(np.searchsorted(self._numbers, record))
        is_one = place < len(self._numbers) and self._numbers[place] == record
        return place if is_one else None

    def _skip_or_raise(self, error: PenstockError, bad: int | None, num_records: int) -> None:
        chunk = self._chunk
        error.at(file=self._path)
        if not (self._skipping and isinstance(error, FormatError)):
            if isinstance(error, FormatError) and error.record is not None:
                error.at(hint=_SKIP_HINT)
            try:
                raise error
            finally:
                del error  # otherwise its traceback keeps the files open
        start = chunk.start_byte if error.byte is None else error.byte
        end, reason = chunk.end_byte, error.message
        if bad is not None and self._readable is not None:
            start, end = int(self._readable.starts[bad]), int(self._readable.ends[bad])
        elif bad is not None:
            record = int(self._reader.record_numbers(chunk)[self._numbers[bad]])
            _, start, end = self._reader.place(record) or ("", start, end)
            reason = f"record {record}: {reason}"
        region = SkippedRegion(error.file or "", start, end, num_records, reason)
        self._undecoded.append(region)


def rebatch(batches: Iterator[pa.RecordBatch], batch_records: int) -> Iterator[pa.RecordBatch]:
    """Yield the same records in batches of `batch_records` records, except for the last batch."""
    held: list[pa.RecordBatch] = []
    count = 0
    try:
        for batch in batches:
            at = 0
            if count:
                at = min(batch_records - count, batch.num_rows)
                held.append(batch.slice(0, at))
                count += at
                if count < batch_records:
                    continue
                full, held, count = held, [], 0
                yield join(full)
            rows = batch.num_rows
            while rows - at >= batch_records:
                yield batch.slice(at, batch_records)
                at += batch_records
            if at < rows:
                held, count = [batch.slice(at)], rows - at
    except Exception:
        # The records before an error are yielded before it is raised.
        if held:
            yield join(held)
        raise
    if held:
        yield join(held)
