"""The index of a shard, and the sidecar file that stores it: record positions, and facts about the records.

File layout: `_sections`. Location: `path_for`, `folders`, `keep`.

A sidecar is not trusted: the file size that it states and, unless the system reports the file as unchanged, a sample of
its records are compared with the file (see `fitting`). Every record that is read with the help of a sidecar must be at
the stored position and have the stored checksum. A sidecar that was made for another file is rebuilt.
"""

from __future__ import annotations

import errno
import os
import struct
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow, in_bytes
from penstock.contract.format import SkippedRegion
from penstock.errors import ChangedError, StaleIndexError, UnsupportedError
from penstock.framing.index import _sections as sections
from penstock.framing.index._by_ranges import MOST_WHOLE_BYTES, Numbers, positions
from penstock.framing.index._index_cache import cache_folder, make_room
from penstock.framing.index._sections import UNKNOWN, Facts, Sections, State
from penstock.storage.base import Sink, Source, Storage
from penstock.storage.hidden import SIDECAR_SUFFIX, hidden
from penstock.storage.local import LocalSource, LocalStorage, sink_for
from penstock.storage.urls import is_url

_POINT = struct.Struct("<QQII")
_WINDOW_BYTES = 32 << 10
# At most one record in this many may be missing from a saved sidecar.
_MOST_UNSAVED = 256
# Two changes within this time (a few ticks of the system's clock) may get the same timestamp.
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class SeekPoint:
    """A place where inflating may start: a bit offset in the file, a byte offset in the stream, and up to 32 KiB of the
    stream before it (empty at the start of a gzip member)."""

    compressed_bit: int
    plain_start: int
    window: bytes = b""
    check: int = 0
    packed: bytes = b""
    """The window as stored in an index, deflated; it is inflated when the point is used."""

    def bytes_before(self) -> bytes:
        """The window. Raises StaleIndexError if it cannot be inflated."""
        if not self.packed:
            return self.window
        try:
            # A longer window is invalid, and would only cost memory.
            return zlib.decompressobj().decompress(self.packed, _WINDOW_BYTES)
        except zlib.error as error:
            raise StaleIndexError(f"a seek point of the index is broken: {error}") from None

    def packed_window(self) -> bytes:
        return self.packed or (zlib.compress(self.window, 6) if self.window else b"")


