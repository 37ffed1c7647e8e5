"""Reading everything, in order: chunks of all shards through threads, cut to the batches asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import FormatError, PenstockError, SchemaError, StaleIndexError
from penstock.format import Chunk, Reader, SkippedRegion
from penstock.pipeline import in_order

if TYPE_CHECKING:
    from penstock.dataset import Dataset

Task = tuple[int, Reader, Chunk]
Result = tuple[int, pa.RecordBatch | SkippedRegion]
"""A batch of a shard, or what is left of a shard where reading stops at its damage."""


def scan(
    dataset: Dataset, columns: Sequence[str] | None, batch_records: int | None, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """See Dataset.scan."""
    if batch_records is not None and batch_records < 1:
        raise ValueError(f"batch_records must be at least 1, not {batch_records}")
    batches = _chunk_batches(dataset, columns, threads)
    return batches if batch_records is None else rebatch(batches, batch_records)


def _chunk_batches(
    dataset: Dataset, columns: Sequence[str] | None, threads: int | None
) -> Iterator[pa.RecordBatch]:
    stopped: set[int] = set()

    def tasks(shard: int) -> Iterator[Task]:
        reader = dataset.reader(shard)
        for chunk in reader.chunks():
            if shard in stopped:
                return
            yield shard, reader, chunk

    streams = [partial(tasks, shard) for shard in range(len(dataset.paths))]
    decode = partial(_decode, dataset=dataset, columns=columns)
    for shard, result in in_order(streams, decode, _held_bytes, threads):
        if shard in stopped:
            continue
        if isinstance(result, SkippedRegion):
            stopped.add(shard)
            dataset.options.skipped(result)
        else:
            yield result


def _held_bytes(result: Result) -> int:
    batch = result[1]
    return 0 if isinstance(batch, SkippedRegion) else int(batch.get_total_buffer_size())


def _decode(task: Task, dataset: Dataset, columns: Sequence[str] | None) -> Iterator[Result]:
    """A chunk's records; those before a fault first, then the fault as `damage=` says."""
    shard, reader, chunk = task
    try:
        yield shard, reader.decode(chunk, None, columns)
        return
    except StaleIndexError:
        dataset.forget_index(shard)
        raise
    except (SchemaError, FormatError) as error:
        located = error
    try:
        for batch in _around(reader, chunk, columns, located, dataset):
            yield shard, batch
    except FormatError as error:
        if dataset.options.damage != "stop":
            raise
        start = chunk.start_byte if error.byte is None else error.byte
        end = max(dataset.num_bytes(shard), start)
        yield shard, SkippedRegion(error.file or "", start, end, None, error.message)


def _around(
    reader: Reader,
    chunk: Chunk,
    columns: Sequence[str] | None,
    error: PenstockError,
    dataset: Dataset,
) -> Iterator[pa.RecordBatch]:
    """What can be had of a chunk that has a fault."""
    damage = dataset.options.damage
    skipping = damage in ("skip", "salvage") and isinstance(error, FormatError)
    first = 0
    while True:
        if error.record is None:
            if not skipping:
                raise error
            _skip(dataset, chunk, error, chunk.num_records - first)
            return
        bad = error.record - chunk.first_record
        if bad > first:
            yield reader.decode(chunk, np.arange(first, bad), columns)
        if not skipping:
            raise error
        _skip(dataset, chunk, error, 1)
        first = bad + 1
        if first >= chunk.num_records:
            return
        try:
            yield reader.decode(chunk, np.arange(first, chunk.num_records), columns)
            return
        except FormatError as later:
            error = later


def _skip(dataset: Dataset, chunk: Chunk, error: PenstockError, num_records: int) -> None:
    start = chunk.start_byte if error.byte is None else error.byte
    region = SkippedRegion(error.file or "", start, chunk.end_byte, num_records, error.message)
    dataset.options.skipped(region)


def rebatch(batches: Iterator[pa.RecordBatch], batch_records: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches of exactly `batch_records`, but for the last."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        if count:
            at = min(batch_records - count, batch.num_rows)
            held.append(batch.slice(0, at))
            count += at
            if count < batch_records:
                continue
            yield join(held)
            held, count = [], 0
        rows = batch.num_rows
        while rows - at >= batch_records:
            yield batch.slice(at, batch_records)
            at += batch_records
        if at < rows:
            held, count = [batch.slice(at)], rows - at
    if held:
        yield join(held)


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    if not batches[0].num_columns:
        total = sum(batch.num_rows for batch in batches)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * total, pa.struct([])))
    return pa.concat_batches(batches)
