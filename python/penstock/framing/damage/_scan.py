"""The damage scan: finds every record of a framed file and every fault in it, for `verify` and `repair`.

It reads the file from start to end. A record is accepted only if its start is a verified boundary (see `_walk`), and is
intact only if its payload matches the stored checksum. A record with only a damaged header is restored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.around import around
from penstock.contract.decoder import Decoder
from penstock.contract.faults import error_from
from penstock.contract.format import Options, only_chunks
from penstock.errors import FormatError, LimitError, SchemaError
from penstock.framing.damage._compressed_walk import CompressedWalk
from penstock.framing.damage._parts import (
    Bad,
    Found,
    FoundFrames,
    Members,
    Part,
    ScanWindow,
    Scope,
    Task,
    between,
)
from penstock.framing.damage._verification import Verifier
from penstock.framing.damage._walk import Walk
from penstock.framing.framings import Framing
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.read.shard import OpenShard
from penstock.framing.read.windows import Windows
from penstock.framing.streams import gzip_members
from penstock.framing.streams.forward import ForwardStream
from penstock.framing.streams.gzip_members import Member
from penstock.framing.streams.stream import PlainStream
from penstock.limits import Limits
from penstock.storage import MemoryStorage
from penstock.storage.base import Source
from penstock.tuned import GZIP_GROUP_BYTES

_ENDLESS = 1 << 62
"""Larger than any stream. If this is the distance between seek points, there is only one at the start of each
member."""


class DamageScan:
    """The damage scan of one file. One thread at a time may use `tasks`; several may use `run`. With a `decoder`, a
    payload that it cannot decode is a fault, too."""

    def __init__(
        self,
        source: Source,
        framing: Framing,
        compression: str,
        limits: Limits,
        index: Index | None = None,
        *,
        decoder: Decoder | None = None,
        salvage: bool = False,
        proves: bool = True,
        point_bytes: int = 0,
    ) -> None:
        self._scope = Scope(source, framing, limits, salvage, proves)
        self._verifier = Verifier(self._scope, index)
        self.compression = compression
        self._index = index
        self._decoder = decoder
        self._point_bytes = point_bytes or _ENDLESS
        self._forward: ForwardStream | None = None
        self._members: list[Member] = []

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks in file order. They may run in parallel, but start each before requesting the next."""
        scope = self._scope
        if self.compression or not (scope.framing.is_checked and scope.proves):
            yield from self.walk()
            return
        options = Options(damage="skip", limits=scope.limits)
        shard = OpenShard(scope.source, PlainStream(scope.source), scope.framing, options)
        windows = Windows(shard, scope.source.size)
        yield from map(ScanWindow, windows)
        if (rest := windows.rest()) is not None:
            yield from self.walk(*rest)

    def walk(self, at: int = 0, record: int = 0) -> Iterator[Task]:
        """Like `tasks`, but always by a walk over the headers. In a plain file, it may start at any record boundary."""
        source = self._scope.source
        if not self.compression:
            walk = Walk(self._scope, PlainStream(source), self._index, at=at, record=record)
            yield from walk.tasks()
            return
        if self.compression == "gzip":
            index = self._index
            known = [] if index is None else _members_of(index, 0, index.plain_bytes)
            self._members = known or gzip_members.hop_to_end(source)
            if self._members:
                yield from self._member_tasks()
                return
        stream = ForwardStream(source, self.compression, self._point_bytes, join_streams=True)
        self._forward = stream
        yield from CompressedWalk(self._scope, stream, self._index).tasks()

    def points(self) -> list[SeekPoint]:
        """The offsets where inflating may start. Complete once all tasks have been requested."""
        if self._forward is not None:
            return self._forward.take_points()
        starts = accumulate((m.plain_bytes for m in self._members), initial=0)
        return [SeekPoint(8 * m.start, at) for m, at in zip(self._members, starts, strict=False)]

    def between(self, start: int, end: int, record: int) -> Iterator[Part]:
        """The records and faults of the stream between two record boundaries of the index."""
        index = self._index
        assert index is not None, "the boundaries come from it"
        if members := _members_of(index, start, end):
            yield from self._open(Members(members, start, record))
            return
        if end == index.plain_bytes:
            end = _ENDLESS  # damaged compressed data may inflate to more bytes than were written
        walk = self._walk_from(start, record, index)
        for task in walk.tasks():
            if isinstance(task, FoundFrames):
                at = task.end
                yield task if at <= end else _up_to(task, end)
            else:
                at = walk.at
                yield from self.opened(task)
            if at >= end:
                return  # return before the walk reads beyond `end`

    def _walk_from(self, start: int, record: int, index: Index) -> Walk:
        source = self._scope.source
        if not self.compression:
            return Walk(self._scope, PlainStream(source), index, at=start, record=record)
        stream = ForwardStream(source, self.compression, join_streams=True)
        starts = [point.plain_start for point in index.points]
        if (before := bisect_right(starts, start)) > 0:
            stream.resume(index.points[before - 1])
        return CompressedWalk(self._scope, stream, index, at=start, record=record)

    def _member_tasks(self) -> Iterator[Task]:
        plain = record = 0
        for run in gzip_members.groups(self._members):
            yield Members(run, plain, record)
            plain += sum(member.plain_bytes for member in run)
            record += sum(member.num_records for member in run)

    def run(self, task: Task) -> Iterable[Found]:
        """The records and faults of a task. Payloads are decoded if the scan has a decoder."""
        parts = list(self.opened(task))
        file_bytes = (
            sum(part.file_bytes for part in parts if isinstance(part, FoundFrames))
            if isinstance(task, ScanWindow)
            else task.file_bytes
        )
        if self._decoder is not None:
            parts = [
                one
                for part in parts
                for one in (self._decoded(part) if isinstance(part, FoundFrames) else (part,))
            ]
        return [Found(tuple(parts), file_bytes)]

    def opened(self, task: Task) -> Iterator[Part]:
        """The records and faults of a task, in order."""
        if isinstance(task, Found):
            yield from task.parts
        elif isinstance(task, FoundFrames):
            yield task
        elif isinstance(task, ScanWindow):
            yield from self._found(task)
        else:
            yield from self._open(task)

    def _found(self, task: ScanWindow) -> Iterator[FoundFrames]:
        for chunk in only_chunks(task.found()):
            frames = chunk.data.frames
            size = chunk.end_byte - chunk.start_byte
            data = frames.buffer.slice(chunk.start_byte - frames.base, size)
            yield FoundFrames(frames, data, chunk.first_record, size)

    # -- payloads -------------------------------------------------------------------------------

    def _decoded(self, part: FoundFrames) -> Iterator[Part]:
        """The records that can be decoded, and findings for the others. A SchemaError is not a fault here."""
        decoder, frames = self._decoder, part.frames
        assert decoder is not None, "the caller checks this"

        def read(first: int, end: int) -> pa.RecordBatch:
            return self._batch(decoder, frames, first, end)

        for first, end, found in around(read, lambda error: error.record, 0, len(frames)):
            if isinstance(found, FormatError) and end == first + 1:
                yield self._undecodable(part, first, found)
            elif end - first == len(frames):
                yield part
            else:
                yield between(part, first, end)

    def _batch(
        self, decoder: Decoder, frames: _core.Frames, first: int, end: int
    ) -> pa.RecordBatch:
        """Decode rows [first, end). Errors count the row from the start of `frames`."""
        try:
            return decoder.decode(frames[first:end], None)
        except _core.KernelError as error:
            fault = error.args[0]
            row = None if fault.record is None else first + fault.record
            raise error_from(fault, file=self._scope.source.path, record=row) from None
        except (FormatError, SchemaError) as error:
            if error.record is not None:
                error.record += first
            raise

    def _undecodable(self, part: FoundFrames, row: int, error: FormatError) -> Bad:
        one = between(part, row, row + 1)
        field = "" if error.field is None else f"field {error.field!r}: "
        kind = "limit" if isinstance(error, LimitError) else "message"
        message = f"cannot be decoded: {field}{error.message}"
        return Bad(self._scope.finding(kind, one.first_record, one.start, one.end, message, 1))

    # -- members --------------------------------------------------------------------------------

    def _open(self, task: Members) -> Iterator[Part]:
        limit = self._scope.limits.member_bytes + GZIP_GROUP_BYTES
        try:
            plain = gzip_members.inflate(self._scope.source, task.members, limit)
            records = sum(member.num_records for member in task.members)
            frames, consumed, _, _ = _core.walk(
                self._scope.framing.name, plain, task.plain_start, self._scope.limits.record_bytes
            )
            if consumed == len(plain) and len(frames) == records:
                yield from self._verifier.parts(FoundFrames(frames, plain, task.first_record, 0))
                return
        except _core.KernelError:
            pass
        plain_start, record = task.plain_start, task.first_record
        for member in task.members:
            if len(task.members) > 1:
                yield from self._open(Members([member], plain_start, record))
            else:
                yield from self._open_broken(member, plain_start, record)
            plain_start += member.plain_bytes
            record += member.num_records

    def _open_broken(self, member: Member, plain_start: int, record: int) -> Iterator[Part]:
        """The records and faults of one member that is damaged or does not match its header."""
        data = self._scope.source.read(member.start, member.num_bytes)
        path = self._scope.source.path
        source = MemoryStorage({path: data.to_bytes()}).source(path)
        stream = ForwardStream(source, "gzip", _ENDLESS)
        scope = replace(self._scope, source=source)
        bases = {"plain_base": plain_start, "file_base": member.start}
        walk = CompressedWalk(scope, stream, None, record=record, **bases)
        parts = [part for task in walk.tasks() for part in self.opened(task)]
        seen = sum(_records_in(part) for part in parts)
        missing = member.num_records - seen
        for part in parts:
            if isinstance(part, Bad) and part.finding.num_records is None:
                part = replace(part, finding=replace(part.finding, num_records=max(missing, 0)))
                missing = 0
            yield part


