"""The index of a framed shard, and the sidecar file that keeps it: where records lie.

```
offset  size        field                       (all numbers little endian)
0       8           magic "PENSTOCK"
8       2           version, 2
10      1           compression: 0 none, 1 gzip, 2 zlib
11      1           layout: 0 plain, 1 members (each holds whole frames), 2 seek points
12      4           crc32c of everything after this header
16      8           num_records, N
24      8           data_bytes: size of the file
32      8           plain_bytes: size of the stream of frames
40      8           num_points, P
48      8           points_bytes: size of the last section
56      4           identity: a name for the state of the file, see `identity_of`; 0 where none is known
60      4           crc32c of the 60 bytes before
64      8 (N + 1)   starts: where each frame begins in the stream, then where the last one ends
...     4 N         checksums: the stored checksum of each record
...     ...         points: P x { bit u64, plain u64, check u32, window u32 } then the deflated windows
```

The check of a point is the crc32c of the file's bytes from the one in which it lies up to that of the next point.

A sidecar is never the truth. It is tied to its file by size and by the file's own bytes: a sample where
the system knows the file as untouched since, else more of them, see `fitting`. Every record read
through it must stand where it says and carry the checksum it says. What disagrees is rebuilt.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import StaleIndexError, UnsupportedError
from penstock.numbers import as_arrow, as_numpy
from penstock.storage import (
    SIDECAR_SUFFIX,
    LocalStorage,
    Source,
    Storage,
    Watched,
    sink_for,
)

MAGIC = b"PENSTOCK"
VERSION = 2
_HEADER = struct.Struct("<8sHBBIQQQQQI")
_POINT = struct.Struct("<QQII")
_COMPRESSIONS = ("", "gzip", "zlib")
_LAYOUTS = ("plain", "members", "points")
# One record in so many may be behind what a sidecar knows of.
_MOST_UNSAVED = 256
# Up to this size a sidecar is read and its checksum verified; a larger one is mapped.
_READ_BYTES = 64 << 20
# So long a change may bear the time of the change before it: some ticks of the system's clock.
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class SeekPoint:
    """A place where inflating may start: bit offset in the file, byte offset in the stream, and
    up to 32 KiB of the stream before it (empty where a gzip member starts)."""

    compressed_bit: int
    plain_start: int
    window: bytes = b""
    check: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """Where the records of one file lie. `starts` uint64[num_records + 1], `checksums` uint32.

    Each record ends where the next one starts. Only the index of a damaged file, which is never
    kept, has `gap_ends` of its own, since records are missing between those that are there.
    """

    num_records: int
    data_bytes: int
    plain_bytes: int
    compression: str
    starts: np.ndarray
    checksums: np.ndarray
    points: tuple[SeekPoint, ...] = ()
    layout: str = "plain"
    gap_ends: np.ndarray | None = None
    identity: int = 0
    """`identity_of` the file before it was looked at. A writer does not know it, so that the same
    records make the same index; who opens the file first finds it out."""

    @property
    def ends(self) -> np.ndarray:
        """Where each frame ends in the stream, uint64[num_records]."""
        return self.starts[1:] if self.gap_ends is None else self.gap_ends

    def checksum_at(self, start: int) -> int | None:
        """The checksum of the record that begins there, if one does."""
        record = int(np.searchsorted(self.starts, np.uint64(start)))
        if record < self.num_records and int(self.starts[record]) == start:
            return int(self.checksums[record])
        return None


def path_for(data_path: str, folder: str | None) -> str:
    """Where the sidecar of a file is kept: beside it, or in `folder` under a name of its own."""
    if folder is None:
        return data_path + SIDECAR_SUFFIX
    import hashlib  # costs 3 ms at import, and is rarely needed

    full = os.path.abspath(data_path)
    digest = hashlib.blake2b(full.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return os.path.join(folder, f"{os.path.basename(full)}.{digest}{SIDECAR_SUFFIX}")


def cache_folder() -> str:
    """The user's own folder for sidecars of files whose folder cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "penstock", "index")


def folders(kept: str | None) -> tuple[str | None, ...]:
    """Where the sidecar of a file may be: in the folder that is asked for, or beside the file or in the user's
    cache."""
    return (None, cache_folder()) if kept in (None, "auto") else (kept,)


def identity_of(source: Source) -> int:
    """A name for a file as it is now, which it loses when it is written to, replaced or copied.

    Made of the number and size of the file and of when it was changed last, a time that only the
    system sets. 0 where there is none, where another change might still bear the same time, or where
    another file has taken the place of the one that is open.
    """
    if isinstance(source, Watched) and source.was_replaced():
        return 0
    try:
        told = os.stat(source.path)
    except OSError:
        return 0
    if time.time_ns() - told.st_ctime_ns < _TICK_NS:
        return 0
    facts = told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns
    return zlib.crc32(repr(facts).encode())


def save(index: Index, data_path: str, storage: Storage, folder: str | None = None) -> str:
    """Write the sidecar of a file, and return its path. A folder that is not there yet is made."""
    if folder is not None and isinstance(storage, LocalStorage):
        os.makedirs(folder, exist_ok=True)
    numbers = [
        np.ascontiguousarray(index.starts, "<u8"),
        np.ascontiguousarray(index.checksums, "<u4"),
    ]
    points = b"".join(_points(index))
    crc = 0
    for part in numbers:
        crc = _core.Buffer.from_values(as_arrow(part)).crc32c(crc)
    crc = _core.Buffer.from_bytes(points).crc32c(crc)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        _COMPRESSIONS.index(index.compression),
        _LAYOUTS.index(index.layout),
        crc,
        index.num_records,
        index.data_bytes,
        index.plain_bytes,
        len(index.points),
        len(points),
        index.identity,
    )
    header += struct.pack("<I", _core.Buffer.from_bytes(header).crc32c())
    path = path_for(data_path, folder)
    sink = sink_for(storage, path, data_path)
    try:
        sink.write_all([header, *numbers, points])
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return path


