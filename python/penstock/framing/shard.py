"""One framed file as it is being read, and what becomes of what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import ChangedError, PenstockError
from penstock.faults import error_from
from penstock.format import Options, SkippedRegion
from penstock.framing.framings import Framing
from penstock.framing.stream import Stream
from penstock.storage import Source


@dataclass(frozen=True, slots=True)
class Shard:
    """A file, the stream of frames in it, and what the caller asked for."""

    source: Source
    stream: Stream
    framing: Framing
    options: Options
    begin: int = 0
    """Where in the stream the first frame stands."""

    @property
    def goes_on(self) -> bool:
        """Whether reading goes on after damage."""
        return self.options.damage in ("skip", "salvage")

    @property
    def proves(self) -> bool:
        """Whether payloads are compared with their checksums."""
        return self.options.checksums == "all"

    @property
    def salvages(self) -> bool:
        """Whether what nobody can prove to be a record is given as well."""
        return self.options.damage == "salvage"

    @property
    def record_bytes(self) -> int:
        """Bytes that a payload may have."""
        return self.options.limits.record_bytes

    def error(self, fault: Any, record: int | None) -> PenstockError:
        """A fault as an error that names the file."""
        return error_from(fault, file=self.source.path, record=record)

    def skip(self, start: int, end: int, num_records: int | None, reason: str) -> None:
        """Note what was passed over."""
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
        error = self.error(fault, record)
        if self.options.damage == "error":
            raise error
        size = self.stream.size()
        end = self.source.size if size is None else size
        self.skip(at, max(end, at), None, error.message)

    def stop_in_file(self, fault: Any, record: int) -> None:
        """Raise a fault of the compressed data, or note that reading ends there. Such a fault has
        a place in the file, and how much of the stream is lost nobody knows."""
        error = self.error(fault, record)
        if self.options.damage == "error":
            raise error
        size = self.source.size
        self.skip(min(fault.byte, size), size, None, error.message)
