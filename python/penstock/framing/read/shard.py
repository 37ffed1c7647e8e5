"""One framed file as it is being read, and what becomes of what is wrong with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock import _core
from penstock.contract.faults import error_from, kind_of
from penstock.contract.format import Options, SkippedRegion
from penstock.errors import ChangedError, LimitError, PenstockError, TruncatedError
from penstock.framing.framings import Framing
from penstock.framing.streams.stream import Stream
from penstock.limits import raise_limit
from penstock.storage.base import Source, Watched
from penstock.storage.lookalikes import LOOK_BYTES, has_foreign_checksums

INSIDE = "inside a record"
"""What an error says of data that does not end between two records."""
CHUNK_BYTES = 2 << 20
"""Plain bytes of one chunk: large enough to forget the cost of a call, small enough for a cache."""
LARGE_BYTES = 16 << 10
"""From this mean size on records are large: hopped over, where heads tell the way, instead of read to find
where they end."""
_BLOCK_RECORD_BYTES = 4 << 10
"""From this mean size on the kernels of decoding do not prove in blocks."""
LARGE_CHUNK_BYTES = 4 << 20
"""Plain bytes of a chunk of such records: there is little to do for each, so fewer calls count for more. Of 8 MiB,
what two threads read and hand on does not stay in a cache that others use as well."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A file, the stream of frames in it, and what the caller asked for.

    | damage= | error, stop | skip | salvage |
    |---|---|---|---|
    | goes_on | no | yes | yes |
    | salvages: also what may be no record | no | no | yes |
    | payloads are proved (checksums="all") | as they are found, or decoded | as they are found | as they are found |
    """

    source: Source
    stream: Stream
    framing: Framing
    options: Options
    begin: int = 0
    """Where in the stream the first frame stands."""
    skips_long: bool = False
    """Whether a record that is longer than is read is skipped, though reading does not go on after damage."""
    proves_in_blocks: bool = False
    """Whether the decoder proves small records a few at a time, right before it reads them."""

    @property
    def goes_on(self) -> bool:
        """Whether reading goes on after damage."""
        return self.options.damage in ("skip", "salvage")

    @property
    def proves(self) -> bool:
        """Whether payloads are compared with their checksums."""
        return self.options.verifies

    @property
    def proves_to_find(self) -> bool:
        """Whether payloads are proved where records are found: where reading goes on after a wrong one, it
        is to be seen first whether bytes of it are missing, so that its head leads to no border."""
        return self.goes_on and self.proves and self.framing.is_checked

    def proves_found(self, record_bytes: float) -> bool:
        """Whether payloads of so many bytes are proved as they are found, while they are in the nearest
        caches. Small ones whose decoder brings them there again are proved then."""
        later = self.proves_in_blocks and record_bytes < _BLOCK_RECORD_BYTES
        return self.proves_to_find or (self.proves and not later)

    @property
    def salvages(self) -> bool:
        """Whether what nobody can prove to be a record is given as well."""
        return self.options.damage == "salvage"

    @property
    def record_bytes(self) -> int:
        """Bytes that a payload may have."""
        return self.options.limits.record_bytes

    @property
    def passes_long(self) -> bool:
        """Whether reading goes on after a record that is longer than is read."""
        return self.goes_on or self.skips_long

    def end_of_long(self, stream: Stream, at: int) -> int | None:
        """Where a record ends that is longer than is read; None where no record of the stream does."""
        return _core.frame_extent(self.framing.name, stream.read, at, False)[0]

    def error(self, fault: Any, record: int | None) -> PenstockError:
        """A fault as an error that names the file."""
        changed = self.changed()
        if changed is not None:
            return changed
        error = error_from(fault, file=self.source.path, record=record)
        if fault.kind == "data_checksum" and fault.expected == 0:
            error.hint = 'open(..., checksums="headers"), if its writer left this checksum out'
        elif fault.kind == "length_checksum" and fault.byte == 0 and self._is_of_another_writer():
            error.message = "the checksums are not those of TFRecord, all over the file"
            error.hint = 'open(..., checksums="none")'
        if isinstance(error, LimitError) and "record_bytes" in fault.message:
            self._tell_length(error)
        return error

    def _is_of_another_writer(self) -> bool:
        """Whether the writer of a TFRecord left its checksums out, or computed others."""
        if self.framing.name != "tfrecord":
            return False
        try:
            head = self.stream.read(0, LOOK_BYTES).to_bytes()
        except (_core.KernelError, OSError):
            return False
        size = self.stream.size()
        return has_foreign_checksums(head, 1 << 62 if size is None else size)

    def _tell_length(self, error: LimitError) -> None:
        """Let the error of a record that is longer than is read say how long it is, of which its head may tell a
        part."""
        with suppress(_core.KernelError):
            end = None if error.byte is None else self.end_of_long(self.stream, error.byte)
            if end is not None:
                error.found = end - (error.byte or 0) - self.framing.least_bytes
                error.hint = raise_limit("record_bytes", error.found)

    def check_unchanged(self) -> None:
        """Raise ChangedError where the file was rewritten while it was open."""
        changed = self.changed()
        if changed is not None:
            raise changed

    def changed(self) -> ChangedError | None:
        """The error of a file that was rewritten while it was open, which explains whatever is wrong with it."""
        if not (isinstance(self.source, Watched) and self.source.was_rewritten()):
            return None
        message = "the file was rewritten while it was open"
        return ChangedError(message, file=self.source.path, hint="open the data again")

    def skip(self, start: int, end: int, num_records: int | None, reason: str) -> None:
        """Note what was passed over.

        Raises:
            ChangedError: it is not damaged, but rewritten.
        """
        self.check_unchanged()
        region = SkippedRegion(self.source.path, start, end, num_records, reason)
        self.options.skipped(region)

    def is_last(self, start: int, length: int, num_read: int) -> bool:
        """Whether a window that was to have `length` bytes is cut by the end of the stream.

        Raises:
            ChangedError: the file ends before it did when it was opened.
        """
        if num_read == length:
            return False
        size = self.stream.size()
        if size is not None and start + num_read < size:
            end = start + num_read
            raise ChangedError(
                "the file was cut while it was open", file=self.source.path, byte=end
            )
        return True

    def stop_at(self, fault: Any, record: int | None, at: int) -> None:
        """Raise the fault of a frame, or note that reading ends at it."""
        if self.options.damage == "error":
            raise self.error(fault, record)
        error = self.error(fault, record)
        size = self.stream.size()
        end = self.source.size if size is None else size
        self.skip(at, max(end, at), None, error.message)

    def stop_in_file(self, fault: Any, record: int) -> None:
        """Raise a fault of the compressed data, or note that reading ends there. Such a fault has
        a place in the file, and how much of the stream is lost nobody knows."""
        if self.options.damage == "error":
            raise self.error(fault, record)
        error = self.error(fault, record)
        size = self.source.size
        self.skip(min(fault.byte, size), size, None, error.message)

    def cut(self, left: int, at: int, need: int) -> _core.Fault:
        """The fault of a stream that ends `left` bytes into a frame."""
        if left < self.framing.head_bytes:
            message = f"{left} bytes at the end are no whole record head"
            return _core.Fault("short_tail", at, message, need, left)
        return _core.Fault("truncated", at, f"the data ends {INSIDE}", need, left)

    def cut_inside(self, fault: Any, left: int, need: int) -> Any:
        """The fault of compressed data that ends `left` bytes into a frame: also says that."""
        if not left or kind_of(fault.kind) is not TruncatedError:
            return fault
        return _core.Fault(fault.kind, fault.byte, f"{fault.message} {INSIDE}", need, left)
