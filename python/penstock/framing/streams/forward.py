"""Reads a compressed file forwards once, in windows, and keeps the last windows for reading back.

The pass verifies the compressor's checksums. After a fault, it can continue at any seek point.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock import _core
from penstock.errors import ChangedError, InternalError
from penstock.framing.index.sidecar import SeekPoint
from penstock.framing.streams.stream import Stream
from penstock.storage.base import Source
from penstock.tuned import GZIP_INPUT_BYTES, GZIP_KEPT_BYTES

SKIP_BYTES = 1 << 20
"""Plain bytes that are inflated in one call while skipping ahead."""
EMPTY = _core.Buffer.from_bytes(b"")


class Inflation:
    """One pass forwards over a compressed file."""

    def __init__(
        self,
        source: Source,
        container: str,
        point: SeekPoint | None = None,
        point_bytes: int = 0,
        *,
        join_streams: bool = False,
    ) -> None:
        self._source = source
        if point is None:
            self.inflater = _core.Inflater(container, point_bytes, join_streams)
            self._at = 0
        else:
            self.inflater = _core.Inflater.at_point(
                container, point.compressed_bit, point.plain_start, point.bytes_before()
            )
            self._at = point.compressed_bit // 8
        self._input = self._more = EMPTY

    @property
    def plain_bytes(self) -> int:
        return self.inflater.plain_bytes

    def skip_to(self, start: int) -> None:
        """Inflate and discard the bytes up to `start`."""
        while self.plain_bytes < start:
            if not len(self.read(min(start - self.plain_bytes, SKIP_BYTES))):
                return

    def read(self, length: int, prefix: _core.Buffer = EMPTY) -> _core.Buffer:
        """The next `length` bytes of the stream, appended to `prefix`; fewer at its end. A fault of the compressed data
        is raised once all bytes before it have been returned."""
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
        # With two inputs, a window need not be copied if the first input ends within it.
        if not len(self._input):
            self._input, self._more = self._more, EMPTY
        if not len(self._input):
            self._input = self._next_input()
        if not len(self._more):
            self._more = self._next_input()
        at_end = self._at >= self._source.size
        part, consumed = self.inflater.push(self._input, at_end, length, prefix, self._more)
        still = not consumed and len(part) == len(prefix)
        stuck = at_end and still and not self.inflater.finished
        if stuck:
            raise InternalError("the inflater is stuck", byte=self.inflater.compressed_bytes)
        of_more = max(consumed - len(self._input), 0)
        self._input = self._input.slice(consumed - of_more, len(self._input))
        self._more = self._more.slice(of_more, len(self._more))
        return part

    def _next_input(self) -> _core.Buffer:
        if self._at >= self._source.size:
            return EMPTY
        read = self._source.read(self._at, GZIP_INPUT_BYTES)
        if not len(read):
            message = "the file was truncated while it was open"
            raise ChangedError(message, file=self._source.path, byte=self._at)
        self._at += len(read)
        return read


class Pass:
    """An inflation, with the last windows that were read from it."""

    def __init__(self, inflation: Inflation) -> None:
        self.inflation = inflation
        self._windows: deque[tuple[int, _core.Buffer]] = deque()
        self._kept_bytes = 0

    def read(self, start: int, length: int) -> _core.Buffer | None:
        """Read at most `length` bytes from `start` on; empty at the end of the stream. None if the pass is beyond
        `start` and no longer keeps the bytes. Raises KernelError if `start` is beyond a fault."""
        kept = self._kept(start)
        # Skipped bytes are in no window, so new bytes are appended to the kept bytes only if they follow directly.
        if len(kept) >= length or self.inflation.plain_bytes != start + len(kept):
            if len(kept):
                return kept.slice(0, length)
            if self.inflation.plain_bytes > start:
                return None
            self.inflation.skip_to(start)
            if self.inflation.plain_bytes < start:
                return EMPTY
        try:
            window = self.inflation.read(length - len(kept), kept)
        except _core.KernelError:
            if not len(kept):
                raise
            return kept
        if len(window) > len(kept):
            self._keep(start, window)
        return window

    def go_on_with(self, inflation: Inflation) -> None:
        """Continue with another inflation. Keep the windows if it starts where the last one ends."""
        at, window = self._windows[-1] if self._windows else (0, EMPTY)
        if at + len(window) != inflation.plain_bytes:
            self._windows.clear()
            self._kept_bytes = 0
        self.inflation = inflation

    def _kept(self, start: int) -> _core.Buffer:
        """The kept bytes from `start` on; empty if there are none."""
        # Windows are sorted by start and by end, so the last one that starts early enough holds the most.
        for at, window in reversed(self._windows):
            if at <= start:
                return window.slice(start - at, len(window))
        return EMPTY

    def _keep(self, start: int, window: _core.Buffer) -> None:
        self._windows.append((start, window))
        self._kept_bytes += len(window)
        while self._kept_bytes > GZIP_KEPT_BYTES and len(self._windows) > 1:
            self._kept_bytes -= len(self._windows.popleft()[1])


class ForwardStream(Stream):
    """The inflated contents of a gzip or zlib file, read mostly forwards. Used by one thread."""

    def __init__(
        self, source: Source, container: str, point_bytes: int = 0, *, join_streams: bool = False
    ) -> None:
        self._source = source
        self.container = container
        self._join_streams = join_streams
        self._points: list[SeekPoint] = []
        self._origin: SeekPoint | None = None
        self._first = Pass(self._inflate(point_bytes))
        # A second pass, for bytes that the first pass no longer keeps. Even if all bytes are read
        # again, the file is inflated only once more. Findings, members and points come from the
        # first pass only, so that each is reported once.
        self._again: Pass | None = None

    @property
    def inflater(self) -> Any:
        """The `_core.Inflater` of the first pass."""
        return self._first.inflation.inflater

    def size(self) -> int | None:
        return self.inflater.plain_bytes if self.inflater.finished else None

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; fewer at its end or before a fault. Raises KernelError if
        `start` is beyond a fault."""
        parts: list[_core.Buffer] = []
        at, end = start, start + length
        while at < end:
            try:
                part = self._read_some(at, end - at)
            except _core.KernelError:
                if not parts:
                    raise
                break
            if not len(part):
                break
            parts.append(part)
            at += len(part)
        if len(parts) == 1:
            return parts[0]
        return _core.Buffer.join(parts) if parts else EMPTY

    def _read_some(self, start: int, length: int) -> _core.Buffer:
        """Bytes from `start` on, of the first or the second pass; empty if there are none."""
        part = self._first.read(start, length)
        if part is not None:
            return part
        if self._origin is not None and start < self._origin.plain_start:
            return EMPTY
        # The second pass must not overtake the first, which reports what it finds.
        length = min(length, self.inflater.plain_bytes - start)
        if self._again is not None:
            part = self._again.read(start, length)
        if part is None:
            self._again = Pass(self._inflate(0))
            part = self._again.read(start, length)
        return EMPTY if part is None else part

    def _inflate(self, point_bytes: int) -> Inflation:
        return Inflation(
            self._source,
            self.container,
            self._origin,
            point_bytes,
            join_streams=self._join_streams,
        )

    def resume(self, point: SeekPoint) -> None:
        """Continue at a seek point. Earlier bytes can no longer be read, except from kept windows."""
        self._points += [*self._new_points(), point]
        self._origin = point
        self._first.go_on_with(self._inflate(0))
        self._again = None

    def take_points(self) -> list[SeekPoint]:
        """The seek points found since the last call."""
        found = self._points + self._new_points()
        self._points = []
        return found

    def _new_points(self) -> list[SeekPoint]:
        return [SeekPoint(*point) for point in self.inflater.take_points()]
