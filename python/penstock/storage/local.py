"""Files on local file systems."""

from __future__ import annotations

import copy
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import ChangedError, UnsupportedError
from penstock.storage import append_journal as journal
from penstock.storage.base import (
    FileState,
    Sink,
    Source,
    State,
    Storage,
    no_longer_names,
)
from penstock.storage.descriptors import open_file
from penstock.storage.hidden import is_own
from penstock.storage.local_sink import Calls, LocalSink, closed_as, openness, sync_path
from penstock.storage.source_views import FrontPart

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.storage._left import Leftover
    from penstock.storage.folder import Folder, FolderSink

_MOST_LOOKS = 10
"""How often a file is examined again if its size or time has just changed."""
_TICK_NS = 20_000_000
"""Upper bound for the tick of a system clock, in nanoseconds."""


class LocalSource(Source):
    """A local file, read by `pread` or viewed in a memory map."""

    def __init__(self, path: str, *, mmap: bool = False) -> None:
        self.path = path
        # Before opening, because opening a pipe waits, and a device without a size looks like an empty file.
        with no_longer_names(path):
            self._opened = os.stat(path)
        if not stat.S_ISREG(self._opened.st_mode):
            raise UnsupportedError(
                "is a pipe or a device, which cannot be read at an offset",
                file=path,
                hint="save its output to a file",
            )
        self._opened = _past_its_tick(path, self._opened)
        self.file = open_file(path)
        self.size: int = self.file.size
        self.written_ns: int = self._opened.st_mtime_ns
        """When it was last written. Any later change has a later time."""
        self._state = self._opened.st_size, self.written_ns
        self.mapped = self.file.map() if mmap and self.size else None

    def read(self, start: int, length: int) -> _core.Buffer:
        if self.mapped is None:
            return self.file.read(start, length)
        part = self.mapped.slice(start, length)
        if not self.file.populate(part):
            raise ChangedError("the file was truncated while it was mapped", file=self.path)
        return part

    def local_file(self) -> _core.File:
        return self.file

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        try:
            return self.file.gather(starts, lengths)
        except EOFError:
            raise ChangedError("the file was truncated while it was open", file=self.path) from None

    def check_unchanged(self, *, may_grow: bool) -> None:
        then = self._opened
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            raise ChangedError(
                "the file was removed while it was open",
                file=self.path,
                hint="put it back and open the data again",
            ) from None
        if (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns):
            return
        is_same = os.path.samestat(now, then)
        if not may_grow or not is_same or now.st_size < then.st_size:
            raise ChangedError(
                "the file was changed or replaced while it was open",
                file=self.path,
                expected=f"{then.st_size} bytes, last written at {then.st_mtime_ns} ns",
                found=f"{now.st_size} bytes at {now.st_mtime_ns} ns",
                hint="open the data again",
            )

    def check_read(self, *, may_grow: bool) -> None:
        now = self.file.state()
        if now == self._state or (may_grow and now[0] > self._state[0]):
            return
        what = "truncated" if now[0] < self._state[0] else "changed"
        raise ChangedError(
            f"the file was {what} while it was open",
            file=self.path,
            expected=f"{self._state[0]} bytes, last written at {self._state[1]} ns",
            found=f"{now[0]} bytes, last written at {now[1]} ns",
            hint="open the data again",
        )

    def identity(self) -> tuple[int, int, int, int]:
        if self.was_replaced():
            return 0, 0, 0, 0
        now = os.stat(self.path)
        return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns

    def file_state(self) -> FileState:
        return FileState(self.size, modified_ns=self.written_ns)

    def was_rewritten(self) -> bool:
        then = self._opened
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        is_same = os.path.samestat(now, then)
        return is_same and now.st_size <= then.st_size and now.st_mtime_ns != then.st_mtime_ns

    def was_replaced(self) -> bool:
        then = self._opened
        try:
            now = os.stat(self.path)
        except OSError:
            return True
        return not os.path.samestat(now, then)

    def close(self) -> None:
        self.mapped = None


def _past_its_tick(path: str, seen: os.stat_result) -> os.stat_result:
    """Return the state of a file as soon as any later change would give a different modification time. Linux uses the
    time of the last tick of its clock, so two changes within 10 ms may have the same time. For a file changed in the
    current tick, wait for the next."""
    clock = getattr(time, "CLOCK_REALTIME_COARSE", None)
    if clock is None:
        return seen
    for _ in range(_MOST_LOOKS):
        age = time.clock_gettime_ns(clock) - seen.st_mtime_ns
        if not -_TICK_NS < age <= 0:
            return seen
        time.sleep(_TICK_NS / 1e9 / _MOST_LOOKS)
        seen = os.stat(path)
    return seen


