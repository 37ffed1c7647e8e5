"""Follow headers from frame to frame after damage.

Intact headers that lead to the end of the stream belong to records. Headers inside a payload lead to that payload's
checksum, which is followed by the next record or the end of the stream.
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
"""Larger than any file. A damaged header may claim more."""
_WINDOW_BYTES = 4 << 20
_FIRST_BYTES = 1 << 16
_FIRST_FRAMES_BYTES = 1 << 12
"""Bytes of the first read of frames: most chains inside payloads are short."""
_LONGEST_CUT = 1 << 24
"""If the last four bytes of a file have at most this value, they may be the first half of a length."""
_KEPT_PLACES = 1 << 20
"""How many chain offsets are remembered. Other headers are followed again."""
_PATIENCE_BYTES = 256 << 20
"""Bytes that damaged headers claim may be read in vain, and frames may be read repeatedly to follow their headers. Each
of these two is limited to this number of bytes plus four times the size of the stream."""
_SMALL_BYTES = 1 << 16
"""Reads of up to this size are always allowed."""


class Unbroken:
    """A stream that ends where its compressed data breaks off."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.breaks_off = False

    def read(self, start: int, length: int) -> _core.Buffer:
        if start > MOST_BYTES:
            # A header may claim more bytes than a file can hold.
            return _core.Buffer.from_bytes(b"")
        try:
            return self._stream.read(start, length)
        except _core.KernelError:
            self.breaks_off = True
            return _core.Buffer.from_bytes(b"")

    @property
    def size(self) -> int | None:
        return self._stream.size()

    def ends_at(self, place: int) -> bool:
        """Whether the stream is intact up to this offset and ends there."""
        is_end = not len(self.read(place, 1)) and len(self.read(place - 1, 1)) == 1
        return is_end and not self.breaks_off

    def end(self, claimed: int) -> int:
        """The end of the stream, if known; otherwise the claimed end."""
        return claimed if self.size is None else min(claimed, self.size)


@dataclass(frozen=True, slots=True)
class Lead:
    """Where the headers from an offset lead."""

    to: int
    is_out: bool
    """To the end of the stream, or beyond any payload: they belong to records."""
    is_inside: bool = False
    """To the checksum of a payload: they belong to frames inside it."""


class HeaderChains:
    """The header chains of a stream that is read from start to end. Each chain is followed only once: the result is
    also valid for its later offsets, and for chains that join it."""

    def __init__(self, stream: Stream, framing: Framing) -> None:
        self._stream = stream
        self._framing = framing
        self._led: dict[int, Lead] = {}
        self._full_until = 0
        self._read_bytes = 0
        self._claimed_bytes = 0

    def known(self, place: int) -> Lead | None:
        """Where the headers from an offset lead, if they were followed before. None for headers that lead to the end of
        the stream, because these are not remembered."""
        return self._led.get(place)

    def follow(self, start: int, most_bytes: int | None = None) -> Lead:
        """Follow intact headers. A chain longer than `most_bytes` is assumed to consist of records."""
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
                return Lead(at, True)
            if num_places < _KEPT_PLACES:
                chain.append(starts)
                num_places += len(starts)
            led = self._led.get(at)
        if most_bytes is not None and led.to - start > most_bytes:
            return Lead(led.to, True)
        if not led.is_out:
            self._keep(chain, led, start)
        return led

    def forget(self) -> None:
        self._led.clear()

    def spend(self, num_bytes: int, now: int) -> bool:
        """Whether the limit allows reading `num_bytes` bytes that a damaged header may have claimed. Allowed bytes
        count towards the limit. `now` is the progress in the stream."""
        if num_bytes <= _SMALL_BYTES:
            return True
        if self._claimed_bytes + num_bytes > self._patience(now):
            return False
        self._claimed_bytes += num_bytes
        return True

    def is_out_of_patience(self, now: int) -> bool:
        """Whether the limit for following frames is reached."""
        return self._read_bytes > self._patience(now)

    def _patience(self, now: int) -> int:
        size = self._stream.size()
        return _PATIENCE_BYTES + 4 * (now if size is None else size)

    def _end(self, stream: Unbroken, at: int) -> Lead:
        """Where a chain leads that ends at `at` because no intact header follows."""
        if stream.ends_at(at):
            return Lead(at, True)
        if not self._framing.is_checked:
            return Lead(at, False)
        tail = self._framing.tail_bytes
        behind = stream.read(at, tail + self._framing.head_bytes)
        if len(behind) > tail:
            rest = behind.slice(tail, len(behind) - tail)
            found = _core.next_head(self._framing.name, rest, 0)
            return Lead(at, False, found is not None)
        # A small value may instead be the first half of a record's length.
        is_checksum = len(behind) == tail and self._framing.stored(behind.to_bytes()) > _LONGEST_CUT
        return Lead(at, False, is_checksum and stream.ends_at(at + tail))

    def _keep(self, chain: list[np.ndarray], led: Lead, now: int) -> None:
        """Remember the offsets of a chain. If there are too many, drop those before `now`, the progress in the stream.
        If still too many remain, add none until half of their range has been passed."""
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
        """Like `_by_heads`, but for framings whose frames must be read completely to find their ends."""
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
    """Follow intact headers. Yields the offset reached, which may be beyond the end of the stream, and the starts of
    the frames since the previous one."""
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
