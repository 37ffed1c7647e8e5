"""Some records of a dataset as a stream: a range of them, or a range of a shuffled order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.dataset import Dataset
from penstock.format import Chunk
from penstock.pipeline import in_order
from penstock.take import take

BLOCK_BYTES = 64 << 20
"""Bytes of source files that one gather of shuffled records stands for."""
_MOST_RECORDS = 1 << 20


def batches_between(
    dataset: Dataset, first: int, last: int, columns: Sequence[str] | None, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """Records [first, last) in order. Chunks before them are not read."""
    firsts = dataset.firsts

    def tasks(shard: int) -> Iterator[tuple[int, Chunk, int, int]]:
        low, high = first - int(firsts[shard]), last - int(firsts[shard])
        for chunk in dataset.reader(shard).chunks():
            begin = max(low - chunk.first_record, 0)
            end = min(high - chunk.first_record, chunk.num_records)
            if begin < end:
                yield shard, chunk, begin, end
            elif chunk.first_record >= high:
                return

    def decode(task: tuple[int, Chunk, int, int]) -> Iterable[pa.RecordBatch]:
        shard, chunk, begin, end = task
        whole = begin == 0 and end == chunk.num_records
        chosen = None if whole else np.arange(begin, end)
        return [dataset.reader(shard).decode(chunk, chosen, columns)]

    wanted = [
        shard
        for shard in range(len(firsts) - 1)
        if int(firsts[shard]) < last and int(firsts[shard + 1]) > first
    ]
    yield from in_order([partial(tasks, shard) for shard in wanted], decode, _held_bytes, threads)


def shuffled_between(
    dataset: Dataset,
    order: np.ndarray,
    columns: Sequence[str] | None,
    threads: int | None,
    source_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The records that `order` names, in that order, gathered a block at a time."""
    record_bytes = max(1, source_bytes // max(1, len(dataset)))
    block = min(_MOST_RECORDS, max(1, BLOCK_BYTES // record_bytes))

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, len(order), block):
            yield order[start : start + block]

    def gather(numbers: np.ndarray) -> Iterable[pa.RecordBatch]:
        return [take(dataset, numbers, columns)]

    # One block ahead: a block is large, and its records are gathered by several threads anyway.
    yield from in_order([blocks], gather, _held_bytes, min(threads or 2, 2), BLOCK_BYTES)


def _held_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.get_total_buffer_size())
