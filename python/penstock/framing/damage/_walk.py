"""Walk over frames, and continue after damage from one verified record boundary to the next.

A lost record boundary is found again, strongest evidence first, by

1. a valid index, which knows the position of every record;
2. the header itself, if one byte of it is wrong: its checksum shows which byte, and the payload's checksum confirms
   the result;
3. `_resync`: the bytes up to a later header are one intact payload, or the headers from there lead to the very end.

If the file ends inside a record with an intact header, everything after that header belongs to the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from penstock import _core
from penstock.contract.report import Finding
from penstock.framing.damage._boundaries import Boundaries
from penstock.framing.damage._header_chains import MOST_BYTES, HeaderChains, Lead
from penstock.framing.damage._parts import Bad, Found, FoundFrames, Part, Scope, Task
from penstock.framing.damage._resync import Region, resynchronise
from penstock.framing.damage._verification import UNKNOWN, Verifier
from penstock.framing.index.sidecar import Index
from penstock.framing.streams.stream import Stream
from penstock.limits import raise_limit

CHUNK_BYTES = 1 << 20
KEEPS = "repair(..., salvage=True) keeps them"


class Walk:
    """Walks a stream from verified boundary to verified boundary. `plain_base` is added to the stream offsets in
    findings. `CompressedWalk` adds what only compressed data needs."""

    def __init__(
        self,
        scope: Scope,
        stream: Stream,
        index: Index | None,
        *,
        at: int = 0,
        record: int | None = 0,
        plain_base: int = 0,
    ) -> None:
        self._scope = scope
        self._verifier = Verifier(scope, index)
        self._chains = HeaderChains(stream, scope.framing)
        self._boundaries = Boundaries(scope, stream, index, self._chains)
        self._stream = stream
        self._index = index
        self._plain_base = plain_base
        self._at = at
        self._record: int | None = record
        self._unproved = False
        self._led: Lead | None = None
        """Where the next headers lead, once they have been followed."""
        self._followed_to = 0
        """Up to this offset, headers are known to lead from record to record."""
        self._told_bytes = at

    @property
    def at(self) -> int:
        """The record boundary that the walk has reached."""
        return self._at

    # Complexity: one branch for each thing that can follow the frames of a window.
    def tasks(self) -> Iterator[Task]:
        """Frames to be verified, and the faults between them, in order."""
        want = CHUNK_BYTES
        limit = self._scope.limits.record_bytes
        while True:
            window, broken = self._read(self._at, want)
            base = self._plain_base + self._at
            at_end = len(window) < want
            frames, consumed, need, fault = _core.walk(
                self._scope.framing.name, window, base, limit, at_end
            )
            cut = fault is None and need > 0 and at_end
            if cut:
                _, broken = self._read(self._at + len(window), 1)
            if len(frames):
                want = CHUNK_BYTES
                border = self._at + consumed
                yield from self._records(frames, window.slice(0, consumed))
                if self._at != border:
                    continue  # a damaged record did not end where its header says
            elif consumed:
                self._advance(consumed, 0)  # only padding
                continue
            yield from self._oddities()
            if broken is not None:
                goes_on, parts = self._after_broken_stream(broken)
                yield self._found(parts)
                if not goes_on:
                    return
            elif not len(window):
                return
            elif fault is not None:
                yield self._found([self._after_broken_frame(fault)])
                want = CHUNK_BYTES
            elif cut:
                yield self._found([self._cut_end(len(window) - consumed, need)])
                want = CHUNK_BYTES
            elif not len(frames):
                want = max(self._scope.framing.more_bytes(need, want), CHUNK_BYTES)

    def _records(self, frames: _core.Frames, data: _core.Buffer) -> Iterator[Task]:
        """Yield the frames of a window and the faults of their payloads, up to a payload whose end is not where its
        header says. Afterwards the walk is at the next boundary."""
        file_bytes = self._taken(len(data))
        border = self._at + len(data)
        task = FoundFrames(frames, data, self._record, file_bytes)
        for part in self._verifier.parts(task):
            if isinstance(part, FoundFrames):
                yield replace(part, file_bytes=file_bytes)
                self._advance(part.end - self._plain_base - self._at, len(part.frames))
            else:
                end = part.finding.end_byte - self._plain_base
                if part.finding.kind == UNKNOWN:
                    # Later frames of the window may be payload bytes.
                    self._advance(end - self._at, part.finding.num_records)
                    yield Found((part,), file_bytes)
                    return
                part = self._after_wrong_payload(part, end)
                yield Found((part,), file_bytes)
                if self._at != end:
                    return
            file_bytes = 0
        self._at = border

    def _read(self, start: int, length: int) -> tuple[_core.Buffer, Any]:
        """Bytes of the stream, and the fault if compressed data breaks before them."""
        try:
            return self._stream.read(start, length), None
        except _core.KernelError as error:
            return _core.Buffer.from_bytes(b""), error.args[0]

    def _advance(self, num_bytes: int, num_records: int | None) -> None:
        self._at += num_bytes
        if num_records is None:
            self._record = None
        elif self._record is not None:
            self._record += num_records

    # -- findings -------------------------------------------------------------------------------

    def _taken(self, plain_bytes: int) -> int:
        now = self._file_position(plain_bytes)
        taken, self._told_bytes = max(0, now - self._told_bytes), now
        return taken

    def _file_position(self, plain_bytes: int) -> int:
        """Offset in the file that is reached by reading `plain_bytes` bytes from here."""
        return self._at + plain_bytes

    def _found(self, parts: list[Part]) -> Found:
        return Found(tuple(parts), self._taken(0))

    def _bad(
        self, kind: str, end: int, message: str, num_records: int | None, restored: bool = False
    ) -> Finding:
        start = self._plain_base + self._at
        stop = self._plain_base + end
        return self._scope.finding(
            kind, self._record, start, stop, message, num_records, restored=restored
        )

    def _cut_end(self, left: int, need: int) -> Bad:
        end = self._at + left
        if left < self._scope.framing.head_bytes:
            message = f"the last {left} bytes are too few for a record header"
            part = Bad(self._bad("short_tail", end, message, None))
            self._advance(left, None)
            return part
        message = f"the data ends inside a record, after {left} of its {need} bytes"
        return self._cut_record(end, message, self._scope.salvage)

    def _cut_record(self, end: int, message: str, salvage: bool, kind: str = "truncated") -> Bad:
        """A record that continues beyond the end of the stream. Only salvage looks for records in it. If headers in it
        lead to the end, there are two explanations: bytes of this record are missing and other records follow, or its
        payload consists of frames and was truncated between two of them."""
        lost: int | None = 1
        region = self._resynchronised(None if salvage else self._at)
        if salvage:
            self._leave_chain()
            if not region.at_end:
                end, lost, self._unproved = region.end_byte, None, True
        elif region.leads_to_end:
            lost = None
            message += (
                f"; from byte {self._plain_base + region.end_byte} to the end there are whole frames. They are part of "
                f"this record, or records of their own if bytes before them are missing: {KEEPS}"
            )
        part = Bad(self._bad(kind, end, message, lost))
        self._advance(end - self._at, lost)
        return part

    # -- for compressed data only ---------------------------------------------------------------

    def _oddities(self) -> Iterable[Found]:
        """Findings about data that penstock reads but the framing's reference library does not."""
        return ()

    def _after_broken_stream(self, fault: Any) -> tuple[bool, list[Part]]:
        """The findings for a fault of the compressed data, and whether reading continues after it."""
        raise AssertionError(f"only compressed data breaks: {fault}")

    def _by_point(self, fault: Any) -> Part | None:
        """Skip to the index's next seek point, if there is one. The bytes inflated before it may be wrong."""
        return None

    # -- frames ---------------------------------------------------------------------------------

    def _after_wrong_payload(self, bad: Bad, end: int) -> Bad:
        """Skip a record with a damaged payload whose header gives `end`. If bytes of the payload were changed, `end` is
        the next boundary. If bytes are missing, `end` is inside a later record."""
        if bad.payload is not None or self._is_border(end):
            self._advance(end - self._at, 1)
            return bad
        region = self._resynchronised(end)
        if region.end_byte == end:
            self._advance(end - self._at, 1)
            return bad
        found = bad.finding
        message = (
            f"{found.message}; another record begins inside it, so some of its bytes are missing"
        )
        return self._pass_over(region, found.kind, message)

    def _resynchronised(self, claimed: int | None = None) -> Region:
        scope = self._scope
        return resynchronise(
            self._stream,
            scope.framing,
            self._at,
            scope.salvage,
            self._unproved,
            chains=self._chains,
            claimed=claimed,
        )

    def _is_border(self, end: int) -> bool:
        """Whether the record at the walk's position seems to end at `end`, as its header says."""
        if not self._scope.framing.is_checked or self._boundaries.is_known(self._at, end):
            return True
        if end < self._followed_to:
            return True  # the header there was already followed
        if self._led is None or end > self._led.to:
            self._led = self._boundaries.follow(end)
        led = self._led
        is_border = led.is_out or not (
            led.is_inside or self._boundaries.holds_another(self._at, end)
        )
        if is_border:
            self._followed_to = led.to
        return is_border

    def _leave_chain(self) -> None:
        self._led, self._followed_to = None, 0

    def _pass_over(self, region: Region, kind: str, message: str) -> Bad:
        self._leave_chain()
        if region.leads_to_end:
            self._led = Lead(MOST_BYTES, True)
        # A record that starts at an unverified boundary does not verify the boundary at its end.
        self._unproved = region.unproved or (self._unproved and region.num_records is not None)
        if region.unproved:
            message += "; the records after it may be part of a larger record"
        if region.has_frames and not self._scope.salvage:
            message += (
                "; it contains whole frames. They are part of a record, or records of their own if more than one "
                f"header is damaged: {KEEPS}"
            )
        part = Bad(self._bad(kind, region.end_byte, message, region.num_records))
        self._advance(region.end_byte - self._at, region.num_records)
        return part

    def _after_broken_frame(self, fault: Any) -> Part:
        if fault.kind == "limit":
            return self._pass_long(fault)
        known = self._by_index(fault) or self._by_head(fault) or self._by_point(fault)
        if known is None and self._boundaries.is_cut_by_head(self._at):
            known = self._cut_head(fault)
        return known or self._by_search(fault)

    def _pass_long(self, fault: Any) -> Part:
        """Skip a record above the size limit, without reading its payload."""
        end, _, _ = _core.frame_extent(self._scope.framing.name, self._stream.read, self._at, False)
        if end is not None:
            length = end - self._at - self._scope.framing.least_bytes
            told = f"{fault.message}; try {raise_limit('record_bytes', length)}"
            if self._boundaries.follow(end).is_inside:
                return self._pass_over(self._resynchronised(end), "limit", told)
            part = Bad(self._bad("limit", end, told, 1))
            self._advance(end - self._at, 1)
            return part
        size = self._stream.size()
        # A header may claim more bytes than any file can hold and any offset can represent.
        claimed = min(self._at + self._scope.framing.frame_bytes(int(fault.found)), MOST_BYTES)
        end = claimed if size is None else size
        message = f"the data ends inside a record of {fault.found} bytes"
        return self._cut_record(end, message, self._scope.salvage)

    def _by_index(self, fault: Any) -> Part | None:
        """Skip a record whose end the index gives."""
        found = self._boundaries.by_index(self._at)
        if found is None:
            return None
        self._record, end, known = found
        self._unproved = False
        return self._broken(fault, end, self._boundaries.right_payload(self._at, end, known))

    def _by_head(self, fault: Any) -> Part | None:
        """Skip a record whose header has one wrong byte, and restore it."""
        found = self._boundaries.by_head(self._at)
        return None if found is None else self._broken(fault, *found)

    def _cut_head(self, fault: Any) -> Part:
        """Skip a truncated record whose header has one wrong byte."""
        size = self._stream.size()
        end = MOST_BYTES if size is None else size
        message = (
            f"{fault.message}; with one byte corrected, the header gives an end beyond the data"
        )
        return self._cut_record(end, message, self._scope.salvage, fault.kind)

    def _by_search(self, fault: Any) -> Part:
        region = self._resynchronised()
        if region.note is not None:
            payload = self._boundaries.right_payload(self._at, region.end_byte)
            if payload is not None:
                return self._broken(fault, region.end_byte, payload)
        message, framing = fault.message, self._scope.framing
        if framing.is_checked and region.end_byte - self._at == framing.tail_bytes:
            message += "; these bytes may be the checksum of a record that contained the frames before them"
        return self._pass_over(region, fault.kind, message)

    def _broken(self, fault: Any, end: int, payload: _core.Buffer | None) -> Part:
        if payload is None:
            part = Bad(self._bad(fault.kind, end, fault.message, 1))
        else:
            message = f"{fault.message}; only the header is damaged, the payload is intact"
            found = self._bad(fault.kind, end, message, 0, restored=True)
            part = Bad(found, payload)
        self._advance(end - self._at, 1)
        return part
