"""How many files a process may have open.

A dataset keeps its files open, so that all its readers see the same ones, and a dataset may have thousands. Most
systems let a process have 1,024 unless it asks for more, which any process may do up to its hard limit. Of a dataset
with more files than that, those used last are open.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from contextlib import suppress

from penstock import _core
from penstock.engine.locks import Lock

_MORE = 256
"""Files that a program has open besides."""
_SHARE = 4
"""If the limit is too low, one dataset takes this share of what is left: a quarter, as others need files, too."""
_LEAST_OPEN = 4


def open_file(path: str) -> _core.File:
    """A local file for reading.

    Raises:
        OSError: there is no such file, it may not be read, or too many are open; then the message says what to do.
    """
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
                f"{error.strerror}: more than `ulimit -Hn` allows; raise that, or read fewer files"
            )
            raise OSError(error.errno, words, path) from None


def make_room(count: int) -> bool:
    """Raise the soft limit if needed, so that `count` more files and some others can be opened; False if the hard
    limit prevents it."""
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
    """The numbers of the files of a dataset that stay open: those used last."""

    def __init__(self, count: int, handles: int) -> None:
        """`count` files, each of which takes `handles` handles while it is open."""
        self._most: int | None = None
        if count > 1 and not make_room(handles * count):
            self._most = max(_room() // _SHARE // handles, _LEAST_OPEN)
        self._used: OrderedDict[int, None] = OrderedDict()
        self._lock = Lock()

    @property
    def is_bounded(self) -> bool:
        """Whether not all of them may be open at once."""
        return self._most is not None

    def use(self, number: int) -> int | None:
        """Note that a file is used, and return one that must be closed for it, if any."""
        if self._most is None:
            return None
        with self._lock:
            self._used[number] = None
            self._used.move_to_end(number)
            return self._used.popitem(last=False)[0] if len(self._used) > self._most else None


def _room() -> int:
    """How many more files the hard limit lets this process open."""
    import resource  # without it there is room for all

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard - _num_open(hard)


def _num_open(soft: int) -> int:
    """About how many are open: the system gives out the lowest free number."""
    try:
        free = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return soft
    os.close(free)
    return free
