"""Whether the payloads of a survey's frames are what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.framing.sidecar import Index
from penstock.framing.survey_parts import Bad, Frames, Scope
from penstock.numbers import as_arrow, as_numpy


class Prover:
    """Compares payloads with the checksums that are stored, and with those of an index if there is one."""

    def __init__(self, scope: Scope, index: Index | None) -> None:
        self._scope = scope
        self._index = index

    def parts(self, task: Frames) -> Iterator[Frames | Bad]:
        """The right records, and between them those whose payloads are wrong. All count as right where
        payloads are not to be proved. Of the parts of a task, none took bytes of the file."""
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
                yield Frames(task.frames[done:bad], data, record, 0, task.unproved)
            if fault is not None:
                start, length = int(starts[bad]), int(lengths[bad])
                payload = task.data.slice(start - base + framing.head_bytes, length)
                yield self._bad(fault, _later(task.first_record, bad), start, payload)
            done = bad + 1

    def _known(self, frames: _core.Frames) -> Any:
        """The checksums that an index has for frames without checksums of their own."""
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
            message = "the stored checksum is damaged; the payload has the one that the index knows"
            found = self._scope.finding(
                "data_checksum", record, start, end, message, 0, restored=True
            )
            return Bad(found, payload)
        message = f"{fault.message}: stored {fault.expected:#010x}, found {fault.found:#010x}"
        return Bad(self._scope.finding("data_checksum", record, start, end, message, 1))


def _later(first: int | None, count: int) -> int | None:
    return None if first is None else first + count
