"""The stream of bytes that holds the frames of a file: the file itself, or its inflated contents (`inflated`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from penstock import _core
from penstock.framing.framings import Framing
from penstock.storage.base import Source
from penstock.storage.local import LocalSource
from penstock.storage.source_views import FrontPart


class Walked(NamedTuple):
    """The frames found in a window."""

    frames: _core.Frames
    consumed: int
    """Bytes that the frames take."""
    need: int
    """The minimum bytes of the next frame; 0 if the window ends with a frame."""
    fault: _core.Fault | None
    num_read: int
    """Bytes of the window; fewer than requested at the end of the stream."""


class Stream(ABC):
    """The bytes that hold the frames. Safe to use from several threads."""

    container: str
    """The compression: "gzip", "zlib" or empty."""

    @abstractmethod
    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; fewer only at its end."""

    @abstractmethod
    def size(self) -> int | None:
        """Bytes of the stream, or None until its end has been read."""

    def of_members(self, fields: frozenset[str]) -> MembersStream | None:
        """The same bytes, but only some members of each record. None if they cannot be read without the others."""
        del fields
        return None

    def walk(self, framing: Framing, start: int, length: int, limit: int) -> Walked:
        """Read a window and find the frames in it."""
        window = self.read(start, length)
        last = len(window) < length or self.size() == start + length
        return Walked(*_core.walk(framing.name, window, start, limit, last), len(window))


class PlainStream(Stream):
    """An uncompressed file."""

    container = ""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._source.read(start, length)

    def size(self) -> int | None:
        return self._source.size

    def of_members(self, fields: frozenset[str]) -> MembersStream | None:
        if isinstance(self._source, LocalSource) and self._source.mapped is None:
            return MembersStream(self._source, fields)
        return None

    def until(self, end: int) -> PlainStream:
        """The stream without the bytes from `end` on."""
        return PlainStream(FrontPart(self._source, end))

    def walk(self, framing: Framing, start: int, length: int, limit: int) -> Walked:
        if isinstance(self._source, LocalSource) and self._source.mapped is None:
            file = self._source.file  # one call reads and walks
            return Walked(*_core.read_frames(framing.name, file, start, length, limit))
        return super().walk(framing, start, length, limit)


class MembersStream(Stream):
    """An uncompressed local archive. Only members with some fields have their contents, unless reading all is faster
    than reading around the others."""

    container = ""

    def __init__(self, source: LocalSource, fields: frozenset[str]) -> None:
        self._source = source
        self._fields = set(fields)
        self.pays = True
        """Whether reading around the others takes less time, as far as is known."""

    def read(self, start: int, length: int) -> _core.Buffer:
        """See Stream.read. `start` is the offset of a header."""
        if not self.pays:
            return self._source.read(start, length)
        found, self.pays = _core.read_members(self._source.file, start, length, self._fields)
        return found

    def size(self) -> int | None:
        return self._source.size
