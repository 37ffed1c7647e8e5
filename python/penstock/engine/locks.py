"""Locks that are free in a forked child process.

A fork copies the whole memory but only the thread that forks. A lock that another thread holds would stay locked
forever in the child, and the state that it protects would stay half changed.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_RLock: Any = type(threading.RLock())


class Lock(_RLock):
    """A re-entrant lock for state that threads share, which remains usable after a fork. C code acquires and releases
    it, so Ctrl-C cannot come between acquiring the lock and entering the `with` block.

    Example:
        >>> from penstock.engine.locks import Lock
        >>> lock = Lock()
        >>> with lock:
        ...     print(lock.was_cut_short())
        False
    """

    def __init__(self) -> None:
        self._cut_short = False
        _ALL.add(self)

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()  # what it protects is another object in the other process

    def was_cut_short(self) -> bool:
        """Whether a fork interrupted the holder of the lock, so that the protected state must be rebuilt. Call it once,
        while holding the lock. State that is set in a single step does not need the check."""
        cut_short, self._cut_short = self._cut_short, False
        return cut_short

    def renew(self) -> None:
        """Release the lock in a child process that was just forked."""
        if self.acquire(blocking=False):
            self.release()
            return
        self._at_fork_reinit()  # as `threading` does with its locks
        self._cut_short = True


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
