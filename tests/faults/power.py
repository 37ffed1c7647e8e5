"""Simulates power failures: a recorder of all system calls of a writer, and the possible disk contents after a
failure.

A disk keeps everything that was synced. Of the rest it keeps any part: any pages of a file's bytes, any size that the
file had, any of the names that were given, removed or changed in a folder. Real file systems promise more.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.local_sink import Calls

PAGE_BYTES = 4096
ROOT = 0


@dataclass
class Write:
    """Write bytes of a file; None only sets its size."""

    file: int
    start: int
    data: bytes | None


@dataclass
class Names:
    """Changes of names in folders, all in one step: for each name, the number of the file that has it now, or
    None."""

    changes: list[tuple[int, str, int | None]]


@dataclass
class Sync:
    """Makes a file or folder durable; with None, everything."""

    number: int | None


@dataclass
class Recorder:
    """All operations in a folder since `begin`."""

    root: Path
    ops: list[Any] = field(default_factory=list)
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    """For each folder, by its number: the number of the file that each name belongs to."""
    before: dict[int, bytes] = field(default_factory=dict)
    names_before: dict[int, dict[str, int]] = field(default_factory=dict)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    _next: int = 0

    def begin(self) -> None:
        self._look_at(str(self.root))
        self.names_before = {number: dict(names) for number, names in self.names.items()}

    def _look_at(self, path: str) -> int:
        found = os.lstat(path)
        number = self._new(found)
        if stat.S_ISDIR(found.st_mode):
            self.names[number] = {}
            for name in sorted(os.listdir(path)):
                self.names[number][name] = self._look_at(os.path.join(path, name))
        else:
            self.before[number] = Path(path).read_bytes()
        return number

    def _new(self, found: os.stat_result) -> int:
        number, self._next = self._next, self._next + 1
        self._numbers[found.st_dev, found.st_ino] = number
        return number

    def _number(self, fd: int) -> int | None:
        found = os.fstat(fd)
        return self._numbers.get((found.st_dev, found.st_ino))

    def _place(self, path: Any) -> tuple[int, str] | None:
        """The folder of a path, and the name in it; None if the path is not in the root."""
        inside = os.path.relpath(os.path.abspath(os.fsdecode(path)), self.root).split(os.sep)
        if inside[0] == "..":
            return None
        folder = ROOT
        for name in inside[:-1]:
            folder = self.names[folder][name]
        return folder, inside[-1]

    def _give(self, *changes: tuple[tuple[int, str] | None, int | None]) -> None:
        done = [(*place, number) for place, number in changes if place is not None]
        for folder, name, number in done:
            self.names[folder].pop(name, None)
            if number is not None:
                self.names[folder][name] = number
        if done:
            self.ops.append(Names(done))

    def _at(self, path: Any) -> int | None:
        place = self._place(path)
        return None if place is None else self.names[place[0]].get(place[1])

    # -- the calls ------------------------------------------------------------------------------

    def installed(self, patch: pytest.MonkeyPatch) -> None:
        """Record all calls that are made through these objects from now on."""
        real = {name: getattr(os, name) for name in _CALLS}

        def opened(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
            is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            fd = real["open"](path, flags, mode, **options)
            place = self._place(path) if is_new else None
            if place is not None:
                number = self._new(os.fstat(fd))
                self.before[number] = b""
                self._give((place, number))
            return fd

        def put(fd: int, start: int, data: bytes) -> None:
            number = self._number(fd)
            if number is not None:
                self.ops.append(Write(number, start, data))

        def writev(fd: int, parts: Any) -> int:
            start = os.lseek(fd, 0, os.SEEK_CUR)
            if _appends(fd):
                start = os.fstat(fd).st_size
            done = real["writev"](fd, parts)
            put(fd, start, b"".join(bytes(part) for part in parts)[:done])
            return done

        def pwrite(fd: int, part: Any, start: int) -> int:
            done = real["pwrite"](fd, part, start)
            put(fd, start, bytes(part)[:done])
            return done

        def ftruncate(fd: int, size: int) -> None:
            real["ftruncate"](fd, size)
            number = self._number(fd)
            if number is not None:
                self.ops.append(Write(number, size, None))

        def fsync(fd: int) -> None:
            real["fsync"](fd)
            number = self._number(fd)
            if number is not None:
                self.ops.append(Sync(number))

        def rename(old: Any, new: Any) -> None:
            number = self._at(old)
            real["rename"](old, new)
            self._give((self._place(old), None), (self._place(new), number))

        def link(old: Any, new: Any) -> None:
            real["link"](old, new)
            self._give((self._place(new), self._at(old)))

        def unlink(path: Any, **options: Any) -> None:
            real["unlink"](path, **options)
            self._give((self._place(path), None))

        def mkdir(path: Any, mode: int = 0o777, **options: Any) -> None:
            real["mkdir"](path, mode, **options)
            place = self._place(path)
            if place is not None:
                number = self._new(os.lstat(path))
                self.names[number] = {}
                self._give((place, number))

        def rmdir(path: Any, **options: Any) -> None:
            real["rmdir"](path, **options)
            self._give((self._place(path), None))

        def rmtree(path: Any, ignore_errors: bool = False) -> None:
            for folder, folders, names in os.walk(path, topdown=False):
                for name in names:
                    unlink(os.path.join(folder, name))
                for name in folders:
                    rmdir(os.path.join(folder, name))
            if os.path.isdir(path) or not ignore_errors:
                rmdir(path)

        def exchange(calls: Calls, one: str, other: str) -> bool:
            first, second = self._at(one), self._at(other)
            done = swap(calls, one, other)
            if done:
                self._give((self._place(one), second), (self._place(other), first))
            return done

        def sync_file_system(calls: Calls, fd: int) -> bool:
            self.ops.append(Sync(None))
            return sync(calls, fd)

        swap, sync = Calls.exchange, Calls.sync_file_system
        mine: dict[str, Callable[..., Any]] = {
            "open": opened, "writev": writev, "pwrite": pwrite, "ftruncate": ftruncate,
            "fsync": fsync, "rename": rename, "replace": rename, "link": link,
            "unlink": unlink, "remove": unlink, "mkdir": mkdir, "rmdir": rmdir,
        }  # fmt: skip
        for name, call in mine.items():
            patch.setattr(os, name, call)
        patch.setattr(shutil, "rmtree", rmtree)
        patch.setattr(Calls, "exchange", exchange)
        patch.setattr(Calls, "sync_file_system", sync_file_system)

    # -- what a power cut leaves ------------------------------------------------------------------

    def left(self, count: int, rng: random.Random, target: Path) -> None:
        """Create in a new folder what a disk may have if the power failed during the first `count` operations."""
        ops = self.ops[:count]
        kept = rng.choice((0.0, 0.5, 0.5, 1.0))
        synced: dict[int, int] = {}
        for at, op in enumerate(ops):
            if isinstance(op, Sync):
                for number in range(self._next) if op.number is None else (op.number,):
                    synced[number] = at
        names = {number: dict(known) for number, known in self.names_before.items()}
        for at, op in enumerate(ops):
            if isinstance(op, Names):
                is_durable = any(synced.get(folder, -1) > at for folder, _, _ in op.changes)
                if is_durable or rng.random() < kept:
                    for folder, name, number in op.changes:
                        names.setdefault(folder, {}).pop(name, None)
                        if number is not None:
                            names[folder][name] = number
        self._put(ROOT, target, names, ops, synced, rng, kept)

    def _put(
        self,
        number: int,
        target: Path,
        names: dict[int, dict[str, int]],
        ops: list[Any],
        synced: dict[int, int],
        rng: random.Random,
        kept: float,
    ) -> None:
        if number in self.before:
            target.write_bytes(self._bytes(number, ops, synced.get(number, -1), rng, kept))
            return
        target.mkdir()
        for name, inside in sorted(names.get(number, {}).items()):
            self._put(inside, target / name, names, ops, synced, rng, kept)

    def _bytes(
        self, number: int, ops: list[Any], synced: int, rng: random.Random, kept: float
    ) -> bytes:
        data = bytearray(self.before[number])
        size = len(data)
        sizes = [size]
        for at, op in enumerate(ops):
            if not isinstance(op, Write) or op.file != number:
                continue
            if op.data is None:
                size = op.start
                if at < synced:
                    del data[size:]
            else:
                size = max(size, op.start + len(op.data))
                for start, end in _pages(op.start, len(op.data)):
                    if at < synced or rng.random() < kept:
                        data.extend(bytes(max(0, end - len(data))))
                        data[start:end] = op.data[start - op.start : end - op.start]
            sizes = [size] if at < synced else [*sizes, size]
        size = rng.choice(sizes) if kept < 1 else sizes[-1]
        return bytes(data[:size]) + bytes(max(0, size - len(data)))


_CALLS = ("open", "writev", "pwrite", "ftruncate", "fsync", "rename", "link", "unlink", "mkdir", "rmdir")  # fmt: skip


def _appends(fd: int) -> bool:
    import fcntl

    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


def _pages(start: int, length: int) -> list[tuple[int, int]]:
    """The parts of [start, start + length), each of which is in one page."""
    edges = [start, *range((start // PAGE_BYTES + 1) * PAGE_BYTES, start + length, PAGE_BYTES)]
    return list(zip(edges, [*edges[1:], start + length], strict=True))
