"""Data types of a damage scan: its tasks, and the records and faults that the tasks find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Stretch
from penstock.contract.report import Finding
from penstock.framing.framings import Framing
from penstock.framing.streams.gzip_members import Member
from penstock.limits import Limits
from penstock.storage.base import Source


@dataclass(frozen=True, slots=True)
class Scope:
    """The file that is scanned, and the options of the scan."""

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
        path = self.source.path
        if kind in self.framing.overlooked:
            message = f"{message}; {self.framing.overlooked[kind]}"
        return Finding(kind, path, record, start, end, message, num_records, restored=restored)


@dataclass(frozen=True, slots=True)
class Bad:
    """A fault. `payload` is set if the record's payload is intact in spite of it."""

    finding: Finding
    payload: _core.Buffer | None = None


@dataclass(frozen=True, slots=True)
class FoundFrames:
    """Consecutive records at verified boundaries, or with salvage perhaps inside a larger, broken record. `data` holds
    their frames back to back."""

    frames: _core.Frames
    data: _core.Buffer
    first_record: int | None
    file_bytes: int

    @property
    def start(self) -> int:
        return int(as_numpy(self.frames[:1].starts())[0])

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def between(part: FoundFrames, first: int, end: int) -> FoundFrames:
    """Records [first, end) of a part. The file bytes of the part are counted only in the range that begins with its
    first record."""
    starts = as_numpy(part.frames.starts())
    start = int(starts[first])
    stop = int(starts[end]) if end < len(starts) else part.end
    data = part.data.slice(start - part.start, stop - start)
    record = None if part.first_record is None else part.first_record + first
    file_bytes = part.file_bytes if first == 0 else 0
    return FoundFrames(part.frames[first:end], data, record, file_bytes)


def left_out(part: FoundFrames, faults: Mapping[int, Finding]) -> Iterator[FoundFrames | Bad]:
    """Yield the records of a part without those that have a fault, which are given by where they start, and the faults
    in their place."""
    done = 0
    for row, start in enumerate(map(int, as_numpy(part.frames.starts())) if faults else ()):
        if start in faults:
            if row > done:
                yield between(part, done, row)
            yield Bad(faults[start])
            done = row + 1
    if done < len(part.frames):
        yield between(part, done, len(part.frames)) if done else part


Part = FoundFrames | Bad


@dataclass(frozen=True, slots=True)
class Found:
    """The findings of one task in file order, and the number of file bytes that it read."""

    parts: tuple[Part, ...]
    file_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the parts in memory."""
        return sum(len(part.data) for part in self.parts if isinstance(part, FoundFrames))


@dataclass(frozen=True, slots=True)
class Members:
    """A task: members of a gzip file that penstock wrote."""

    members: list[Member]
    plain_start: int
    first_record: int

    @property
    def file_bytes(self) -> int:
        return sum(member.num_bytes for member in self.members)


@dataclass(frozen=True, slots=True)
class ScanWindow:
    """A task: a window of a plain file. `found` returns the records that end in it; all are intact."""

    found: Callable[[], Sequence[Stretch]]


Task = FoundFrames | Members | ScanWindow | Found
