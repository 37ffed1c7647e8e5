"""Where records go on after damage, without ever taking a record's contents for records.

A payload may itself hold frames (a TFRecord inside a TFRecord), so a right-looking head proves
nothing. After a broken frame at a known border, a later place is believed only if

1. the bytes up to it are exactly one frame whose payload matches its stored checksum (only the
   head was damaged), or
2. the heads from there on lead, frame by frame, to the very end of the stream. Frames inside a
   payload cannot: their chain ends at the payload's own checksum, four bytes before a border.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.inflated import Stream

_WINDOW_BYTES = 4 << 20
_HEAD_BYTES = 12
_TAIL_BYTES = 4


@dataclass(frozen=True, slots=True)
class Region:
    """What to pass over: up to `end_byte`, which is the end of the stream if `at_end`."""

    end_byte: int
    num_records: int | None
    at_end: bool
    unproved: bool = False
    note: str | None = None


def resynchronise(stream: Stream, framing: str, broken: int, salvage: bool) -> Region:
    """Find where to go on after the broken frame that starts at `broken`."""
    dead: set[int] = set()
    at = broken + 1
    checksum = _RunningChecksum(stream, broken + _HEAD_BYTES)
    while True:
        window = stream.read(at, _WINDOW_BYTES)
        found = _core.next_head(framing, window, 0)
        if found is None:
            if len(window) < _WINDOW_BYTES:
                return Region(at + len(window), None, True)
            at += len(window) - (_HEAD_BYTES - 1)
            continue
        start = at + found[0]
        at = start + 1
        if start in dead:
            continue
        if start >= broken + _HEAD_BYTES + _TAIL_BYTES and checksum.matches(start):
            note = "its payload matches its checksum, only its head is damaged"
            return Region(start, 1, False, note=note)
        if _reaches_end(stream, framing, start, dead):
            return Region(start, None, False)
        if salvage and _whole(stream, framing, start, found[1]):
            return Region(start, None, False, unproved=True)


class _RunningChecksum:
    """The CRC of a broken frame's payload, if it ended at one candidate after another."""

    def __init__(self, stream: Stream, start: int) -> None:
        self._stream = stream
        self._at = start
        self._crc = 0

    def matches(self, end: int) -> bool:
        """Whether the payload up to the frame end `end` has the checksum stored there."""
        stop = end - _TAIL_BYTES
        while self._at < stop:
            part = self._stream.read(self._at, min(_WINDOW_BYTES, stop - self._at))
            if not len(part):
                return False
            self._crc = part.crc32c(self._crc)
            self._at += len(part)
        stored = self._stream.read(stop, _TAIL_BYTES).to_bytes()
        return int.from_bytes(stored, "little") == _masked(self._crc)


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _reaches_end(stream: Stream, framing: str, start: int, dead: set[int]) -> bool:
    """Whether the heads from `start` lead to the end. Notes the places of chains that do not."""
    chain: list[np.ndarray] = []
    at = start
    while True:
        window = stream.read(at, _WINDOW_BYTES if chain else 65536)
        if not len(window):
            # Only a frame that ends here has led here, unless it claimed bytes beyond the end.
            return at == start or len(stream.read(at - 1, 1)) == 1
        frames, consumed, need, fault = _core.walk(framing, window, at, 1 << 62)
        chain.append(pa.array(frames.starts()).to_numpy())
        at += consumed
        if fault is None and need > _HEAD_BYTES:
            chain.append(np.array([at], dtype=np.uint64))
            at += need
        elif fault is not None or (need and len(stream.read(at, _HEAD_BYTES)) < _HEAD_BYTES):
            dead.update(int(place) for part in chain for place in part)
            return False


def _whole(stream: Stream, framing: str, start: int, total: int) -> bool:
    """Whether the frame at `start` is whole and right in itself."""
    if total > _WINDOW_BYTES * 64:
        return False
    frame = stream.read(start, total)
    frames, consumed, _, fault = _core.walk(framing, frame, start, total)
    return fault is None and consumed == total == len(frame) and not frames.verify(None)
