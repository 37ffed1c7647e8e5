"""Locks that a forked child process can always acquire.

A fork copies all memory but only the thread that forks. In the child, a lock that another thread held would stay locked
forever, and the state that it protects may be half changed.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_RLock: Any = type(threading.RLock())


class Lock(_RLock):
    """A re-entrant lock that remains usable after a fork. C code acquires it, so Ctrl-C cannot come between acquiring
    the lock and entering the `with` block.

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
        return Lock, ()  # a copy in another process protects other objects

    def was_cut_short(self) -> bool:
        """Whether a fork interrupted the holder of the lock, so that the protected state must be rebuilt. Call this
        once, while holding the lock. State that changes in a single step does not need this."""
        cut_short, self._cut_short = self._cut_short, False
        return cut_short

    def renew(self) -> None:
        """Release the lock in a new child process."""
        if self.acquire(blocking=False):
            self.release()
            return
        self._at_fork_reinit()  # as `threading` does for its own locks
        self._cut_short = True


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
