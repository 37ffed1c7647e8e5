"""Tasks side by side, their results one after another: how writers use threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


class InOrder:
    """Runs tasks in the threads of a pool and hands their results on in order, a few ahead at most.

    Without a pool, tasks run where they are put. With one, this thread does a task that nobody has begun
    wherever it would wait: it is the one that writes, and threads beyond it would only take its core.
    """

    def __init__(self, pool: ThreadPoolExecutor | None, ahead: int) -> None:
        self._pool = pool
        self._ahead = ahead
        self._pending: deque[_Pending] = deque()

    def put(
        self, task: Callable[[], Result], then: Callable[[Result], None], ahead: int | None = None
    ) -> None:
        """Run a task; `then` gets its result, in this thread, after those of earlier tasks. `ahead`: fewer
        than usual, for tasks that hold much."""
        if self._pool is None:
            then(task())
            return
        self._pending.append(_Pending(self._pool.submit(task), task, then))
        while len(self._pending) > (self._ahead if ahead is None else ahead):
            self._next()

    def drain(self) -> None:
        """Wait for all results."""
        while self._pending:
            self._next()

    def _next(self) -> None:
        head = self._pending[0]
        while not head.future.done() and self._help():
            pass
        self._pending.popleft()
        head.then(head.future.result())

    def _help(self) -> bool:
        """Do the first task that nobody has begun; False where there is none."""
        for pending in self._pending:
            if pending.future.cancel():
                pending.future = _done(pending.task)
                return True
        return False


@dataclass
class _Pending:
    """A task, and who gets its result."""

    future: Future[Any]
    task: Callable[[], Any]
    then: Callable[[Any], None]


def _done(task: Callable[[], Any]) -> Future[Any]:
    """A task that was done in this thread."""
    future: Future[Any] = Future()
    try:
        future.set_result(task())
    except Exception as error:
        future.set_exception(error)
    return future
