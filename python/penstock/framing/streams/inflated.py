"""The stream of bytes in a compressed file. With an index, each read starts at the nearest seek point before it.
Otherwise the file is read forwards."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from penstock import _core
from penstock.engine.locks import Lock
from penstock.errors import StaleIndexError
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.streams.forward import ForwardStream, Inflation
from penstock.framing.streams.stream import Stream
from penstock.storage.base import Source

POINT_BYTES = 1 << 20
"""Plain bytes between seek points. A read at a random offset inflates at most about this many bytes before it."""


class InflatedStream(Stream):
    """The inflated contents of a gzip or zlib file."""

    def __init__(self, source: Source, container: str) -> None:
        self._source = source
        self.container = container
        self._lock = Lock()
        self._forward: ForwardStream | None = None
        self._size: int | None = None
        self.points: tuple[SeekPoint, ...] = ()
        self.one_shot = False
        """Whether every point is the start of a member that penstock wrote, which is inflated as a whole."""

    def rest(self) -> None:
        """Release the kept windows once the whole file has been read, because many files may be open."""
        with self._lock:
            self._forward = None

    def learn(self, index: Index) -> None:
        self.points = index.points
        self.one_shot = index.layout == "members"
        self._size = index.plain_bytes

    def size(self) -> int | None:
        return self._size

    def read(self, start: int, length: int) -> _core.Buffer:
        if self.points:
            return self._read_from_point(start, length)
        with self._lock:
            if self._lock.was_cut_short() or self._forward is None:
                self._forward = ForwardStream(self._source, self.container)
            try:
                part = self._forward.read(start, length)
            except _core.KernelError:
                raise
            except BaseException:
                self._forward = None  # interrupted: its state may be inconsistent
                raise
            size = self._forward.size()
            self._size = self._size if size is None else size
            return part

    def without_points(self) -> InflatedStream:
        return InflatedStream(self._source, self.container)

    def _read_from_point(self, start: int, length: int) -> _core.Buffer:
        starts = [point.plain_start for point in self.points]
        parts: list[_core.Buffer] = []
        at, left = start, length
        while True:
            first = max(0, bisect_right(starts, at) - 1)
            if starts[first] > at:
                message = "the seek points of the index are not in order"
                raise StaleIndexError(message, file=self._source.path)
            if self.one_shot:
                last = max(first + 1, bisect_right(starts, at + left - 1))
                parts.append(self._read_members(first, last, at, left))
                break
            inflation = Inflation(self._source, self.container, self.points[first])
            inflation.skip_to(at)
            part = inflation.read(left)
            parts.append(part)
            at, left = at + len(part), left - len(part)
            # The read stopped early at a point: a member with a wrong checksum ends there. Continue after it.
            if not (len(part) and left and at in starts):
                break
        return parts[0] if len(parts) == 1 else _core.Buffer.join(parts)

    def _read_members(self, first: int, last: int, start: int, length: int) -> _core.Buffer:
        """Inflate whole members [first, last), each verified by its CRC."""
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
            fault = error.args[0]
            byte = begin + fault.byte  # offset in the file, not in the inflated part
            raise _core.KernelError(
                _core.Fault(fault.kind, byte, fault.message, fault.expected, fault.found)
            ) from None
        return plain.slice(start - self.points[first].plain_start, length)
