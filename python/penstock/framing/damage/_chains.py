"""Where heads lead, frame by frame, after damage.

A chain of right heads that leads to the end of the stream is one of records. One that leads to the checksum
of a payload around it is one of frames inside that payload: behind them stands the checksum, and then the
next record or the end of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.framing.framings import Framing
from penstock.framing.streams.stream import Stream

MOST_BYTES = 1 << 62
"""No file is as large; a head may claim more."""
_WINDOW_BYTES = 4 << 20
_FIRST_BYTES = 1 << 16
_FIRST_FRAMES_BYTES = 1 << 12
"""Most chains that lead nowhere are short."""
_LONGEST_CUT = 1 << 24
"""Four bytes at the end of a file that say no more than this may be the first half of a length."""
_KEPT_PLACES = 1 << 20
"""How many places of chains are remembered; from the others, heads are followed again when they are met."""
_PATIENCE_BYTES = 256 << 20
"""What damaged heads claim may be read in vain, and so may chains of frames that have to be read to be
followed, again and again. So much is read of them, and four times the stream, as far as it is known."""
_SMALL_BYTES = 1 << 16
"""What is read of them in any case."""


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


@dataclass(frozen=True, slots=True)
class Led:
    """Where heads lead from a place."""

    to: int
    is_out: bool
    """They lead to the end of the stream, or further than a payload may go on: they are those of records."""
    is_inside: bool = False
    """They lead to the checksum of a payload: they are those of frames inside it."""


class Chains:
    """The chains in a stream that is gone through from front to end. A chain is followed once: what was found
    holds for each of its places, and for the chains that join it."""

    def __init__(self, stream: Stream, framing: Framing) -> None:
        self._stream = stream
        self._framing = framing
        self._led: dict[int, Led] = {}
        self._full_until = 0
        self._read_bytes = 0
        self._claimed_bytes = 0

    def known(self, place: int) -> Led | None:
        """Where heads lead from a place, if it is known that they do not lead out."""
        return self._led.get(place)

    def follow(self, start: int, most_bytes: int | None = None) -> Led:
        """Follow heads for as long as they are right, and at most so far."""
        stream = Unbroken(self._stream)
        checked = self._framing.is_checked
        hops = (
            _by_heads(stream, self._framing, start) if checked else self._by_frames(stream, start)
        )
        chain: list[np.ndarray] = []
        num_places = 0
        led = self._led.get(start)
        at = start
        while led is None:
            hop = next(hops, None)
            if hop is None:
                led = self._end(stream, at)
                break
            at, starts = hop
            if most_bytes is not None and at - start > most_bytes:
                return Led(at, True)
            if num_places < _KEPT_PLACES:
                chain.append(starts)
                num_places += len(starts)
            led = self._led.get(at)
        if most_bytes is not None and led.to - start > most_bytes:
            return Led(led.to, True)
        if not led.is_out:
            self._keep(chain, led, start)
        return led

    def forget(self) -> None:
        """Follow all chains anew: the stream is another one."""
        self._led.clear()

    def spend(self, num_bytes: int, now: int) -> bool:
        """Whether so many bytes may be read that will be in vain if a damaged head has claimed them; they are
        taken for read. `now` is how far the stream has been gone through."""
        if num_bytes <= _SMALL_BYTES:
            return True
        if self._claimed_bytes + num_bytes > self._patience(now):
            return False
        self._claimed_bytes += num_bytes
        return True

    def is_out_of_patience(self, now: int) -> bool:
        """Whether too many frames were read that lead nowhere."""
        return self._read_bytes > self._patience(now)

    def _patience(self, now: int) -> int:
        size = self._stream.size()
        return _PATIENCE_BYTES + 4 * (now if size is None else size)

    def _end(self, stream: Unbroken, at: int) -> Led:
        """What it says that no right head is at `at`."""
        if stream.ends_at(at):
            return Led(at, True)
        if not self._framing.is_checked:
            return Led(at, False)
        tail = self._framing.tail_bytes
        behind = stream.read(at, tail + self._framing.head_bytes)
        if len(behind) > tail:
            rest = behind.slice(tail, len(behind) - tail)
            found = _core.next_head(self._framing.name, rest, 0)
            return Led(at, False, found is not None)
        # So few bytes may also be the beginning of a head, of a record as small as most are.
        is_checksum = len(behind) == tail and self._framing.stored(behind.to_bytes()) > _LONGEST_CUT
        return Led(at, False, is_checksum and stream.ends_at(at + tail))

    def _keep(self, chain: list[np.ndarray], led: Led, now: int) -> None:
        """Keep the places of a chain. Where there are too many, those that were passed are forgotten, and no
        more are kept until enough have been. `now` is how far the stream has been gone through."""
        if len(self._led) > _KEPT_PLACES:
            if now < self._full_until:
                return
            self._led = {place: led for place, led in self._led.items() if place > now}
            self._full_until = now + (max(self._led, default=now) - now) // 2
            if len(self._led) > _KEPT_PLACES:
                return
        for places in chain:
            self._led.update(dict.fromkeys(places.tolist(), led))

    def _by_frames(self, stream: Unbroken, start: int) -> Iterator[tuple[int, np.ndarray]]:
        """As `_by_heads`, where frames have to be read to know where they end."""
        name, at, want = self._framing.name, start, _FIRST_FRAMES_BYTES
        while len(window := stream.read(at, want)):
            last = len(window) < want
            frames, consumed, need, fault = _core.walk(name, window, at, MOST_BYTES, last)
            self._read_bytes += len(window)
            at += consumed
            yield at, as_numpy(frames.starts())
            if fault is not None or (last and need):
                return
            more = min(4 * want, _WINDOW_BYTES)
            want = more if consumed else self._framing.more_bytes(need, want)


def _by_heads(stream: Unbroken, framing: Framing, start: int) -> Iterator[tuple[int, np.ndarray]]:
    """Follow right heads, frame by frame: where they have led so far, and the starts of the frames on the way
    there since the last. A head may lead beyond the end of the stream."""
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
