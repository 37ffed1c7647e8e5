"""Limits the number of files that a process keeps open.

A dataset keeps its files open, so that all its readers see the same files. It may have thousands. On most systems a
process may open 1,024 files, and can raise this soft limit up to a hard limit. If a dataset has more files than the
hard limit allows, only the most recently used files stay open.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from contextlib import suppress

from penstock import _core
from penstock.engine.locks import Lock

_MORE = 256
"""Files that the program may have open for other purposes."""
_SHARE = 4
"""If the hard limit is too low, one dataset uses a quarter of what is left."""
_LEAST_OPEN = 4


def open_file(path: str) -> _core.File:
    """Open a local file for reading. If too many files are open, the message of the OSError suggests a remedy."""
    try:
        return _core.File(path)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        make_room(_MORE)
        try:
            return _core.File(path)
        except OSError as again:
            if again.errno != errno.EMFILE:
                raise
            words = (
                f"{error.strerror}: raise the limit, which `ulimit -Hn` shows, or read fewer files"
            )
            raise OSError(error.errno, words, path) from None


def make_room(count: int) -> bool:
    """Raise the soft limit if needed, so that `count` more files can be opened. False if the hard limit is too low."""
    try:
        import resource  # not on every system
    except ImportError:
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _num_open(soft) + count + _MORE
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return True
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return most == wanted
    return False


class Recent:
    """The numbers of a dataset's most recently used files, which stay open."""

    def __init__(self, count: int, handles: int) -> None:
        """Allow for `count` files, each of which uses `handles` descriptors while it is open."""
        self._most: int | None = None
        if count > 1 and not make_room(handles * count):
            self._most = max(_room() // _SHARE // handles, _LEAST_OPEN)
        self._used: OrderedDict[int, None] = OrderedDict()
        self._lock = Lock()

    @property
    def is_bounded(self) -> bool:
        """Whether some files must be closed."""
        return self._most is not None

    def use(self, number: int) -> int | None:
        """Note that a file is used. Returns the number of a file to close, if any."""
        if self._most is None:
            return None
        with self._lock:
            self._used[number] = None
            self._used.move_to_end(number)
            return self._used.popitem(last=False)[0] if len(self._used) > self._most else None


def _room() -> int:
    import resource  # it exists, because `make_room` used it

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard - _num_open(hard)


def _num_open(soft: int) -> int:
    """Estimate the number of open files from the lowest free descriptor, which the system assigns next."""
    try:
        free = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return soft
    os.close(free)
    return free
