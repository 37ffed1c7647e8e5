"""How many files a process may have open.

A dataset keeps its files open, so that all who read it see the same ones, and a dataset may have
thousands. Most systems let a process have 1,024 unless it asks for more, which any process may do
up to its hard limit.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from penstock import _core

_MORE = 256
"""What a program has open besides."""


def open_file(path: str) -> _core.File:
    """A local file for reading.

    Raises:
        OSError: there is no such file, or it may not be read; of too many, what to do.
    """
    try:
        return _core.File(path)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        if not make_room(_MORE):
            words = (
                f"{error.strerror}: more than `ulimit -Hn` allows; raise that, or read fewer files"
            )
            raise OSError(error.errno, words, path) from None
        return _core.File(path)


def make_room(count: int) -> bool:
    """See to it that so many more files can be opened, and some besides, by a higher soft limit where
    need be; False where the hard limit is in the way."""
    try:
        import resource  # not on every system
    except ImportError:
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _num_open(soft) + count + _MORE
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return True
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return True
    return False


def _num_open(soft: int) -> int:
    """How many are open, about: the system gives out the lowest number that is free."""
    try:
        free = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return soft
    os.close(free)
    return free
