"""Writes local files that get their final names only when complete: write a temporary file in the same folder, sync it,
rename it, and sync the folder."""

from __future__ import annotations

import errno
import os
import stat
import sys
from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate

from penstock import _core
from penstock.errors import UnsupportedError, no_folder
from penstock.storage.hidden import TEMPORARY_SUFFIX

_NAME_BYTES = 255
"""The longest file name on most file systems, in bytes."""
_MOST_PARTS = 512
"""The number of parts in one write that every system allows."""
_REPEATED_BYTES = 8 << 20
_SYNCED_BYTES = 4 << 20
"""After this many bytes, the system is asked to start writing them to the disk."""
_RESERVED_BYTES = 64 << 20
"""How much space is reserved at a time, at most."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


@contextmanager
def naming(path: str) -> Generator[None]:
    """Name the file in errors of the system that name none, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.strerror is not None:
            error.filename = path
        raise


class Calls:
    """The operating system calls that decide whether a file survives. A test replaces this object to make calls fail,
    to drop bytes that were not synced, or to kill the process between two calls."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags, mode)

    def write(self, fd: int, parts: list[memoryview]) -> int:
        return os.writev(fd, parts)

    def write_at(self, fd: int, part: memoryview, start: int) -> int:
        return os.pwrite(fd, part, start)

    def start_sync(self, fd: int, start: int, length: int) -> None:
        """Ask the system to start writing these bytes to the disk. Only `fsync` reports errors."""
        _core.start_sync(fd, start, length)

    def reserve(self, fd: int, start: int, length: int) -> bool:
        """Reserve space for these bytes, if the system can. `truncate` releases the space after the file's end."""
        return _core.reserve(fd, start, length)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_file_system(self, fd: int) -> bool:
        """Make all bytes of a file system durable, and raise write errors since `fd` was opened. False if the system
        cannot report these: then each file needs `fsync`."""
        return _syncs_report() and _core.sync_file_system(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names in one step; False if the file system cannot."""
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
    """Whether syncing a file system reports errors, as Linux does since 5.8."""
    major, minor, *_ = (*os.uname().release.split("."), "", "")
    number = int(minor) if minor.isdigit() else 0
    return sys.platform == "linux" and major.isdigit() and (int(major), number) >= (5, 8)


def write_all(calls: Calls, fd: int, parts: Sequence[object]) -> int:
    """Write bytes-like objects in as few calls as possible. Returns the number of bytes."""
    views = [_bytes_of(part) for part in parts]
    # There may be thousands of parts, so C functions iterate over them.
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
    """`mode` without the permissions that the file at `path` lacks. It is for a file that is made from that file or
    replaces it."""
    try:
        return mode & os.stat(path).st_mode
    except OSError:
        return mode  # no such file


def openness(paths: Iterable[str]) -> int:
    """The permission bits that a file or folder may have at most if it is made from all these files. The owner gets all
    permissions."""
    mode = 0o777
    for path in paths:
        for found in _modes(path):
            # Users who may read a file may enter a folder made from it.
            mode &= found | (found & 0o444) >> 2 | 0o700
    return mode


def _modes(path: str) -> Iterable[int]:
    """The permission bits of a file, or of a folder and all its files; none if the path does not exist."""
    with suppress(OSError):
        yield stat.S_IMODE(os.stat(path).st_mode)
    if os.path.isdir(path):
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    yield stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)


def temporary_beside(path: str) -> str:
    """A unique name in the same folder for a temporary file that will replace `path` when complete."""
    folder, name = os.path.split(path)
    ending = f".{os.urandom(6).hex()}{TEMPORARY_SUFFIX}"
    # Keep as much of the file's name as fits.
    start = os.fsdecode(os.fsencode(f".{name}")[: _NAME_BYTES - len(ending)])
    return os.path.join(folder or ".", start + ending)


def private_beside(path: str) -> str:
    """Create an empty temporary file that only its owner can read, for data that is copied later."""
    made = temporary_beside(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    os.close(os.open(made, flags, 0o600))
    return made


def sync_path(calls: Calls, path: str) -> None:
    """Make the bytes of a file or the names in a folder durable. An empty path is the current folder."""
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
    """Raise UnsupportedError if the path is something other than a file or a folder."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UnsupportedError(
            "is a pipe or a device, which is not replaced by a file",
            file=path,
            hint="write to a file, and copy it from there",
        )


class LocalSink:
    """A local file that gets its final name only when it is complete. `like` is the file that it describes, such as the
    data file of an index; `most` are the permission bits that it may get at most."""

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
        # If the user named the path and it is a link, the target of the link is replaced. If the
        # file only describes another file, a link at its path may have been put there by someone
        # else, so it is not followed.
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
        # The new file gets only permissions of the replaced or described file.
        mode = os.stat(self.path).st_mode & 0o777 if os.path.exists(self.path) else 0o666
        mode = mode if like is None else closed_as(like, mode)
        try:
            fd = calls.open(self._temporary, flags | getattr(os, "O_CLOEXEC", 0), mode & most)
        except FileNotFoundError as error:
            raise no_folder(error.errno, self._folder, self.path) from None
        self._fd: int | None = fd
        self._written = self._on_its_way = 0
        self._reserved = 0
        """The end of the reserved space, at most."""
        self._may_reserve = True

    def write(self, data: object) -> None:
        self.write_all([data])

    def write_all(self, parts: Sequence[object]) -> None:
        assert self._fd is not None, "written after commit or abort"
        with naming(self.path):
            self._written += write_all(self._calls, self._fd, parts)
        waiting = self._written - self._on_its_way
        if waiting >= _SYNCED_BYTES:
            # The disk then writes while the next bytes are made, and fsync takes less time.
            self._calls.start_sync(self._fd, self._on_its_way, waiting)
            self._on_its_way = self._written
            self._reserve()

    def _reserve(self) -> None:
        """Reserve space for the next writes, so that the system does not allocate it page by page. At most as much is
        reserved as has been written."""
        assert self._fd is not None
        if self._may_reserve and self._written + _SYNCED_BYTES > self._reserved:
            start, length = max(self._reserved, self._written), min(self._written, _RESERVED_BYTES)
            self._may_reserve = self._calls.reserve(self._fd, start, length)
            # Even if the system refuses, it may have reserved a part.
            self._reserved = start + length

    def patch(self, start: int, data: object) -> None:
        assert self._fd is not None, "written after commit or abort"
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        with naming(self.path):
            while len(view):
                done = self._calls.write_at(self._fd, view, start)
                view, start = view[done:], start + done

    def repeat(self, start: int, length: int) -> None:
        assert self._fd is not None, "written after commit or abort"
        end = start + length
        while start < end:
            part = os.pread(self._fd, min(_REPEATED_BYTES, end - start), start)
            if not part:
                raise EOFError(f"{self.path}: bytes that were written are missing")
            self.write(part)
            start += len(part)

    @property
    def temporary(self) -> str:
        return self._temporary

    def finish(self) -> None:
        fd = self._fd
        if fd is None:
            return
        with naming(self.path):
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
        """Give the file its final name, unless another process has taken that name meanwhile."""
        try:
            # link fails if the name is taken, but rename replaces the other file.
            self._calls.link(self._temporary, self.path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # On a file system without links, such as exFAT, check first.
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
