"""Threads for everything that decodes chunk after chunk: in order, within a budget of memory.

Each stream (a shard) hands out its tasks one at a time, since finding the next chunk may mean
reading or inflating; the tasks themselves run side by side. A thread that finds the first stream
busy helps with the next one, and stays with it, so that files which cannot be cut, such as other
people's GZIP, are still read in parallel. Results come out in the order of streams and tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from penstock.engine.threads import Caller, Work
from penstock.limits import checked_count

Task = TypeVar("Task")
Result = TypeVar("Result")

BUDGET_BYTES = 64 << 20
"""Decoded bytes that may wait for the consumer."""
_TASK_SECONDS = 0.004
"""What a task of small jobs should last."""


def default_threads() -> int:
    """As many threads as this process has cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_threads(threads: int | None) -> int:
    """What a user gave for `threads`, where None is one a core.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is less than 1.
    """
    return default_threads() if threads is None else checked_count("threads", threads, 1)


def in_order(
    streams: Sequence[Callable[[], Iterator[Task]]],
    run: Callable[[Task], Iterable[Result]],
    size: Callable[[Result], int],
    threads: int | None,
    budget_bytes: int | Callable[[], int] = BUDGET_BYTES,
    *,
    ahead: bool = False,
    need: Callable[[], int | None] | None = None,
    counts_taken: bool = False,
    at_once: Callable[[], int] | None = None,
    helps_within: float | None = None,
) -> Generator[Result]:
    """Run all tasks of all streams, and yield their results in order.

    Args:
        streams: each opens an iterator of tasks; opened late, used by one thread at a time.
        run: does a task; the results of one task are yielded one after another.
        size: bytes that a waiting result holds.
        threads: how many tasks may run at once; 1 runs them in the caller's thread.
        budget_bytes: how many bytes waiting results and running tasks may take together; or a function
            that says so, asked under a lock before each task.
        ahead: one thread, too, runs beside the caller's and ahead of it.
        need: says how many bytes a task needs while it runs, or None while that is not known: then
            one runs alone. Without it, a task needs what the largest results held.
        at_once: says how many of the threads are of use, asked before each task; all without it.
        helps_within: the caller's thread does a task where it would wait, since to hand over and wake
            costs more than many a task. A place is kept for it until it has been away with a result for so
            many seconds. None: it does no tasks.
        counts_taken: charge a result to the budget until the caller asks for the next one, not only while it waits.

    A caller that leaves early waits for the running tasks, but not for `users_code` in them.

    An error in a stream or task is raised where its result would have come.
    """
    threads = checked_threads(threads)
    if threads == 1 and not ahead:
        for stream in streams:
            for task in stream():
                yield from run(task)
        return
    caller = Caller(helps_within)
    work = Work(streams, run, size, threads, budget_bytes, need, counts_taken, at_once, caller)
    try:
        work.start()
        yield from work.results()
    finally:
        work.stop()


class Tasks(Generic[Task]):
    """Groups small jobs into tasks of some milliseconds, since handing over smaller ones costs more than running them.

    Args:
        most: jobs of a task; or a function that says so, asked after each.
    """

    def __init__(self, most: int | Callable[[], int]) -> None:
        self._most = most if callable(most) else lambda: most
        self.size = 1
        self.job_seconds = 0.0
        """What a job has taken of late; 0 where none was done."""

    def of(self, jobs: Iterator[Task]) -> Iterator[list[Task]]:
        """The jobs, so many a task as have been found to last long enough."""
        while task := list(islice(jobs, self.size)):
            yield task

    def lasted(self, seconds: float, count: int) -> None:
        """So many jobs have taken so long."""
        self.job_seconds = max(seconds, 1e-7) / count
        wanted = _TASK_SECONDS / self.job_seconds
        self.size = int(max(min(wanted, self._most(), 2 * self.size), 1))