class LocalStorage(Storage):
    """The local file systems of this machine."""

    changes_in_place = True
    _most = 0o777
    """The permission bits that written files may have at most."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()

    def is_here(self, path: str) -> bool:
        return True

    def no_more_open_than(self, paths: Iterable[str]) -> LocalStorage:
        """The same storage, but written files get only permissions that all these files have."""
        other = copy.copy(self)
        other._most = self._most & openness(paths)
        return other

    def source(self, path: str, *, mmap: bool = False) -> LocalSource | FrontPart | Folder:
        if os.path.isdir(path):
            from penstock.storage.folder import Folder  # rarely needed, like the import below

            return Folder(path)
        for look in range(_MOST_LOOKS):
            if journal.is_there(path):
                from penstock.storage import (
                    local_append as tail,  # rarely needed, and it imports this module
                )

                tail.settle(path, self.calls)
            source = LocalSource(path, mmap=mmap)
            size = journal.visible_size(path)
            if size is not None:
                return FrontPart(source, size)
            # Try again if the size changed meanwhile: `source` may hold only part of an append.
            if look == _MOST_LOOKS - 1 or os.stat(path).st_size == source.size:
                return source
        raise AssertionError("the last attempt returns")

    def sink(
        self,
        path: str,
        *,
        overwrite: bool = False,
        like: str | None = None,
        temporary: str | None = None,
    ) -> LocalSink:
        """Create a file to write. If it describes another file, `like`, it gets only that file's permissions."""
        return LocalSink(
            path,
            overwrite=overwrite,
            calls=self.calls,
            like=like,
            most=self._most,
            temporary=temporary,
        )

    def folder_sink(self, path: str, *, overwrite: bool = False) -> FolderSink:
        """Create a folder to write."""
        from penstock.storage.folder import FolderSink

        return FolderSink(path, overwrite=overwrite, calls=self.calls, most=self._most)

    def make_folder(self, path: str, *, like: str) -> None:
        """Create a durable folder, unless it exists. Its files describe the file `like`, so it gets only that file's
        permissions."""
        if os.path.isdir(path):
            return
        mode = closed_as(like, 0o666)
        # Users who may read the file may enter the folder. The owner may always create files in it.
        self.calls.mkdir(path, mode | (mode & 0o444) >> 2 | 0o700)
        sync_path(self.calls, os.path.dirname(path))

    def starts_with(self, path: str, magic: bytes) -> bool:
        if not os.path.isfile(path):
            return False  # opening a pipe would wait
        with open(path, "rb", buffering=0) as file:
            return file.read(len(magic)) == magic

    def file_state(self, path: str) -> FileState:
        if journal.is_there(path) or not os.path.isfile(path):
            return super().file_state(path)
        told = os.stat(path)
        return FileState(told.st_size, modified_ns=told.st_mtime_ns)

    def num_bytes(self, path: str) -> int:
        from penstock.storage.folder import size_of  # it imports this module

        return size_of(path)

    def sink_for(self, path: str, data_path: str, *, overwrite: bool = True) -> LocalSink:
        return self.sink(path, overwrite=overwrite, like=data_path)

    def state(self, path: str) -> State | None:
        from penstock.storage.folder import state_of

        return state_of(path)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
        # Without a sync, a power cut may bring the file back.
        sync_path(self.calls, os.path.dirname(path))

    def remove_empty_folder(self, path: str) -> None:
        with suppress(OSError):  # the folder does not exist or is not empty
            os.rmdir(path)

    def give_up(self, path: str) -> None:
        from penstock.storage.folder import remove

        with suppress(FileNotFoundError):
            remove(path)

    def leftovers(self, folder: str) -> list[Leftover]:
        from penstock.storage import _local_left

        return list(_local_left.of_this_machine(folder or "."))

    def own_files(self, folder: str) -> list[str]:
        with no_longer_names(folder), os.scandir(folder) as entries:
            return sorted(e.path for e in entries if is_own(e.name))

    def list(self, folder: str) -> list[str]:
        with no_longer_names(folder), os.scandir(folder) as entries:
            return sorted(e.path for e in entries if e.is_file() and not is_own(e.name))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)


def sink_for(storage: Storage, path: str, data_path: str, *, overwrite: bool = True) -> Sink:
    """Create a file that describes the file `data_path`. It gets only that file's permissions."""
    return storage.sink_for(path, data_path, overwrite=overwrite)