@dataclass(frozen=True, slots=True)
class Index:
    """The record positions of one file. `starts` uint64[num_records + 1], `checksums` uint32[num_records].

    Each record ends where the next one starts. Only the index of a damaged file, which is never saved, has `gap_ends`:
    there may be gaps between its records. `gaps` says why.
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
    gaps: tuple[SkippedRegion, ...] = ()
    state: State = UNKNOWN
    """State of the file before it was read. A writer leaves it unknown, so that equal records give equal indexes; the
    first reader adds it."""
    schema: bytes = b""
    """The Arrow schema of the records, as an Arrow IPC message; empty if not stored."""
    classes: bytes = b""
    """The class names of columns, see `kept_classes`; empty if not stored."""
    lengths: bytes = b""
    """The lengths of the lists in columns, see `kept_lengths`; empty if not stored."""
    positions: bytes = b""
    """The positions of the records of a file that is not framed, see `positions`; empty if not stored."""
    sample: bytes = b""
    """A digest of a sample of the file; empty if not stored."""
    blocks: np.ndarray | None = None
    """CRC-32C of each MiB of the file, uint32; None if not stored."""
    made_ns: int = 0
    """When the file of this index was written; 0 if unknown."""

    @property
    def ends(self) -> np.ndarray:
        """End of each frame in the stream, uint64[num_records]."""
        if self.gap_ends is not None:
            return self.gap_ends
        starts: Any = self.starts  # a `Numbers` stands for an array
        ends: Any = starts.after_first() if isinstance(starts, Numbers) else starts[1:]
        return ends

    def checksum_at(self, start: int) -> int | None:
        """The checksum of the record that starts at this offset, or None."""
        record = int(np.searchsorted(self.starts, np.uint64(start)))
        if record < self.num_records and int(self.starts[record]) == start:
            return int(self.checksums[record])
        return None


def path_for(data_path: str, folder: str | None, suffix: str = SIDECAR_SUFFIX) -> str:
    """Path of a file's sidecar: next to the file, or in `folder` under a unique name."""
    if folder is None:
        return hidden(data_path, suffix)
    import hashlib  # costs 3 ms at import, and is rarely needed

    if is_url(folder) and not is_url(data_path):
        raise UnsupportedError(
            "the index of a file on this machine cannot be kept in an object store",
            file=data_path,
            hint="a folder on this machine for the index",
        )
    full = data_path if is_url(data_path) else os.path.abspath(data_path)
    digest = hashlib.blake2b(full.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    name = f"{os.path.basename(full)}.{digest}"
    return hidden(os.path.join(folder, name), suffix)


def folders(kept: str | None) -> tuple[str | None, ...]:
    """Where the sidecar of a file may be: in the requested folder, or else next to the file (None) or in the cache."""
    return (None, cache_folder()) if kept in (None, "auto", "beside") else (kept,)


def state_of(source: Source) -> State:
    """The current state of a file, to be stored in a sidecar. Any write, replacement or copy changes the state. UNKNOWN
    if a later change could still get the same timestamp, if another file has replaced the open one, or if the system
    reports no state."""
    state = state_now(source)
    if source.storage is not None:
        return state  # the state of an object is no time
    # The file has not changed since it was opened, and the clock has ticked since.
    is_as_opened = isinstance(source, LocalSource) and source.written_ns == state.mtime_ns
    if is_as_opened or abs(time.time_ns() - state.mtime_ns) > _TICK_NS:
        return state
    return UNKNOWN


def state_now(source: Source) -> State:
    """Like `state_of`, but known even if a later change could get the same timestamp. Use it only to compare with a
    stored state."""
    try:
        return State(*source.identity())
    except OSError:
        return UNKNOWN


def save(index: Index, data_path: str, storage: Storage, folder: str | None = None) -> str:
    """Write the sidecar of a file, and return its path. Create a missing folder."""
    path = path_for(data_path, folder)
    if is_url(data_path) and not index.state.is_known:
        # An object changes by replacement only, so the state of the one that was written is its state for ever.
        index = replace(index, state=State(*storage.identity(data_path)))
    if isinstance(storage, LocalStorage) or is_url(data_path):
        make_place(index, folder)
    sink = sink_for(storage, path, data_path)
    try:
        write_to(sink, index)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return path


def make_place(index: Index, folder: str | None) -> None:
    """Create the folder of a sidecar; if it is the user's cache, make room in it."""
    if folder is not None and not is_url(folder):
        if folder == cache_folder() and not make_room(_num_bytes(index)):
            raise OSError(errno.ENOSPC, "the index is larger than the cache allows", folder)
        os.makedirs(folder, exist_ok=True)


def write_to(sink: Sink, index: Index) -> None:
    """Write a sidecar to a sink."""
    sections.write(sink, _facts(index), _sections(index))


def keep(index: Index, data_path: str, storage: Storage, folder: str | None) -> str:
    """Save a sidecar in `folder`. For None, save it next to the file or, if that fails, in the user's cache."""
    try:
        return save(index, data_path, storage, folder)
    except (OSError, UnsupportedError):
        if folder is not None:
            raise
        return save(index, data_path, storage, cache_folder())


def keep_read(index: Index, data_path: str, storage: Storage, kept: str) -> str:
    """Save an index that was found by reading, in the folder `kept`. For "beside", or for "auto" if a sidecar is
    already next to the file, save it there if possible. Otherwise save it in the user's cache. A sidecar with checksums
    of the file is left unchanged, because damage cannot be found without it."""
    if kept not in ("auto", "beside"):
        path = path_for(data_path, kept)
        return path if has_blocks(path, storage) else keep(index, data_path, storage, kept)
    beside = path_for(data_path, None)
    if is_url(data_path) and kept == "auto":
        return save(index, data_path, storage, cache_folder())  # reading does not write to a store
    if (kept == "beside" or storage.exists(beside)) and not has_blocks(beside, storage):
        return keep(index, data_path, storage, None)
    cached = path_for(data_path, cache_folder())
    if has_blocks(cached, storage):
        return cached
    return save(index, data_path, storage, cache_folder())


def has_blocks(path: str, storage: Storage) -> bool:
    """Whether the sidecar at `path` exists and stores checksums of its file."""
    with suppress(OSError, StaleIndexError):
        return bool(load_sections(path, storage, "blocks")[1]["blocks"])
    return False


def _facts(index: Index) -> Facts:
    return Facts(
        index.compression,
        index.layout,
        index.num_records,
        index.data_bytes,
        index.plain_bytes,
        len(index.points),
        index.state,
    )


def _num_bytes(index: Index) -> int:
    blocks = 0 if index.blocks is None else 4 * len(index.blocks)
    windows = sum(_POINT.size + len(point.packed or point.window) for point in index.points)
    facts = sum(map(len, (index.schema, index.classes, index.lengths, index.positions)))
    return 12 * index.num_records + facts + blocks + windows + 4096


def _sections(index: Index) -> list[tuple[str, bytes | np.ndarray]]:
    """The sections. Small ones come first, because they are read separately."""
    found: list[tuple[str, bytes | np.ndarray]] = [
        ("schema", index.schema),
        ("classes", index.classes),
        ("sample", index.sample),
    ]
    found = [(name, data) for name, data in found if len(data)]
    if index.layout != "none":
        found.append(("starts", np.ascontiguousarray(index.starts, "<u8")))
        found.append(("checksums", np.ascontiguousarray(index.checksums, "<u4")))
    if index.lengths:
        found.append(("lengths", index.lengths))
    if index.positions:
        found.append(("positions", index.positions))
    if index.points:
        found.append(("points", b"".join(_points(index))))
    if index.blocks is not None:
        found.append(("blocks", np.ascontiguousarray(index.blocks, "<u4")))
    return found


def _points(index: Index) -> list[bytes]:
    windows = [point.packed_window() for point in index.points]
    table = [
        _POINT.pack(p.compressed_bit, p.plain_start, p.check, len(w))
        for p, w in zip(index.points, windows, strict=True)
    ]
    return [*table, *windows]


def discard(data_path: str, *, but_checksums: bool = False) -> None:
    """Remove the sidecars of a file, next to it and in the user's cache. With `but_checksums`, keep one that stores
    checksums of the file."""
    for folder in (None, cache_folder()):
        path = path_for(data_path, folder)
        if but_checksums and has_blocks(path, LocalStorage()):
            continue
        with suppress(OSError):  # it is missing, or will be rejected again at the next open
            os.unlink(path)


def load(path: str, storage: Storage, state: State = UNKNOWN) -> Index:
    """Read a sidecar. If it was made for this state of an object, a large one is read when it is needed.

    Raises:
        FileNotFoundError: there is no sidecar.
        StaleIndexError: it is incomplete or invalid.
    """
    with _opened(path, storage) as kept:
        is_of_it = state.is_known and state == kept.facts.state
        is_large = is_url(path) and kept.num_bytes > MOST_WHOLE_BYTES
        is_later = is_of_it and is_large and kept.facts.layout == "plain"
        index = _parse_later(kept) if is_later else _parse(kept)
    with suppress(OSError):
        if isinstance(storage, LocalStorage):
            return replace(index, made_ns=os.stat(path).st_mtime_ns)
    return index


def load_sections(path: str, storage: Storage, *names: str) -> tuple[Facts, dict[str, bytes]]:
    """Read the header of a sidecar and some of its sections, empty if missing.

    Raises:
        FileNotFoundError: there is no sidecar.
        StaleIndexError: it is incomplete or invalid.
    """
    with _opened(path, storage) as kept:
        found = {name: kept.read(name) for name in names}
        return kept.facts, {n: b"" if d is None else d.to_bytes() for n, d in found.items()}


@contextmanager
def _opened(path: str, storage: Storage) -> Generator[Sections]:
    try:
        source = storage.source(path)
    except UnsupportedError as error:
        raise StaleIndexError(f"not a valid index: it {error.message}", file=path) from None
    try:
        yield Sections(source)
    except ChangedError as error:
        raise StaleIndexError(f"the index was replaced: {error.message}", file=path) from None
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise StaleIndexError(f"not a valid index: {error}", file=path) from None
    finally:
        source.close()


def _parse(kept: Sections) -> Index:
    facts, found = kept.facts, kept.read_all()
    num_records = facts.num_records
    if facts.layout == "none":
        starts, checksums = np.zeros(0, "<u8"), np.zeros(0, "<u4")
    else:
        starts = _numbers(found, "starts", "<u8", num_records + 1)
        checksums = _numbers(found, "checksums", "<u4", num_records)
    points = found.get("points")
    if points is None and facts.num_points:
        raise ValueError("its points are missing")
    schema, classes, lengths, positions, sample = (
        found[name].to_bytes() if name in found else b""
        for name in ("schema", "classes", "lengths", "positions", "sample")
    )
    has_blocks = "blocks" in found
    return Index(
        num_records,
        facts.data_bytes,
        facts.plain_bytes,
        facts.compression,
        starts,
        checksums,
        () if points is None else _parse_points(points.to_bytes(), facts.num_points),
        facts.layout,
        state=facts.state,
        schema=schema,
        classes=classes,
        lengths=lengths,
        positions=positions,
        sample=sample,
        blocks=_numbers(found, "blocks", "<u4", -(-facts.data_bytes >> 20)) if has_blocks else None,
    )


def _parse_later(kept: Sections) -> Index:
    """The index of an object whose sidecar stays as it is: the positions of records are read when they are needed."""
    facts = kept.facts
    small = {name: kept.read(name) for name in ("schema", "classes")}
    schema, classes = (b"" if data is None else data.to_bytes() for data in small.values())
    starts, checksums = positions(kept)
    sizes = facts.num_records, facts.data_bytes, facts.plain_bytes, ""
    return Index(*sizes, starts, checksums, state=facts.state, schema=schema, classes=classes)


def _numbers(found: dict[str, _core.Buffer], name: str, kind: str, count: int) -> np.ndarray:
    data = found.get(name)
    if data is None or len(data) != count * np.dtype(kind).itemsize:
        raise ValueError(f"its {name} are missing, or their number does not match its header")
    return in_bytes(data, kind)


def _parse_points(section: bytes, num_points: int) -> tuple[SeekPoint, ...]:
    if num_points * _POINT.size > len(section):
        raise ValueError("it has fewer points than its header says")
    points: list[SeekPoint] = []
    at = num_points * _POINT.size
    for bit, plain, check, size in _POINT.iter_unpack(section[:at]):
        if at + size > len(section):
            raise ValueError("the window of a point extends beyond its end")
        points.append(SeekPoint(bit, plain, b"", check, section[at : at + size]))
        at += size
    return tuple(points)


def kept_records(data_path: str, folder: str | None) -> int | None:
    """How many records the sidecar of a file claims to cover; None if there is no valid one."""
    try:
        with open(path_for(data_path, folder), "rb") as file:
            facts = sections.facts_of(file.read(sections.HEADER_BYTES))[0]
        return None if facts.layout == "none" else facts.num_records
    except (FileNotFoundError, struct.error, ValueError, IndexError):
        return None


def worth_saving(kept: int, num_records: int) -> bool:
    """Whether to rewrite a sidecar of the first `kept` records for `num_records`. A rewrite is not worth it for a few
    records: they can be found again at each `open`."""
    return (num_records - kept) * _MOST_UNSAVED >= kept


def joined(index: Index, more: Index) -> Index:
    """Join the index of a file with the index of its appended part, which was indexed like a separate file."""
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
        schema=index.schema,
    )


def as_uint64(numbers: Any) -> pa.Array:
    """Convert numbers to the array type of the kernels."""
    return as_arrow(np.ascontiguousarray(numbers, dtype=np.uint64))
