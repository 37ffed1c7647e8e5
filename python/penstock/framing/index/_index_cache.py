"""The user's cache of indexes: its location and size limit, and a lock so that each index is built once."""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress

from penstock.errors import command
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.journal import is_at

MOST_BYTES = 1 << 30
"""Maximum size of the folder. The oldest indexes are removed first."""
SLOW_SECONDS = 5.0
"""After a build this long, the user is told how to store an index next to its data."""
_LOOK_AGAIN = 32
"""After this many indexes have been stored, the folder is listed again."""
_LOCK_SUFFIX = f".lock{TEMPORARY_SUFFIX}"


class _Known:
    """What this process knows about the size of the folder, and whether it has warned the user."""

    folder = ""
    room = 0
    left = 0
    has_told = False


def cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "penstock", "index")


def make_room(num_bytes: int) -> bool:
    """Make room for `num_bytes` bytes by removing the oldest indexes. False if the folder may not hold that many."""
    if num_bytes > MOST_BYTES:
        return False
    folder = cache_folder()
    if _Known.folder != folder or _Known.left <= 0 or _Known.room < num_bytes:
        _Known.folder, _Known.left = folder, _LOOK_AGAIN
        _Known.room = _cleared(folder, num_bytes)
    _Known.left -= 1
    _Known.room -= num_bytes
    return True


def _cleared(folder: str, num_bytes: int) -> int:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found: list[tuple[int, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                told = entry.stat(follow_symlinks=False)
                found.append((told.st_mtime_ns, told.st_size, entry.path))
    room = MOST_BYTES - sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if room >= num_bytes:
            break
        if size:  # an empty file is another process's lock
            with suppress(OSError):
                os.unlink(path)
                room += size
    return room


@contextmanager
def made_once(name: str) -> Generator[None]:
    """Wait for other threads and processes of this machine that build the index of this name in the cache. A process
    that dies releases its lock. If locks do not work, do not wait."""
    path = os.path.join(cache_folder(), name + _LOCK_SUFFIX)
    lock = _locked(path)
    try:
        yield
    finally:
        if lock is not None:
            # Removed while locked: waiting processes see that it is gone, and create another.
            with suppress(OSError):
                os.unlink(path)
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may hold it, too
            os.close(lock)


def _locked(path: str) -> int | None:
    while True:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(path, flags, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_at(lock, path):
                return lock
        except OSError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def tell_if_slow(seconds: float, data_path: str) -> None:
    if seconds < SLOW_SECONDS or _Known.has_told:
        return
    _Known.has_told = True
    warnings.warn(
        f"building the index of {data_path} took {seconds:.0f} s. It is now in your cache. To store it next to the "
        f"data, for all users: {command('penstock', 'index', data_path)}",
        stacklevel=2,
    )
