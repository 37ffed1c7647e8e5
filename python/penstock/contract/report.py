"""What a check of files found: a report that a program can act on and a person can read."""

from __future__ import annotations

from collections.abc import Sequence
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
    """One thing that is wrong with a file.

    `kind` is one of

    - of bytes that an index keeps checksums of: "changed" (the file was written since), or "data_checksum";
    - of a record: "length_checksum" (its head), "data_checksum" (its payload), "truncated",
      "limit", "message" (its frame is right, and its contents cannot be decoded)
    - of a compressed file: "compression", "compression_checksum"
    - of any file: "empty_file" (no bytes, where the format always has some), "format", "schema", "unsupported", "stale_index", "stale_overlay" (fields kept
      beside it that were made for another state of it), "overlay" (such fields are damaged)
    - what TensorFlow passes over in silence: "short_tail" (1 to 11 bytes at the end),
      "empty_member", "cut_trailer", "second_stream", "trailing_bytes"
    - of a tar archive: "no_end", which it may have lost with records; "early_end", behind which
      webdataset and tar read nothing

    Bytes [start_byte, end_byte) are those affected: offsets in the file, or for records of a
    compressed file in the stream that it inflates to. `record` counts from 0 in the file, None
    where nobody can know. `num_records` is how many records are lost there, None if unknown, 0 if
    none. A "note" says nothing against the data. `restored`: the record was damaged in its head
    alone, and its payload is proved right.
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
    """What `verify` and `repair` found. `num_records` counts the records that are proved right,
    for `repair` those that were written, restored ones included."""

    num_records: int
    findings: tuple[Finding, ...]
    num_bytes: int = 0
    """Bytes of the files read."""
    paths: tuple[str, ...] = ()
    """The files that `repair` wrote, in order; of `verify`, those that it read."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the data."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def num_lost(self) -> int | None:
        """How many records are lost; None where nobody can know."""
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
        verdict = "ok" if self.ok else f"{_errors(self.findings)} wrong"
        head = f"{self.num_records} records right in {len(self.paths)} files: {verdict}"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])


def _errors(findings: Sequence[Finding]) -> int:
    return sum(finding.severity == "error" for finding in findings)


def kind_of(error: PenstockError) -> str:
    """The kind of finding that an error of an indexed format is."""
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
