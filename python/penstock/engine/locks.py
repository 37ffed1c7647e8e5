"""Locks that are free in a forked child.

A fork copies memory, but only the thread that forks. A lock held by another thread would stay locked forever in the
child, and the state that it protects would stay half changed.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_RLock: Any = type(threading.RLock())


class Lock(_RLock):
    """A lock for state that several threads share, which outlives a fork. It is entered and left in C, so
    that Ctrl-C finds no place between having it and `with` knowing of it.

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

    def was_cut_short(self) -> bool:
        """Whether a fork has cut short what was done under the lock: then the state under it is nobody's,
        and has to be made anew. Asked once, under the lock; state that is set in one go need not ask."""
        cut_short, self._cut_short = self._cut_short, False
        return cut_short

    def renew(self) -> None:
        """Be free, in a child that was just forked."""
        if self.acquire(blocking=False):
            self.release()
            return
        self._at_fork_reinit()  # as `threading` does with its own
        self._cut_short = True


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
