"""Finds where records continue after damage, without mistaking the contents of a record for records.

A payload may hold frames itself (a TFRecord inside a TFRecord), so an intact header alone is not enough. After a
broken frame at a known record boundary, a later offset is accepted only if

1. the bytes up to it are exactly one frame whose payload matches its stored checksum (only the header was damaged),
   and the headers from there on do not lead to the checksum of an enclosing payload (see `_header_chains`), or
2. the headers from there on lead, frame by frame, to the very end of the stream. For frames inside a payload this is
   impossible: their chain ends at the payload's checksum, four bytes before a record boundary.

Eight bytes with their checksum look like a frame header. Under rule 1, a payload of eight bytes is therefore accepted
only if one half of the broken header (the length or its checksum) still gives that length. If the broken frame's own
header is intact, the bytes that it claims belong to it, even if they exceed a limit or the stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock import _core
from penstock.framing.damage._header_chains import MOST_BYTES, HeaderChains, Unbroken
from penstock.framing.framings import Framing
from penstock.framing.streams.stream import Stream

_WINDOW_BYTES = 4 << 20
_FIRST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes to skip, up to `end_byte`. If `at_end`, that is the end of the stream."""

    end_byte: int
    num_records: int | None
    at_end: bool
    unproved: bool = False
    leads_to_end: bool = False
    """Whether headers lead from `end_byte` to the end of the stream."""
    note: str | None = None
    has_frames: bool = False
    """Whether it contains intact headers that were not accepted as those of records."""


def resynchronise(
    stream: Stream,
    framing: Framing,
    broken: int,
    salvage: bool,
    unproved: bool = False,
    *,
    chains: HeaderChains,
    claimed: int | None = None,
) -> Region:
    """Find where to continue after the broken frame that starts at `broken`.

    `broken` is a record boundary unless `unproved`. If the frame's header is intact but bytes of its payload are
    missing, `claimed` is the end that the header gives. Frames inside the payload end before `claimed`, so only a frame
    that continues beyond it can be another record.
    """
    left = Unbroken(stream)
    head = left.read(broken, framing.head_bytes)
    claim = _core.next_head(framing.name, head, 0) if claimed is None else None
    if claim is not None:
        end = broken + claim[1]
        if len(left.read(end - 1, 1)):
            return Region(end, 1, False)
        if not salvage:
            return Region(left.end(end), None, True)
    search = _Search(left, framing, broken, head.to_bytes(), claimed, chains)
    if not salvage:
        return search.region()
    has_checksums = framing.checksum(0) is not None
    if claim is None and claimed is None and not unproved and has_checksums:
        region = search.region(in_vain=True)
        if region.num_records == 1:
            return region  # a single record, so the frames inside it are not records
    return _Search(left, framing, broken, head.to_bytes(), claimed, chains, True).region()


class _Search:
    """Tries one offset after another, in ascending order."""

    def __init__(
        self,
        stream: Unbroken,
        framing: Framing,
        broken: int,
        head: bytes,
        claimed: int | None,
        chains: HeaderChains,
        salvage: bool = False,
    ) -> None:
        self._stream = stream
        self._framing = framing
        self._broken = broken
        self._head = head
        self._claimed = claimed
        self._chains = chains
        self._salvage = salvage
        self._ends_passed: set[int] = set()
        """The ends of the chains found so far."""
        # CRC of the broken frame's payload, extended for each candidate end.
        self._crc = 0
        self._crc_end = broken + framing.head_bytes

    def region(self, in_vain: bool = False) -> Region:
        """The region up to the first accepted offset or the end of the stream. With `in_vain` (the result may not be
        needed), only a limited number of bytes is read."""
        found = self._found(in_vain)
        return replace(found, has_frames=found.num_records is None and bool(self._ends_passed))

    def _found(self, in_vain: bool) -> Region:
        at, want = self._broken + 1, _FIRST_BYTES
        while True:
            if in_vain and not self._chains.spend(want, at):
                return Region(at, None, True)
            window = self._stream.read(at, want)
            offset = 0
            while (found := _core.next_head(self._framing.name, window, offset)) is not None:
                region = self._try(at + found[0], found[1])
                if region is not None:
                    return region
                offset = found[0] + 1
            at += len(window)
            if len(window) < want:
                return Region(at, None, True)
            at -= self._framing.look_bytes - 1
            want = _WINDOW_BYTES

    # Complexity: the rules of this module, one after another.
    def _try(self, start: int, total: int) -> Region | None:
        """The region that ends at `start`, if that offset is accepted."""
        if self._ends_where_passed(start):
            return None
        is_out_of_patience = self._chains.is_out_of_patience(start)
        if is_out_of_patience and not self._salvage:
            return Region(self._stream.end(MOST_BYTES), None, True)
        if self._claimed is None and self._is_end_of_payload(start):
            led = self._chains.follow(start)
            if not led.is_inside:
                note = "its payload matches its checksum, only its head is damaged"
                return Region(start, 1, False, note=note)
        beyond = self._claimed is None or start + total + self._framing.tail_bytes > self._claimed
        if beyond and not is_out_of_patience:
            led = self._chains.follow(start)
            if led.is_out:
                return Region(start, None, False, leads_to_end=True)
            self._ends_passed.add(led.to)
        if self._salvage and self._is_whole(start, total):
            return Region(start, None, False, unproved=True)
        return None

    def _ends_where_passed(self, start: int) -> bool:
        """Whether an offset is in a chain that was already followed. Salvage examines all offsets."""
        led = None if self._salvage else self._chains.known(start)
        return led is not None and led.to in self._ends_passed

    def _is_end_of_payload(self, end: int) -> bool:
        """Whether the broken frame is intact up to `end`, except for its header."""
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

    def _is_whole(self, start: int, total: int) -> bool:
        if total > _WINDOW_BYTES * 64:
            return False
        if not self._chains.spend(total, start):
            return False
        frame = self._stream.read(start, total)
        frames, consumed, _, fault = _core.walk(self._framing.name, frame, start, total)
        return fault is None and consumed == total == len(frame) and not frames.verify(None)
