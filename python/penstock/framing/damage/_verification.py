"""Verifies the payloads of the frames that a damage scan finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.framing.damage._parts import Bad, FoundFrames, Scope, between
from penstock.framing.index.sidecar import Index

UNKNOWN = "unknown_record"
"""The kind of a finding about an intact record at an offset where the index has another record."""


class Verifier:
    """Compares payloads with the stored checksums, and with the checksums of an index if there is one."""

    def __init__(self, scope: Scope, index: Index | None) -> None:
        self._scope = scope
        self._index = index

    def parts(self, task: FoundFrames) -> Iterator[FoundFrames | Bad]:
        """Yield the intact records, and findings for damaged payloads and for records that the index does not have."""
        for part in self._proved(task):
            if isinstance(part, Bad) or self._index is None or self._index.layout != "plain":
                yield part
            else:
                yield from self._known_parts(part, self._index)

    def _known_parts(self, part: FoundFrames, index: Index) -> Iterator[FoundFrames | Bad]:
        """Yield the frames of a plain file up to the first frame that is not where the index has it. Even if that frame
        is intact, it may be no record: payload bytes may have moved to a record boundary. The frames after it are left
        out."""
        starts = as_numpy(part.frames.starts())
        rows = np.searchsorted(index.starts[:-1], starts)
        there = rows < index.num_records
        there[there] = index.starts[rows[there]] == starts[there]
        ends = starts + self._scope.framing.frame_bytes(as_numpy(part.frames.lengths()))
        known = there.copy()
        known[there] = index.ends[rows[there]] == ends[there]
        if known.all():
            yield part
            return
        first = int(np.argmin(known))
        if first:
            yield between(part, 0, first)
        if self._scope.salvage:
            yield between(part, first, len(part.frames))
            return
        start = int(starts[first])
        after = int(np.searchsorted(index.starts, np.uint64(start), "right"))
        end = int(index.starts[after]) if after <= index.num_records else int(ends[first])
        message = "the index has no such record there"
        record = _later(part.first_record, first)
        yield Bad(self._scope.finding(UNKNOWN, record, start, end, message, int(there[first])))

    def _proved(self, task: FoundFrames) -> Iterator[FoundFrames | Bad]:
        faults = task.frames.verify(self._known(task.frames)) if self._scope.proves else []
        if not faults:
            yield task
            return
        framing = self._scope.framing
        starts = as_numpy(task.frames.starts()).astype(np.int64)
        lengths = as_numpy(task.frames.lengths()).astype(np.int64)
        base = int(starts[0])
        done = 0
        for fault in [*faults, None]:
            bad = len(starts) if fault is None else int(fault.record or 0)
            if bad > done:
                start = int(starts[done])
                end = int(starts[bad - 1]) + framing.frame_bytes(int(lengths[bad - 1]))
                data = task.data.slice(start - base, end - start)
                record = _later(task.first_record, done)
                yield FoundFrames(task.frames[done:bad], data, record, 0)
            if fault is not None:
                start, length = int(starts[bad]), int(lengths[bad])
                payload = task.data.slice(start - base + framing.head_bytes, length)
                yield self._bad(fault, _later(task.first_record, bad), start, payload)
            done = bad + 1

    def _known(self, frames: _core.Frames) -> Any:
        """The index's checksums for frames that have no checksums themselves."""
        if self._scope.framing.is_checked or self._index is None:
            return None
        index = self._index
        known = as_numpy(frames.checksums()).copy()
        starts = as_numpy(frames.starts())
        rows = np.searchsorted(index.starts, starts)
        there = rows < index.num_records
        there[there] = index.starts[rows[there]] == starts[there]
        known[there] = index.checksums[rows[there]]
        return as_arrow(known)

    def _bad(self, fault: Any, record: int | None, start: int, payload: _core.Buffer) -> Bad:
        framing = self._scope.framing
        end = start + framing.frame_bytes(len(payload))
        known = self._index.checksum_at(start) if self._index is not None else None
        if known is not None and known == framing.checksum(payload.crc32c()):
            message = (
                "the stored checksum is damaged; the payload matches the checksum in the index"
            )
            found = self._scope.finding(
                "data_checksum", record, start, end, message, 0, restored=True
            )
            return Bad(found, payload)
        message = f"{fault.message}: stored {fault.expected:#010x}, found {fault.found:#010x}"
        return Bad(self._scope.finding("data_checksum", record, start, end, message, 1))


def _later(first: int | None, count: int) -> int | None:
    return None if first is None else first + count
