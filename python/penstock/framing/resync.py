"""Where records go on after damage, without ever taking a record's contents for records.

A payload may itself hold frames (a TFRecord inside a TFRecord), so a right-looking head proves
nothing. After a broken frame at a known border, a later place is believed only if

1. the bytes up to it are exactly one frame whose payload matches its stored checksum (only the
   head was damaged), and the heads from there on do not lead to the checksum of a payload around
   them (`follow`), or
2. the heads from there on lead, frame by frame, to the very end of the stream. Frames inside a
   payload cannot: their chain ends at the payload's own checksum, four bytes before a border.

Eight bytes and their checksum look the same as a frame's head, so under 1 a payload of eight bytes
is believed only if the broken head still half says so. A head that is right, and claims more than
there is or than is allowed, is believed as well: what it claims is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.framing.framings import Framing
from penstock.framing.stream import Stream
from penstock.numbers import as_numpy

_WINDOW_BYTES = 4 << 20
_FIRST_BYTES = 1 << 16
MOST_BYTES = 1 << 62
"""No file is as large; a head may claim more."""
_LONGEST_CUT = 1 << 24
"""Four bytes at the end of a file that say no more than this may be the first half of a length."""
_KEPT_HEADS = 1 << 20
"""How many heads of dead chains are remembered; the others are walked again when they are met."""
_PATIENCE_BYTES = 256 << 20
"""Chains of frames that have to be read to be followed may lead nowhere again and again, and share
what they lead through. So much is read of them, and four times the file, before all is given up."""


@dataclass(frozen=True, slots=True)
class Region:
    """What to pass over: up to `end_byte`, which is the end of the stream if `at_end`."""

    end_byte: int
    num_records: int | None
    at_end: bool
    unproved: bool = False
    leads_to_end: bool = False
    """Whether heads lead from there to the end of the stream."""
    note: str | None = None


class Places:
    """Places in a stream that is gone through from front to end. Where there are too many, those that were
    passed are forgotten, and no more are kept until enough have been."""

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._full_until = 0

    def __contains__(self, place: int) -> bool:
        return place in self._kept

    def add(self, chain: list[np.ndarray], now: int) -> None:
        """Keep the places of a chain. `now` is how far the stream has been gone through."""
        if len(self._kept) > _KEPT_HEADS:
            if now < self._full_until:
                return
            self._kept = {place for place in self._kept if place > now}
            self._full_until = now + (max(self._kept, default=now) - now) // 2
            if len(self._kept) > _KEPT_HEADS:
                return
        for part in chain:
            self._kept.update(part.tolist())


def resynchronise(
    stream: Stream,
    framing: Framing,
    broken: int,
    salvage: bool,
    unproved: bool = False,
    *,
    dead: Places,
    claimed: int | None = None,
) -> Region:
    """Find where to go on after the broken frame that starts at `broken`, which is itself the
    border of a record unless it is `unproved`. `claimed`: its head is right, and bytes of its payload are
    missing, so that it ends before there, where its head says. Frames inside it end before there too, so
    only one that goes on beyond can be another record. `dead`: places of the stream
    from which heads do not lead to its end; more are added, for the next search."""
    if salvage and not unproved and claimed is None:
        region = resynchronise(stream, framing, broken, False, dead=dead)
        if region.num_records == 1:
            return region  # one record: what is inside it is proved to be none
    bytes_left = Unbroken(stream)
    own = bytes_left.read(broken, framing.head_bytes)
    claim = _core.next_head(framing.name, own, 0) if claimed is None else None
    if claim is not None:
        end = broken + claim[1]
        if len(bytes_left.read(end - 1, 1)):
            return Region(end, 1, False)
        if not salvage:
            return Region(bytes_left.end(end), None, True)
    search = _Search(bytes_left, framing, broken, own.to_bytes(), claimed, dead)
    at, want = broken + 1, _FIRST_BYTES
    while True:
        window = bytes_left.read(at, want)
        offset = 0
        while (found := _core.next_head(framing.name, window, offset)) is not None:
            region = search.try_at(at + found[0], found[1], salvage)
            if region is not None:
                return region
            offset = found[0] + 1
        if len(window) < want:
            return Region(at + len(window), None, True)
        at += len(window) - (framing.look_bytes - 1)
        want = _WINDOW_BYTES


class Unbroken:
    """A stream that ends where what is compressed breaks off."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.breaks_off = False

    def read(self, start: int, length: int) -> _core.Buffer:
        if start > MOST_BYTES:
            return _core.Buffer.from_bytes(b"")  # a head may claim more than files can be
        try:
            return self._stream.read(start, length)
        except _core.KernelError:
            self.breaks_off = True
            return _core.Buffer.from_bytes(b"")

    @property
    def size(self) -> int | None:
        """Where the stream ends, if it is known."""
        return self._stream.size()

    def ends_at(self, place: int) -> bool:
        """Whether the stream ends there, whole and not before."""
        is_end = not len(self.read(place, 1)) and len(self.read(place - 1, 1)) == 1
        return is_end and not self.breaks_off

    def end(self, claimed: int) -> int:
        """Where the stream ends, if it is known; else where it was claimed to go on to."""
        return claimed if self.size is None else min(claimed, self.size)


