"""Doubles of the operating system's calls: one that fails, one that forgets what was not synced."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from penstock.storage import Calls

CALLS = ("open", "write", "fsync", "close", "rename", "link", "unlink", "mkdir")


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

    def fsync(self, fd: int) -> None:
        self._count("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        # The descriptor is gone even where close reports an error.
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

    def mkdir(self, path: str) -> None:
        self._count("mkdir")
        super().mkdir(path)


@dataclass
class _File:
    """A file's bytes: those in the page cache, and those on the platter."""

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
        # The names reached the platter before the bytes: what rename without fsync is known for.
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
