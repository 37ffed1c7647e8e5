"""Copies a loader's records to memory or a local disk while the loader is in use.

A thread copies the records in file order while batches come from the source. Once the copy is
complete, batches come from the copy. The batches are the same either way.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.contract.format import Reader
from penstock.datasets.take import reordered
from penstock.errors import PenstockError
from penstock.framing.read.framed import FramedReader
from penstock.limits import checked_count
from penstock.loader._disk_copy import DiskCopy, NoCopy, as_schema, copy_to_folder, plain_schema
from penstock.loader._sources import Records, Taken
from penstock.loader.stats import Clock
from penstock.orders import Order, Shuffled

BLOCK_BYTES = 8 << 20
PIECE_BYTES = 256 << 20
"""Maximum size of a piece, far below the limit of 32-bit offsets. A piece is in memory twice while it is built."""
MOST_TRIES = 3
GROWTH = 4
"""How much larger records are expected to be in memory than in files, which may be compressed."""


class Cached:
    """Records that come from the source until their copy is complete, and from the copy after that.

    `where` and `limit_bytes` are the `cache` and `cache_bytes` of `Loader`.
    """

    def __init__(
        self, source: Records, where: str | os.PathLike[str], limit_bytes: int | None
    ) -> None:
        self.source = source
        self._where = os.fspath(where)
        self._limit_bytes = limit_bytes
        self._tries = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._copying: _Copying | None = None
        self._has_warned = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Cached, (self.source, self._where, self._limit_bytes)

    @property
    def is_ready(self) -> bool:
        return self._copying is not None and self._copying.copy is not None

    def take(self, numbers: np.ndarray, clock: Clock, *, views: bool = False) -> Taken:
        copying = self._started()
        copy = copying.copy
        if copy is not None:
            try:
                with clock.on("columns"):
                    return copy.take(numbers, clock), np.arange(len(numbers))
            except (PenstockError, OSError, EOFError):
                self._lose(copying)  # the copy is damaged, but the source is intact
        return self.source.take(numbers, clock, views=views)

    def want(self, numbers: np.ndarray) -> Sequence[object] | None:
        return () if self.is_ready else self.source.want(numbers)

    def warn_once(self) -> None:
        """Warn, the first time only, if no copy will be made."""
        copying = self._copying
        if copying is None or copying.reason is None or self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"cache={self._where!r} is not used: {copying.reason}; the records are read from the source",
            stacklevel=4,
        )

    def _started(self) -> _Copying:
        if os.getpid() != self._process:
            copying = self._copying
            self._begin()  # the copying thread, and possibly the lock, belong to the parent process
            if copying is not None and copying.copy is not None:
                self._copying = copying
        with self._lock:
            if self._copying is None:
                self._tries += 1
                self._copying = _Copying(self.source, self._where, self._limit_bytes)
                weakref.finalize(self, self._copying.end)
                if self._tries > MOST_TRIES:
                    self._copying.reason = f"the copy was damaged {MOST_TRIES} times"
                else:
                    self._copying.start()
            return self._copying

    def _lose(self, copying: _Copying) -> None:
        with self._lock:
            if self._copying is copying:
                if copying.copy is not None:
                    copying.copy.discard()
                self._copying = None  # the next call makes a new copy


class _Copying:
    """The thread that makes a copy, and its result. It has no reference to its `Cached`, so that an unused loader is
    collected."""

    def __init__(self, source: Records, where: str, limit_bytes: int | None) -> None:
        self.copy: _MemoryCopy | DiskCopy | None = None
        self.reason: str | None = None
        """The reason why no copy can be made."""
        self._stop = threading.Event()
        self._source = source
        self._where = where
        self._limit_bytes = limit_bytes
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="penstock-cache", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        if os.getpid() != self._process:
            return  # the thread belongs to the parent process
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            if self._where == "memory":
                self.copy = _copy_to_memory(self._source, self._limit_bytes, self._stop)
            else:
                self.copy = copy_to_folder(
                    self._source,
                    self._where,
                    lambda: _blocks(self._source, self._limit_bytes, self._stop),
                    self._stop,
                )
        except (NoCopy, PenstockError, OSError, MemoryError, pa.ArrowException) as error:
            if not self._stop.is_set():
                self.reason = str(error) or type(error).__name__


def _blocks(
    source: Records, limit_bytes: int | None, stop: threading.Event
) -> Iterator[pa.RecordBatch]:
    """All records in file order, a few megabytes at a time."""
    clock = Clock()
    start, count, num_bytes, total = 0, 16, 0, len(source)
    while start < total:
        if stop.is_set():
            raise NoCopy("the loader is no longer in use")
        numbers = np.arange(start, min(start + count, total))
        batch, kept = source.take(numbers, clock)
        if len(kept) < len(numbers):
            raise NoCopy(
                "damaged records are skipped, and a copy would give the others new numbers"
            )
        batch = as_schema(batch, plain_schema(batch.schema))
        num_bytes += batch.nbytes
        if limit_bytes is not None and num_bytes > limit_bytes:
            raise NoCopy(
                f"{start} of {total} records already need {num_bytes:,} bytes, and"
                f" {limit_bytes:,} are allowed"
            )
        yield batch
        start += len(numbers)
        wanted = BLOCK_BYTES * len(numbers) // max(batch.nbytes, 1)
        count = max(1, min(wanted, 4 * count, 1 << 16))


def _copy_to_memory(source: Records, limit_bytes: int | None, stop: threading.Event) -> _MemoryCopy:
    limit = _free_memory() // 2 if limit_bytes is None else limit_bytes
    piece_bytes = min(PIECE_BYTES, max(limit // 8, BLOCK_BYTES))
    pieces: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    for block in _blocks(source, limit, stop):
        waiting.append(block)
        if sum(one.nbytes for one in waiting) >= piece_bytes:
            pieces.append(join(waiting))
            waiting = []
    if waiting:
        pieces.append(join(waiting))
    if not pieces:
        raise NoCopy("there are no records")
    return _MemoryCopy(pieces, source.schema)


class _MemoryCopy:
    """Records as Arrow batches of up to 256 MiB."""

    def __init__(self, pieces: list[pa.RecordBatch], schema: pa.Schema) -> None:
        self._pieces = pieces
        self._firsts = np.cumsum([0, *(piece.num_rows for piece in pieces)])
        self._schema = schema

    def take(self, numbers: np.ndarray, clock: Clock) -> pa.RecordBatch:
        owners = np.searchsorted(self._firsts, numbers, "right") - 1
        parts: list[pa.RecordBatch] = []
        for owner in np.unique(owners):
            local = numbers[owners == owner] - self._firsts[owner]
            parts.append(reordered(self._pieces[owner], local))
        if len(parts) == 1:
            return as_schema(parts[0], self._schema)
        place = np.argsort(np.argsort(owners, kind="stable"))
        return as_schema(reordered(join(parts), place), self._schema)

    def discard(self) -> None:
        self._pieces = []


def _free_memory() -> int:
    """The free memory in bytes, of the machine or of its container, whichever is less."""
    found = []
    with suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as lines:
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    with (
        suppress(OSError, ValueError),
        open("/sys/fs/cgroup/memory.max") as most,
        open("/sys/fs/cgroup/memory.current") as now,
    ):
        found.append(max(int(most.read()) - int(now.read()), 0))
    return min(found, default=2 << 30)


def cached(source: Records, where: Any, limit_bytes: Any) -> Cached | None:
    """Return the copy that the `cache` and `cache_bytes` of `Loader` ask for, or None."""
    if limit_bytes is not None:
        limit_bytes = checked_count("cache_bytes", limit_bytes, 0)
    return None if where is None else Cached(source, where, limit_bytes)


def is_compressed(source: Records) -> bool:
    """Whether the first file of any dataset is decompressed when it is read."""
    with suppress(PenstockError, OSError):  # the file may have been removed meanwhile
        return any(_compression(dataset.files.own(0)) for dataset in source.datasets)
    return False


def _compression(reader: Reader) -> str | None:
    return reader.index.compression if isinstance(reader, FramedReader) else reader.compression


def parses_less_with(source: Records, order: Order, cache: Cached | None) -> str:
    """The arguments of `Loader` with which records are parsed less often, or "" if there are none."""
    if cache is not None:
        return ""
    num_bytes = sum(dataset.files.total_bytes for dataset in source.datasets)
    fits = GROWTH * num_bytes <= _free_memory() // 2
    is_scattered = isinstance(order, Shuffled) and len(source) > 0
    # Reading one record of such a file means parsing its neighbors, too.
    is_blocked = is_scattered and source.datasets[0].files.own(0).place(0) is None
    found = ['cache="memory"'] * fits + ["order=penstock.Blocked(seed)"] * is_blocked
    return " or ".join(found)
