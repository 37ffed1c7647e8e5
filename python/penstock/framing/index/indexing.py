"""Build the index of a framed file from its headers, from its members, or by one pass over it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Chunk, SkippedRegion
from penstock.engine.locks import Lock
from penstock.engine.pipeline import in_order
from penstock.errors import StaleIndexError
from penstock.framing.index import ahead, fitting, sidecar
from penstock.framing.index._headers import by_headers
from penstock.framing.index._index_cache import cache_folder, made_once, tell_if_slow
from penstock.framing.index._sections import State
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import walked_chunks
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams import gzip_members
from penstock.framing.streams.forward import ForwardStream
from penstock.framing.streams.gzip_members import Member
from penstock.framing.streams.inflated import POINT_BYTES, InflatedStream
from penstock.framing.streams.stream import Stream
from penstock.storage.base import Source, Storage
from penstock.storage.local import LocalSource, LocalStorage
from penstock.storage.urls import is_url
from penstock.tuned import GZIP_GROUP_BYTES

ENDLESS = 1 << 62
_PASSES = [Lock() for _ in range(8)]
"""At most so many objects are read whole at the same time, to limit memory: more threads count the records of a set."""
_NUMBERS = count()


# Complexity: a sidecar may be missing, stale, extended or new in each place.
def load_index(shard: OpenShard) -> Index | None:
    """Load the sidecar of a file; None if there is no valid one. A compressed stream gets its seek points from it."""
    source, options = shard.source, shard.options
    if options.index == "never" or not has_place(source, options.index):
        return None
    storage = source.storage or LocalStorage()
    state = sidecar.state_of(source)
    kept = _kept(source.path, options.index, storage, state)
    for folder, index in chain(kept, _left(source.path, options.index, storage)):
        known = _of_this_state(shard, index)
        if known is None:
            continue
        is_news = known is not index or (state.is_known and index.state != state)
        if is_news and shard.framing.keeps_index and index.blocks is None:
            # Save what is new, so that later opens need not find it again.
            known = replace(known, state=state)
            if known.num_records == index.num_records or sidecar.worth_saving(
                index.num_records, known.num_records
            ):
                is_read = is_url(source.path) and options.index == "auto"
                place = sidecar.folders("auto")[1] if is_read else folder
                with suppress(OSError):
                    sidecar.keep(known, source.path, storage, place)
        _teach(shard, known)
        return known
    return None


def _kept(path: str, kept: str, storage: Storage, state: State) -> list[tuple[str | None, Index]]:
    """The sidecars of a file and their folders. A sidecar that was stored for the file's present state comes first."""
    found: list[tuple[str | None, Index]] = []
    folders = sidecar.folders(kept)
    for folder in reversed(folders) if is_url(path) else folders:  # a local one costs no request
        # Missing, unreadable or invalid: an index can be rebuilt.
        with suppress(OSError, StaleIndexError):
            found.append((folder, sidecar.load(sidecar.path_for(path, folder), storage, state)))
            if is_url(path) and state.is_known and found[-1][1].state == state:
                break
    found.sort(key=lambda entry: entry[1].state != state)
    return found


def _left(path: str, kept: str, storage: Storage) -> Iterator[tuple[str | None, Index]]:
    folder = sidecar.folders(kept)[0]
    if is_url(path):
        return
    left = ahead.left_of(path, folder)
    with suppress(OSError, StaleIndexError):
        if left is not None:
            yield folder, sidecar.load(left, storage)


def _of_this_state(shard: OpenShard, index: Index) -> Index | None:
    """The index if it is valid for the current file, extended if records were appended. Otherwise None."""
    if index.layout == "none":
        return None  # it has no positions
    if index.compression != shard.stream.container:
        return None  # compression= differs from when the index was made
    if not shard.framing.head_bytes and int(index.starts[0]) != shard.begin:
        return None  # layout= puts the first record at a different offset
    covered = fitting.covers(index, shard.source, shard.framing)
    if covered == "front":
        return _extended(shard, index)
    return index if covered == "all" else None


def has_place(source: Source, kept: str) -> bool:
    """Whether a file can have a sidecar. A file in a storage of the user's own needs an explicit folder for it. A file that
    was replaced cannot have one, because a sidecar of that name belongs to its replacement."""
    if source.was_replaced():
        return False
    # For example standard input, opened by a shell.
    is_open_file = source.path.startswith(("/dev/fd/", "/dev/std", "/proc/"))
    is_known = isinstance(source, LocalSource) or source.storage is not None
    return kept not in ("auto", "beside") or (is_known and not is_open_file)


