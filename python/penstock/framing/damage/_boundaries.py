"""Find where a record ends from an index, its header or its bytes, without advancing the walk."""

from __future__ import annotations

import numpy as np

from penstock import _core
from penstock.framing.damage._header_chains import MOST_BYTES, HeaderChains, Lead, Unbroken
from penstock.framing.damage._parts import Scope
from penstock.framing.framings import Read
from penstock.framing.index.sidecar import Index
from penstock.framing.streams.stream import Stream

_AGREEING = 256
"""After damage, one of this many following records must match the index, or the index is not used."""


class Boundaries:
    """Answers questions about the record boundaries of a stream. `at` is the start of a record."""

    def __init__(
        self, scope: Scope, stream: Stream, index: Index | None, chains: HeaderChains
    ) -> None:
        self._scope = scope
        self._stream = stream
        self._chains = chains
        self._index = index

    def by_index(self, at: int) -> tuple[int, int, int] | None:
        """The number, end and payload checksum that the index has for the record at `at`. None unless the index matches
        one of the records that follow, or this payload."""
        found = self._entry(at)
        if found is None:
            return None
        record, end, known = found
        assert self._index is not None, "the entry came from it"
        least = at + self._scope.framing.least_bytes
        if not least <= end <= self._index.plain_bytes:
            return None
        agrees = self._agrees(self._stream.read, record + 1)
        if not agrees and self.right_payload(at, end, known) is None:
            return None
        return record, end, known

    def by_head(self, at: int) -> tuple[int, _core.Buffer] | None:
        """The end and the payload of a record with a damaged header, if the payload's checksum confirms a length."""
        framing = self._scope.framing
        head = self._stream.read(at, framing.head_bytes).to_bytes()
        for length in framing.lengths(head):
            end = at + framing.frame_bytes(length)
            size = self._stream.size()
            if end > (MOST_BYTES if size is None else size):
                continue
            if length > self._scope.limits.record_bytes or not self._chains.spend(end - at, at):
                continue
            payload = self.right_payload(at, end)
            if payload is not None and not self.follow(end).is_inside:
                return end, payload
        return None

    def is_cut_by_head(self, at: int) -> bool:
        """Whether the header, with one byte corrected, gives an end beyond the end of the stream."""
        framing = self._scope.framing
        head = self._stream.read(at, framing.head_bytes).to_bytes()
        ends = [at + framing.frame_bytes(length) for length in framing.meant(head)]
        return bool(ends) and all(
            end > MOST_BYTES or not len(Unbroken(self._stream).read(end - 1, 1)) for end in ends
        )

    def right_payload(self, at: int, end: int, known: int | None = None) -> _core.Buffer | None:
        """The payload of the frame [at, end), if it matches its checksum: `known` if given, or else the stored one."""
        framing = self._scope.framing
        length = end - at - framing.least_bytes
        if length > self._scope.limits.record_bytes:
            return None
        rest = length + framing.tail_bytes
        frame = self._stream.read(at + framing.head_bytes, rest)
        if len(frame) < rest:
            return None
        payload = frame.slice(0, length)
        if known is not None:
            return payload if framing.checksum(payload.crc32c()) == known else None
        tail = frame.slice(length, framing.tail_bytes).to_bytes()
        return payload if framing.proves(payload, tail) else None

    def follow(self, at: int) -> Lead:
        return self._chains.follow(at, self._scope.limits.record_bytes)

    def holds_another(self, at: int, end: int) -> bool:
        """Whether [at, end) contains an intact header of a frame that continues beyond `end`. A frame inside a payload
        never does that."""
        framing = self._scope.framing
        look = Unbroken(self._stream).read(at, end - at + framing.look_bytes - 1)
        inside = 1
        while (found := _core.next_head(framing.name, look, inside)) is not None:
            inside = found[0] + 1
            if at + found[0] < end < at + found[0] + found[1] + framing.tail_bytes:
                return True
        return False

    def is_known(self, at: int, end: int) -> bool:
        """Whether the index has a record at [at, end), and matches the records that follow."""
        found = self._entry(at)
        return (
            found is not None
            and found[1] == end
            and self._agrees(Unbroken(self._stream).read, found[0] + 1)
        )

    def _entry(self, at: int) -> tuple[int, int, int] | None:
        """The number, end and checksum of the record at `at`, from the index."""
        index = self._index
        if index is None:
            return None
        record = int(np.searchsorted(index.starts, at))
        if record >= index.num_records or int(index.starts[record]) != at:
            return None
        return record, int(index.starts[record + 1]), int(index.checksums[record])

    def _agrees(self, read: Read, record: int) -> bool:
        """Whether one of the next records, from number `record` on, matches the index. Also true if no record follows,
        or if all that follow are broken and the data ends where the index says."""
        index = self._index
        assert index is not None
        last = min(record + _AGREEING, index.num_records)
        for number in range(record, last):
            start, end = int(index.starts[number]), int(index.starts[number + 1])
            known = int(index.checksums[number])
            if self._scope.framing.agrees(read, start, end, known):
                return True
        if record < last:
            end = int(index.starts[-1])
            return last == index.num_records and len(read(end - 1, 2)) == 1
        return True
