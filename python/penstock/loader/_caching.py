"""Copies the records that a loader reads to memory or a local disk while the loader is in use.

A thread copies the records in their order while batches come from the source. Once the copy is
complete, batches come from the copy. The records in a batch and their contents do not change.

**In memory** the copy is Arrow: pieces of up to 256 MiB, from which a batch is gathered in one step. The copy is
abandoned if it would exceed its limit.

**In a folder** the copy is a TFRecord file with its index, as `penstock.write` makes one, if an Example can
hold every column; otherwise it is MessagePack. Both are read by `pread`, record by record, and each record's
checksum is verified. Arrow was also measured. It has no checksums. It is as fast only through a memory map, where a
truncated file kills the process; by `pread` it is a tenth as fast, because whole batches have to be read.

| | 120-byte records a second, `pread` / memory map | 100 KB records a second |
|---|---|---|
| TFRecord | 845,000 / 3,095,000 | 48,900 / 96,000 |
| MessagePack | 773,000 / 2,590,000 | 35,300 / 55,300 |
| Arrow IPC | 79,500 / 1,170,000 | 9,300 / 37,600 |

The file name is derived from the location of the data and from its state (fingerprint, columns, time
stamps), so a copy of other data is never mistaken for this one. The file appears only when it is complete. The
folder itself is locked while a process writes (`flock`: it needs no file and is released when the process ends).
Other processes keep reading the source and switch to the copy when it appears. The process that holds the lock also
deletes leftovers: temporary files of killed processes, and copies of older states of the same data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.datasets.dataset import open as open_dataset
from penstock.datasets.take import reordered, take
from penstock.errors import PenstockError
from penstock.framing.index.sidecar import path_for
from penstock.loader._sources import EndToEnd, Records
from penstock.loader.stats import Clock
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import openness

VERSION = 1
BLOCK_BYTES = 8 << 20
PIECE_BYTES = 256 << 20
"""Well within the reach of 32-bit offsets; a piece is in memory twice while it is assembled."""
MOST_TRIES = 3
LEFT_FREE = 0.05
"""A copy stops growing when less than this share of the disk is free."""
_POLL_SECONDS = 0.2

Taken = tuple[pa.RecordBatch, np.ndarray]


class _NoCopy(Exception):
    """No copy will be made; the message says why."""


class Cached:
    """A source with a copy. All attributes except `take` are those of the source.

    Args:
        source: the records.
        where: "memory", or a folder on this machine.
        limit_bytes: the most that a copy may hold. None: half of the memory that is free when copying begins,
            or all of a disk except one twentieth.
    """

    def __init__(
        self, source: Records | EndToEnd, where: str | os.PathLike[str], limit_bytes: int | None
    ) -> None:
        self.source = source
        self._where = os.fspath(where)
        self._limit_bytes = limit_bytes
        self._tries = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._copying: _Copying | None = None
        self._told = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Cached, (self.source, self._where, self._limit_bytes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_ready(self) -> bool:
        """Whether records now come from the copy."""
        return self._copying is not None and self._copying.copy is not None

    def take(self, numbers: np.ndarray, clock: Clock, *, lend: bool = False) -> Taken:
        """See Records.take."""
        copying = self._started()
        copy = copying.copy
        if copy is not None:
            try:
                with clock.on("records"):
                    return copy.take(numbers, clock), np.arange(len(numbers))
            except (PenstockError, OSError, EOFError):
                self._lose(copying)  # the copy is damaged, but the source is intact
        return self.source.take(numbers, clock, lend=lend)

    def tell(self) -> None:
        """Warn once if no copy will be made."""
        copying = self._copying
        if copying is None or copying.reason is None or self._told:
            return
        self._told = True
        warnings.warn(
            f"cache={self._where!r}: {copying.reason}; the records are read from the source",
            stacklevel=4,
        )

    def _started(self) -> _Copying:
        if os.getpid() != self._process:
            copying = self._copying
            self._begin()  # the copying thread belongs to the parent, and possibly the lock
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
    """The thread that makes a copy, and its result. It holds no reference to its `Cached`, so an
    unused loader can be collected."""

    def __init__(self, source: Records | EndToEnd, where: str, limit_bytes: int | None) -> None:
        self.stop = threading.Event()
        self.copy: _MemoryCopy | _FileCopy | None = None
        self.reason: str | None = None
        self._source = source
        self._where = where
        self._limit_bytes = limit_bytes
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="penstock-cache", daemon=True)

    def start(self) -> None:
        """Start copying in a separate thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop copying, and wait until the thread has ended."""
        if os.getpid() != self._process:
            return  # the thread belongs to the parent
        self.stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            if self._where == "memory":
                self.copy = _in_memory(self._source, self._limit_bytes, self.stop)
            else:
                self.copy = _in_folder(self._source, self._where, self._limit_bytes, self.stop)
        except (_NoCopy, PenstockError, OSError, MemoryError, pa.ArrowException) as error:
            if not self.stop.is_set():
                self.reason = str(error) or type(error).__name__


def _blocks(
    source: Records | EndToEnd, limit_bytes: int | None, stop: threading.Event
) -> Iterator[pa.RecordBatch]:
    """All records in their order, a few megabytes at a time."""
    clock = Clock()
    at, count, held, total = 0, 16, 0, len(source)
    while at < total:
        if stop.is_set():
            raise _NoCopy("nobody wants it any more")
        numbers = np.arange(at, min(at + count, total))
        batch, kept = source.take(numbers, clock)
        if len(kept) < len(numbers):
            raise _NoCopy(
                "damaged records are passed over, and a copy would number the others anew"
            )
        batch = _storable(batch)
        held += batch.nbytes
        if limit_bytes is not None and held > limit_bytes:
            raise _NoCopy(
                f"{at} of {total} records already need {held:,} bytes, and {limit_bytes:,} are allowed"
            )
        yield batch
        at += len(numbers)
        wanted = BLOCK_BYTES * len(numbers) // max(batch.nbytes, 1)
        count = max(1, min(wanted, 4 * count, 1 << 16))


def _storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch with views converted to plain bytes, so that it keeps no larger buffers alive."""
    plain = {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
    columns = [
        column.cast(plain[column.type]) if column.type in plain else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_was(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- in memory ------------------------------------------------------------------------------------


class _MemoryCopy:
    def __init__(self, pieces: list[pa.RecordBatch], schema: pa.Schema) -> None:
        self._pieces = pieces
        counts = [piece.num_rows for piece in pieces]
        self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._schema = schema

    def take(self, numbers: np.ndarray, clock: Clock) -> pa.RecordBatch:
        if len(self._pieces) == 1:
            return _as_was(reordered(self._pieces[0], numbers), self._schema)
        owners = np.searchsorted(self._firsts, numbers, "right") - 1
        order = np.argsort(owners, kind="stable")
        parts = []
        for owner in np.unique(owners):
            chosen = order[owners[order] == owner]
            local = numbers[chosen] - self._firsts[owner]
            parts.append(reordered(self._pieces[owner], local))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return _as_was(reordered(join(parts), place), self._schema)

    def discard(self) -> None:
        self._pieces = []


def _in_memory(
    source: Records | EndToEnd, limit_bytes: int | None, stop: threading.Event
) -> _MemoryCopy:
    limit = _free_memory() // 2 if limit_bytes is None else limit_bytes
    pieces: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    piece_bytes = min(PIECE_BYTES, max(limit // 8, BLOCK_BYTES))
    for batch in _blocks(source, limit, stop):
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= piece_bytes:
            pieces.append(join(waiting))
            waiting, waiting_bytes = [], 0
    if waiting:
        pieces.append(join(waiting))
    if not pieces:
        raise _NoCopy("there are no records")
    return _MemoryCopy(pieces, source.schema)


def _free_memory() -> int:
    """Bytes of memory available to this process: those of the machine or of its container, if fewer."""
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


# -- in a folder ----------------------------------------------------------------------------------


class _FileCopy:
    def __init__(self, path: str, source: Records | EndToEnd) -> None:
        self._path = path
        self._schema = source.schema
        state = os.stat(path)
        self._inode = (state.st_dev, state.st_ino)
        self._dataset = open_dataset(path, schema=_plain_schema(source.schema))
        if len(self._dataset) != len(source):
            raise _NoCopy("it has another number of records")

    def take(self, numbers: np.ndarray, clock: Clock) -> pa.RecordBatch:
        batch = take(self._dataset, numbers, self._schema.names, clock.reading)
        return _as_was(batch, self._schema)

    def discard(self) -> None:
        """Delete the file, unless another file has replaced it."""
        with suppress(OSError):
            state = os.stat(self._path)
            if (state.st_dev, state.st_ino) == self._inode:
                _delete(self._path)


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    plain = {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
    return pa.schema([pa.field(f.name, plain.get(f.type, f.type)) for f in schema])


def _in_folder(
    source: Records | EndToEnd, folder: str, limit_bytes: int | None, stop: threading.Event
) -> _FileCopy:
    from penstock.verbs.write.write import write

    paths = [path for dataset in source.datasets for path in dataset.paths]
    os.makedirs(folder, openness(paths), exist_ok=True)
    storage = LocalStorage().no_more_open_than(paths)
    place, state = _names(source)
    ending = ".tfrecord" if all(_is_example(f.type) for f in source.schema) else ".msgpack"
    path = os.path.join(folder, f"cache-{place}-{state}{ending}")
    while True:
        copy = _opened(path, source)
        if copy is not None:
            return copy
        with _alone(folder) as is_alone:
            if not is_alone:
                if stop.wait(_POLL_SECONDS):
                    raise _NoCopy("nobody wants it any more")
                continue
            if os.path.exists(path):
                continue  # it appeared in the meantime
            _tidy(folder, place, keep=os.path.basename(path))
            blocks = _while_there_is_room(folder, _blocks(source, limit_bytes, stop))
            with suppress(FileExistsError):  # another process was first: no folder locks here
                write(blocks, path, threads=1, storage=storage)


def _opened(path: str, source: Records | EndToEnd) -> _FileCopy | None:
    """The copy, if it exists and is complete; an incomplete one is deleted."""
    if not os.path.exists(path):
        return None
    try:
        if not os.path.exists(_index_of(path)):
            raise _NoCopy("its index, which has its checksums, is not there")
        copy = _FileCopy(path, source)
        copy.take(np.array([0, len(source) - 1]), Clock())
    except (_NoCopy, PenstockError, OSError, EOFError):
        _delete(path)
        return None
    return copy


def _index_of(path: str) -> str:
    return path_for(path, None)


def _delete(path: str) -> None:
    for name in (path, _index_of(path)):
        with suppress(FileNotFoundError):
            os.unlink(name)


def _names(source: Records | EndToEnd) -> tuple[str, str]:
    """Digests for the file name: one of the location of the data, one of its state."""
    place = hashlib.blake2b(digest_size=6)
    state = hashlib.blake2b(
        f"{VERSION} {source.fingerprint} {source.schema}".encode(), digest_size=12
    )
    place.update(" ".join(source.schema.names).encode("utf-8", "replace"))
    for dataset in source.datasets:
        options = dataset.options
        chosen = (options.raw, options.dialect, options.damage, options.format_options)
        state.update(repr(chosen).encode("utf-8", "replace"))
        for path in dataset.paths:
            place.update(os.path.abspath(path).encode("utf-8", "replace"))
            with suppress(OSError):
                found = os.stat(path)
                state.update(f"{found.st_mtime_ns} {found.st_size}".encode())
    return place.hexdigest(), state.hexdigest()


def _is_example(type_: pa.DataType) -> bool:
    """Whether an Example holds values of this type without conversion."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return _is_example(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return _is_example(type_.storage_type)
    kinds = pa.types
    if kinds.is_list(type_) or kinds.is_fixed_size_list(type_):
        value = type_.value_type
        return _is_example(value) and not kinds.is_nested(value)
    if kinds.is_integer(type_):
        return type_ != pa.uint64()
    small = kinds.is_float32(type_) or kinds.is_float16(type_) or kinds.is_boolean(type_)
    text = (pa.string(), pa.binary(), pa.string_view(), pa.binary_view())
    return small or type_ in text


@contextmanager
def _alone(folder: str) -> Generator[bool]:
    """Whether this process has the folder's write lock, held until the block ends."""
    import fcntl

    fd = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass  # no locks on this file system: two may write, and the first one wins
        yield True
    finally:
        os.close(fd)


def _tidy(folder: str, place: str, keep: str) -> None:
    """Delete the leftovers of killed writers, and copies of older states of the same data."""
    for name in os.listdir(folder):
        is_left = name.startswith(".cache-") and name.endswith(TEMPORARY_SUFFIX)
        copy = name.removeprefix(".")  # an index is named like its copy, but hidden
        is_old = copy.startswith(f"cache-{place}-") and not copy.startswith(keep)
        if is_left or is_old:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _while_there_is_room(
    folder: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        disk = shutil.disk_usage(folder)
        if disk.free - batch.nbytes < LEFT_FREE * disk.total:
            raise _NoCopy(f"less than {LEFT_FREE:.0%} of the disk is free")
        yield batch
