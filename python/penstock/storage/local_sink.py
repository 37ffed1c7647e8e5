"""Local files being written. One appears under its final name whole or not at all: a temporary beside it, fsync,
rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
import stat
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate

from penstock import _core
from penstock.errors import UnsupportedError, no_folder
from penstock.storage.hidden import TEMPORARY_SUFFIX

_NAME_BYTES = 255
"""Of a file's name, on most file systems."""
_MOST_PARTS = 512
"""Parts of one write; every system allows this many."""
_REPEATED_BYTES = 8 << 20
_SYNCED_BYTES = 4 << 20
"""After this many bytes, the system is asked to start writing them to the disk."""
_RESERVED_BYTES = 64 << 20
"""The most space that is reserved at a time."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


class Calls:
    """The operating system calls that decide whether a file survives.

    A writer makes no other ones, so a test that replaces this object can fail any of them, drop
    what was not synced, or kill the process between two of them.
    """

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags, mode)

    def write(self, fd: int, parts: list[memoryview]) -> int:
        return os.writev(fd, parts)

    def write_at(self, fd: int, part: memoryview, start: int) -> int:
        return os.pwrite(fd, part, start)

    def start_sync(self, fd: int, start: int, length: int) -> None:
        """Ask the system to start writing these bytes to the disk. Errors are reported by `fsync` only."""
        _core.start_sync(fd, start, length)

    def reserve(self, fd: int, start: int, length: int) -> bool:
        """Ask the system to reserve space for these bytes; return whether it does. `truncate` gives back the space
        after the file's end."""
        return _core.reserve(fd, start, length)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_file_system(self, fd: int) -> bool:
        """Make everything written to a file system durable, and raise errors since `fd` was opened. False if the
        system cannot report those; then each file needs `fsync`."""
        return _syncs_report() and _core.sync_file_system(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange the names of two files or folders in one step; False if the file system cannot."""
        return _core.exchange(one, other)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)


def _syncs_report() -> bool:
    """Whether syncing a whole file system reports errors: Linux does since 5.8."""
    major, minor, *_ = (*os.uname().release.split("."), "", "")
    number = int(minor) if minor.isdigit() else 0
    return sys.platform == "linux" and major.isdigit() and (int(major), number) >= (5, 8)


def write_all(calls: Calls, fd: int, parts: Sequence[object]) -> int:
    """Write bytes-like objects in as few calls as the system allows; return the number of bytes."""
    views = [_bytes_of(part) for part in parts]
    # Thousands of them a write, so the work for each is done by functions in C.
    ends = list(accumulate(map(len, views)))
    num_bytes, done = (ends[-1] if ends else 0), 0
    while done < num_bytes:
        first = bisect_right(ends, done)
        some = views[first : first + _MOST_PARTS]
        some[0] = some[0][len(some[0]) - (ends[first] - done) :]
        done += calls.write(fd, some)
    return num_bytes


def _bytes_of(part: object) -> memoryview:
    if type(part) is memoryview and part.nbytes == len(part):
        return part
    return memoryview(part).cast("B")  # type: ignore[arg-type]


def closed_as(path: str, mode: int) -> int:
    """A mode for a file that is made of another one or replaces it: without permissions that this one lacks."""
    try:
        return mode & os.stat(path).st_mode
    except OSError:
        return mode  # no such file


def openness(paths: Iterable[str]) -> int:
    """The most permission bits of a file that is made of all of these. Its owner has all permissions, even if a
    source is read-only."""
    mode = 0o777
    for path in paths:
        for found in _modes(path):
            # Users that may read a file may enter a folder that is made of it.
            mode &= found | (found & 0o444) >> 2 | 0o700
    return mode


def _modes(path: str) -> Iterable[int]:
    """The permission bits of a file, or of a folder and all files in it; none if it does not exist."""
    with suppress(OSError):
        yield stat.S_IMODE(os.stat(path).st_mode)
    if os.path.isdir(path):
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    yield stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)


def temporary_beside(path: str) -> str:
    """A name in the same folder for what takes a file's place when it is whole, which nobody else has."""
    folder, name = os.path.split(path)
    ending = f".{os.urandom(6).hex()}{TEMPORARY_SUFFIX}"
    # As long as names may be, and most of it is the file's own.
    start = os.fsdecode(os.fsencode(f".{name}")[: _NAME_BYTES - len(ending)])
    return os.path.join(folder or ".", start + ending)


def private_beside(path: str) -> str:
    """An empty temporary file, which its owner alone may read, for what is put together before it is copied."""
    made = temporary_beside(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    os.close(os.open(made, flags, 0o600))
    return made


def sync_path(calls: Calls, path: str) -> None:
    """Make the bytes of a file, or the names in a folder, durable. The empty path is the folder we are in."""
    fd = calls.open(path or ".", os.O_RDONLY)
    try:
        calls.fsync(fd)
    finally:
        calls.close(fd)


def close_as(path: str, like: str) -> None:
    """Restrict the permissions of an existing file to those of `like`."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    wanted = closed_as(like, mode)
    if wanted != mode:
        os.chmod(path, wanted)


def refuse_device(path: str) -> None:
    """Raise UnsupportedError if the name belongs to something other than a file or a folder."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UnsupportedError(
            "is a pipe or a device, which no file is put in the place of",
            file=path,
            hint="write to a file, and copy it from there",
        )


class LocalSink:
    """A local file that appears under its final name only when it is whole.

    `like` is a file that this one describes, such as the file of an index. `most` are the permission bits that it may
    have at most. `temporary` is the name of the temporary file, in the same folder.
    """

    def __init__(
        self,
        path: str,
        *,
        overwrite: bool,
        calls: Calls,
        like: str | None = None,
        most: int = 0o777,
        temporary: str | None = None,
    ) -> None:
        # A link is kept, and its target is replaced. But not for a file that describes another one: callers did not
        # name it, so a link in its place may lead to a file of somebody else.
        follows = like is None and os.path.islink(path)
        self.path = os.path.realpath(path) if follows else path
        if not overwrite and os.path.lexists(self.path):
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        refuse_device(self.path)
        self._calls = calls
        self._overwrite = overwrite
        self._folder = os.path.dirname(self.path) or "."
        self._temporary = temporary or temporary_beside(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        # A new file never has more permissions than the file that it replaces or describes.
        mode = os.stat(self.path).st_mode & 0o777 if os.path.exists(self.path) else 0o666
        mode = mode if like is None else closed_as(like, mode)
        try:
            fd = calls.open(self._temporary, flags | getattr(os, "O_CLOEXEC", 0), mode & most)
        except FileNotFoundError as error:
            raise no_folder(error.errno, self._folder, self.path) from None
        self._fd: int | None = fd
        self._written = self._on_its_way = 0
        self._reserved = 0
        """The end of the space that is reserved for the file, at most."""
        self._may_reserve = True

    def write(self, data: object) -> None:
        self.write_all([data])

    def write_all(self, parts: Sequence[object]) -> None:
        assert self._fd is not None, "written after commit or abort"
        self._written += write_all(self._calls, self._fd, parts)
        waiting = self._written - self._on_its_way
        if waiting >= _SYNCED_BYTES:
            # The disk writes while the next bytes are made, and fsync has less to wait for.
            self._calls.start_sync(self._fd, self._on_its_way, waiting)
            self._on_its_way = self._written
            self._reserve()

    def _reserve(self) -> None:
        """Reserve space for the next writes, so that they do not allocate it page by page: never more than has been
        written, so that little is reserved in vain."""
        assert self._fd is not None
        if self._may_reserve and self._written + _SYNCED_BYTES > self._reserved:
            start, length = max(self._reserved, self._written), min(self._written, _RESERVED_BYTES)
            self._may_reserve = self._calls.reserve(self._fd, start, length)
            self._reserved = start + length  # also if it is refused, which may happen in the middle

    def patch(self, start: int, data: object) -> None:
        assert self._fd is not None, "written after commit or abort"
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        while len(view):
            done = self._calls.write_at(self._fd, view, start)
            view, start = view[done:], start + done

    def repeat(self, start: int, length: int) -> None:
        assert self._fd is not None, "written after commit or abort"
        end = start + length
        while start < end:
            part = os.pread(self._fd, min(_REPEATED_BYTES, end - start), start)
            if not part:
                raise EOFError(f"{self.path}: what was written is not there any more")
            self.write(part)
            start += len(part)

    @property
    def temporary(self) -> str:
        """The file that has the bytes until they are committed."""
        return self._temporary

    def finish(self) -> None:
        fd = self._fd
        if fd is not None:
            if self._reserved > self._written:
                self._calls.truncate(fd, self._written)
            self._calls.fsync(fd)
            self._fd = None
            self._calls.close(fd)

    def commit(self, path: str | None = None) -> None:
        self.finish()
        if path is not None:
            path = os.path.realpath(path) if os.path.islink(path) else path
            assert os.path.dirname(path) == os.path.dirname(self.path), "another folder"
            self.path = path
            if self._overwrite and os.path.exists(path):
                close_as(self._temporary, path)
        if self._overwrite:
            self._calls.rename(self._temporary, self.path)
        else:
            self._publish()
        sync_path(self._calls, self._folder)

    def _publish(self) -> None:
        """Give the file its name unless another process has taken it meanwhile."""
        try:
            # link fails if the name is taken; rename would replace the other file silently.
            self._calls.link(self._temporary, self.path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without links, such as exFAT: check first instead.
            if os.path.lexists(self.path):
                raise FileExistsError(f"{self.path} exists") from None
            self._calls.rename(self._temporary, self.path)
        else:
            self._calls.unlink(self._temporary)

    def abort(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):  # the temporary file must still be removed
                self._calls.close(fd)
        with suppress(FileNotFoundError):
            self._calls.unlink(self._temporary)
