"""Where bytes live. Readers see a `Source`, writers a `Sink`; both come from a `Storage`.

Reads are positional, so there is no cursor to share. A written file appears under its final name
whole or not at all: a temporary beside it, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock import _core, journal
from penstock.errors import ChangedError, UnsupportedError
from penstock.open_files import open_file

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.folders import Folder, FolderSink

TEMPORARY_SUFFIX = ".penstock-tmp"
_NAME_BYTES = 255
"""Of a file's name, on most file systems."""
SIDECAR_SUFFIX = ".penstock"
_MOST_PARTS = 512
"""Parts of one write; every system takes as many."""
_REPEATED_BYTES = 8 << 20
_SYNCED_BYTES = 4 << 20
"""So much is written before the disk is told to begin with it."""
_MOST_LOOKS = 10
"""How often a file is looked at that has another size each time."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


class Source(Protocol):
    """The bytes of one file, read by position. Safe to use from several threads."""

    path: str
    size: int

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length); shorter only where the file ends."""
        ...

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Several ranges (uint64 arrays), one after another, in one buffer."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Watched(Protocol):
    """A Source of a file that somebody may change while it is read."""

    def check_unchanged(self, *, proves: bool) -> None:
        """Raise ChangedError where the file is not as it was opened. `proves` says that its
        records are proved one by one as they are read, so that it may have grown."""
        ...

    def was_rewritten(self) -> bool:
        """Whether what is read is no longer what was opened, as far as the system tells: the file was written
        to, and not only at its end. One that another has replaced is read on as it was."""
        ...


class Sink(Protocol):
    """A file being written. Nothing is visible under `path` before `commit` returns."""

    path: str

    def write(self, data: object) -> None:
        """Append a bytes-like object."""
        ...

    def write_all(self, parts: Sequence[object]) -> None:
        """Append several, as one write where the storage can."""
        ...

    def patch(self, start: int, data: object) -> None:
        """Write over bytes that were written before: a header that is known only at the end."""
        ...

    def repeat(self, start: int, length: int) -> None:
        """Append bytes that were written before once more, to make room for a longer header."""
        ...

    def finish(self) -> None:
        """Make what was written durable, and take no more. `commit` does it where nobody has."""
        ...

    def commit(self, path: str | None = None) -> None:
        """Make the file durable and visible under its final name, or under another one in the
        same folder that was not known before."""
        ...

    def abort(self) -> None:
        """Forget what was written. Safe to call after a failed write or commit."""
        ...


class Storage(Protocol):
    """A place that holds files."""

    def source(self, path: str, *, mmap: bool = False) -> Source: ...

    def sink(self, path: str, *, overwrite: bool = False) -> Sink: ...

    def list(self, folder: str) -> list[str]:
        """Full paths of the files directly in a folder, sorted, without penstock's own files."""
        ...

    def exists(self, path: str) -> bool: ...


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
        """Let the system begin to bring these bytes to the disk: a wish, that promises nothing and
        reports nothing. An error of the disk is `fsync`'s to tell."""
        _core.start_sync(fd, start, length)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def sync(self) -> None:
        os.sync()

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)


def write_all(calls: Calls, fd: int, parts: Sequence[object]) -> int:
    """Write all of these bytes-like objects, in as few calls as the system allows; their bytes."""
    views = [_bytes_of(part) for part in parts]
    # Thousands of them a write: what is done for each is done by functions of C.
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


def _refuse_device(path: str) -> None:
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UnsupportedError(
            "is a pipe or a device, which no file is put in the place of",
            file=path,
            hint="write to a file, and copy it from there",
        )