def _hops(stream: Unbroken, framing: Framing, start: int) -> Iterator[tuple[int, np.ndarray]]:
    """Follow right heads, frame by frame, as far as they lead: where they have led so far, and the starts of
    the frames on the way there since the last. A head may lead beyond the end of the stream."""
    at, want = start, _FIRST_BYTES
    while True:
        window = stream.read(at, want)
        frames, consumed, need, fault = _core.walk(framing.name, window, at, MOST_BYTES)
        at += consumed
        yield at, as_numpy(frames.starts())
        if fault is not None:
            return
        if need > framing.head_bytes:
            yield at + need, np.array([at], dtype=np.uint64)
            at += need
        elif len(window) < want:
            return
        want = _WINDOW_BYTES


@dataclass(frozen=True, slots=True)
class Led:
    """Where heads lead from a place."""

    to: int
    is_out: bool
    """They lead to the end of the stream, or further than a payload may go on: they are those of records."""
    is_inside: bool
    """They lead to the checksum of a payload: they are those of frames inside it."""


def follow(stream: Unbroken, framing: Framing, start: int, most_bytes: int) -> Led:
    """Follow heads for as long as they are right, and at most so far. Behind the frames inside a payload
    stands its checksum, and then the next record or the end of the stream."""
    at = start
    for at, _ in _hops(stream, framing, start):
        if at - start > most_bytes:
            return Led(at, True, False)
    if stream.ends_at(at):
        return Led(at, True, False)
    tail = framing.tail_bytes
    behind = stream.read(at, tail + framing.head_bytes)
    if len(behind) > tail:
        found = _core.next_head(framing.name, behind.slice(tail, len(behind) - tail), 0)
        return Led(at, False, found is not None)
    # So few bytes may also be the beginning of a head, of a record as small as most are.
    is_checksum = len(behind) == tail and framing.stored(behind.to_bytes()) > _LONGEST_CUT
    return Led(at, False, is_checksum and not stream.breaks_off)


