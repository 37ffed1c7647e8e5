"""The stream of bytes that frames are in, and a file that is its own.

`inflated` has that of a compressed file. All offer `read(start, length)` over the stream, so that framing,
resynchronisation and random access are written once.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.framing.framings import Framing
from penstock.storage.base import Source
from penstock.storage.local import LocalSource


class Walked(NamedTuple):
    """What a walk over a window has found."""

    frames: _core.Frames
    consumed: int
    """Bytes that the frames take."""
    need: int
    """Bytes that the next one needs in all, as far as they are known; 0 where the window ends with a frame."""
    fault: _core.Fault | None
    num_read: int
    """Bytes of the window; fewer than were asked for where the stream ends."""


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
        self,
        framing: Framing,
        start: int,
        length: int,
        limit: int,
        *,
        prove: bool = False,
        find: bool = False,
    ) -> Walked:
        """Read a window and find the frames in it. With `prove`, records that will be proved may be so
        at once, while the processor has their bytes near. With `find`, the walk begins at the first place
        that looks like a frame."""
        ...


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
        self,
        framing: Framing,
        start: int,
        length: int,
        limit: int,
        *,
        prove: bool = False,
        find: bool = False,
    ) -> Walked:
        if isinstance(self._source, LocalSource) and self._source.mapped is None:
            file = self._source.file
            return Walked(*_core.read_frames(framing.name, file, start, length, limit, prove, find))
        return walk(self, framing, start, length, limit, prove, find)


def walk(
    stream: Stream,
    framing: Framing,
    start: int,
    length: int,
    limit: int,
    prove: bool = False,
    find: bool = False,
) -> Walked:
    """A window of any stream, walked over once it has been read."""
    window = stream.read(start, length)
    last = len(window) < length or stream.size() == start + length
    return Walked(*_core.walk(framing.name, window, start, limit, last, prove, find), len(window))
