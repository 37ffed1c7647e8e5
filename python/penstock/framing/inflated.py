"""The stream of bytes inside a file: the file itself, or what it inflates to.

Both kinds offer `read(start, length)` over the stream, so that framing, resynchronisation and
random access are written once. A compressed stream is read forwards as it comes; reading elsewhere
starts from the nearest known point: a gzip member, a seek point, or the start of the file.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from penstock import _core
from penstock.forks import Lock
from penstock.framing.forward import ForwardStream, Inflation
from penstock.framing.framings import Framing
from penstock.framing.sidecar import Index, SeekPoint
from penstock.numbers import as_numpy
from penstock.storage import LocalSource, Source

POINT_BYTES = 1 << 20
"""Plain bytes between seek points: what one random access inflates at most, besides the record."""


class Stream(Protocol):
    """The bytes that frames are in. Safe to use from several threads."""

    container: str
    """What they are compressed with: "gzip", "zlib" or nothing."""

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; shorter only where it ends."""
        ...

    def size(self) -> int | None:
        """Bytes of the stream, or None while nobody has come to its end."""
        ...

    def hop(self, framing: Framing, start: int, goal: int, limit: int) -> np.ndarray | None:
        """Where frames start from the one at `start` on, by their heads alone, until `goal` bytes
        are together or something is wrong, and the end of the last: uint64. None where heads
        cannot be had without the payloads."""
        ...

    def walk(
        self, framing: Framing, start: int, length: int, limit: int, *, prove: bool = False
    ) -> Walked:
        """Read a window and find the frames in it. With `prove`, records that will be proved may be so
        at once, while the processor has their bytes near."""
        ...


Walked = tuple[_core.Frames, int, int, _core.Fault | None, int]
"""Frames, the bytes they take, the bytes that the next one needs in all, a fault, and the bytes
that were read."""


class PlainStream:
    """A file that is its own stream."""

    container = ""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._source.read(start, length)

    def size(self) -> int | None:
        return self._source.size

    def hop(self, framing: Framing, start: int, goal: int, limit: int) -> np.ndarray | None:
        if not isinstance(self._source, LocalSource) or self._source.mapped is not None:
            return None  # of a mapped file a walk touches heads alone, too
        starts, _, _ = _core.index_file(framing.name, self._source.file, limit, start, goal)
        return as_numpy(starts)

    def walk(
        self, framing: Framing, start: int, length: int, limit: int, *, prove: bool = False
    ) -> Walked:
        if isinstance(self._source, LocalSource) and self._source.mapped is None:
            return _core.read_frames(framing.name, self._source.file, start, length, limit, prove)
        return walk(self, framing, start, length, limit)


class InflatedStream:
    """What a gzip or zlib file inflates to."""

    def __init__(self, source: Source, container: str) -> None:
        self._source = source
        self.container = container
        self._lock = Lock()
        self._forward = ForwardStream(source, container)
        self._size: int | None = None
        self.points: tuple[SeekPoint, ...] = ()
        self.one_shot = False
        """Whether every point is a member that can be inflated whole."""

    def learn(self, index: Index) -> None:
        """Use an index's points and size."""
        self.points = index.points
        self.one_shot = index.layout == "members"
        self._size = index.plain_bytes

    def size(self) -> int | None:
        return self._size

    def hop(self, framing: Framing, start: int, goal: int, limit: int) -> np.ndarray | None:
        return None

    def walk(
        self, framing: Framing, start: int, length: int, limit: int, *, prove: bool = False
    ) -> Walked:
        return walk(self, framing, start, length, limit)

    def read(self, start: int, length: int) -> _core.Buffer:
        if self.points:
            return self._read_from_point(start, length)
        with self._lock as cut_short:
            if cut_short:
                self._forward = ForwardStream(self._source, self.container)
            part = self._forward.read(start, length)
            self._size = self._forward.size()
            return part

    def without_points(self) -> InflatedStream:
        """The same stream, read forwards."""
        return InflatedStream(self._source, self.container)

    def _read_from_point(self, start: int, length: int) -> _core.Buffer:
        starts = [point.plain_start for point in self.points]
        first = max(0, bisect_right(starts, start) - 1)
        if self.one_shot:
            last = max(first + 1, bisect_right(starts, start + length - 1))
            return self._read_members(first, last, start, length)
        inflation = Inflation(self._source, self.container, self.points[first])
        inflation.skip_to(start)
        part = inflation.read(length)
        at, left = start + len(part), length - len(part)
        if len(part) and left and at in starts:
            # A member with a wrong checksum ends here; all of it was inflated.
            return _core.Buffer.join([part, self._read_from_point(at, left)])
        return part

    def _read_members(self, first: int, last: int, start: int, length: int) -> _core.Buffer:
        """Inflate whole members [first, last), each checked against its own CRC."""
        ends = [p.compressed_bit // 8 for p in self.points[first + 1 : last + 1]]
        begin = self.points[first].compressed_bit // 8
        if len(ends) < last - first:
            ends.append(self._source.size)
        data = self._source.read(begin, ends[-1] - begin)
        borders = [0, *(end - begin for end in ends)]
        members = [(a, b - a) for a, b in pairwise(borders)]
        try:
            plain = _core.inflate_members(data, members, 1 << 62)
        except _core.KernelError as error:
            raise _core.KernelError(_shifted(error.args[0], begin)) from None
        return plain.slice(start - self.points[first].plain_start, length)


def walk(stream: Stream, framing: Framing, start: int, length: int, limit: int) -> Walked:
    """A window of any stream, walked over once it has been read."""
    window = stream.read(start, length)
    last = len(window) < length or stream.size() == start + length
    return *_core.walk(framing.name, window, start, limit, last), len(window)


def _shifted(fault: Any, by: int) -> Any:
    """A fault of an excerpt of a file, told as one of the file."""
    return _core.Fault(fault.kind, by + fault.byte, fault.message, fault.expected, fault.found)