class LocalSink:
    """A local file that appears under its final name only when it is whole."""

    def __init__(self, path: str, *, overwrite: bool, calls: Calls) -> None:
        # A link keeps pointing where it points: its target is what gets replaced.
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        if not overwrite and os.path.lexists(self.path):
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        _refuse_device(self.path)
        self._calls = calls
        self._overwrite = overwrite
        folder, name = os.path.split(self.path)
        self._folder = folder or "."
        ending = f".{os.urandom(6).hex()}{TEMPORARY_SUFFIX}"
        # As long as names may be, and most of it is the file's own.
        start = os.fsdecode(os.fsencode(f".{name}")[: _NAME_BYTES - len(ending)])
        self._temporary = os.path.join(self._folder, start + ending)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        # What replaces a file is never open to more people than the file was.
        mode = os.stat(self.path).st_mode & 0o777 if os.path.exists(self.path) else 0o666
        try:
            fd = calls.open(self._temporary, flags | getattr(os, "O_CLOEXEC", 0), mode)
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, "no such folder", self._folder) from None
        self._fd: int | None = fd
        self._written = self._on_its_way = 0

    def write(self, data: object) -> None:
        self.write_all([data])

    def write_all(self, parts: Sequence[object]) -> None:
        assert self._fd is not None, "written after commit or abort"
        self._written += write_all(self._calls, self._fd, parts)
        waiting = self._written - self._on_its_way
        if waiting >= _SYNCED_BYTES:
            # The disk works while the next bytes are made, and fsync has little left to wait for.
            self._calls.start_sync(self._fd, self._on_its_way, waiting)
            self._on_its_way = self._written

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
        """Where the bytes are until they are committed."""
        return self._temporary

    def finish(self) -> None:
        fd = self._fd
        if fd is not None:
            self._calls.fsync(fd)
            self._fd = None
            self._calls.close(fd)

    def commit(self, path: str | None = None) -> None:
        self.finish()
        if path is not None:
            path = os.path.realpath(path) if os.path.islink(path) else path
            assert os.path.dirname(path) == os.path.dirname(self.path), "another folder"
            self.path = path
        if self._overwrite:
            self._calls.rename(self._temporary, self.path)
        else:
            self._publish()
        folder = self._calls.open(self._folder, os.O_RDONLY)
        try:
            self._calls.fsync(folder)
        finally:
            self._calls.close(folder)

    def _publish(self) -> None:
        """Give the file its name unless somebody else has taken it meanwhile."""
        try:
            # link fails where the name was taken; rename would replace it silently.
            self._calls.link(self._temporary, self.path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without links, such as exFAT: the next best is to look first.
            if os.path.lexists(self.path):
                raise FileExistsError(f"{self.path} exists") from None
            self._calls.rename(self._temporary, self.path)
        else:
            self._calls.unlink(self._temporary)

    def abort(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):  # what matters is that the temporary goes
                self._calls.close(fd)
        with suppress(FileNotFoundError):
            self._calls.unlink(self._temporary)


class LocalSource:
    """A local file, read by `pread`, or borrowed from a memory map where asked."""

    def __init__(self, path: str, *, mmap: bool = False) -> None:
        self.path = path
        # Before it is opened, which waits at a pipe; what has no size would pass for an empty file.
        self._opened = os.stat(path)
        if not stat.S_ISREG(self._opened.st_mode):
            raise UnsupportedError(
                "is a pipe or a device, which cannot be read at any place",
                file=path,
                hint="save what comes out of it to a file",
            )
        self.file = open_file(path)
        self.size: int = self.file.size
        self.mapped: _core.Buffer | None = self.file.map() if mmap and self.size else None

    def read(self, start: int, length: int) -> _core.Buffer:
        if self.mapped is None:
            return self.file.read(start, length)
        part = self.mapped.slice(start, length)
        if not self.file.populate(part):
            raise ChangedError("the file was cut while it was mapped", file=self.path)
        return part

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        try:
            return self.file.gather(starts, lengths)
        except EOFError:
            raise ChangedError("the file was cut while it was open", file=self.path) from None

    def check_unchanged(self, *, proves: bool) -> None:
        """See Watched: size and time are the same; where `proves`, it may be the same file,
        and not shorter."""
        then = self._opened
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            raise ChangedError(
                "the file was taken away while it was open",
                file=self.path,
                hint="put it back and open the data again",
            ) from None
        if (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns):
            return
        is_same = (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
        if not proves or not is_same or now.st_size < then.st_size:
            raise ChangedError(
                "the file was changed or replaced while it was open",
                file=self.path,
                expected=f"{then.st_size} bytes, last written at {then.st_mtime_ns} ns",
                found=f"{now.st_size} bytes at {now.st_mtime_ns} ns",
                hint="open the data again",
            )

    def was_rewritten(self) -> bool:
        """See Watched."""
        then = self._opened
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        is_same = (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
        return is_same and now.st_size <= then.st_size and now.st_mtime_ns != then.st_mtime_ns

    def close(self) -> None:
        self.mapped = None


class FrontPart:
    """The first bytes of a local file: what it was before an append that has not ended."""

    def __init__(self, source: LocalSource, size: int) -> None:
        self.path = source.path
        self.size = size
        self._source = source

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._source.read(start, max(0, min(length, self.size - start)))

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        return self._source.gather(starts, lengths)

    def check_unchanged(self, *, proves: bool) -> None:
        """See Watched."""
        self._source.check_unchanged(proves=proves)

    def was_rewritten(self) -> bool:
        """See Watched."""
        return self._source.was_rewritten()

    def close(self) -> None:
        self._source.close()


class LocalStorage:
    """The files of this machine."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()

    def source(self, path: str, *, mmap: bool = False) -> LocalSource | FrontPart | Folder:
        if os.path.isdir(path):
            from penstock.folders import Folder  # as rarely needed as the one below

            return Folder(path)
        for look in range(_MOST_LOOKS):
            if journal.is_there(path):
                from penstock import tail  # rarely needed, and it needs this file

                tail.settle(path, self.calls)
            source = LocalSource(path, mmap=mmap)
            size = journal.visible_size(path)
            if size is not None:
                return FrontPart(source, size)
            # An append that began and ended meanwhile may have shown half of its bytes.
            if look == _MOST_LOOKS - 1 or os.stat(path).st_size == source.size:
                return source
        raise AssertionError("the last look returns")

    def sink(self, path: str, *, overwrite: bool = False) -> LocalSink:
        return LocalSink(path, overwrite=overwrite, calls=self.calls)

    def folder_sink(self, path: str, *, overwrite: bool = False) -> FolderSink:
        """A folder being written, for formats whose shards are folders."""
        from penstock.folders import FolderSink

        return FolderSink(path, overwrite=overwrite, calls=self.calls)

    def make_folder(self, path: str) -> None:
        """A folder in one that is there, durable; nothing is done where it exists."""
        if os.path.isdir(path):
            return
        self.calls.mkdir(path)
        parent = self.calls.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            self.calls.fsync(parent)
        finally:
            self.calls.close(parent)

    def list(self, folder: str) -> list[str]:
        with os.scandir(folder) as entries:
            return sorted(e.path for e in entries if e.is_file() and not is_own(e.name))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)


def is_own(name: str) -> bool:
    """Whether a file name is one that penstock gives to its temporaries and sidecars."""
    return name.endswith((TEMPORARY_SUFFIX, SIDECAR_SUFFIX, journal.SUFFIX)) or name.startswith(
        ".penstock"
    )