def keep(index: Index, data_path: str, storage: Storage, folder: str | None) -> str:
    """Save the sidecar of a file in `folder`, or beside the file, or in the user's cache where that
    cannot be written."""
    try:
        return save(index, data_path, storage, folder)
    except (OSError, UnsupportedError):
        if folder is not None:
            raise
        return save(index, data_path, storage, cache_folder())


def _points(index: Index) -> list[bytes]:
    windows = [zlib.compress(point.window, 6) if point.window else b"" for point in index.points]
    table = [
        _POINT.pack(p.compressed_bit, p.plain_start, p.check, len(w))
        for p, w in zip(index.points, windows, strict=True)
    ]
    return [*table, *windows]


def discard(data_path: str) -> None:
    """Remove the sidecars of a file, beside it and in the user's cache."""
    for folder in (None, cache_folder()):
        try:
            os.unlink(path_for(data_path, folder))
        except OSError:
            pass  # not there, or not ours to remove: then it is refused again at the next open


def load(path: str, storage: Storage) -> Index:
    """Read a sidecar. Raises FileNotFoundError, or StaleIndexError where it is no whole one."""
    try:
        source = storage.source(path)
    except UnsupportedError as error:
        raise StaleIndexError(f"not a whole index: it {error.message}", file=path) from None
    try:
        return _parse(source)
    except (struct.error, zlib.error, ValueError, IndexError) as error:
        raise StaleIndexError(f"not a whole index: {error}", file=path) from None
    finally:
        source.close()


def _parse(source: Source) -> Index:
    header = source.read(0, _HEADER.size + 4).to_bytes()
    fields = _HEADER.unpack_from(header)
    (magic, version, compression, layout, body_crc, num_records, data_bytes, plain_bytes) = fields[
        :8
    ]
    num_points, points_bytes, identity = fields[8:]
    (header_crc,) = struct.unpack_from("<I", header, _HEADER.size)
    if magic != MAGIC or version != VERSION:
        raise ValueError("unknown magic or version")
    if _core.Buffer.from_bytes(header[: _HEADER.size]).crc32c() != header_crc:
        raise ValueError("header checksum does not match")
    if bool(_COMPRESSIONS[compression]) != (_LAYOUTS[layout] != "plain"):
        raise ValueError("its layout is not one of its compression")
    starts_at = _HEADER.size + 4
    checksums_at = starts_at + 8 * (num_records + 1)
    points_at = checksums_at + 4 * num_records
    if points_at + points_bytes != source.size or num_points * _POINT.size > points_bytes:
        raise ValueError("its size does not match its header")
    if source.size <= _READ_BYTES:
        body = source.read(starts_at, source.size - starts_at)
        if body.crc32c() != body_crc:
            raise ValueError("checksum does not match")
        raw = as_numpy(body)
    else:
        raw = np.memmap(source.path, np.uint8, "r", starts_at)
    starts = raw[: checksums_at - starts_at].view("<u8")
    checksums = raw[checksums_at - starts_at : points_at - starts_at].view("<u4")
    points = _parse_points(raw[points_at - starts_at :].tobytes(), num_points)
    return Index(
        num_records,
        data_bytes,
        plain_bytes,
        _COMPRESSIONS[compression],
        starts,
        checksums,
        points,
        _LAYOUTS[layout],
        identity=identity,
    )


def _parse_points(section: bytes, num_points: int) -> tuple[SeekPoint, ...]:
    points: list[SeekPoint] = []
    at = num_points * _POINT.size
    for number in range(num_points):
        bit, plain, check, size = _POINT.unpack_from(section, number * _POINT.size)
        stored = section[at : at + size]
        # A window is at most 32 KiB; a longer one is no window and would only cost memory.
        window = zlib.decompressobj().decompress(stored, 1 << 15) if size else b""
        points.append(SeekPoint(bit, plain, window, check))
        at += size
    return tuple(points)


def kept_records(data_path: str, folder: str | None) -> int | None:
    """How many records the sidecar of a file says it knows; None where there is none."""
    try:
        with open(path_for(data_path, folder), "rb") as file:
            head = file.read(_HEADER.size)
        return int(_HEADER.unpack(head)[5])
    except (FileNotFoundError, struct.error):
        return None


def worth_saving(kept: int, num_records: int) -> bool:
    """Whether a sidecar of the first `kept` records is to be written anew for all of them.

    It is written whole, so doing that for every few records would cost more than they do; finding
    some records again at each `open` costs little.
    """
    return (num_records - kept) * _MOST_UNSAVED >= kept


def joined(index: Index, more: Index) -> Index:
    """The index of a file and of what was put behind it, which has an index as a file of its own."""
    bits, plain = 8 * index.data_bytes, index.plain_bytes
    points = [replace(p, compressed_bit=p.compressed_bit + bits, plain_start=p.plain_start + plain)
              for p in more.points]  # fmt: skip
    return Index(
        index.num_records + more.num_records,
        index.data_bytes + more.data_bytes,
        plain + more.plain_bytes,
        index.compression,
        np.concatenate([index.starts, more.starts[1:] + np.uint64(plain)]),
        np.concatenate([index.checksums, more.checksums]),
        (*index.points, *points),
        index.layout if index.num_records else more.layout,
    )


def as_uint64(numbers: Any) -> pa.Array:
    """Numbers as the kernels take them."""
    return as_arrow(np.ascontiguousarray(numbers, dtype=np.uint64))
