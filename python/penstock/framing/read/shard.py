"""An open framed file, and how its faults are reported or skipped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.columns.inferred import InferredFrom
from penstock.contract.faults import error_from, kind_of
from penstock.contract.format import Options, SkippedRegion
from penstock.errors import ChangedError, LimitError, PenstockError, TruncatedError
from penstock.framing.framings import Framing
from penstock.framing.streams.stream import Stream
from penstock.limits import raise_limit
from penstock.storage.base import Source
from penstock.storage.lookalikes import LOOK_BYTES, has_foreign_checksums

INSIDE = "inside a record"
"""Error text for data that ends before a record is complete."""


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A file, its stream of frames, and the caller's options.

    | damage= | error, stop | skip |
    |---|---|---|
    | skips_damage | no | yes |
    | payloads are verified (checksums="all") | when found, or when decoded | when found |
    """

    source: Source
    stream: Stream
    framing: Framing
    options: Options
    begin: int = 0
    """Offset of the first frame in the stream."""
    skips_long: bool = False
    """Whether a record above the size limit is skipped even if damage is not."""

    @property
    def skips_damage(self) -> bool:
        return self.options.damage == "skip"

    @property
    def verifies(self) -> bool:
        return self.options.verifies

    @property
    def verifies_to_find(self) -> bool:
        """Whether payloads are verified when records are found. This is needed to skip damage: if a record lacks bytes,
        its header does not lead to a record boundary."""
        return self.skips_damage and self.verifies and self.framing.is_checked

    @property
    def record_bytes(self) -> int:
        return self.options.limits.record_bytes

    @property
    def skips_long_records(self) -> bool:
        return self.skips_damage or self.skips_long

    def end_of_long(self, stream: Stream, at: int) -> int | None:
        """The end of a record above the size limit; None if the stream ends before it."""
        return _core.frame_extent(self.framing.name, stream.read, at, False)[0]

    def error(self, fault: Any, record: int | None) -> PenstockError:
        """Convert a fault to an error that names the file."""
        changed = self.changed()
        if changed is not None:
            return changed
        error = error_from(fault, file=self.source.path, record=record)
        if fault.kind == "data_checksum" and fault.expected == 0:
            error.hint = 'open(..., checksums="headers"), if its writer left this checksum out'
        elif fault.kind == "length_checksum" and fault.byte == 0 and self._is_of_another_writer():
            error.message = "the checksums in this file are not TFRecord checksums"
            error.hint = 'open(..., checksums="none")'
        elif " values where the schema wants " in fault.message and self._is_inferred():
            error.hint = 'open(..., infer_records="all")'
        if isinstance(error, LimitError) and "record_bytes" in fault.message:
            self._tell_length(error)
        return error

    def _is_inferred(self) -> bool:
        """Whether the fields were inferred from the first records, so that later ones may have more values."""
        options = self.options
        if options.retyped is not None:
            return InferredFrom.of(options.retyped.own) is not None
        if isinstance(options.schema, pa.Schema):
            return InferredFrom.of(options.schema) is not None
        return options.schema is None

    def _is_of_another_writer(self) -> bool:
        """Whether the writer of a TFRecord file left out its checksums or computed different ones."""
        if self.framing.name != "tfrecord":
            return False
        try:
            head = self.stream.read(0, LOOK_BYTES).to_bytes()
        except (_core.KernelError, OSError):
            return False
        size = self.stream.size()
        return has_foreign_checksums(head, 1 << 62 if size is None else size)

    def _tell_length(self, error: LimitError) -> None:
        """Add the length of a record above the size limit to its error, if it is known."""
        with suppress(_core.KernelError):
            end = None if error.byte is None else self.end_of_long(self.stream, error.byte)
            if end is not None:
                error.found = end - (error.byte or 0) - self.framing.least_bytes
                error.hint = raise_limit("record_bytes", error.found)

    def check_unchanged(self) -> None:
        """Raise ChangedError if the file was rewritten while it was open."""
        changed = self.changed()
        if changed is not None:
            raise changed

    def changed(self) -> ChangedError | None:
        """The error for a file that was rewritten while it was open, or None. It takes precedence over other faults."""
        if not self.source.was_rewritten():
            return None
        message = "the file was rewritten while it was open"
        return ChangedError(message, file=self.source.path, hint="open the data again")

    def skipped(self, start: int, end: int, num_records: int | None, reason: str) -> SkippedRegion:
        """Create a skipped region. Raises ChangedError if the file is not damaged, but was rewritten."""
        self.check_unchanged()
        return SkippedRegion(self.source.path, start, end, num_records, reason)

    def is_last(self, start: int, length: int, num_read: int) -> bool:
        """Whether a window is shorter than its requested `length` because the stream ends. Raises ChangedError if the
        file was truncated since it was opened."""
        if num_read == length:
            return False
        size = self.stream.size()
        if size is not None and start + num_read < size:
            end = start + num_read
            raise ChangedError(
                "the file was truncated while it was open", file=self.source.path, byte=end
            )
        return True

    def stop_at(self, fault: Any, record: int | None, at: int) -> SkippedRegion:
        """Raise the fault of a frame, or return the rest of the file as a skipped region."""
        if self.options.damage == "error":
            raise self.error(fault, record)
        error = self.error(fault, record)
        size = self.stream.size()
        end = self.source.size if size is None else size
        return self.skipped(at, max(end, at), None, error.message)

    def stop_in_file(self, fault: Any, record: int) -> SkippedRegion:
        """Like `stop_at`, but for a fault of the compressed data. The region has offsets in the file, not in the
        stream."""
        if self.options.damage == "error":
            raise self.error(fault, record)
        error = self.error(fault, record)
        size = self.source.size
        return self.skipped(min(fault.byte, size), size, None, error.message)

    def cut(self, left: int, at: int, need: int) -> _core.Fault:
        """The fault of a stream that ends `left` bytes into a frame."""
        if left < self.framing.head_bytes:
            message = f"the last {left} bytes are too few for a record header"
            return _core.Fault("short_tail", at, message, need, left)
        return _core.Fault("truncated", at, f"the data ends {INSIDE}", need, left)

    def cut_inside(self, fault: Any, left: int, need: int) -> Any:
        """Extend the fault of truncated compressed data: it ends `left` bytes into a frame."""
        if not left or kind_of(fault.kind) is not TruncatedError:
            return fault
        return _core.Fault(fault.kind, fault.byte, f"{fault.message} {INSIDE}", need, left)
