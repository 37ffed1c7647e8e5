"""Batches in some order, read the cheaper of two ways, which follows from the order alone.

By records: each batch is one `take`. By chunks: a chunk is read whole when its first record is
wanted and kept until its last has gone out, which is how a bounded window is read. The second reads
each byte once and needs memory for the chunks that are open; it is chosen where that fits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock as ps


@dataclass(frozen=True, slots=True)
class Plan:
    """How the positions of an epoch's beginning are delivered. `records` is int64[positions]."""

    records: np.ndarray
    batch_size: int
    by_chunks: bool
    window_records: int
    """Records of the chunks that are open together, at most."""
    chunk_edges: np.ndarray
    """Where chunks begin, and the end of the last: int64[chunks + 1]."""
    last_uses: np.ndarray
    """The last position at which a chunk has a record, -1 for none: int64[chunks]."""


def plan_of(
    records: np.ndarray, chunk_lengths: np.ndarray, batch_size: int, most_window: int
) -> Plan:
    """How to deliver these records.

    Args:
        records: numbers in the order wanted, int64.
        chunk_lengths: records of each chunk, in the order of the files.
        batch_size: records of a batch.
        most_window: records that may be in memory for chunks that are open.

    Returns:
        The Plan.
    """
    edges = np.concatenate([[0], np.cumsum(chunk_lengths)])
    chunks = np.searchsorted(edges, records, "right") - 1
    count = len(chunk_lengths)
    last = np.full(count, -1, np.int64)
    last[chunks] = np.arange(len(records))  # of several, the last one stays
    first = np.full(count, len(records), np.int64)
    first[chunks[::-1]] = np.arange(len(records))[::-1]
    used = last >= 0
    # A chunk stays open from the batch of its first record to that of its last.
    steps = len(records) // batch_size + 2
    change = np.zeros(steps, np.int64)
    np.add.at(change, first[used] // batch_size, chunk_lengths[used])
    np.add.at(change, last[used] // batch_size + 1, -chunk_lengths[used])
    window = int(np.cumsum(change).max())
    return Plan(records, batch_size, window <= most_window, window, edges, last)


@dataclass(frozen=True, slots=True)
class Delivered:
    """How far a delivery got, and how long it took."""

    records: int
    read_records: int
    """Records of what was read: whole chunks, or what was taken."""
    seconds: float


def deliver(ds: ps.Dataset, plan: Plan, most_seconds: float, most_records: int) -> Delivered:
    """Make batches until the plan, the time or the number of records is used up."""
    begun = time.perf_counter()
    done = read = 0
    open_chunks: dict[int, pa.RecordBatch] = {}
    while done < min(len(plan.records), most_records):
        records = plan.records[done : done + plan.batch_size]
        if plan.by_chunks:
            read += _by_chunks(ds, plan, records, done, open_chunks)
        else:
            read += ds.take(records).num_rows
        done += len(records)
        if time.perf_counter() - begun > most_seconds:
            break
    return Delivered(done, read, time.perf_counter() - begun)


def _by_chunks(
    ds: ps.Dataset, plan: Plan, records: np.ndarray, done: int, held: dict[int, pa.RecordBatch]
) -> int:
    """One batch out of chunks that are open; how many records were read for it."""
    chunks = np.searchsorted(plan.chunk_edges, records, "right") - 1
    read = 0
    parts: list[pa.RecordBatch] = []
    wanted = np.unique(chunks)
    for chunk in wanted.tolist():
        first, last = int(plan.chunk_edges[chunk]), int(plan.chunk_edges[chunk + 1])
        if chunk not in held:
            held[chunk] = ds.take(np.arange(first, last))
            read += last - first
        local = records[chunks == chunk] - first
        if len(local) == last - first and (np.diff(local) == 1).all():
            parts.append(held[chunk])
        else:
            parts.append(_some(held[chunk], local))
        if plan.last_uses[chunk] < done + len(records):
            del held[chunk]
    if len(parts) > 1:
        joined = pa.concat_batches(parts)
        place = np.argsort(np.argsort(chunks, kind="stable"), kind="stable")
        joined = _some(joined, place)
    return read


def _some(batch: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    if len(numbers) and (np.diff(numbers) == 1).all():
        return batch.slice(int(numbers[0]), len(numbers))
    return batch.take(pa.array(numbers))