def _extended(shard: OpenShard, index: Index) -> Index | None:
    """Extend the index of a file's first part by the appended records, without reading the first part again. None if
    the appended part is damaged, or cannot be indexed separately."""
    source, start = shard.source, index.data_bytes
    if index.layout == "plain":
        if not isinstance(source, LocalSource):
            return None
        starts, checksums, fault = _core.index_file(
            shard.framing.name, source.file, _read_at_once(shard), start
        )
        if fault is not None:
            return None
        found = as_numpy(starts) - np.uint64(start)
        stored = as_numpy(checksums)
        size = source.size - start
        more = Index(len(stored), size, size, "", found, stored)
    else:
        members = gzip_members.hop_to_end(source, start) if index.compression == "gzip" else []
        more = _index_of_members(shard, members)
    return None if more is None else sidecar.joined(index, more)


def _teach(shard: OpenShard, index: Index) -> None:
    if isinstance(shard.stream, InflatedStream):
        shard.stream.learn(index)


def build_index(shard: OpenShard) -> Index:
    """Find all records of a file, and save the result in a sidecar. A compressed stream gets its seek points from it.

    In a plain local TFRecord file only the headers are read. A damaged file raises its error. If damage is skipped, the
    index lists the readable records instead, and is not saved.
    """
    kept = shard.options.index
    keeps = kept != "never" and shard.framing.keeps_index and has_place(shard.source, kept)
    if not keeps:
        return _found_index(shard)[0]
    with made_once(os.path.basename(sidecar.path_for(shard.source.path, cache_folder()))):
        # Another process may have built it in the meantime.
        there = load_index(shard)
        if there is not None:
            return there
        begun = time.monotonic()
        index, whole = _found_index(shard)
        if whole:
            _save_index(index, shard.source, kept, time.monotonic() - begun)
        return index


def _found_index(shard: OpenShard) -> tuple[Index, bool]:
    """The index of the current file, and whether it is complete."""
    state = sidecar.state_of(shard.source)  # before reading, because the file may change meanwhile
    if shard.stream.container:
        index, whole = _index_compressed(shard)
    elif isinstance(shard.source, LocalSource):
        index, whole = _index_plain(shard, shard.source)
    elif (found := by_headers(shard)) is not None:
        index, whole = _index(shard.source, *found, "", (), "plain"), True
    else:
        with _PASSES[next(_NUMBERS) % len(_PASSES)]:
            index, whole = _index_by_walking(shard)
    index = replace(index, state=state)
    _teach(shard, index)
    return index, whole


def _save_index(index: Index, source: Source, kept: str, seconds: float) -> None:
    """Save an index that took `seconds` to build. Without an explicit folder, an OSError is ignored."""
    data_path = source.path
    try:
        path = sidecar.keep_read(index, data_path, source.storage or LocalStorage(), kept)
    except OSError:
        if kept not in ("auto", "beside"):
            raise
        return
    if os.path.dirname(path) == cache_folder():
        tell_if_slow(seconds, data_path)


def _read_at_once(shard: OpenShard) -> int:
    """Maximum bytes of a record that indexing may read in one piece. Longer records are indexed, too."""
    return ENDLESS if shard.framing.is_checked else shard.record_bytes


def _index_plain(shard: OpenShard, source: LocalSource) -> tuple[Index, bool]:
    limit = _read_at_once(shard)
    starts, checksums, fault = _core.index_file(shard.framing.name, source.file, limit, shard.begin)
    if fault is not None:
        if shard.options.damage == "error":
            record = len(checksums)  # the fault may count from the window in which it was found
            if fault.kind == "truncated":
                fault = shard.cut(fault.found or 0, fault.byte, fault.expected or 0)
            raise shard.error(fault, record)
        return _index_by_walking(shard)
    found = as_numpy(starts)
    return _index(source, found, as_numpy(checksums), "", (), "plain"), True


def _index(
    source: Source,
    starts: np.ndarray,
    checksums: np.ndarray,
    compression: str,
    points: tuple[SeekPoint, ...],
    layout: str,
) -> Index:
    return Index(
        len(checksums), source.size, int(starts[-1]), compression, starts, checksums, points, layout
    )


