"""Tasks side by side, their results one after another: how writers use threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class InOrder:
    """Runs tasks in the threads of a pool and hands their results on in order, a few ahead at most.

    Without a pool, tasks run where they are put.
    """

    def __init__(self, pool: ThreadPoolExecutor | None, ahead: int) -> None:
        self._pool = pool
        self._ahead = ahead
        self._pending: deque[tuple[Future[Any], Callable[[Any], None]]] = deque()

    def put(self, task: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Run a task; `then` gets its result, in this thread, after those of earlier tasks."""
        if self._pool is None:
            then(task())
            return
        self._pending.append((self._pool.submit(task), then))
        while len(self._pending) > self._ahead:
            self._next()

    def drain(self) -> None:
        """Wait for all results."""
        while self._pending:
            self._next()

    def _next(self) -> None:
        future, then = self._pending.popleft()
        then(future.result())