def _members_of(index: Index, start: int, end: int) -> list[Member]:
    """The members that start in [start, end), if penstock wrote the file as members."""
    members: list[Member] = []
    if index.layout != "members":
        return members
    edges = [*index.points, SeekPoint(8 * index.data_bytes, index.plain_bytes)]
    for point, following in pairwise(edges):
        if start <= point.plain_start < end:
            first, last = np.searchsorted(index.starts, [point.plain_start, following.plain_start])
            byte = point.compressed_bit // 8
            num_bytes = following.compressed_bit // 8 - byte
            plain_bytes = following.plain_start - point.plain_start
            if num_bytes <= 0 or plain_bytes < 0:
                return []  # impossible in an intact index
            members.append(Member(byte, num_bytes, plain_bytes, int(last - first)))
    return members


def _up_to(task: FoundFrames, end: int) -> FoundFrames:
    starts = as_numpy(task.frames.starts())
    count = int(np.searchsorted(starts, end))
    last = int(starts[count]) if count < len(starts) else task.end
    return replace(task, frames=task.frames[:count], data=task.data.slice(0, last - task.start))


def _records_in(part: FoundFrames | Bad) -> int:
    if isinstance(part, FoundFrames):
        return len(part.frames)
    return (part.finding.num_records or 0) + (part.payload is not None)
