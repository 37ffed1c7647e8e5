"""Streams of some records of a dataset: a range of records, or a range of a shuffled order.

If damage is skipped, the number of a record is known only after all earlier records have been read. Such a dataset is
scanned, and its records are counted as they are delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.contract.format import Chunk, SkippedRegion
from penstock.datasets.dataset import Dataset
from penstock.datasets.scan import shard_batches
from penstock.datasets.take import reordered, take
from penstock.engine.pipeline import checked_threads, in_order
from penstock.errors import ChangedError, FormatError, SchemaError, shown
from penstock.tuned import BUDGET_BYTES, LARGE_CHUNK_BYTES, SHUFFLE_BLOCK_BYTES

_MOST_RECORDS = 1 << 20
_PIECE_RECORDS = 1 << 16
"""Records that one thread takes out of a block at a time."""

_Fault = FormatError | SchemaError
"""The error of a record that is left out."""


class Change(Protocol):
    """Changes a batch, and leaves out records. `tell` is called with the row and the error of each."""

    def __call__(
        self, batch: pa.RecordBatch, *, tell: Callable[[int, _Fault], None]
    ) -> pa.RecordBatch: ...


def batches_between(
    dataset: Dataset,
    first: int,
    last: int,
    columns: Sequence[str] | None,
    threads: int | None,
    *,
    lend: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield records [first, last) in order, without reading earlier chunks. With `lend`, byte strings are views into
    the bytes that were read, if the reader can return views."""
    firsts = dataset.files.firsts

    def tasks(shard: int) -> Iterator[tuple[int, Chunk[Any], int, int]]:
        low, high = first - int(firsts[shard]), last - int(firsts[shard])
        for chunk in dataset.files.reader(shard).chunks():
            begin = max(low - chunk.first_record, 0)
            end = min(high - chunk.first_record, chunk.num_records)
            if begin < end:
                yield shard, chunk, begin, end
            elif chunk.first_record >= high:
                return

    def run(task: tuple[int, Chunk[Any], int, int]) -> Iterable[pa.RecordBatch]:
        shard, chunk, begin, end = task
        whole = begin == 0 and end == chunk.num_records
        chosen = None if whole else np.arange(begin, end)
        reader = dataset.files.reader(shard)
        decode = reader.lent if lend else reader.decode
        batch = decode(chunk, chosen, columns)
        dataset.files.check_read(shard, chunk)
        return [batch]

    wanted = [
        shard
        for shard in range(len(firsts) - 1)
        if int(firsts[shard]) < last and int(firsts[shard + 1]) > first
    ]
    threads = checked_threads(threads)
    # Views keep the read buffers in memory until they are written. Reading further ahead would need new memory each
    # time, which costs more than waiting.
    ahead = min((threads + 2) * LARGE_CHUNK_BYTES, BUDGET_BYTES) if lend else BUDGET_BYTES
    streams = [partial(tasks, shard) for shard in wanted]
    # The writer has its own threads, so the caller's thread can read, too.
    yield from in_order(streams, run, _held_bytes, threads, ahead)


