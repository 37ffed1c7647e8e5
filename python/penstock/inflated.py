"""The stream of bytes inside a file: the file itself, or what it inflates to.

Both kinds offer `read(start, length)` over the stream, so that framing, resynchronisation and
random access are written once. A compressed stream is read forwards as it comes; reading elsewhere
starts from the nearest known point: a gzip member, a seek point, or the start of the file.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Protocol

from penstock import _core
from penstock.errors import InternalError
from penstock.sidecar import Index, SeekPoint
from penstock.storage import Source

INPUT_BYTES = 1 << 20
"""Compressed bytes read at once."""
POINT_BYTES = 1 << 20
"""Plain bytes between seek points: what one random access inflates at most, besides the record."""


EMPTY = _core.Buffer.from_bytes(b"")


class Stream(Protocol):
    """The bytes that frames are in. Safe to use from several threads."""

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; shorter only where it ends."""
        ...

    def size(self) -> int | None:
        """Bytes of the stream, or None while nobody has come to its end."""
        ...


class PlainStream:
    """A file that is its own stream."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._source.read(start, length)

    def size(self) -> int | None:
        return self._source.size


class InflatedStream:
    """What a gzip or zlib file inflates to."""

    def __init__(self, source: Source, container: str) -> None:
        self._source = source
        self._container = container
        self._lock = threading.Lock()
        self._forward = Forward(Inflation(source, container))
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

    def read(self, start: int, length: int) -> _core.Buffer:
        if self.points:
            return self._read_from_point(start, length)
        with self._lock:
            if start < self._forward.kept_from:
                self._forward = Forward(Inflation(self._source, self._container))
            part = self._forward.read(start, length)
            if len(part) < length:
                self._size = start + len(part)
            return part

    def _read_from_point(self, start: int, length: int) -> _core.Buffer:
        starts = [point.plain_start for point in self.points]
        first = max(0, bisect_right(starts, start) - 1)
        if self.one_shot:
            last = max(first + 1, bisect_right(starts, start + length - 1))
            return self._read_members(first, last, start, length)
        inflation = Inflation(self._source, self._container, self.points[first])
        inflation.skip_to(start)
        return inflation.read(length)

    def _read_members(self, first: int, last: int, start: int, length: int) -> _core.Buffer:
        """Inflate whole members [first, last), each checked against its own CRC."""
        ends = [p.compressed_bit // 8 for p in self.points[first + 1 : last + 1]]
        begin = self.points[first].compressed_bit // 8
        if len(ends) < last - first:
            ends.append(self._source.size)
        data = self._source.read(begin, ends[-1] - begin)
        borders = [0, *(end - begin for end in ends)]
        members = [(a, b - a) for a, b in zip(borders, borders[1:], strict=False)]
        plain = _core.inflate_members(data, members, 1 << 62)
        return plain.slice(start - self.points[first].plain_start, length)


class Inflation:
    """One pass forwards over a compressed file."""

    def __init__(
        self,
        source: Source,
        container: str,
        point: SeekPoint | None = None,
        point_bytes: int = 0,
    ) -> None:
        self._source = source
        if point is None:
            self.inflater = _core.Inflater(container, point_bytes)
            self._at = 0
        else:
            self.inflater = _core.Inflater.at_point(
                container, point.compressed_bit, point.plain_start, point.window
            )
            self._at = point.compressed_bit // 8
        self._input = EMPTY

    @property
    def plain_bytes(self) -> int:
        """Where in the stream the next byte will be."""
        return self.inflater.plain_bytes

    def skip_to(self, start: int) -> None:
        """Inflate and drop bytes up to `start`."""
        while self.plain_bytes < start:
            if not len(self.read(min(start - self.plain_bytes, POINT_BYTES))):
                return

    def read(self, length: int, prefix: _core.Buffer = EMPTY) -> _core.Buffer:
        """The next bytes of the stream behind `prefix`; fewer than `length` only at its end.

        A fault of the compressed data is raised once the bytes before it have been returned.
        """
        part = prefix
        while (missing := length - len(part) + len(prefix)) > 0 and not self.inflater.finished:
            try:
                part = self._push(missing, part)
            except _core.KernelError:
                if len(part) > len(prefix):
                    break  # the inflater raises it again at the next call
                raise
        return part

    def _push(self, length: int, prefix: _core.Buffer) -> _core.Buffer:
        if not len(self._input) and self._at < self._source.size:
            self._input = self._source.read(self._at, INPUT_BYTES)
            self._at += len(self._input)
        at_end = self._at >= self._source.size
        part, consumed = self.inflater.push(self._input, at_end, length, prefix)
        still = not consumed and len(part) == len(prefix)
        stuck = at_end and still and not self.inflater.finished
        if stuck:
            raise InternalError("the inflater stands still", byte=self.inflater.compressed_bytes)
        self._input = self._input.slice(consumed, len(self._input) - consumed)
        return part


class Forward:
    """A stream over one inflation, read forwards, that keeps its last window: a frame which that
    cut is read again from where it starts."""

    def __init__(self, inflation: Inflation) -> None:
        self._inflation = inflation
        self._kept = EMPTY
        self.kept_from = 0
        """Bytes before this place are gone."""

    def size(self) -> int | None:
        """Bytes of the stream, once its end has been reached."""
        return self._inflation.plain_bytes if self._inflation.inflater.finished else None

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; `start` is not before `kept_from`."""
        kept = self._kept.slice(start - self.kept_from, len(self._kept))
        if not len(kept):
            self._inflation.skip_to(start)
        if len(kept) < length:
            kept = self._inflation.read(length - len(kept), kept)
        self._kept, self.kept_from = kept, start
        return kept.slice(0, length)
