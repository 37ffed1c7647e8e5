"""Compares two datasets on the machines of a cluster (`on=`).

The records are cut into ranges, at the same numbers in both datasets, so that a task has the read tasks of a range on both
sides. The larger dataset is cut as `Dataset.tasks` cuts it. The results are yielded in the order of the records.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.datasets.dataset import Dataset
from penstock.datasets.tasks import ReadTask
from penstock.engine.cluster import Failed
from penstock.engine.pipeline import checked_threads, in_order
from penstock.errors import PenstockError
from penstock.verbs.diff._comparing import PartSeen, compare, pairs
from penstock.verbs.fields.payloads import Side, Values
from penstock.verbs.machines import TASK_BYTES, run_on

Result = TypeVar("Result")


class _Task(NamedTuple):
    first: int
    """The number of the first record."""
    reads: tuple[list[ReadTask], list[ReadTask]]
    """The same records of a and of b."""


def compared_on(on: Any, sides: tuple[Side, Side], threads: int | None) -> Generator[PartSeen]:
    """Compare the records on a cluster, and yield the differences in the order of the records."""
    tasks = list(_tasks(sides))
    function = partial(_compare, (sides[0].values, sides[1].values), threads)
    places = [(side.read.files.storage, side.read.files.read_paths) for side in sides]
    names = [" or ".join(read[0].paths[0] for read in task.reads if read) for task in tasks]
    yield from _ordered(run_on(on, function, tasks, *places), names)


def types_on(
    on: Any,
    threads: int | None,
    side: Side,
    names: Collection[str],
    known: Collection[str],
) -> Generator[dict[str, pa.DataType]]:
    """The types of fields in the payloads of a side, as they are found on a cluster, in order."""
    tasks = side.read.tasks(TASK_BYTES)
    function = partial(_types, side.values, names, known, threads)
    found = run_on(on, function, tasks, (side.read.files.storage, side.read.files.read_paths))
    for batches in _ordered(found, [task.paths[0] for task in tasks]):
        yield from batches


def _tasks(sides: tuple[Side, Side]) -> Iterator[_Task]:
    reads = sides[0].read, sides[1].read
    ranges = [range(first, end) for first, end in pairwise([0, *_ends(reads)])]
    of_a, of_b = (
        read.tasks_at_each([one[: max(count - one.start, 0)] for one in ranges])
        for read, count in zip(reads, map(len, reads), strict=True)
    )
    for one, a, b in zip(ranges, of_a, of_b, strict=True):
        yield _Task(one.start, (a, b))


def _ends(reads: Sequence[Dataset]) -> list[int]:
    """The ends of the ranges: those of the parts of the larger dataset, and of what the other has beyond it. A large part
    of the other, such as a compressed file, cannot be cut, so it is not read twice for the ranges inside."""
    larger, other = sorted(reads, key=lambda read: read.files.total_bytes, reverse=True)
    ends = _parts(larger)[0]
    more, sizes = _parts(other)
    for part in np.flatnonzero(sizes > 2 * TASK_BYTES).tolist():
        first, end = more[part - 1] if part else 0, more[part]
        ends = ends[(ends <= first) | (ends >= end)]
    beyond = more[more > len(larger)]
    return [end for end in np.unique(np.concatenate([ends, beyond])).tolist() if end]


def _parts(read: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the parts of a dataset, and their bytes."""
    tasks = read.tasks(TASK_BYTES)
    counts = [task.num_records for task in tasks if task.num_records is not None]
    if len(counts) == len(tasks):
        return np.cumsum(counts, dtype=np.int64), np.array([task.num_bytes for task in tasks])
    sizes = [read.files.num_bytes(shard) for shard in range(len(read.paths))]
    return read.files.firsts[1:], np.array(sizes)  # a condition chooses the records, for example


def _ordered(
    found: Generator[tuple[int, Result | Failed]], names: Sequence[str]
) -> Generator[Result]:
    """Yield the results of tasks in the order of the tasks, up to the first that failed, whose error is raised."""
    waiting: dict[int, Result | Failed] = {}
    at = 0
    with closing(found):
        for number, result in found:
            waiting[number] = result
            while at in waiting:
                ready = waiting.pop(at)
                if isinstance(ready, Failed):
                    if isinstance(ready.error, PenstockError):
                        ready.error.at(file=names[at])
                    raise ready.error
                yield ready
                at += 1


# -- on a worker ----------------------------------------------------------------------------------


def _compare(values: tuple[Values, Values], threads: int | None, task: _Task) -> PartSeen:
    streams = [_batches(read, of, threads) for read, of in zip(task.reads, values, strict=True)]
    found = partial(pairs, streams[0], streams[1], None, task.first)
    seen = PartSeen()
    threads = checked_threads(threads)
    try:
        with closing(in_order([found], partial(compare, values), lambda seen: 0, threads)) as done:
            for part in done:
                seen.add(part)
    finally:
        for stream in streams:
            stream.close()
    return seen


def _batches(
    reads: Sequence[ReadTask], values: Values, threads: int | None
) -> Generator[pa.RecordBatch]:
    for read in reads:
        yield from read.batches(values.read_columns, threads)


def _types(
    values: Values,
    names: Collection[str],
    known: Collection[str],
    threads: int | None,
    task: ReadTask,
) -> list[dict[str, pa.DataType]]:
    found: list[dict[str, pa.DataType]] = []
    so_far: dict[str, pa.DataType] = {}
    for batch in _batches([task], values, threads):
        types = values.types_in(batch, names, known)
        if not types.items() <= so_far.items():  # the others change nothing
            found.append(types)
            so_far |= types
    return found
