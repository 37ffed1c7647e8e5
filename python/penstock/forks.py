"""Locks that a forked child finds free.

A fork copies memory, but of all threads only the one that forks. A lock that another held would be
held for ever in the child, and what it was about to change would stay half changed.
"""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """A lock for state that several threads share, which outlives a fork.

    `with` gives whether a fork has cut short what was done under the lock: then the state under it
    is nobody's, and has to be made anew. State that is set in one go need not ask.

    Example:
        >>> from penstock.forks import Lock
        >>> lock = Lock()
        >>> with lock as cut_short:
        ...     print(cut_short)
        False
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut_short = False
        _ALL.add(self)

    def __enter__(self) -> bool:
        self._lock.acquire()
        cut_short, self._cut_short = self._cut_short, False
        return cut_short

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Be free, in a child that was just forked."""
        if self._lock.locked():
            self._lock = threading.Lock()
            self._cut_short = True


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
