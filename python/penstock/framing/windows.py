"""A plain shard read in windows, by several threads side by side.

Only its head says where a record ends, so frames are found in order. Bytes need not be read in order:
each thread reads a window, and walks over it once the one before has said where the first record
begins. That lies a little before the window, so a window is read with a margin in front of it.
All windows but the first are of one size, which the records of the first decide.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock import _core
from penstock.format import Chunk
from penstock.framing.chunks import CHUNK_BYTES, LARGE_BYTES, LARGE_CHUNK_BYTES, cut
from penstock.framing.held import Held
from penstock.framing.shard import Shard

_FIRST_MARGIN = 64 << 10
_LEAST_MARGIN = 4 << 10


@dataclass(frozen=True, slots=True)
class _Place:
    """What is known where a window begins."""

    at: int
    """Where the next frame starts, at the window or before it."""
    record: int
    """Its number."""
    until: int = 0
    """It ends there at the earliest, and is not looked at before."""
    margin: int = _FIRST_MARGIN
    """Bytes before the window in which it probably starts: those of two records."""
    fault: Any = None
    """Why there is no such frame."""
    ended: bool = False
    """There are no more, and all was said."""


class Windows:
    """The windows of a shard of `size` bytes; iterate for calls that give a chunk each, or None where no
    record ends in the window. Each call may wait for the one before it, which has to be under way. Errors
    come behind the records before them, as from `walked_chunks`."""

    def __init__(self, shard: Shard, size: int) -> None:
        self._shard = shard
        self._size = size
        self._known = threading.Condition()
        self._places = {0: _Place(shard.begin, 0)}
        self._last = self._places[0]

    def __iter__(self) -> Iterator[Callable[[], Chunk | None]]:
        start, length = self._shard.begin, CHUNK_BYTES
        for number in itertools.count():
            yield partial(self._chunk, number, start, start + length)
            # One more than there are: what is wrong with the last has its turn after the last.
            if start >= self._size or self._last.ended:
                return
            start += length
            if number == 0:
                length = self._length()

    def _length(self) -> int:
        """Bytes of a window, once the first has been walked over."""
        with self._known:
            while 1 not in self._places:
                self._known.wait()
            is_large = self._places[1].margin >= 2 * LARGE_BYTES
        return LARGE_CHUNK_BYTES if is_large else CHUNK_BYTES

    def _chunk(self, number: int, start: int, end: int) -> Chunk | None:
        after = replace(self._last, ended=True)
        try:
            base, window = self._read(start, end)
            place = self._wait_for(number)
            chunk, after = self._walked(place, number, end, base, window)
            return chunk
        finally:
            self._tell(number + 1, after)

    def _read(self, start: int, end: int) -> tuple[int, _core.Buffer | None]:
        """A window with its margin, and where they begin; nothing where nobody will want it."""
        known = self._last
        skipped = known.until > end and end < self._size
        if known.ended or known.fault is not None or skipped or start >= self._size:
            return start, None
        base = max(start - known.margin, self._shard.begin)
        return base, self._shard.stream.read(base, min(end, self._size) - base)

    def _walked(
        self, place: _Place, number: int, end: int, base: int, window: _core.Buffer | None
    ) -> tuple[Chunk | None, _Place]:
        """The chunk of a window, and what is known behind it."""
        shard, at = self._shard, place.at
        if place.fault is not None:
            shard.stop_at(place.fault, place.record, at)
            return None, replace(place, ended=True)
        end = min(end, self._size)
        at_end = end == self._size
        if place.ended or at >= end or (place.until > end and not at_end):
            return None, place
        if window is None or at < base:
            base, window = at, shard.stream.read(at, end - at)
        part = window.slice(at - base, end - at)
        at_end = at_end or len(part) < end - at
        walked = _core.walk(shard.framing.name, part, at, shard.record_bytes, at_end)
        frames, consumed, need, fault = walked
        count, at = len(frames), at + consumed
        chunk, margin = None, place.margin
        if count:
            chunk = Chunk(number, place.record, count, place.at, at, Held(frames))
            margin = max(_LEAST_MARGIN, 2 * consumed // count)
        until = at
        if fault is None and need:
            if at_end:
                fault = cut(shard, len(part) - consumed, at, need)
            else:
                until = at + (need if count else shard.framing.more_bytes(need, len(part)))
        margin = min(max(margin, end - at), CHUNK_BYTES)
        return chunk, _Place(at, place.record + count, until, margin, fault)

    def _wait_for(self, number: int) -> _Place:
        with self._known:
            while number not in self._places:
                self._known.wait()
            return self._places.pop(number)

    def _tell(self, number: int, place: _Place) -> None:
        with self._known:
            self._places[number] = self._last = place
            self._known.notify_all()