def _index_by_walking(
    shard: OpenShard, stream: Stream | None = None, points: list[SeekPoint] | None = None
) -> tuple[Index, bool]:
    """Build an index of the records that a scan returns; for `points` see `walked_chunks`."""
    walking = replace(shard, stream=stream or shard.stream)
    gaps: list[SkippedRegion] = []
    chunk_frames = ChunkFrames(walking)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    checksums: list[np.ndarray] = []

    def add_long(start: int, end: int, record: int) -> None:
        """Index a record above the size limit, too, so that later records have the right numbers."""
        del record
        _, known, _ = _core.frame_extent(walking.framing.name, walking.stream.read, start, True)
        starts.append(np.array([start], np.uint64))
        ends.append(np.array([end], np.uint64))
        checksums.append(np.array([known], np.uint32))

    for found in walked_chunks(walking, points, on_long=add_long):
        if not isinstance(found, Chunk):
            gaps.append(found)
            continue
        frames = chunk_frames.read(found, None).frames
        begin = as_numpy(frames.starts())
        starts.append(begin)
        ends.append(begin + shard.framing.frame_bytes(as_numpy(frames.lengths())))
        checksums.append(as_numpy(frames.checksums()))
    begin = np.concatenate([*starts, np.zeros(0, np.uint64)])
    end = np.concatenate([*ends, np.zeros(0, np.uint64)])
    stored = np.concatenate([*checksums, np.zeros(0, np.uint32)])
    edges = np.concatenate([begin, end[-1:] if len(end) else np.full(1, shard.begin, np.uint64)])
    index = _index(shard.source, edges, stored, "", (), "plain")
    return (replace(index, gap_ends=end, gaps=tuple(gaps)) if gaps else index), not gaps


def _index_compressed(shard: OpenShard) -> tuple[Index, bool]:
    """Index a compressed file by its members if penstock wrote it, or else by one pass that also finds seek points."""
    source, compression = shard.source, shard.stream.container
    if compression == "gzip":
        index = _index_of_members(shard, gzip_members.hop_to_end(source))
        if index is not None:
            return index, True
    forward = ForwardStream(source, compression, POINT_BYTES)
    found: list[SeekPoint] = []
    index, whole = _index_by_walking(shard, forward, found)
    points = fitting.with_checks([*found, *forward.take_points()], source)
    return replace(index, compression=compression, points=points, layout="points"), whole


def _index_of_members(shard: OpenShard, members: list[Member]) -> Index | None:
    """The index of these members, as if the file contained no others. None if one is damaged."""
    if not members:
        return None
    source, framing, start = shard.source, shard.framing, members[0].start
    limit = shard.options.limits.member_bytes + GZIP_GROUP_BYTES

    def heads(run: list[Member]) -> Iterable[tuple[np.ndarray, np.ndarray] | None]:
        try:
            plain = gzip_members.inflate(source, run, limit)
            frames, consumed, _, _ = _core.walk(framing.name, plain, 0, shard.record_bytes)
        except _core.KernelError:
            return [None]
        whole = consumed == len(plain) and len(frames) == sum(m.num_records for m in run)
        lengths = framing.frame_bytes(as_numpy(frames.lengths()))
        return [(lengths, as_numpy(frames.checksums())) if whole else None]

    def runs() -> Iterator[list[Member]]:
        return iter(gzip_members.groups(members))

    found: list[tuple[np.ndarray, np.ndarray]] = []
    for part in in_order([runs], heads, lambda part: 0, None):
        if part is None:
            return None
        found.append(part)
    lengths = np.concatenate([np.zeros(1, np.uint64), *(part[0] for part in found)])
    plain_starts = np.cumsum([0, *(m.plain_bytes for m in members)]).tolist()
    bare = [SeekPoint(8 * m.start, at) for m, at in zip(members, plain_starts, strict=False)]
    points = [
        replace(point, compressed_bit=point.compressed_bit - 8 * start)
        for point in fitting.with_checks(bare, source)
    ]
    starts = np.cumsum(lengths, dtype=np.uint64)
    checksums = np.concatenate([part[1] for part in found])
    index = _index(source, starts, checksums, "gzip", tuple(points), "members")
    return replace(index, data_bytes=members[-1].end - start)
