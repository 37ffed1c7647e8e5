"""Walks over the frames of compressed data, and continues after a fault at the next known member or seek point."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock import _core
from penstock.framing.damage._parts import Bad, Found, Part, Scope
from penstock.framing.damage._walk import Walk
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.streams import gzip_members
from penstock.framing.streams.forward import ForwardStream


class CompressedWalk(Walk):
    """A walk over inflated data. `file_base` is added to the file offsets in findings."""

    def __init__(
        self,
        scope: Scope,
        stream: ForwardStream,
        index: Index | None,
        *,
        at: int = 0,
        record: int | None = 0,
        plain_base: int = 0,
        file_base: int = 0,
    ) -> None:
        super().__init__(scope, stream, index, at=at, record=record, plain_base=plain_base)
        self._forward = stream
        self._members = gzip_members.Chain(scope.source)
        self._file_base = file_base
        self._resumed_byte = -1

    def _file_position(self, plain_bytes: int) -> int:
        return self._forward.inflater.compressed_bytes

    def _oddities(self) -> Iterable[Found]:
        for fault in self._forward.inflater.take_findings():
            if fault.kind not in self._scope.framing.overlooked:
                continue
            at = self._file_base + fault.byte
            end = at if fault.kind == "empty_member" else self._scope.source.size
            finding = self._scope.finding(fault.kind, None, at, end, fault.message, 0)
            yield Found((Bad(finding),), 0)

    def _after_broken_frame(self, fault: Any) -> Part:
        try:
            return super()._after_broken_frame(fault)
        except _core.KernelError:
            # The compressed data breaks before a boundary is found. That fault is handled next.
            end = self._forward.inflater.plain_bytes
            part = Bad(self._bad(fault.kind, end, fault.message, None))
            self._advance(end - self._at, None)
            return part

    def _by_point(self, fault: Any) -> Part | None:
        found = self._indexed_point(0, self._at + 1)
        if found is None:
            return None
        point, record, end = found
        lost = None if self._record is None else record - self._record
        part = Bad(self._bad(fault.kind, end, fault.message, lost))
        self._resume(point, end, record)
        return part

    def _after_broken_stream(self, fault: Any) -> tuple[bool, list[Part]]:
        odd = [part for found in self._oddities() for part in found.parts]
        inflater = self._forward.inflater
        left = inflater.plain_bytes - self._at
        size = self._scope.source.size
        byte = min(fault.byte, size)
        # A header with a wrong checksum fails again immediately, so nothing can follow it.
        onwards = self._resumed_byte < inflater.compressed_bytes < size
        if fault.kind == "compression_checksum" and onwards:
            # The member was inflated completely, and its records have their own checksums.
            part = self._stream_fault(fault, byte, inflater.compressed_bytes, 0)
            self._enter(SeekPoint(8 * inflater.compressed_bytes, inflater.plain_bytes))
            return True, [*odd, part]
        found = self._next_point(max(byte, self._resumed_byte + 1))
        if found is not None:
            point, record, at = found
            lost = None if record is None or self._record is None else record - self._record
            part = self._stream_fault(fault, byte, point.compressed_bit // 8, lost)
            self._resume(point, at, record)
            return True, [*odd, part]
        whole = fault.kind in ("cut_trailer", "trailing_bytes", "compression_checksum")
        lost = 0 if whole else self._num_left()
        parts = [*odd, self._stream_fault(fault, byte, size, lost)]
        if whole and left > 0:
            end = self._at + left
            parts.append(self._cut_record(end, "the data ends inside a record", False))
        return False, parts

    def _num_left(self) -> int | None:
        if self._index is None or self._record is None:
            return None
        return max(self._index.num_records - self._record, 0)

    def _next_point(self, byte: int) -> tuple[SeekPoint, int | None, int] | None:
        """Return the seek point at which inflating can continue, the number of the first whole record after it (None if
        there is no index), and the start of that record."""
        if self._index is not None:
            return self._indexed_point(byte, self._at)
        inflater = self._forward.inflater
        begun = [start for start, _ in inflater.take_members()]
        least = max(begun[-1], self._resumed_byte) + 1 if begun else byte
        start = self._members.after(least)
        if start is None:
            return None
        return SeekPoint(8 * start, inflater.plain_bytes), None, inflater.plain_bytes

    def _indexed_point(self, byte: int, plain: int) -> tuple[SeekPoint, int, int] | None:
        """Return the index's first seek point that is not before a file offset nor before a stream offset, and the
        number and the start of the first whole record after it."""
        index = self._index
        if index is None:
            return None
        place = max(
            bisect_left(index.points, 8 * byte, key=lambda point: point.compressed_bit),
            bisect_left(index.points, plain, key=lambda point: point.plain_start),
        )
        if place == len(index.points):
            return None
        point = index.points[place]
        record = int(np.searchsorted(index.starts, point.plain_start))
        if record >= index.num_records:
            return None
        return point, record, int(index.starts[record])

    def _resume(self, point: SeekPoint, at: int, record: int | None) -> None:
        self._enter(point)
        self._at, self._record, self._unproved = at, record, False

    def _enter(self, point: SeekPoint) -> None:
        """Continue inflating from a seek point. The known header chains are no longer valid."""
        self._resumed_byte = point.compressed_bit // 8
        self._forward.resume(point)
        self._chains.forget()
        self._leave_chain()

    def _stream_fault(self, fault: Any, byte: int, end: int, num_records: int | None) -> Bad:
        start, stop = self._file_base + byte, self._file_base + max(end, byte)
        kind = fault.kind
        if kind == "trailing_bytes" and stop < self._file_base + self._scope.source.size:
            kind = "compression"
        record = None if num_records == 0 else self._record
        return Bad(self._scope.finding(kind, record, start, stop, fault.message, num_records))
