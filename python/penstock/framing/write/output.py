"""Turns the frames of a FramedWriter into a file: plain, as gzip members, or as one compressed stream.

Where a gzip member ends depends only on the records. A member holds whole records, so reading may start at any member.
No member is empty, because TensorFlow treats an empty member as the end of the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from penstock import _core
from penstock.contract.format import Part
from penstock.engine.pipeline import Pushed
from penstock.framing.index.sidecar import SeekPoint
from penstock.framing.streams.inflated import POINT_BYTES
from penstock.limits import KIB
from penstock.storage.base import Sink
from penstock.tuned import WRITE_BYTES

ZLIB_PUSH_BYTES = 256 * KIB
"""Size of the pieces passed to zlib. It is constant because zlib's output depends on it."""
# A gzip file without content: one empty member of 20 bytes, as TensorFlow writes it.
EMPTY_GZIP = bytes.fromhex("1f8b08000000000000030300") + bytes(8)


class PlainOutput:
    """Writes frames without compression. Parts of the file wait until there are enough for one large write."""

    compression = ""
    layout = "plain"

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting_parts: list[memoryview] = []
        self._waiting_bytes = 0
        self.num_bytes = 0
        """Bytes of output, written or waiting."""
        self.points: list[SeekPoint] = []

    def add(self, frames: Sequence[Part], lengths: np.ndarray) -> None:
        """Append whole frames: their bytes in any number of parts, and the length of each frame."""
        del lengths
        self.put(*frames)

    def drain(self) -> None:
        """Wait until `num_bytes` counts all complete gzip members."""

    def size(self) -> int:
        """Bytes of the file if it ended here; estimated for data that is not compressed yet."""
        return self.num_bytes

    def close(self) -> None:
        self._write_out(self._waiting_bytes)

    def put(self, *parts: Part) -> None:
        views = [part if type(part) is memoryview else memoryview(part) for part in parts]
        num_bytes = sum(map(len, views))
        self._waiting_parts += views
        self._waiting_bytes += num_bytes
        self.num_bytes += num_bytes
        if self._waiting_bytes >= WRITE_BYTES:
            self._write_out(self._waiting_bytes - self.num_bytes % WRITE_BYTES)

    def _write_out(self, num_bytes: int) -> None:
        """Write the first `num_bytes` waiting bytes, without moving them."""
        waiting = self._waiting_parts
        self._waiting_bytes -= num_bytes
        # There may be thousands of parts, so a Python loop over them would be slow.
        ends = list(accumulate(map(len, waiting)))
        last = bisect_left(ends, num_bytes)
        parts = waiting[: last + 1]
        self._waiting_parts = waiting[last + 1 :]
        if parts and ends[last] > num_bytes:
            cut = len(parts[-1]) - (ends[last] - num_bytes)
            self._waiting_parts.insert(0, parts[-1][cut:])
            parts[-1] = parts[-1][:cut]
        self._sink.write_all(parts)


class GzipMembers(PlainOutput):
    """Writes gzip members of whole records. A member ends with the record that fills it."""

    compression = "gzip"
    layout = "members"

    def __init__(self, sink: Sink, level: int, member_bytes: int, work: Pushed) -> None:
        super().__init__(sink)
        self._level = level
        self._member_bytes = member_bytes
        self._work = work
        self._plain_start = 0
        # The member that is still open: parts of encoded slices, with their bytes and records.
        self._parts: list[_core.Buffer] = []
        self._open_bytes = 0
        self._open_records = 0

    def add(self, frames: Sequence[Part], lengths: np.ndarray) -> None:
        data = joined(frames)
        ends = np.cumsum(lengths, dtype=np.uint64)
        start, first = 0, 0
        while first < len(ends):
            wanted = start + self._member_bytes - self._open_bytes
            last = int(np.searchsorted(ends, wanted, side="left"))
            is_full = last < len(ends)
            after = last + 1 if is_full else len(ends)
            end = int(ends[after - 1])
            self._parts.append(data.slice(start, end - start))
            self._open_bytes += end - start
            self._open_records += after - first
            if is_full:
                self._close_member()
            start, first = end, after

    def drain(self) -> None:
        self._work.drain()

    def size(self) -> int:
        return self.num_bytes + packed_bytes(
            self._parts, self._open_bytes, self.num_bytes, self._plain_start, self._level
        )

    def close(self) -> None:
        if self._open_records:
            self._close_member()
        self._work.drain()
        if not self.num_bytes:
            self.put(_core.Buffer.from_bytes(EMPTY_GZIP))
        super().close()

    def _close_member(self) -> None:
        parts, num_bytes, num_records = self._parts, self._open_bytes, self._open_records
        self._parts, self._open_bytes, self._open_records = [], 0, 0
        plain_start, level = self._plain_start, self._level
        self._plain_start += num_bytes

        def compress() -> _core.Buffer:
            return _core.gzip_member(joined(parts), 0, num_bytes, num_records, level)

        def write(member: _core.Buffer) -> None:
            point = SeekPoint(8 * self.num_bytes, plain_start, b"", member.crc32c())
            self.points.append(point)
            self.put(member)

        self._work.put(compress, write)


