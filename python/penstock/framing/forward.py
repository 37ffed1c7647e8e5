"""A compressed file read forwards once, in windows, with a look back.

One pass proves the checksums that the compressor stored, and tells what is odd about the file.
After a fault it can go on at any place where inflating may start.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock import _core
from penstock.errors import InternalError
from penstock.framing.sidecar import SeekPoint
from penstock.storage import Source

INPUT_BYTES = 1 << 20
"""Compressed bytes read at once."""
SKIP_BYTES = 1 << 20
"""Plain bytes inflated at once on the way to a place."""
KEPT_BYTES = 16 << 20
"""How far back reading is cheap: more than a search for a lost border usually needs."""
EMPTY = _core.Buffer.from_bytes(b"")


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
            if not len(self.read(min(start - self.plain_bytes, SKIP_BYTES))):
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


class ForwardStream:
    """What a gzip or zlib file inflates to, read in order, with a look back. Used by one thread."""

    def __init__(
        self, source: Source, container: str, point_bytes: int = 0, *, join_streams: bool = False
    ) -> None:
        self._source = source
        self._container = container
        self._inflation = Inflation(source, container, point_bytes=point_bytes)
        if join_streams:
            self._inflation.inflater = _core.Inflater(container, point_bytes, True)
        self._origin: SeekPoint | None = None
        self._windows: deque[tuple[int, _core.Buffer]] = deque()
        self._kept_bytes = 0

    @property
    def inflater(self) -> Any:
        """The `_core.Inflater` that reads forwards: its findings, its points, its position."""
        return self._inflation.inflater

    def size(self) -> int | None:
        """Bytes of the stream, once its end was reached."""
        return self._inflation.plain_bytes if self._inflation.inflater.finished else None

    def hop(self, framing: str, start: int, goal: int, limit: int) -> None:
        """Heads cannot be had without the payloads."""

    def walk(
        self, framing: str, start: int, length: int, limit: int
    ) -> tuple[_core.Frames, int, int, _core.Fault | None, int]:
        """Read a window and find the frames in it; see `inflated.Walked`."""
        window = self.read(start, length)
        return *_core.walk(framing, window, start, limit), len(window)

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; shorter where it ends or is broken.

        Raises:
            KernelError: the very first byte asked for is beyond a fault.
        """
        at, window = self._windows[-1] if self._windows else (0, EMPTY)
        if start < at:
            return self._look_back(start, length)
        kept = window.slice(start - at, len(window))
        if not len(kept):
            self._inflation.skip_to(start)
        if len(kept) < length and self._inflation.plain_bytes >= start:
            try:
                kept = self._inflation.read(length - len(kept), kept)
            except _core.KernelError:
                if not len(kept):
                    raise
            self._keep(start, kept)
        return kept.slice(0, length)

    def _keep(self, start: int, window: _core.Buffer) -> None:
        self._windows.append((start, window))
        self._kept_bytes += len(window)
        while self._kept_bytes > KEPT_BYTES and len(self._windows) > 1:
            self._kept_bytes -= len(self._windows.popleft()[1])

    def _look_back(self, start: int, length: int) -> _core.Buffer:
        """Bytes from before the last window: those kept, or inflated again."""
        if start < self._windows[0][0]:
            return self._read_again(start, length)
        parts: list[_core.Buffer] = []
        at, end = start, start + length
        for begin, window in self._windows:
            if begin <= at < min(end, begin + len(window)):
                parts.append(window.slice(at - begin, end - at))
                at += len(parts[-1])
        if at < self._windows[-1][0]:
            # Between two windows: bytes that were skipped on the way to the later one.
            parts.append(self._read_again(at, end - at))
        elif at < end:
            parts.append(self.read(at, end - at))
        return parts[0] if len(parts) == 1 else _core.Buffer.join(parts)

    def _read_again(self, start: int, length: int) -> _core.Buffer:
        if self._origin is not None and start < self._origin.plain_start:
            return EMPTY
        again = Inflation(self._source, self._container, self._origin)
        again.skip_to(start)
        return again.read(length)

    def resume(self, point: SeekPoint) -> None:
        """Go on at a place where inflating may start; `point.plain_start` says how its bytes are
        counted. What was inflated before it can no longer be read, but for what is kept."""
        self._origin = point
        self._inflation = Inflation(self._source, self._container, point)
        at, window = self._windows[-1] if self._windows else (0, EMPTY)
        if at + len(window) != point.plain_start:
            self._windows.clear()
            self._kept_bytes = 0
            self._keep(point.plain_start, EMPTY)
