"""The regions of a framed file: the frames before a record, that record's parts, the frames after it, and damage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.format import check_record
from penstock.contract.regions import DAMAGE, WALK_BYTES, Region, damaged, group, several
from penstock.framing._members import compressed
from penstock.framing.damage import Bad, DamageScan
from penstock.framing.index.indexing import load_index
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import Stream

Described = Callable[[bytes, int], Iterator[Region]]
"""Takes the bytes of a frame and their start, and yields the frame's parts."""

_WINDOW_BYTES = 1 << 20
_LOOK_BYTES = 1 << 16
"""How many bytes of a damaged region are examined for parts to show."""


def framed(
    shard: OpenShard, record: int, described: Described, scan: DamageScan | None
) -> Iterator[Region]:
    """The regions of a file of frames. `scan` finds the records after damage; None if nothing can find them."""
    if not shard.stream.container:
        yield from _frames(shard, record, described, scan)
        return
    yield from compressed(shard.source, shard.stream.container)
    for region in _frames(shard, record, described, None):
        yield region.moved("inflated")


class _Run:
    """Consecutive records that are shown as one region, unless the wanted record is among them."""

    def __init__(self, stream: Stream, wanted: int, described: Described) -> None:
        self._stream = stream
        self._wanted = wanted
        self._described = described
        self.start = self.at = 0
        self.first = self.number = 0
        self.until: int | None = None
        """The offset at which to stop; None until the wanted record has been found."""

    def begin(self, at: int, number: int) -> None:
        """Begin a run of records at a byte of the stream. `number` is the number of its first record."""
        self.start = self.at = at
        self.first = self.number = number

    def add(self, starts: np.ndarray, end: int) -> Iterator[Region]:
        """Take more records, which begin at `starts` and end at `end`."""
        place = self._wanted - self.number
        if 0 <= place < len(starts):
            edges = np.append(starts, np.uint64(end))
            start, stop = int(edges[place]), int(edges[place + 1])
            yield from several(
                self.start, start - self.start, self.first, place + self.number - self.first
            )
            yield self._one(start, stop)
            self.start, self.first = stop, self._wanted + 1
            self.until = stop + WALK_BYTES
        self.at = end
        self.number += len(starts)

    def _one(self, start: int, stop: int) -> Region:
        data = self._stream.read(start, stop - start).to_bytes()
        return group(f"record {self._wanted}", start, stop - start, self._described(data, start))

    def end(self) -> Iterator[Region]:
        """Yield one region for the records that have not been shown yet."""
        yield from several(self.start, self.at - self.start, self.first, self.number - self.first)

    @property
    def is_far(self) -> bool:
        """Whether enough records after the wanted one were seen."""
        return self.until is not None and self.at >= self.until


def _frames(
    shard: OpenShard, record: int, described: Described, scan: DamageScan | None
) -> Iterator[Region]:
    run = _Run(shard.stream, record, described)
    run.begin(shard.begin, 0)
    if shard.begin:
        head = shard.stream.read(0, shard.begin).to_bytes()
        yield Region(0, len(head), "head", head.hex(" "))
    known = load_index(shard) if record else None
    if known is not None and record < known.num_records:
        start = int(known.starts[record])
        yield from several(shard.begin, start - shard.begin, 0, record)
        run.begin(start, record)
    fault = yield from _walked(shard, run)
    yield from run.end()
    if fault is not None:
        if scan is None:
            error, size = shard.error(fault, run.number), shard.stream.size()
            yield damaged(error, run.at, run.at if size is None else size)
        else:
            yield from _resumed(scan, run, described, shard)
    if run.is_far and (size := shard.stream.size() or 0) > run.at:
        yield Region(run.at, size - run.at, "more records", note="not read; verify reads all")
    check_record(record, run.number)


def _walked(shard: OpenShard, run: _Run) -> Generator[Region, None, _core.Fault | None]:
    """Take records until the stream ends, a fault comes, or `run` has enough. Returns the fault, if any."""
    want = _WINDOW_BYTES
    while not run.is_far:
        at = run.at
        try:
            walked = shard.stream.walk(shard.framing, at, want, shard.record_bytes)
        except _core.KernelError as error:
            return error.args[0]
        starts = as_numpy(walked.frames.starts())
        if len(starts):
            yield from run.add(starts, at + walked.consumed)
            want = _WINDOW_BYTES
        elif walked.consumed:
            yield Region(at, walked.consumed, "padding")
            run.begin(at + walked.consumed, run.number)
        if walked.fault is not None:
            return walked.fault
        if (walked.num_read < want and not len(starts)) or walked.consumed == 0 == walked.num_read:
            left = walked.num_read - walked.consumed
            return shard.cut(left, run.at, walked.need) if left else None
        if not walked.consumed:
            want = max(shard.framing.more_bytes(walked.need, want), _WINDOW_BYTES)
    return None


def _resumed(
    scan: DamageScan, run: _Run, described: Described, shard: OpenShard
) -> Iterator[Region]:
    """The damage at the end of a run, and the records that follow it."""
    run.begin(run.at, run.number)
    for task in scan.walk(run.at, run.number):
        for part in scan.opened(task):
            if isinstance(part, Bad):
                yield from run.end()
                found = part.finding
                start, length = found.start_byte, found.end_byte - found.start_byte
                data = shard.stream.read(start, min(length, _LOOK_BYTES)).to_bytes()
                known = group("", start, len(data), described(data, start)).children
                children = tuple(child for child in known if child.state != DAMAGE)
                note = f"byte {start}: {found.message}"
                lost = _lost(found.num_records)
                yield Region(start, length, "damage", lost, note, children, DAMAGE)
                number = run.number + (found.num_records or 0) + (part.payload is not None)
                run.begin(found.end_byte, number)
            else:
                yield from run.add(as_numpy(part.frames.starts()), part.end)
        if run.is_far:
            break
    yield from run.end()


def _lost(num_records: int | None) -> str:
    if num_records is None:
        return "an unknown number of records lost"
    return "1 record lost" if num_records == 1 else f"{num_records} records lost"