class _Search:
    """Tries one place after another, in rising order."""

    def __init__(
        self,
        stream: Unbroken,
        framing: Framing,
        broken: int,
        head: bytes,
        claimed: int | None,
        dead: Places,
    ) -> None:
        self._stream = stream
        self._framing = framing
        self._broken = broken
        self._head = head
        self._claimed = claimed
        self._dead = dead
        self._seen = Places()
        """Those of them that this search has come by."""
        # The CRC of the broken frame's payload, if it ended at one candidate after another.
        self._crc = 0
        self._crc_end = broken + framing.head_bytes
        size = stream.size
        self._patience = None if size is None else _PATIENCE_BYTES + 4 * size

    def try_at(self, start: int, total: int, salvage: bool) -> Region | None:
        """The region that ends at `start`, if records are believed to go on there."""
        if start in self._seen:
            return None
        if self._patience is not None and self._patience < 0:
            return Region(self._stream.end(MOST_BYTES), None, True)
        if self._claimed is None and self._is_end_of_payload(start) and not self._is_inside(start):
            note = "its payload matches its checksum, only its head is damaged"
            return Region(start, 1, False, note=note)
        beyond = self._claimed is None or start + total + self._framing.tail_bytes > self._claimed
        if beyond and start not in self._dead and self._reaches_end(start):
            return Region(start, None, False, leads_to_end=True)
        if salvage and self._is_whole(start, total):
            return Region(start, None, False, unproved=True)
        return None

    def _is_end_of_payload(self, end: int) -> bool:
        """Whether the broken frame is whole up to `end`, but for its head."""
        framing = self._framing
        length = end - self._broken - framing.least_bytes
        if length < 0 or framing.checksum(0) is None:
            return False
        if length == 8 and not framing.half_says(self._head, length):
            return False
        stop = end - framing.tail_bytes
        while self._crc_end < stop:
            part = self._stream.read(self._crc_end, min(_WINDOW_BYTES, stop - self._crc_end))
            if not len(part):
                return False
            self._crc = part.crc32c(self._crc)
            self._crc_end += len(part)
        tail = self._stream.read(stop, framing.tail_bytes).to_bytes()
        return framing.stored(tail) == framing.checksum(self._crc)

    def _is_inside(self, start: int) -> bool:
        """Whether what is whole up to `start` is a frame inside a payload, and not a record."""
        return follow(self._stream, self._framing, start, MOST_BYTES).is_inside

    def _reaches_end(self, start: int) -> bool:
        """Whether the heads from `start` on lead to the end."""
        if not self._framing.is_checked:
            return self._walks_to_end(start)
        chain: list[np.ndarray] = []
        num_heads = 0
        at = start
        for at, starts in _hops(self._stream, self._framing, start):
            if num_heads < _KEPT_HEADS:
                chain.append(starts)
                num_heads += len(starts) + 1
            if at in self._dead:
                break
        reached = at not in self._dead and self._stream.ends_at(at)
        if not reached:
            self._forget(chain, start)
        return reached

    def _walks_to_end(self, start: int) -> bool:
        """The same where frames have to be read to know where they end."""
        framing = self._framing
        chain: list[np.ndarray] = []
        num_heads = 0
        at, want = start, _FIRST_BYTES
        while True:
            window = self._stream.read(at, want)
            if not len(window):
                return at > start and not self._stream.breaks_off
            last = len(window) < want
            frames, consumed, need, fault = _core.walk(framing.name, window, at, MOST_BYTES, last)
            if self._patience is not None:
                self._patience -= len(window)
            if num_heads < _KEPT_HEADS:
                chain.append(as_numpy(frames.starts()))
                num_heads += len(frames)
            at += consumed
            if fault is not None or (last and need) or at in self._dead:
                self._forget(chain, start)
                return False
            want = _WINDOW_BYTES if consumed else framing.more_bytes(need, want)

    def _forget(self, chain: list[np.ndarray], start: int) -> None:
        """Note the places of a chain that leads nowhere."""
        self._dead.add(chain, start)
        self._seen.add(chain, start)

    def _is_whole(self, start: int, total: int) -> bool:
        """Whether the frame at `start` is whole and right in itself."""
        if total > _WINDOW_BYTES * 64:
            return False
        frame = self._stream.read(start, total)
        frames, consumed, _, fault = _core.walk(self._framing.name, frame, start, total)
        return fault is None and consumed == total == len(frame) and not frames.verify(None)
