"""Inflates the buffers of a compressed Arrow batch only as far as they are requested.

pyarrow inflates only whole batches, and a table that was written in one piece is a batch as large as the file.

Specification: https://arrow.apache.org/docs/format/Columnar.html#compression. Each buffer is compressed separately, as
one LZ4 frame or ZSTD frame, after the length of its contents (int64, little-endian). After a length of -1 the contents
are not compressed. This module assigns consecutive positions to the contents, like those of the buffers in an
uncompressed batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.engine.locks import Lock
from penstock.errors import FormatError
from penstock.storage.arrow_messages import Layout, Message
from penstock.storage.pyarrow_files import Bytes, Splice

_CODECS = ("lz4", "zstd")
"""The codecs, by their numbers in the header of a batch. The first is the frame format of LZ4."""
_PREFIX_BYTES = 8
_STEP_BYTES = 1 << 20
"""Bytes that were not requested are inflated in pieces of this size, and dropped."""


class Packed(NamedTuple):
    """One compressed buffer: the position and length of its contents, and its position in the file."""

    place: int
    num_bytes: int
    start: int
    packed_bytes: int
    codec: str | None


class Unpacked(NamedTuple):
    """The layout of a compressed batch after inflating."""

    layout: Layout
    packed: tuple[Packed, ...]
    num_bytes: int


def can_unpack(layout: Layout) -> bool:
    """Whether the format defines the codec."""
    return layout.codec is not None and 0 <= layout.codec < len(_CODECS)


def codec_of(layout: Layout) -> str | None:
    """Return the codec of the buffers, or None if there is none or the format does not define it."""
    return None if layout.codec is None or not can_unpack(layout) else _CODECS[layout.codec]


def unpacked(data: Bytes, batch: Message, layout: Layout) -> Unpacked:
    """Return positions for the contents of the buffers. Of each buffer, only the length is read. Raise FormatError if a
    buffer is too short for its length, or the length is below -1."""
    assert layout.codec is not None, "it is compressed"
    end = 0
    places: list[tuple[int, ...]] = []
    packed: list[Packed] = []
    for at, length in layout.buffers:
        if not length:
            places.append((end, 0))
            continue
        start = batch.body + at
        prefix = data.read(start, min(length, _PREFIX_BYTES)) if at >= 0 else b""
        holds = int.from_bytes(prefix, "little", signed=True)
        if len(prefix) < _PREFIX_BYTES or holds < -1 or not 0 <= at <= at + length <= batch.reach:
            raise FormatError("a compressed buffer is invalid", byte=start, found=holds)
        codec = _CODECS[layout.codec] if holds >= 0 else None
        num_bytes = holds if codec else length - _PREFIX_BYTES
        packed.append(Packed(end, num_bytes, start + _PREFIX_BYTES, length - _PREFIX_BYTES, codec))
        places.append((end, num_bytes))
        end += -(-num_bytes // 8) * 8
    return Unpacked(layout._replace(buffers=tuple(places)), tuple(packed), end)


class Contents:
    """Reads the contents of a compressed batch, for one thread. Reading a buffer forward is cheap; reading backward
    restarts at the beginning of the buffer."""

    def __init__(self, data: Bytes, batch: Unpacked) -> None:
        self._data = data
        self._packed = batch.packed
        self._places = [buffer.place for buffer in batch.packed]
        self._streams: dict[int, _Stream] = {}

    def read(self, at: int, length: int) -> Any:
        """Read bytes [at, at + length) of the contents, which must be inside one buffer."""
        if not length:
            return pa.py_buffer(b"")
        number = bisect_right(self._places, at) - 1
        buffer = self._packed[number]
        start = at - buffer.place
        if buffer.codec is None:
            return self._data.range(buffer.start + start, length)
        stream = self._streams.get(number)
        if stream is None or not stream.reaches(start):
            stream = self._streams[number] = _Stream(self._data, buffer)
        return stream.read(start, length)

    def finish(self) -> None:
        """Verify that each buffer that was read has as many bytes as it states."""
        for stream in self._streams.values():
            stream.finish()


class _Stream:
    """Reads the contents of one buffer forward."""

    def __init__(self, data: Bytes, buffer: Packed) -> None:
        packed = pa.PythonFile(Splice(data, [(buffer.start, buffer.packed_bytes)]), mode="r")
        buffered = pa.BufferedInputStream(packed, min(buffer.packed_bytes, _STEP_BYTES) or 1)
        self._file: Any = pa.CompressedInputStream(buffered, buffer.codec)
        self._buffer = buffer
        self._kept: Any = pa.py_buffer(b"")
        self._end = 0

    def reaches(self, start: int) -> bool:
        """Whether bytes from `start` on can still be read. The bytes of the last read are kept, because consecutive
        parts of a batch may share bytes at their border."""
        return start >= self._end - self._kept.size

    def read(self, start: int, length: int) -> Any:
        while start > self._end:
            self._forward(min(start - self._end, _STEP_BYTES))
        kept = self._end - start
        before = self._kept.slice(self._kept.size - kept, min(kept, length))
        if kept >= length:
            return before
        behind = self._forward(length - kept)
        if kept:
            self._kept = pa.py_buffer(b"".join((before, behind)))
        return self._kept

    def finish(self) -> None:
        while self._end < self._buffer.num_bytes:
            self._forward(min(self._buffer.num_bytes - self._end, _STEP_BYTES))
        if self._file.read(1):
            raise self._fault("a compressed buffer has more bytes than it states", self._end)

    def _forward(self, length: int) -> Any:
        self._kept = self._file.read_buffer(length)
        self._end += self._kept.size
        if self._kept.size < length:
            raise self._fault("a compressed buffer has fewer bytes than it states", self._end)
        return self._kept

    def _fault(self, message: str, found: int) -> FormatError:
        start = self._buffer.start - _PREFIX_BYTES
        return FormatError(message, byte=start, expected=self._buffer.num_bytes, found=found)


class InTurn:
    """Parts of a batch that must be made in order, for several threads. A thread that requests a part also makes the
    missing parts before it, which are kept for the other threads."""

    def __init__(self, make: Callable[[], Callable[[int], Any]]) -> None:
        self._make = make
        """Starts again at the first part: returns a function that makes a part, given its number. It is called in
        order."""
        self._lock = Lock()
        self._begin()

    def _begin(self) -> None:
        self._part = self._make()
        self._made: dict[int, Any] = {}
        self._next = 0
        self._last = -1
        self._failure: Exception | None = None

    def part(self, number: int) -> Any:
        """Return one of the parts. The last part is cached, so requesting it again is free. If making a part fails, its
        error is raised for that part and all later parts."""
        with self._lock:
            if self._lock.was_cut_short() or (number < self._next and number not in self._made):
                self._begin()
            while self._next <= number:
                if self._failure is not None:
                    raise copy(self._failure)
                self._make_next()
            if self._last != number:
                self._made.pop(self._last, None)
                self._last = number
            return self._made[number]

    def _make_next(self) -> None:
        try:
            self._made[self._next] = self._part(self._next)
        except Exception as error:
            # A copy, because the frames of a traceback would keep the file open.
            self._failure = copy(error)
            raise
        except BaseException:
            self._begin()
            raise
        self._next += 1
