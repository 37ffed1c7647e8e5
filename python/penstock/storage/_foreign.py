"""Files of another library's file system: fsspec, pyarrow, obstore's memory.

Such a library reads ranges, and says what it knows about a file. It cannot ask for a range of one state of a file, so
the state is compared before and after reading. That finds a replaced file, unless it was put back meanwhile; objects
that penstock's own client reads have no such gap. Requests wait in threads.
"""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.engine.pipeline import in_order
from penstock.errors import ChangedError, PenstockError, StorageError, UnsupportedError, shown
from penstock.storage._cached import CachedObjects
from penstock.storage._identity import numbers_of
from penstock.storage._memory import in_this_process
from penstock.storage._spooled import SpooledSink
from penstock.storage.base import Sink, Source, Storage, Traffic
from penstock.storage.cache import Cache
from penstock.storage.hidden import is_own
from penstock.storage.storage_options import refuse_secrets
from penstock.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    import pyarrow as pa

_READS_AT_ONCE = 16
_GAP_BYTES = 64 << 10
"""Ranges that are this close are read as one."""
_MOST_BYTES = 8 << 20
"""Ranges are joined up to this size."""


class Facts(NamedTuple):
    """What is known of a file."""

    size: int
    tag: str
    """Another for each state of the file; empty if nothing is known."""


