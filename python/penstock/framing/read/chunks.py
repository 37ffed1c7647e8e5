"""Where a framed shard is cut into chunks: by its index, by a walk, or around what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.contract.format import Chunk
from penstock.framing.damage.damaged import surveyed_chunks
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.read.held import Held
from penstock.framing.read.shard import CHUNK_BYTES, LARGE_BYTES, LARGE_CHUNK_BYTES, Shard
from penstock.framing.streams.inflated import InflatedStream
from penstock.framing.streams.stream import Stream

SAMPLE_BYTES = 4 << 20
"""Plain bytes of records that are looked at for a schema, unless all are."""
_FIRST_OF_SAMPLE_BYTES = 256 << 10
"""Plain bytes of the first chunk of a sample: a thousand small records."""


OnLong = Callable[[int, int, int], None]
"""Called about a record that is longer than is read: where it starts, where it ends, its number."""


def indexed_chunks(index: Index, most: int | None = None) -> Iterator[Chunk]:
    """Cut a shard at records (a compressed one, at its points) about as far apart as chunks are large. A record of
    more than `most` bytes is a chunk of its own."""
    first = 0
    borders = index.starts
    alone = _edges_of_long(index, most)
    points = np.array([p.plain_start for p in index.points], dtype=np.uint64)
    large = index.plain_bytes >= LARGE_BYTES * index.num_records and not len(points)
    wanted = LARGE_CHUNK_BYTES if large else CHUNK_BYTES
    while first < index.num_records:
        # Searched for as uint64: a Python int would make numpy convert all of the index.
        goal = np.uint64(min(int(borders[first]) + wanted, index.plain_bytes))
        if len(points):
            later = np.searchsorted(points, goal, "left")
            goal = points[later] if later < len(points) else np.uint64(index.plain_bytes)
        # The first record at or after a point: one before it would cost the stretch before.
        last = int(np.searchsorted(borders, goal, "left"))
        last = min(max(last, first + 1), index.num_records)
        if len(alone):
            later = int(np.searchsorted(alone, first, "right"))
            last = min(last, int(alone[later])) if later < len(alone) else last
        bounds = int(borders[first]), int(borders[last])
        yield Chunk(first, last - first, *bounds, index)
        first = last


def _edges_of_long(index: Index, most: int | None) -> np.ndarray:
    """The numbers of records that are longer, and of those behind them; rising."""
    if most is None or index.plain_bytes <= most:
        return np.zeros(0, np.int64)
    long = np.flatnonzero(np.diff(index.starts) > np.uint64(min(most, 1 << 63)))
    return np.unique(np.concatenate([long, long + 1]))


def sample_chunks(shard: Shard) -> Iterator[Chunk]:
    """`walked_chunks` for who looks at the first records only: the first chunk is small, since what is
    read, and perhaps inflated, for a look is read once more by a scan."""
    return walked_chunks(shard, first_bytes=_FIRST_OF_SAMPLE_BYTES)


def walked_chunks(
    shard: Shard,
    points: list[SeekPoint] | None = None,
    *,
    first_bytes: int = CHUNK_BYTES,
    alone: bool = False,
    start: tuple[int, int] | None = None,
    on_long: OnLong | None = None,
) -> Iterator[Chunk]:
    """Cut a shard where a walk over its frames comes to the end of a window.

    It begins at `start`, a place and the number of the record there. `on_long` is called
    about a record that is longer than is read, which then is in no chunk; without it that is a fault, unless it is to be
    skipped.

    Where reading goes on after damage, it goes on with the survey of `verify`: a plain shard's at
    the first fault, a compressed one's from the start. A survey of compressed data adds to
    `points`, if given, where inflating may start. With `alone`, one thread decodes each chunk before the
    next is cut: what it reads to find records is read for good, and proved at once if it is to be proved as it is found.
    """
    if shard.goes_on and shard.stream.container:
        yield from surveyed_chunks(shard, 0, 0, points)
        return
    at, first = start or (shard.begin, 0)
    pace = _Pace(shard, first_bytes, alone)
    stream = shard.stream
    while True:
        if pace.hops and (hopped := _hop(shard, at)) is not None:
            count, end = hopped
            yield Chunk(first, count, at, end)
            first, at = first + count, end
            continue
        want = pace.window_bytes
        try:
            walked = stream.walk(shard.framing, at, want, shard.record_bytes, prove=pace.proves)
        except _core.KernelError as error:
            if isinstance(stream, InflatedStream) and stream.points:
                # Members were inflated whole, several at once: reading forwards tells which of
                # them breaks, and gives what is before that.
                stream, pace.window_bytes = stream.without_points(), CHUNK_BYTES
                continue
            shard.stop_in_file(error.args[0], first)
            return
        frames, consumed, need, fault, num_bytes = walked
        at_end = shard.is_last(at, want, num_bytes)
        if not num_bytes:
            return
        if consumed and not len(frames):
            at += consumed  # nothing but padding
            continue
        if shard.proves_to_find and frames.verify():
            yield from surveyed_chunks(shard, at, first, points)
            return
        if len(frames):
            yield Chunk(first, len(frames), at, at + consumed, Held(frames))
            first, at = first + len(frames), at + consumed
            pace.learn(consumed, len(frames))
        if fault is None and need and at_end:
            broken = _fault_at(stream, at + num_bytes - consumed)
            if broken is not None and not shard.goes_on:
                broken = shard.cut_inside(broken, num_bytes - consumed, need)
                shard.stop_in_file(broken, first)
                return
            fault = shard.cut(num_bytes - consumed, at, need)
        elif not len(frames):
            pace.widen(need)
        if fault is not None:
            if (passed := _passed(shard, stream, fault, at, first, on_long)) is not None:
                first, at = first + 1, passed
                pace.window_bytes = CHUNK_BYTES
                continue
            yield from _behind(shard, fault, at, first, points)
            return


def _behind(
    shard: Shard, fault: Any, at: int, first: int, points: list[SeekPoint] | None
) -> Iterator[Chunk]:
    """The chunks behind a fault, where reading goes on after damage."""
    if shard.goes_on:
        yield from surveyed_chunks(shard, at, first, points)
    else:
        shard.stop_at(fault, first, at)


def _passed(
    shard: Shard, stream: Stream, fault: Any, at: int, record: int, on_long: OnLong | None
) -> int | None:
    """The end of a record that is longer than is read, where reading goes on behind it."""
    if fault.kind != "limit" or shard.goes_on or not (on_long or shard.skips_long):
        return None  # around damage a survey looks first whether its head leads to a record
    try:
        end = shard.end_of_long(stream, at)
    except _core.KernelError:
        return None  # the compressed data breaks in it
    if end is not None and on_long is not None:
        on_long(at, end, record)
    elif end is not None:
        shard.skip(at, end, 1, shard.error(fault, None).message)
    return end


class _Pace:
    """How much of a shard a walk reads at once, and whether it reads at all to find records."""

    def __init__(self, shard: Shard, first_bytes: int, alone: bool) -> None:
        self.window_bytes = first_bytes
        self.hops = False
        self.proves = shard.proves_found(0) if alone else shard.proves_to_find
        self._shard = shard
        self._alone = alone

    def learn(self, num_bytes: int, num_records: int) -> None:
        """Records of so many bytes were found."""
        large = num_bytes >= LARGE_BYTES * num_records
        # The front of a record at a window's end is read twice: too much of it, if there are but few.
        shared = self._alone and num_bytes < LARGE_CHUNK_BYTES // 16 * num_records
        if self._alone:
            self.proves = self._shard.proves_found(num_bytes / num_records)
        self.hops = large and not shared and not self._shard.proves_to_find
        # What is inflated is kept for a look back, and larger windows would leave a cache.
        wide = large and not self._shard.stream.container
        self.window_bytes = LARGE_CHUNK_BYTES if wide else CHUNK_BYTES

    def widen(self, need: int) -> None:
        """The window did not hold one record, which needs so many bytes at least."""
        more = self._shard.framing.more_bytes(need, self.window_bytes)
        self.window_bytes = max(more, CHUNK_BYTES)


def _hop(shard: Shard, at: int) -> tuple[int, int] | None:
    """How many records the next chunk has and where it ends, if heads are enough to tell: the
    bytes of such chunks are then read side by side."""
    if not shard.framing.is_checked:
        return None  # heads do not tell
    starts = shard.stream.hop(shard.framing, at, LARGE_CHUNK_BYTES, shard.record_bytes)
    if starts is None or len(starts) < 2:
        return None
    return len(starts) - 1, int(starts[-1])


def _fault_at(stream: Stream, end: int) -> Any:
    """The fault of compressed data right where a stream seems to end; None where it does end."""
    if stream.container:
        try:
            stream.read(end, 1)
        except _core.KernelError as error:
            return error.args[0]
    return None
