"""The report of a check of files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock import describe
from penstock.errors import (
    ChecksumError,
    LimitError,
    PenstockError,
    SchemaError,
    TruncatedError,
)
from penstock.printing.printed import Printed


@dataclass(frozen=True, slots=True)
class Finding:
    """A single problem in a file.

    `kind` is one of

    - for bytes with checksums in an index: "changed" (the file was written to after the index was made), or
      "data_checksum"
    - for a shard that a manifest lists: "changed", "listed_twice"
    - for a shard that a manifest lists, or one of several files: "missing"
    - for a record: "length_checksum" (its header), "data_checksum" (its payload), "truncated", "limit", "message" (its
      frame is intact, but its contents cannot be decoded)
    - for a compressed file: "compression", "compression_checksum"
    - for any file: "empty_file" (no bytes, in a format whose files are never empty), "format", "schema", "unsupported",
      "stale_index", "stale_overlay" (its overlay was made for a different state of the file), "overlay" (its overlay is
      damaged), "unchecked" (the workers of a cluster died of it)
    - for data that TensorFlow ignores silently: "short_tail" (1 to 11 bytes at the end), "empty_member",
      "cut_trailer", "second_stream", "trailing_bytes"
    - for a tar archive: "no_end" (the end marker is missing, and perhaps some records), "early_end" (another archive
      follows the end marker; webdataset and tar do not read it)

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


_MOST_FINDINGS = 50
_MOST_PICTURES = 3
_MOST_WRITTEN = 3
"""More files without damage than this are not listed one by one."""
_DONE = {"verify": "intact", "repair": "kept"}


@dataclass(frozen=True, slots=True, repr=False)
class Report(Printed):
    """The findings of `verify` or `repair`. `num_records` counts the intact records or, for `repair`, the written ones,
    including restored records. `print` shows them as a table."""

    num_records: int
    findings: tuple[Finding, ...]
    num_bytes: int = 0
    """Bytes of the files read."""
    paths: tuple[str, ...] = ()
    """The files that `repair` wrote or `verify` read, in order."""
    verb: Literal["verify", "repair"] = "verify"
    unwritten: tuple[str, ...] = ()
    """The damaged files of which `repair` wrote no new file, because nothing could be saved."""

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
            **({"unwritten": list(self.unwritten)} if self.verb == "repair" else {}),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def _page(self) -> list[Any]:
        from rich.text import Text

        parts: list[Any] = [self._verdict()]
        pictures = [finding for finding in self.findings if finding.kind == "picture"]
        others = [finding for finding in self.findings if finding.kind != "picture"]
        for group, most in ((others, _MOST_FINDINGS), (pictures, _MOST_PICTURES)):
            if group is pictures and len(pictures) > most:
                parts += ["", _count_of_pictures(pictures)]
            for finding in group[:most]:
                parts += ["", *_finding(finding)]
            if len(group) > most:
                left = describe.count(len(group) - most)
                parts += ["", Text(f"and {left} more: findings, or --json, lists all", style="dim")]
        if self.verb == "repair":
            parts += ["", *map(Text, self._written())]
            lost = map(describe.escape, self.unwritten)
            parts += [Text(f"wrote no file for {path}: nothing could be saved") for path in lost]
        return parts

    def _written(self) -> list[str]:
        """What `repair` wrote: the new files of damaged files by name, and the number of the others if there are many."""
        damaged = {_name(finding.file) for finding in self.findings if finding.severity == "error"}
        others = [path for path in self.paths if _name(path) not in damaged]
        is_short = len(others) <= _MOST_WRITTEN
        lines = [
            f"wrote {describe.escape(path)}"
            for path in self.paths
            if is_short or _name(path) in damaged
        ]
        return (
            lines
            if is_short
            else [*lines, f"wrote {describe.count(len(others))} files without damage"]
        )

    def _verdict(self) -> Any:
        from rich.text import Text

        errors = sum(finding.severity == "error" for finding in self.findings)
        notes = len(self.findings) - errors
        line = Text()
        verdict = "ok" if not errors else "1 fault" if errors == 1 else f"{errors} faults"
        line.append(verdict, style="bold green" if not errors else "bold red")
        records = describe.records(self.num_records)
        line.append(f": {records} {_DONE[self.verb]}, {describe.size(self.num_bytes)} read")
        if errors:
            lost = self.num_lost
            number = "an unknown number of records" if lost is None else describe.records(lost)
            line.append(f", {number} lost")
        if notes:
            line.append(f", {notes} notes" if notes > 1 else ", 1 note")
        return line

    def _summary(self) -> str:
        findings = f"{len(self.findings)} findings, " if self.findings else ""
        return f"{'ok' if self.ok else 'not ok'}, {findings}{describe.records(self.num_records)} {_DONE[self.verb]}"


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _count_of_pictures(findings: list[Finding]) -> Any:
    from rich.text import Text

    files = len({finding.file for finding in findings})
    place = "1 file" if files == 1 else f"{describe.count(files)} files"
    return Text(
        f"{describe.count(len(findings))} pictures in {place} cannot be decoded; the first:"
    )


def _finding(finding: Finding) -> list[Any]:
    from rich.text import Text

    head = Text()
    head.append(describe.escape(finding.file), style="bold")
    record = "" if finding.record is None else f" record {describe.count(finding.record)},"
    head.append(f":{record} bytes {finding.start_byte} to {finding.end_byte}")
    style = "red" if finding.severity == "error" else "yellow"
    body = Text("  ").append(finding.kind, style=style)
    body.append(f": {describe.escape(finding.message)}")
    if finding.restored:
        body.append(" (the checksum of its payload is right)")
    return [head, body]


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