class Driver(ABC):
    """What the file system of a library does. Its errors are converted by the caller."""

    survives_forks = False
    """Whether a child of a fork may use it."""
    writes = True
    """Whether files can be written."""
    is_in_memory = False
    """Whether the files are in the memory of this process."""

    @abstractmethod
    def facts(self, path: str) -> Facts:
        """The present state of a file. Raises FileNotFoundError, for a folder, too."""

    @abstractmethod
    def read(self, path: str, start: int, length: int) -> object:
        """Bytes of a file."""

    @abstractmethod
    def names(self, folder: str, *, below: bool) -> Iterator[str]:
        """The names of the files directly in a folder, or of all that are `below` it. Those in folders have slashes."""

    @abstractmethod
    def put(self, path: str, file: IO[bytes], size: int) -> None:
        """Write a file, whole or not at all."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def made_of(self) -> object:
        """What a pickle of it holds, which is searched for secrets."""


class ForeignStorage(Storage):
    """The files of another library's file system, under the names that it has for them."""

    reads_at_once = _READS_AT_ONCE

    def __init__(self, driver: Driver, cache: Cache | None = None) -> None:
        self._driver = driver
        self.cached = None if cache is None else CachedObjects(cache)
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        refuse_secrets(self._driver.made_of())
        return ForeignStorage, (self._driver, None if self.cached is None else self.cached.cache)

    def check_reach(self) -> None:
        if self._driver.is_in_memory:
            raise in_this_process()

    @contextmanager
    def told(self, path: str, *, is_open: bool = False) -> Generator[Driver]:
        """Use the library, and convert its errors. Their text may have signatures, so it is not shown."""
        if self._pid != os.getpid() and not self._driver.survives_forks:
            raise UnsupportedError(
                "another library's file system cannot be used in a forked process",
                file=shown(path),
                hint="the start method 'spawn', or names such as s3://bucket/key without storage=",
            )
        try:
            yield self._driver
        except FileNotFoundError:
            if not is_open:
                raise FileNotFoundError(errno.ENOENT, "no such file", shown(path)) from None
            raise ChangedError(
                "the file was removed while it was open",
                file=shown(path),
                hint="put it back and open the data again",
            ) from None
        except PenstockError:
            raise
        except Exception as error:
            kind = type(error).__name__
            message = f"the file system failed: {kind}"
            failed = StorageError(message, file=shown(path))
            status = getattr(getattr(error, "response", None), "status_code", None)
            is_denied = isinstance(error, PermissionError) or status in (401, 403)
            failed.errno = errno.EACCES if is_denied else None
            raise failed from None

    def source(self, path: str, *, mmap: bool = False) -> Source:
        if mmap:
            raise UnsupportedError(
                "a file of another library cannot be mapped into memory",
                file=shown(path),
                hint="leave out mmap=True",
            )
        if path.endswith("/"):
            return StoreFolder(self, path)
        source = ForeignSource(self, path)
        if self.cached is None:
            return source
        if source.state_name() is None:
            raise UnsupportedError(
                "the file system tells no ETag or time of this file, so it cannot be read through a cache",
                file=shown(path),
                hint="leave out cache=",
            )
        return self.cached.view(source, path)

    def traffic(self) -> Traffic:
        return Traffic(num_cache_hits=0 if self.cached is None else self.cached.counts.hits)

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        if not self._driver.writes:
            raise UnsupportedError(
                "penstock does not write there",
                file=shown(path),
                hint="write to this machine, and upload the files with the tools of the hub",
            )
        return _ForeignSink(self, path, overwrite=overwrite)

    def exists(self, path: str) -> bool:
        if path.endswith("/"):
            return False
        try:
            with self.told(path) as driver:
                driver.facts(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        return [path for path in self._names(folder, below=False) if not is_own(_last(path))]

    def own_files(self, folder: str) -> list[str]:
        return [path for path in self._names(folder, below=False) if is_own(_last(path))]

    def list_below(self, prefix: str) -> list[str]:
        return self._names(prefix, below=True)

    def _names(self, folder: str, *, below: bool) -> list[str]:
        front = folder if not folder or folder.endswith("/") else folder + "/"
        with self.told(folder) as driver:
            return sorted(front + name for name in driver.names(folder, below=below) if name)

    def remove(self, path: str) -> None:
        try:
            with self.told(path) as driver:
                driver.remove(path)
        except FileNotFoundError:
            pass


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


class ForeignSource(Source):
    """A file of another library's file system."""

    def __init__(self, storage: ForeignStorage, path: str) -> None:
        self.path = shown(path)
        self._name = path
        self._place = storage
        with storage.told(path) as driver:
            self._facts = driver.facts(path)
        self.size = self._facts.size

    def read(self, start: int, length: int) -> _core.Buffer:
        length = min(length, self.size - start)
        if length <= 0:
            return _core.Buffer.from_bytes(b"")
        found = self._read(start, length)
        self._compare()
        return found

    def _read(self, start: int, length: int) -> _core.Buffer:
        with self._place.told(self._name, is_open=True) as driver:
            found = bytes(memoryview(driver.read(self._name, start, length)))  # type: ignore[arg-type]
        if len(found) != length:
            self._compare()
            raise StorageError(
                f"the file system returned {len(found)} bytes at byte {start}, not {length}",
                file=self.path,
            )
        return _core.Buffer.from_bytes(found)

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Read ranges: near ones together, and several at the same time."""
        first, count = as_numpy(starts).astype(np.int64), as_numpy(lengths).astype(np.int64)
        groups = near_groups(first, count)
        tasks = [(int(first[g].min()), int((first[g] + count[g]).max())) for g in groups]

        def run(task: tuple[int, int]) -> Iterator[_core.Buffer]:
            yield self._read(task[0], task[1] - task[0])

        blocks = in_order([lambda: iter(tasks)], run, len, _READS_AT_ONCE)
        parts: dict[int, _core.Buffer] = {}
        for group, (begin, _), block in zip(groups, tasks, blocks, strict=True):
            for n in group.tolist():
                parts[n] = block.slice(int(first[n]) - begin, int(count[n]))
        self._compare()
        return _core.Buffer.join([parts[n] for n in range(len(first))])

    def check_unchanged(self, *, may_grow: bool) -> None:
        self._compare()

    def _compare(self) -> None:
        """Raise ChangedError if the file is in another state than when it was opened. It is called after each read."""
        with self._place.told(self._name, is_open=True) as driver:
            now = driver.facts(self._name)
        if now != self._facts:
            raise ChangedError(
                "the file was changed or replaced while it was open",
                file=self.path,
                hint="open the data again",
            )

    def identity(self) -> tuple[int, int, int, int]:
        return numbers_of(self._facts.tag, self.size)

    def state_name(self) -> str | None:
        tag = self._facts.tag
        # Two states of a file may have the same weak ETag.
        return None if not tag or re.search(r'(^|=)"?W/', tag) else tag


def near_groups(starts: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """The numbers of ranges that are read together, sorted by where they start."""
    order = np.argsort(starts, kind="stable")
    groups: list[np.ndarray] = []
    begin, reached, since = 0, 0, 0
    for at, number in enumerate(order.tolist()):
        start, end = int(starts[number]), int(starts[number] + lengths[number])
        if at > since and (start > reached + _GAP_BYTES or end - begin > _MOST_BYTES):
            groups.append(order[since:at])
            since = at
        if at == since:
            begin, reached = start, end
        reached = max(reached, end)
    return [*groups, order[since:]] if len(order) else []


class _ForeignSink(SpooledSink):
    """A file that is written when it is complete."""

    def __init__(self, storage: ForeignStorage, path: str, *, overwrite: bool) -> None:
        self.path = path
        self._storage = storage
        self._overwrite = overwrite
        self._refuse_existing()
        super().__init__(path)

    def commit(self, path: str | None = None) -> None:
        self.path = path or self.path
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        self._refuse_existing()  # another may have written it meanwhile; what remains is a race
        with self._storage.told(self.path) as driver:
            driver.put(self.path, self._file, size)
        self._file.close()

    def _refuse_existing(self) -> None:
        if not self._overwrite and self._storage.exists(self.path):
            raise FileExistsError(
                errno.EEXIST, "the file exists; pass overwrite=True to replace it", shown(self.path)
            )
