"""What a survey of a framed file is made of: tasks, and the records and faults that they find."""

from __future__ import annotations

from dataclasses import dataclass

from penstock import _core
from penstock.framing.framings import Framing
from penstock.framing.gzip_members import Member
from penstock.limits import Limits
from penstock.report import Finding
from penstock.storage import Source


@dataclass(frozen=True, slots=True)
class Scope:
    """The file that is surveyed, and what is asked."""

    source: Source
    framing: Framing
    limits: Limits
    salvage: bool = False

    def finding(
        self,
        kind: str,
        record: int | None,
        start: int,
        end: int,
        message: str,
        num_records: int | None,
        *,
        restored: bool = False,
    ) -> Finding:
        """A finding in this file."""
        path = self.source.path
        if kind in self.framing.overlooked:
            message = f"{message}; {self.framing.overlooked[kind]}"
        return Finding(kind, path, record, start, end, message, num_records, restored=restored)


@dataclass(frozen=True, slots=True)
class Good:
    """Neighbouring records that are proved right. `data` is their frames, one after another."""

    frames: _core.Frames
    data: _core.Buffer


@dataclass(frozen=True, slots=True)
class Bad:
    """Something that is wrong; the payload of the record, where that is proved right all the same.
    `unproved`: the record may lie inside a larger, broken one."""

    finding: Finding
    payload: _core.Buffer | None = None
    unproved: bool = False


Part = Good | Bad


@dataclass(frozen=True, slots=True)
class Found:
    """What one task found, in the order of the file, and the bytes of the file it took."""

    parts: tuple[Part, ...]
    file_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes that the parts hold in memory."""
        return sum(len(part.data) for part in self.parts if isinstance(part, Good))


@dataclass(frozen=True, slots=True)
class Frames:
    """A task: frames at proved borders, whose payloads have to be proved. `unproved`, where salvage
    was asked for: they may lie inside a larger, broken record."""

    frames: _core.Frames
    data: _core.Buffer
    first_record: int | None
    file_bytes: int
    unproved: bool = False

    @property
    def start(self) -> int:
        """Where they begin in the stream."""
        return self.frames.base

    @property
    def end(self) -> int:
        """Where they end in the stream."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class Members:
    """A task: members of a gzip file that penstock wrote."""

    members: list[Member]
    plain_start: int
    first_record: int

    @property
    def file_bytes(self) -> int:
        """Bytes of the file that they take."""
        return sum(member.num_bytes for member in self.members)


Task = Frames | Members | Found
