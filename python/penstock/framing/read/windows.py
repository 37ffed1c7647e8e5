"""Read a plain shard in windows, with several threads in parallel.

Records must be found in order, because only a record's header gives its length, but their bytes can be read in any
order. The call for a window reads its bytes, waits until the previous call reports where the window's first record
starts, finds the records from there on, and reports where the next window's first record starts. That record often
starts before its window, so a window is read with a margin in front.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from penstock import _core
from penstock.contract.format import Chunk
from penstock.engine.threads import wait_for
from penstock.framing.read.held import FrameChunk, Held
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import Walked
from penstock.tuned import (
    CHUNK_BYTES,
    FIRST_WINDOW_BYTES,
    LARGE_CHUNK_BYTES,
    LARGE_RECORD_BYTES,
    WINDOW_BYTES,
)

_FIRST_MARGIN = 64 << 10
_LEAST_MARGIN = 4 << 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Start:
    """What the call for one window reports to the next."""

    at: int
    """Where the next frame starts: in the next window or before it."""
    record: int
    end: int = 0
    """The earliest possible end of that frame. No record ends in a window that ends before it."""
    margin: int = _FIRST_MARGIN
    """How far before its window the first record may start: at least twice the mean frame size."""
    ended: bool = False
    """Whether the windows end here, at a fault or because a call raised an error."""


_Rest = tuple[int, int] | None
"""Where a fault ends the windows: the offset and the number of the record there. None without a fault."""


class _Handover(Generic[T]):
    """Passes a value from one call to the next."""

    def __init__(self) -> None:
        self._value: list[T] = []
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def put(self, value: T) -> None:
        with self._lock:
            self._value.append(value)
            self._changed.notify_all()

    def get(self) -> T:
        with self._lock:
            wait_for(self._changed, lambda: bool(self._value))
            return self._value[0]


class _Link:
    """What one call passes to the next: first where to start, then where a fault is, if any."""

    def __init__(self) -> None:
        self.start: _Handover[_Start] = _Handover()
        self.rest: _Handover[_Rest] = _Handover()


class Windows:
    """The windows of a shard of `size` bytes.

    Iterate over calls that return one chunk, or nothing if no record ends in the window. A call may wait for the call
    before it, which must already be running. The calls find the records before the first fault, and `rest` returns the
    fault's position, from which `walked_chunks` continues. If damage is skipped, a wrong checksum is such a fault, too.
    """

    def __init__(self, shard: OpenShard, size: int) -> None:
        self._shard = shard
        self._size = size
        self._latest = _Start(shard.begin, 0)
        """The latest start that any call reported. It only avoids needless reads, so it needs no lock."""
        self._last = _Link()
        self._last.start.put(self._latest)
        self._last.rest.put(None)

    def __iter__(self) -> Iterator[Callable[[], Sequence[FrameChunk]]]:
        begin, length = self._shard.begin, FIRST_WINDOW_BYTES
        before = self._last
        while begin < self._size and not self._latest.ended:
            after = self._last = _Link()
            yield partial(self._chunk, begin, begin + length, before, after)
            is_first = begin == self._shard.begin
            begin, before = begin + length, after
            if is_first:
                is_large = after.start.get().margin >= 2 * LARGE_RECORD_BYTES
                length = LARGE_CHUNK_BYTES if is_large else WINDOW_BYTES

    def rest(self) -> _Rest:
        """Where a fault ends the windows; waits for the last call."""
        return self._last.rest.get()

    def _chunk(self, begin: int, end: int, before: _Link, after: _Link) -> Sequence[FrameChunk]:
        rest: _Rest = None  # stays None after an error, which ends the scan
        try:
            chunk, start, told = self._found(begin, end, before, after)
            rest = (told.at, told.record) if told.ended else None
            if self._shard.verifies_to_find:
                if chunk is not None and chunk.data.frames.verify():
                    chunk, rest = None, (start.at, start.record)
                if (earlier := before.rest.get()) is not None:
                    chunk, rest = None, earlier
                if rest is not None:
                    self._latest = replace(told, ended=True)
        finally:
            after.rest.put(rest)
        return () if chunk is None else (chunk,)

    def _found(
        self, begin: int, end: int, before: _Link, after: _Link
    ) -> tuple[Chunk[Held] | None, _Start, _Start]:
        """The chunk of a window, where its records start, and what was reported to the next call."""
        told = replace(self._latest, ended=True)  # reported if an error is raised below
        try:
            buffer = self._read(begin, end)
            start = before.start.get()
            chunk, told = self._cut(start, end, buffer)
        finally:
            self._latest = told
            after.start.put(told)
        return chunk, start, told

    def _read(self, begin: int, end: int) -> tuple[int, _core.Buffer] | None:
        """The start and the bytes of a window with its margin; None if it is not needed."""
        known, shard = self._latest, self._shard
        base = max(begin - known.margin, shard.begin)
        # The call that finds the end of a long record reads all of it.
        is_within_a_record = known.end > begin and known.at < base
        if known.ended or is_within_a_record:
            return None
        return base, shard.stream.read(base, min(end, self._size) - base)

    def _cut(
        self, start: _Start, end: int, window: tuple[int, _core.Buffer] | None
    ) -> tuple[Chunk[Held] | None, _Start]:
        """The chunk of a window, and what to report to the next call."""
        at_end = end >= self._size
        end = min(end, self._size)
        if start.ended or start.at >= end or (start.end > end and not at_end):
            return None, start
        frames, consumed, need, fault, num_bytes = self._walked(start, end, window)
        at_end = self._shard.is_last(start.at, end - start.at, num_bytes) or at_end
        count, at = len(frames), start.at + consumed
        chunk, margin = None, start.margin
        if count:
            verified = self._shard.verifies_to_find
            chunk = Chunk(start.record, count, start.at, at, Held(frames, verified=verified))
            margin = max(_LEAST_MARGIN, 2 * consumed // count)
        next_end = at
        if need:
            next_end += need if count else self._shard.framing.more_bytes(need, num_bytes)
        margin = min(max(margin, end - at), CHUNK_BYTES)
        ended = fault is not None or (need > 0 and at_end)
        return chunk, _Start(at, start.record + count, next_end, margin, ended)

    def _walked(self, start: _Start, end: int, window: tuple[int, _core.Buffer] | None) -> Walked:
        """The frames from `start` on: found in the window's bytes if these include that start, else read again."""
        shard, limit, at = self._shard, self._shard.record_bytes, start.at
        if window is None or at < window[0]:
            return shard.stream.walk(shard.framing, at, end - at, limit)
        part = window[1].slice(at - window[0], end - at)
        last = end == self._size or len(part) < end - at
        return Walked(*_core.walk(shard.framing.name, part, at, limit, last), len(part))
