"""Test doubles for system calls: one that fails, and one that loses data that was not synced."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from penstock.storage.local_sink import Calls

CALLS = (
    "open",
    "write",
    "write_at",
    "fsync",
    "close",
    "rename",
    "link",
    "unlink",
    "mkdir",
    "truncate",
    "exchange",
    "sync_file_system",
)


class FailingCalls(Calls):
    """The real calls, of which the N-th fails (counting from 0). `seen` counts all of them.

    A failing write hands half of its bytes over first, as a full disk does.
    """

    def __init__(self, failing: int | None, error: int = 0) -> None:
        self.failing = failing
        self.error = error
        self.seen = 0
        self.failed: str | None = None

    def _count(self, name: str) -> None:
        number, self.seen = self.seen, self.seen + 1
        if number == self.failing:
            self.failed = name
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        self._count("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, parts: list[memoryview]) -> int:
        if self.seen == self.failing:
            super().write(fd, [parts[0][: len(parts[0]) // 2]])
        self._count("write")
        return super().write(fd, parts)

    def write_at(self, fd: int, part: memoryview, start: int) -> int:
        if self.seen == self.failing:
            super().write_at(fd, part[: len(part) // 2], start)
        self._count("write_at")
        return super().write_at(fd, part, start)

    def fsync(self, fd: int) -> None:
        self._count("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        # The descriptor is gone even if close reports an error.
        super().close(fd)
        self._count("close")

    def rename(self, old: str, new: str) -> None:
        self._count("rename")
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self._count("link")
        super().link(old, new)

    def unlink(self, path: str) -> None:
        self._count("unlink")
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._count("mkdir")
        super().mkdir(path, mode)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate")
        super().truncate(fd, size)

    def exchange(self, one: str, other: str) -> bool:
        self._count("exchange")
        return super().exchange(one, other)

    def sync_file_system(self, fd: int) -> bool:
        self._count("sync_file_system")
        return super().sync_file_system(fd)


class FullDisk(FailingCalls):
    """The real calls, except that the N-th call and all later ones fail. Closing never fails."""

    def _count(self, name: str) -> None:
        number, self.seen = self.seen, self.seen + 1
        if self.failing is not None and number >= self.failing and name != "close":
            self.failed = self.failed or name
            raise OSError(self.error, os.strerror(self.error))


@dataclass
class _File:
    """A file's bytes, in the page cache and on the disk."""

    cached: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class CrashingCalls(Calls):
    """One folder in memory, which can lose power after every call.

    What is on the platter is what a crash may leave at the least: bytes that were synced with
    their file, and names that were synced with their folder. `crashes` yields, for the moment after
    each call, the files by name as they may be found then: with and without the names and bytes
    that were not synced.
    """

    def __init__(self, folder: str, old: dict[str, bytes]) -> None:
        self.folder = folder
        self.cached_names = {name: _File(bytearray(data), data) for name, data in old.items()}
        self.synced_names = dict(self.cached_names)
        self._descriptors: dict[int, _File | None] = {}
        self._next = 1000
        self.moments: list[list[dict[str, bytes]]] = []

    def _after(self) -> None:
        least = {name: file.synced for name, file in self.synced_names.items()}
        most = {name: bytes(file.cached) for name, file in self.cached_names.items()}
        # The names reached the disk before the bytes, which is the known danger of rename without
        # fsync.
        names_first = {name: file.synced for name, file in self.cached_names.items()}
        self.moments.append([least, most, names_first])

    def _name(self, path: str) -> str:
        folder, name = os.path.split(path)
        assert folder == self.folder, path
        return name

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        self._next += 1
        if path == self.folder:
            self._descriptors[self._next] = None
        else:
            name = self._name(path)
            assert flags & os.O_EXCL
            assert name not in self.cached_names
            self.cached_names[name] = self._descriptors[self._next] = _File()
        self._after()
        return self._next

    def write(self, fd: int, parts: list[memoryview]) -> int:
        file = self._descriptors[fd]
        assert file is not None
        data = b"".join(parts)
        taken = data[: max(1, len(data) // 2)]  # a short write, which is legal
        file.cached += taken
        self._after()
        return len(taken)

    def write_at(self, fd: int, part: memoryview, start: int) -> int:
        file = self._descriptors[fd]
        assert file is not None
        assert start + len(part) <= len(file.cached), "nothing was written there before"
        taken = bytes(part[: max(1, len(part) // 2)])
        file.cached[start : start + len(taken)] = taken
        self._after()
        return len(taken)

    def start_sync(self, fd: int, start: int, length: int) -> None:
        pass  # this call guarantees nothing

    def reserve(self, fd: int, start: int, length: int) -> bool:
        return False

    def fsync(self, fd: int) -> None:
        file = self._descriptors[fd]
        if file is None:
            self.synced_names = dict(self.cached_names)
        else:
            file.synced = bytes(file.cached)
        self._after()

    def close(self, fd: int) -> None:
        del self._descriptors[fd]
        self._after()

    def rename(self, old: str, new: str) -> None:
        self.cached_names[self._name(new)] = self.cached_names.pop(self._name(old))
        self._after()

    def link(self, old: str, new: str) -> None:
        name = self._name(new)
        if name in self.cached_names:
            raise FileExistsError(name)
        self.cached_names[name] = self.cached_names[self._name(old)]
        self._after()

    def unlink(self, path: str) -> None:
        del self.cached_names[self._name(path)]
        self._after()


class RecordingCalls(Calls):
    """The real calls in one real folder, and what a power cut after each of them may leave.

    `moments` has, for each call, several folders as they may be found: with and without the names
    that were not synced, and with all, half or none of the bytes that were not synced after those
    that were, or with zeros in their place.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.moments: list[list[dict[str, bytes]]] = []
        self._numbers: dict[int, int] = {}
        self._next = 0
        # The keys are the numbers of files, which stay the same when a name is removed.
        self._cached: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        for entry in os.scandir(folder):
            number = self._number(entry.inode(), is_new=True)
            self._synced[number] = self._cached[number] = _bytes_of(entry.path)
        self._synced_names = self._names()

    def _number(self, inode: int, *, is_new: bool = False) -> int:
        """The file's number. Inodes are reused, these numbers are not."""
        if is_new or inode not in self._numbers:  # a lock file, which is made without these calls
            self._next += 1
            self._numbers[inode] = self._next
            self._synced[self._next] = self._cached[self._next] = b""
        return self._numbers[inode]

    def _names(self) -> dict[str, int]:
        return {entry.name: self._number(entry.inode()) for entry in os.scandir(self.folder)}

    def _after(self) -> None:
        names = self._names()
        for name, number in names.items():
            self._cached[number] = _bytes_of(os.path.join(self.folder, name))
        self.moments.append(
            [
                {name: shown(self._synced[n], self._cached[n]) for name, n in known.items()}
                for known in (self._synced_names, names)
                for shown in (_all, _none, _half, _zeros)
            ]
        )

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        fd = super().open(path, flags, mode)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            self._number(os.fstat(fd).st_ino, is_new=True)
        self._after()
        return fd

    def write(self, fd: int, parts: list[memoryview]) -> int:
        data = b"".join(parts)
        done = super().write(fd, [memoryview(data)[: max(1, len(data) // 2)]])  # short, but legal
        self._after()
        return done

    def write_at(self, fd: int, part: memoryview, start: int) -> int:
        done = super().write_at(fd, part[: max(1, len(part) // 2)], start)
        self._after()
        return done

    def fsync(self, fd: int) -> None:
        state = os.fstat(fd)
        if stat.S_ISDIR(state.st_mode):
            self._synced_names = self._names()
        else:
            number = self._number(state.st_ino)
            self._synced[number] = self._cached[number]
        self._after()

    def close(self, fd: int) -> None:
        super().close(fd)
        self._after()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._after()

    def link(self, old: str, new: str) -> None:
        super().link(old, new)
        self._after()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._after()

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._after()


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _all(synced: bytes, cached: bytes) -> bytes:
    del synced
    return cached


def _none(synced: bytes, cached: bytes) -> bytes:
    del cached
    return synced


def _half(synced: bytes, cached: bytes) -> bytes:
    return cached[: (len(synced) + len(cached)) // 2] if cached.startswith(synced) else synced


def _zeros(synced: bytes, cached: bytes) -> bytes:
    return synced + bytes(max(0, len(cached) - len(synced)))
