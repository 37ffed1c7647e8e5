"""Splits a framed shard into chunks: by its index, by walking its frames, or around damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.contract.format import Chunk, SkippedRegion, Stretch, only_chunks
from penstock.framing.damage import chunks_around_damage
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.read.held import FrameChunk, Held
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.inflated import InflatedStream
from penstock.framing.streams.stream import Stream
from penstock.tuned import CHUNK_BYTES, LARGE_CHUNK_BYTES, LARGE_RECORD_BYTES

SAMPLE_BYTES = 4 << 20
"""Plain bytes of records from which a schema is inferred, unless all records are read."""
_FIRST_OF_SAMPLE_BYTES = 256 << 10
"""Plain bytes of the first chunk of these: about a thousand small records."""


_AFTER_LARGE = 64 << 10

OnLong = Callable[[int, int, int], None]
"""Called with the start, end and number of a record above the size limit."""


def indexed_chunks(index: Index, most: int | None = None) -> Iterator[FrameChunk]:
    """Split a shard at record boundaries (a compressed shard at its seek points) into chunks of about the usual size. A
    record of more than `most` bytes is a chunk of its own."""
    first = 0
    borders = index.starts
    alone = _edges_of_long(index, most)
    points = np.array([p.plain_start for p in index.points], dtype=np.uint64)
    large = index.plain_bytes >= LARGE_RECORD_BYTES * index.num_records and not len(points)
    wanted = LARGE_CHUNK_BYTES if large else CHUNK_BYTES
    while first < index.num_records:
        # Use uint64: for a Python int, NumPy would convert the whole index.
        goal = np.uint64(min(int(borders[first]) + wanted, index.plain_bytes))
        if len(points):
            later = np.searchsorted(points, goal, "left")
            goal = points[later] if later < len(points) else np.uint64(index.plain_bytes)
        # End at the first record at or after a seek point, because reading an earlier one inflates the stretch before.
        last = int(np.searchsorted(borders, goal, "left"))
        last = min(max(last, first + 1), index.num_records)
        if len(alone):
            later = int(np.searchsorted(alone, first, "right"))
            last = min(last, int(alone[later])) if later < len(alone) else last
        bounds = int(borders[first]), int(borders[last])
        yield Chunk(first, last - first, *bounds, index)
        first = last


def _edges_of_long(index: Index, most: int | None) -> np.ndarray:
    """The numbers of records above `most` bytes, and for each of them the number of the next record, ascending."""
    if most is None or index.plain_bytes <= most:
        return np.zeros(0, np.int64)
    long = np.flatnonzero(np.diff(index.starts) > np.uint64(min(most, 1 << 63)))
    return np.unique(np.concatenate([long, long + 1]))


def sample_chunks(shard: OpenShard) -> Iterator[FrameChunk]:
    """Like `walked_chunks`, for callers that need only the first records. The first chunk is small, because a scan
    reads and inflates these bytes again."""
    return only_chunks(walked_chunks(shard, first_bytes=_FIRST_OF_SAMPLE_BYTES))


# Complexity: one branch for each way in which the walk continues or ends.
def walked_chunks(
    shard: OpenShard,
    points: list[SeekPoint] | None = None,
    *,
    first_bytes: int = CHUNK_BYTES,
    start: tuple[int, int] | None = None,
    on_long: OnLong | None = None,
) -> Iterator[Stretch]:
    """Split a shard into chunks by walking its frames window by window.

    The walk begins at `start`, an offset and the number of the record there. If `on_long` is given, it is called for a
    record above the size limit, which is then left out. If damage is skipped, a damage scan reads a plain shard from
    the first fault on, and all of a compressed one. The seek points of compressed data are appended to `points`.
    """
    if shard.skips_damage and shard.stream.container:
        yield from chunks_around_damage(shard, 0, 0, points)
        return
    at, first = start or (shard.begin, 0)
    stream, window_bytes = shard.stream, first_bytes
    while True:
        try:
            walked = stream.walk(shard.framing, at, window_bytes, shard.record_bytes)
        except _core.KernelError as error:
            if isinstance(stream, InflatedStream) and stream.points:
                # Several members were inflated in one call. Reading forwards returns the records before the broken one.
                stream, window_bytes = stream.without_points(), CHUNK_BYTES
                continue
            yield shard.stop_in_file(error.args[0], first)
            return
        frames, consumed, need, fault, num_bytes = walked
        at_end = shard.is_last(at, window_bytes, num_bytes)
        if not num_bytes:
            return
        if consumed and not len(frames):
            at += consumed  # only padding
            continue
        if shard.verifies_to_find and frames.verify():
            yield from chunks_around_damage(shard, at, first, points)
            return
        if len(frames):
            held = Held(frames, verified=shard.verifies_to_find)
            yield Chunk(first, len(frames), at, at + consumed, held)
            first, at = first + len(frames), at + consumed
            window_bytes = _window_bytes(shard, consumed / len(frames))
        if fault is None and need and at_end:
            broken = _fault_at(stream, at + num_bytes - consumed)
            if broken is not None and not shard.skips_damage:
                broken = shard.cut_inside(broken, num_bytes - consumed, need)
                yield shard.stop_in_file(broken, first)
                return
            fault = shard.cut(num_bytes - consumed, at, need)
        elif not len(frames):
            # The window does not hold a whole record.
            more = shard.framing.more_bytes(need, window_bytes)
            window_bytes = max(more, CHUNK_BYTES)
        if fault is not None:
            if (end := _end_of_long(shard, stream, fault, at, on_long)) is not None:
                yield from _long(shard, fault, at, end, first, on_long)
                first, at, window_bytes = first + 1, end, CHUNK_BYTES
                continue
            yield from _after(shard, fault, at, first, points)
            return


def _window_bytes(shard: OpenShard, record_bytes: float) -> int:
    """The size of the next window. Inflated windows are kept, and larger ones would not fit in a processor cache."""
    if record_bytes < LARGE_RECORD_BYTES or shard.stream.container:
        return CHUNK_BYTES
    # Larger records fill windows of their own size: what is left of a window is read again.
    whole = max(round(LARGE_CHUNK_BYTES / record_bytes), 1)
    return LARGE_CHUNK_BYTES if whole > 4 else int(whole * record_bytes) + _AFTER_LARGE


def _after(
    shard: OpenShard, fault: Any, at: int, first: int, points: list[SeekPoint] | None
) -> Iterator[Stretch]:
    """Continue after a fault if damage is skipped. Otherwise raise it, or skip the rest of the shard."""
    if shard.skips_damage:
        yield from chunks_around_damage(shard, at, first, points)
    else:
        yield shard.stop_at(fault, first, at)


def _end_of_long(
    shard: OpenShard, stream: Stream, fault: Any, at: int, on_long: OnLong | None
) -> int | None:
    """The end of a record above the size limit; None if the walk does not continue after it."""
    if fault.kind != "limit" or shard.skips_damage or not (on_long or shard.skips_long):
        return None  # if damage is skipped, the damage scan decides
    try:
        return shard.end_of_long(stream, at)
    except _core.KernelError:
        return None  # the compressed data breaks inside it


def _long(
    shard: OpenShard, fault: Any, at: int, end: int, record: int, on_long: OnLong | None
) -> Iterator[SkippedRegion]:
    if on_long is None:
        yield shard.skipped(at, end, 1, shard.error(fault, None).message)
    else:
        on_long(at, end, record)


def _fault_at(stream: Stream, end: int) -> Any:
    """The fault of compressed data at `end`, where the stream seems to end; None if it really ends there."""
    if stream.container:
        try:
            stream.read(end, 1)
        except _core.KernelError as error:
            return error.args[0]
    return None