class OneStream(PlainOutput):
    """Writes one zlib stream or one gzip member, and inflates the output again to find its seek points."""

    layout = "points"

    def __init__(self, sink: Sink, compression: str, level: int) -> None:
        super().__init__(sink)
        self.compression = compression
        self._level = level
        self._plain_bytes = 0
        self._deflater = _core.ZlibDeflater(level, compression == "gzip")
        self._inflater = _core.Inflater(self.compression, POINT_BYTES)
        # Plain bytes that wait for the next push.
        self._parts: list[_core.Buffer] = []
        self._open_bytes = 0
        # The latest point, and the output after it.
        self._point: SeekPoint | None = None
        self._behind = b""

    def add(self, frames: Sequence[Part], lengths: np.ndarray) -> None:
        del lengths
        data = joined(frames)
        start = 0
        while len(data) - start >= ZLIB_PUSH_BYTES - self._open_bytes:
            end = start + ZLIB_PUSH_BYTES - self._open_bytes
            self._parts.append(data.slice(start, end - start))
            self._push()
            start = end
        if start < len(data):
            self._parts.append(data.slice(start, len(data)))
            self._open_bytes += len(data) - start

    def size(self) -> int:
        return self.num_bytes + packed_bytes(
            self._parts, self._open_bytes, self.num_bytes, self._plain_bytes, self._level
        )

    def close(self) -> None:
        if self._open_bytes:
            self._push()
        self._follow(self._deflater.finish(), at_end=True)
        super().close()

    def _push(self) -> None:
        parts, self._parts, self._open_bytes = self._parts, [], 0
        data = joined(parts)
        self._plain_bytes += len(data)
        self._follow(self._deflater.push(data), at_end=False)

    def _follow(self, data: _core.Buffer, *, at_end: bool) -> None:
        self.put(data)
        rest = data
        while len(rest):
            plain, taken = self._inflater.push(rest, at_end, POINT_BYTES)
            rest = rest.slice(taken, len(rest))
            if not taken and not len(plain):
                break
        self._behind += data.to_bytes()
        for found in self._inflater.take_points():
            point = SeekPoint(*found)
            self._end_span(self.num_bytes - point.compressed_bit // 8)
            self._point = point
        if at_end:
            self._end_span(0)

    def _end_span(self, num_left: int) -> None:
        """Add the latest point, with a checksum of the output after it except the last `num_left` bytes."""
        end = len(self._behind) - num_left
        if self._point is not None:
            check = _core.Buffer.from_bytes(self._behind[:end]).crc32c()
            self.points.append(replace(self._point, check=check))
        self._behind = self._behind[end:]


def packed_bytes(parts: Sequence[Part], num_bytes: int, packed: int, plain: int, level: int) -> int:
    """Estimate the compressed size of waiting bytes from the ratio so far, `packed` to `plain`, or else by compressing
    them."""
    if not num_bytes:
        return 0
    if plain and packed:
        return num_bytes * packed // plain
    return len(_core.gzip_member(joined(parts), 0, num_bytes, 1, level))


def parts_of(framed: _core.Framed) -> list[Part]:
    """The bytes of frames, not copied."""
    if len(framed.buffers) == 1:
        return [framed.data]
    wholes = [memoryview(buffer) for buffer in framed.buffers]
    return [wholes[number][start:end] for number, start, end in framed.pieces]


def joined(parts: Sequence[Part]) -> _core.Buffer:
    """All parts in one Buffer. A single Buffer is not copied."""
    whole = [part for part in parts if isinstance(part, _core.Buffer)]
    if len(whole) < len(parts):
        return _core.Buffer.from_bytes(b"".join(parts))
    return whole[0] if len(whole) == 1 else _core.Buffer.join(whole)


def front(parts: Sequence[Part], num_bytes: int) -> _core.Buffer:
    """A copy of the first bytes of the parts."""
    found: list[memoryview] = []
    for part in parts:
        if num_bytes <= 0:
            break
        found.append(memoryview(part)[:num_bytes])
        num_bytes -= len(part)
    return _core.Buffer.from_bytes(b"".join(found))
