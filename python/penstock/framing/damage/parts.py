"""What a survey of a framed file is made of: tasks, and the records and faults that they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Chunk
from penstock.contract.report import Finding
from penstock.framing.framings import Framing
from penstock.framing.streams.gzip_members import Member
from penstock.limits import Limits
from penstock.storage.base import Source


@dataclass(frozen=True, slots=True)
class Scope:
    """The file that is surveyed, and what is asked."""

    source: Source
    framing: Framing
    limits: Limits
    salvage: bool = False
    proves: bool = True
    """Whether payloads are compared with their checksums."""

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
class Bad:
    """Something that is wrong; the payload of the record, where that is proved right all the same.
    `unproved`: the record may lie inside a larger, broken one."""

    finding: Finding
    payload: _core.Buffer | None = None
    unproved: bool = False


@dataclass(frozen=True, slots=True)
class Frames:
    """Neighbouring records at proved borders. `data` is their frames, one after another. `unproved`, where
    salvage was asked for: they may lie inside a larger, broken record."""

    frames: _core.Frames
    data: _core.Buffer
    first_record: int | None
    file_bytes: int
    unproved: bool = False

    @property
    def start(self) -> int:
        """Where they begin in the stream."""
        return int(as_numpy(self.frames[:1].starts())[0])

    @property
    def end(self) -> int:
        """Where they end in the stream."""
        return self.start + len(self.data)


def between(part: Frames, first: int, end: int) -> Frames:
    """Some neighbouring ones of a part's records, which took no bytes of the file but its first."""
    starts = as_numpy(part.frames.starts())
    start = int(starts[first])
    stop = int(starts[end]) if end < len(starts) else part.end
    data = part.data.slice(start - part.start, stop - start)
    record = None if part.first_record is None else part.first_record + first
    file_bytes = part.file_bytes if first == 0 else 0
    return Frames(part.frames[first:end], data, record, file_bytes, part.unproved)


Part = Frames | Bad


@dataclass(frozen=True, slots=True)
class Found:
    """What one task found, in the order of the file, and the bytes of the file it took."""

    parts: tuple[Part, ...]
    file_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes that the parts hold in memory."""
        return sum(len(part.data) for part in self.parts if isinstance(part, Frames))


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


@dataclass(frozen=True, slots=True)
class Window:
    """A task: a part of a plain file, and the call that finds the records which end in it, all right."""

    found: Callable[[], Chunk | None]


Task = Frames | Members | Window | Found
