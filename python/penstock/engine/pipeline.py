"""How other packages use threads: `in_order` takes tasks from streams (readers, the loader, prefetch), and `Pushed`
receives tasks one by one (writers). Results come in the order of the tasks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, Generic, TypeVar

from penstock.engine.threads import Queue, Stream, Work, first_of
from penstock.limits import checked_count
from penstock.tuned import BUDGET_BYTES, TASK_SECONDS

Task = TypeVar("Task")
Result = TypeVar("Result")


_cores: int | None = None


def use_cores(cores: int) -> None:
    """Use so many cores of this process from now on, because others use the rest."""
    global _cores  # noqa: PLW0603  one for the process, as its cores
    _cores = cores


def default_threads() -> int:
    """The number of cores that this process can use."""
    if _cores is not None:
        return _cores
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_threads(threads: int | None) -> int:
    """Check a user's `threads` argument; None is one per core. Raises TypeError, or ValueError for less than 1."""
    return default_threads() if threads is None else checked_count("threads", threads, 1)


def in_order(
    streams: Sequence[Callable[[], Iterator[Task]]],
    run: Callable[[Task], Iterable[Result]],
    size: Callable[[Result], int],
    threads: int | None,
    budget_bytes: float | Callable[[], float] = BUDGET_BYTES,
    *,
    ahead: bool = False,
    need: Callable[[], float] | None = None,
) -> Generator[Result]:
    """Run all tasks of all streams, and yield their results in order.

    Args:
        streams: each opens an iterator of tasks, as late as possible. One thread at a time uses it.
        run: runs a task, and yields its results.
        size: the bytes of a waiting result.
        threads: how many tasks may run in parallel. The caller's thread is one of them: it runs tasks instead of
            waiting.
        budget_bytes: how many bytes waiting results and running tasks may use together. A function is called before
            each task, under a lock. While it returns minus infinity, a task runs only when the caller asks for its
            result.
        ahead: run all tasks on other threads.
        need: the bytes that a task needs while it runs. While it returns infinity (unknown), only one task runs.
            Without `need`, the largest size of a task's results is used.

    If the caller stops early, it waits for the running tasks, but not for `users_code` in them. An error in a stream or
    task is raised at the position of its result.
    """
    threads = checked_threads(threads)
    if threads == 1 and not ahead:
        for stream in streams:
            for task in stream():
                yield from run(task)
        return
    budget = budget_bytes if callable(budget_bytes) else lambda: budget_bytes
    opened = [Stream(stream) for stream in streams]
    work = Work(opened, run, size, threads, budget, need, ahead=ahead)
    try:
        work.start()
        yield from work.results()
    finally:
        work.stop()


class Pushed:
    """Runs tasks that are pushed one by one, and passes on their results in order. It does so in the caller's thread,
    which runs tasks itself instead of waiting. At most `most` tasks are in progress. If `beside` is given, its threads
    are used instead of new ones."""

    def __init__(self, threads: int, most: int, beside: Pushed | None = None) -> None:
        self._most = most
        self._then: deque[Callable[[Any], None]] = deque()
        self._tasks: Queue[Callable[[], Any], Any] = Queue()
        self._work: Work[Callable[[], Any], Any] = (
            beside._work
            if beside is not None
            else Work([], lambda task: (task(),), lambda result: 0, threads, lambda: inf)
        )
        self._is_alone = threads == 1

    def put(
        self, task: Callable[[], Result], then: Callable[[Result], None], most: int | None = None
    ) -> None:
        """Run a task. `then` is called with its result, in the caller's thread, after the results of earlier tasks.
        `most` replaces the limit for tasks in progress; this is meant for tasks that use much memory."""
        if self._is_alone:
            then(task())
            return
        self._work.put(self._tasks, task)
        self._then.append(then)
        while len(self._then) > (self._most if most is None else most):
            self._next()

    def drain(self) -> None:
        """Wait for all results."""
        while self._then:
            self._next()

    def close(self) -> None:
        """Wait for the running tasks, and end the threads."""
        self._work.stop()

    def _next(self) -> None:
        done = self._work.take(self._tasks)
        assert done is not None
        self._then.popleft()(first_of(done))


class Tasks(Generic[Task]):
    """Groups small jobs into tasks of some milliseconds, because handing over a small job takes longer than running it.
    `most` limits the jobs per task. If it is a function, it is called for the limit after each task."""

    def __init__(self, most: int | Callable[[], int]) -> None:
        self._most = most if callable(most) else lambda: most
        self.size = 1
        self.job_seconds = 0.0
        """The duration of a recent job; 0 before the first."""

    def of(self, jobs: Iterator[Task]) -> Iterator[list[Task]]:
        """Yield the jobs in groups."""
        while task := list(islice(jobs, self.size)):
            yield task

    def lasted(self, seconds: float, count: int) -> None:
        """Report how long `count` jobs took."""
        self.job_seconds = max(seconds, 1e-7) / count
        wanted = TASK_SECONDS / self.job_seconds
        self.size = int(max(min(wanted, self._most(), 2 * self.size), 1))