class Delivered:
    """The records that a scan of a damaged dataset delivers, numbered in that order. Consecutive ranges are read in
    one pass. Only one thread may use an instance."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None,
        threads: int | None,
        change: Change | None = None,
    ) -> None:
        """`change` changes the batches, and leaves out records whose pictures are damaged."""
        self._dataset = dataset
        self._change = change
        self._columns = columns
        self._threads = threads
        self._batches: Iterator[tuple[int, pa.RecordBatch]] = iter(())
        self._left: pa.RecordBatch | None = None
        self._at = -1
        counts = [0] * len(dataset.paths)
        bad: list[tuple[int, int, _Fault]] = []
        read = [0] * len(dataset.paths)
        damaged: set[str] = set()

        def skipped(region: SkippedRegion) -> None:
            damaged.add(shown(region.file))
            dataset.add_skipped(region)

        for shard, before in shard_batches(dataset, columns, threads, None, skipped):

            def tell(row: int, error: _Fault, shard: int = shard) -> None:
                bad.append((shard, read[shard] + row, error))

            batch = before if change is None else change(before, tell=tell)
            counts[shard] += batch.num_rows
            read[shard] += before.num_rows
        for shard, number, error in sorted(bad, key=lambda one: one[:2]):
            # With other damage, the number in the file is not known.
            is_known = shown(dataset.paths[shard]) not in damaged
            dataset.add_skipped(region_of(dataset, shard, number, error, is_known=is_known))
        self.firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def between(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if first >= last:
            return
        if first != self._at:
            shard = int(np.searchsorted(self.firsts, first, "right")) - 1
            rest = range(shard, len(self._dataset.paths))
            self._batches = self._changed(rest)
            self._left, self._at = None, int(self.firsts[shard])
        while self._at < last:
            batch = next(self._batches, (0, None))[1] if self._left is None else self._left
            if batch is None:
                raise ChangedError("the dataset has fewer records now than when they were counted")
            begin = max(first - self._at, 0)
            end = min(last - self._at, batch.num_rows)
            self._left = batch.slice(end) if end < batch.num_rows else None
            self._at += end
            if begin < end:
                yield batch.slice(begin, end - begin)

    def _changed(self, shards: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for shard, batch in shard_batches(self._dataset, self._columns, self._threads, shards):
            # The records that are left out were listed when they were counted.
            yield shard, batch if self._change is None else self._change(batch, tell=_known)


def _known(row: int, error: _Fault) -> None:
    del row, error


def region_of(
    dataset: Dataset, shard: int, number: int, error: _Fault, *, is_known: bool = True
) -> SkippedRegion:
    """The region of a record that is left out because of an error in a value. `number` is its number in the shard. If
    it is not known, it is its number among the records that were read."""
    files = dataset.files
    path, reason = files.paths[shard], f"field {error.field!r}: {error.message}"
    if not is_known:
        reason = f"record {number}: {reason} (counted without other damage)"
        return SkippedRegion(shown(path), 0, files.num_bytes(shard), 1, reason)
    record = int(files.in_file(shard, np.array([number]))[0])
    place = files.reader(shard).place(record)
    file, start, end = place or (path, 0, files.num_bytes(shard))
    return SkippedRegion(shown(file), start, end, 1, f"record {record}: {reason}")


class Consecutive:
    """Ranges of an order of records. A range that begins where the last one ended continues its pass over the source, so
    that many short ranges do not read a Parquet file once each. Only one thread may use an instance."""

    def __init__(
        self, dataset: Dataset, order: np.ndarray, columns: Sequence[str], threads: int | None
    ) -> None:
        self._dataset = dataset
        self._order = order
        self._columns = columns
        self._threads = threads
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None
        self._at: tuple[int, bool] | None = None
        # The dictionary of a longer batch has values that only other ranges use, and would be written with all of them.
        self._continues = not any(
            pa.types.is_dictionary(dataset.schema.field(name).type) for name in columns
        )

    def between(self, first: int, last: int, *, lend: bool) -> Iterator[pa.RecordBatch]:
        """Yield records [first, last) of the order. For `lend`, see `batches_between`."""
        if first < last and not (self._continues and self._at == (first, lend)):
            end = None if self._continues else last
            self._batches, self._left = self._begun(self._order[first:end], lend=lend), None
        while first < last:
            self._at = None  # unless all that is read here is taken
            batch = next(self._batches) if self._left is None else self._left
            end = min(last - first, batch.num_rows)
            self._left = batch.slice(end) if end < batch.num_rows else None
            first += end
            self._at = first, lend
            yield batch.slice(0, end)

    def _begun(self, order: np.ndarray, *, lend: bool) -> Iterator[pa.RecordBatch]:
        dataset, size = self._dataset, self._dataset.files.total_bytes
        yield from shuffled_between(dataset, order, self._columns, self._threads, size, lend=lend)


def shuffled_between(
    dataset: Dataset,
    order: np.ndarray,
    columns: Sequence[str] | None,
    threads: int | None,
    source_bytes: int,
    *,
    lend: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with the numbers in `order`, in that order, gathered block by block. For `lend`, see
    `batches_between`."""

    def gather(numbers: np.ndarray) -> Iterable[pa.RecordBatch]:
        first, end = int(numbers.min()), int(numbers.max()) + 1
        if lend or end - first > 2 * len(numbers):
            return [take(dataset, numbers, columns, lend=lend)]
        # Reading all in order and choosing from it is faster than reading most of it by number.
        whole = join(list(batches_between(dataset, first, end, columns, threads)))
        pieces = [
            numbers[at : at + _PIECE_RECORDS] for at in range(0, len(numbers), _PIECE_RECORDS)
        ]
        pick = lambda piece: [reordered(whole, piece - first)]  # noqa: E731
        return in_order([lambda: iter(pieces)], pick, _held_bytes, threads)

    # Read one block ahead only: a block is large, and several threads gather its records anyway.
    blocks = partial(blocks_of, dataset, order, source_bytes)
    yield from in_order([blocks], gather, _held_bytes, min(threads or 2, 2), SHUFFLE_BLOCK_BYTES)


def blocks_of(dataset: Dataset, order: np.ndarray, source_bytes: int) -> Iterator[np.ndarray]:
    """Divide an order into blocks whose records are gathered together."""
    record_bytes = max(1, source_bytes // max(1, len(dataset)))
    block = min(_MOST_RECORDS, max(1, SHUFFLE_BLOCK_BYTES // record_bytes))
    for start in range(0, len(order), block):
        yield order[start : start + block]


def _held_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.get_total_buffer_size())
