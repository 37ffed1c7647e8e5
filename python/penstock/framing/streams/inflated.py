"""The stream of bytes that results from inflating a compressed file.

Sequential reads go forwards. A read elsewhere starts from the nearest known point: a gzip member, a seek point, or
the start of the file.
"""

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
"""Plain bytes between seek points. One random access inflates at most this many bytes besides the record."""


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
        """Whether every point is the start of a member that can be inflated completely."""

    def rest(self) -> None:
        """Release the windows kept for reading back, once the whole file has been read. There may be many files."""
        with self._lock:
            self._forward = None

    def learn(self, index: Index) -> None:
        """Take the points and the size from an index."""
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
                self._forward = None  # it may have consumed input without counting it
                raise
            size = self._forward.size()
            self._size = self._size if size is None else size
            return part

    def without_points(self) -> InflatedStream:
        """The same stream, read forwards."""
        return InflatedStream(self._source, self.container)

    def _read_from_point(self, start: int, length: int) -> _core.Buffer:
        starts = [point.plain_start for point in self.points]
        parts: list[_core.Buffer] = []
        at, left = start, length
        while True:
            first = max(0, bisect_right(starts, at) - 1)
            if starts[first] > at:
                message = "the points of the index are not in order"
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
            # A member with a wrong checksum ends at such a point, and was inflated completely.
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
