"""Reads the batches of an epoch in a given order, in the cheaper of two ways.

By records, each batch is one `take`. By chunks, a chunk is read completely when its first record is needed, and its
other records wait in memory, as in a shuffle buffer or a window of chunks. Reading by chunks reads each byte once, and
is chosen if the waiting records fit in memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock as ps


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """How to read the first positions of an epoch."""

    records: np.ndarray
    """The record at each position, int64[positions]."""
    batch_size: int
    by_chunks: bool
    waiting_records: int
    """The most records that wait at any time."""
    chunk_edges: np.ndarray
    """The first record of each chunk, and the end of the last: int64[chunks + 1]."""


def plan_of(
    records: np.ndarray, chunk_lengths: np.ndarray, batch_size: int, most_waiting: int
) -> ReadingPlan:
    """Choose how to read these records. They are read by records if more than `most_waiting`, or more than three
    quarters of all records, would wait, or if some are repeated. `records` has int64 record numbers in the order of
    reading. `chunk_lengths` are in file order."""
    edges = np.concatenate([[0], np.cumsum(chunk_lengths)])
    chunks = np.searchsorted(edges, records, "right") - 1
    first = np.full(len(chunk_lengths), -1, np.int64)
    first[chunks[::-1]] = np.arange(len(records))[::-1]
    steps = -(-len(records) // batch_size)
    read = np.zeros(steps, np.int64)
    used = first >= 0
    np.add.at(read, first[used] // batch_size, chunk_lengths[used])
    delivered_records = np.minimum(np.arange(1, steps + 1) * batch_size, len(records))
    waiting = int((np.cumsum(read) - delivered_records).max())
    repeats = len(np.unique(records)) < len(records)
    fits = waiting <= min(most_waiting, int(edges[-1]) * 3 // 4)
    return ReadingPlan(records, batch_size, fits and not repeats, waiting, edges)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The number of delivered records, and the time it took."""

    records: int
    read_records: int
    """The number of records read for them, with the other records of the same chunks."""
    seconds: float


def deliver(ds: ps.Dataset, plan: ReadingPlan, most_seconds: float, most_records: int) -> Delivered:
    """Read batches until the plan, the time or the number of records is used up."""
    begun = time.perf_counter()
    done = read = 0
    waiting: dict[int, _Waiting] = {}
    while done < min(len(plan.records), most_records):
        records = plan.records[done : done + plan.batch_size]
        if plan.by_chunks:
            read += _by_chunks(ds, plan, records, waiting)
        else:
            read += ds.take(records).num_rows
        done += len(records)
        if time.perf_counter() - begun > most_seconds:
            break
    return Delivered(done, read, time.perf_counter() - begun)


class _Waiting:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._rows = np.arange(len(batch))
        """The row in the batch for each record of the chunk."""
        self._is_waiting = np.ones(len(batch), bool)

    def pop(self, local: np.ndarray) -> pa.RecordBatch:
        """Remove and return these records of the chunk."""
        found = _some(self._batch, self._rows[local])
        self._is_waiting[local] = False
        left = np.flatnonzero(self._is_waiting)
        if len(left) and 2 * len(left) <= len(self._batch):
            # Copy the waiting half, so that the memory of the rest can be freed.
            self._batch = _some(self._batch, self._rows[left])
            self._rows[left] = np.arange(len(left))
        return found

    @property
    def is_empty(self) -> bool:
        return not self._is_waiting.any()


def _by_chunks(
    ds: ps.Dataset, plan: ReadingPlan, records: np.ndarray, waiting: dict[int, _Waiting]
) -> int:
    """Read one batch from chunks, and return the number of records read for it."""
    chunks = np.searchsorted(plan.chunk_edges, records, "right") - 1
    read = 0
    parts: list[pa.RecordBatch] = []
    for chunk in np.unique(chunks).tolist():
        first, last = int(plan.chunk_edges[chunk]), int(plan.chunk_edges[chunk + 1])
        if chunk not in waiting:
            waiting[chunk] = _Waiting(ds.take(np.arange(first, last)))
            read += last - first
        parts.append(waiting[chunk].pop(records[chunks == chunk] - first))
        if waiting[chunk].is_empty:
            del waiting[chunk]
    if len(parts) > 1:
        places = np.argsort(np.argsort(chunks, kind="stable"), kind="stable")
        _some(pa.concat_batches(parts), places)
    return read


def _some(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    if len(rows) and (np.diff(rows) == 1).all():
        return batch.slice(int(rows[0]), len(rows))
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        # pyarrow cannot take from view types.
        return pa.concat_batches([batch.slice(row, 1) for row in rows.tolist()])
