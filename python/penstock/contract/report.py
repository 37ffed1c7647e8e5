"""The report of a check of files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.errors import (
    ChecksumError,
    LimitError,
    PenstockError,
    SchemaError,
    TruncatedError,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A single problem in a file.

    `kind` is one of

    - for bytes with checksums in an index: "changed" (the file was written to after the index was made), or
      "data_checksum"
    - for a record: "length_checksum" (its header), "data_checksum" (its payload), "truncated", "limit", "message" (its
      frame is intact, but its contents cannot be decoded)
    - for a compressed file: "compression", "compression_checksum"
    - for any file: "empty_file" (no bytes, in a format whose files are never empty), "format", "schema", "unsupported",
      "stale_index", "stale_overlay" (its overlay was made for a different state of the file), "overlay" (its overlay is
      damaged)
    - for data that TensorFlow ignores silently: "short_tail" (1 to 11 bytes at the end), "empty_member",
      "cut_trailer", "second_stream", "trailing_bytes"
    - for a tar archive: "no_end" (the end marker is missing, and perhaps some records), "early_end" (webdataset and tar
      read nothing after it)

    Bytes [start_byte, end_byte) are affected: offsets in the file or, for records of a compressed file, in the
    decompressed stream. `record` counts from 0 in the file, and is None if unknown. `num_records` records are lost
    there (None if unknown). A "note" is not a fault of the data. If `restored`, only the record's header was damaged.
    """

    kind: str
    file: str
    record: int | None
    start_byte: int
    end_byte: int
    message: str
    num_records: int | None = 0
    severity: Literal["error", "note"] = "error"
    restored: bool = False

    def __str__(self) -> str:
        record = "" if self.record is None else f"record {self.record}, "
        place = f"{record}bytes {self.start_byte} to {self.end_byte}"
        return f"{self.file}: {place}: {self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of `verify` or `repair`. `num_records` counts the intact records or, for `repair`, the written ones,
    including restored records."""

    num_records: int
    findings: tuple[Finding, ...]
    num_bytes: int = 0
    """Bytes of the files read."""
    paths: tuple[str, ...] = ()
    """The files that `repair` wrote or `verify` read, in order."""

    @property
    def ok(self) -> bool:
        """Whether the data has no errors."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def num_lost(self) -> int | None:
        """How many records are lost; None if unknown."""
        counts = [finding.num_records for finding in self.findings]
        return None if None in counts else sum(count for count in counts if count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "ok": self.ok,
            "num_records": self.num_records,
            "num_lost": self.num_lost,
            "num_bytes": self.num_bytes,
            "paths": list(self.paths),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        wrong = sum(finding.severity == "error" for finding in self.findings)
        verdict = f"{wrong} wrong" if wrong else "ok"
        head = f"{self.num_records} records right in {len(self.paths)} files: {verdict}"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])


def kind_of(error: PenstockError) -> str:
    """The kind of finding for an error."""
    if isinstance(error, ChecksumError):
        return "data_checksum"
    if isinstance(error, TruncatedError):
        return "truncated"
    if isinstance(error, LimitError):
        return "limit"
    if isinstance(error, SchemaError):
        return "schema"
    if isinstance(error, NotImplementedError):
        return "unsupported"
    return "format"
