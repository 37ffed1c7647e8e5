"""A plain shard read in windows, by several threads side by side.

Only its head says where a record ends, so frames are found in order. Bytes need not be read in order:
each thread reads a window, and walks over it once the one before has said where the first record
begins. That lies a little before the window, so a window is read with a margin in front of it. Where heads
have checksums, a thread need not wait: it walks from the first place on that looks like a head, and what it
found is taken if it came by the right place, as it nearly always does.
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
from penstock.framing.stream import Walked
from penstock.pipeline import wait_for

_FIRST_BYTES = 256 << 10
"""Of the first window: the others wait for it."""
_WINDOW_BYTES = 2 * CHUNK_BYTES
"""Of the others: threads that hand over to each other want to do so less often than one alone."""
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


@dataclass(frozen=True, slots=True)
class _Window:
    """What was read before anybody knew where its first record begins."""

    base: int
    buffer: _core.Buffer
    guess: Walked | None = None
    """A walk over it from a likely place on."""


class Windows:
    """The windows of a shard of `size` bytes; iterate for calls that give a chunk each, or None where no
    record ends in the window. Each call may wait for the one before it, which has to be under way. Errors
    come behind the records before them, as from `walked_chunks`. With `prove`, records that will be proved
    may be so at once."""

    def __init__(self, shard: Shard, size: int, prove: bool) -> None:
        self._shard = shard
        self._prove = prove
        self._size = size
        self._known = threading.Condition()
        self._places = {0: _Place(shard.begin, 0)}
        self._last = self._places[0]

    def __iter__(self) -> Iterator[Callable[[], Chunk | None]]:
        start, length = self._shard.begin, _FIRST_BYTES
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
            wait_for(self._known, lambda: 1 in self._places)
            is_large = self._places[1].margin >= 2 * LARGE_BYTES
        return LARGE_CHUNK_BYTES if is_large else _WINDOW_BYTES

    def _chunk(self, number: int, start: int, end: int) -> Chunk | None:
        after = replace(self._last, ended=True)
        try:
            window = self._read(start, end)
            place = self._wait_for(number)
            chunk, after = self._walked(place, number, end, window)
            return chunk
        finally:
            self._tell(number + 1, after)

    def _read(self, start: int, end: int) -> _Window | None:
        """A window with its margin; nothing where nobody will want it."""
        known, shard = self._last, self._shard
        skipped = known.until > end and end < self._size
        if known.ended or known.fault is not None or skipped or start >= self._size:
            return None
        base = max(start - known.margin, shard.begin)
        length = min(end, self._size) - base
        if not shard.framing.is_checked:
            return _Window(base, shard.stream.read(base, length))
        # What looks like a head mostly is one.
        limit, prove = shard.record_bytes, self._prove
        guess = shard.stream.walk(shard.framing, base, length, limit, prove=prove, find=True)
        return _Window(base, guess[0].buffer, guess)

    def _walked(
        self, place: _Place, number: int, end: int, window: _Window | None
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
        frames, consumed, need, fault, num_bytes = self._from(at, end, window)
        at_end = at_end or num_bytes < end - at
        count, at = len(frames), at + consumed
        chunk, margin = None, place.margin
        if count:
            chunk = Chunk(number, place.record, count, place.at, at, Held(frames))
            margin = max(_LEAST_MARGIN, 2 * consumed // count)
        until = at
        if fault is None and need:
            if at_end:
                fault = cut(shard, num_bytes - consumed, at, need)
            else:
                until = at + (need if count else shard.framing.more_bytes(need, num_bytes))
        margin = min(max(margin, end - at), CHUNK_BYTES)
        return chunk, _Place(at, place.record + count, until, margin, fault)

    def _from(self, at: int, end: int, window: _Window | None) -> Walked:
        """A walk from the right place on: that of the guess, if it came by there."""
        shard, limit = self._shard, self._shard.record_bytes
        if window is None or at < window.base:
            return shard.stream.walk(shard.framing, at, end - at, limit, prove=self._prove)
        skipped = at - window.base
        if window.guess is not None:
            frames, consumed, need, fault, num_bytes = window.guess
            rest = None if fault is not None else frames.since(at)
            if rest is not None:
                return rest, consumed - skipped, need, None, num_bytes - skipped
        part = window.buffer.slice(skipped, end - at)
        last = end == self._size or len(part) < end - at
        return *_core.walk(shard.framing.name, part, at, limit, last), len(part)

    def _wait_for(self, number: int) -> _Place:
        with self._known:
            wait_for(self._known, lambda: number in self._places)
            return self._places.pop(number)

    def _tell(self, number: int, place: _Place) -> None:
        with self._known:
            self._places[number] = self._last = place
            self._known.notify_all()
