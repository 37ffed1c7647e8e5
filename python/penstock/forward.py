"""A compressed file read forwards once: for those who must see every byte of it, in order.

Unlike random access, one pass proves the checksums that the compressor stored, and tells what is
odd about the file. After a fault it can go on at any place where inflating may start.
"""

from __future__ import annotations

from typing import Any

from penstock import _core
from penstock.inflated import Inflation
from penstock.sidecar import SeekPoint
from penstock.storage import Source

KEPT_BYTES = 64 << 20
"""How far back reading is cheap: more than any search for a lost border usually needs."""


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
        self._kept = _core.Buffer.from_bytes(b"")
        self._at = 0

    @property
    def inflater(self) -> Any:
        """The `_core.Inflater` that reads forwards: its findings, its points, its position."""
        return self._inflation.inflater

    def size(self) -> int | None:
        """Bytes of the stream, once its end was reached."""
        return self._inflation.plain_bytes if self._inflation.inflater.finished else None

    def forget(self, before: int) -> None:
        """Say that no byte before this one will be read again."""
        if before > self._at:
            skip = min(before - self._at, len(self._kept))
            self._kept = self._kept.slice(skip, len(self._kept))
            self._at += skip

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length) of the stream; shorter where it ends or is broken.

        Raises:
            KernelError: the very first byte asked for is beyond a fault.
        """
        if start < self._at:
            return self._read_again(start, length)
        kept_end = self._at + len(self._kept)
        if start > kept_end:
            self._inflation.skip_to(start)
            self._kept, self._at = _core.Buffer.from_bytes(b""), self._inflation.plain_bytes
            if self._at < start:
                return self._kept
            kept_end = start
        more = start + length - kept_end
        if more > 0:
            self._extend(more, must=start >= kept_end)
            self.forget(min(start, self._at + len(self._kept) - KEPT_BYTES))
        return self._kept.slice(start - self._at, length)

    def _extend(self, more: int, *, must: bool) -> None:
        try:
            part = self._inflation.read(more)
        except _core.KernelError:
            if must:
                raise
            return
        self._kept = _core.Buffer.join([self._kept, part]) if len(self._kept) else part

    def _read_again(self, start: int, length: int) -> _core.Buffer:
        if self._origin is not None and start < self._origin.plain_start:
            return _core.Buffer.from_bytes(b"")
        again = Inflation(self._source, self._container, self._origin)
        again.skip_to(start)
        return again.read(length)

    def resume(self, point: SeekPoint) -> None:
        """Go on at a place where inflating may start; `point.plain_start` says how its bytes are
        counted. What was inflated before it can no longer be read."""
        self._origin = point
        self._inflation = Inflation(self._source, self._container, point)
        if self._at + len(self._kept) != point.plain_start:
            self._kept, self._at = _core.Buffer.from_bytes(b""), point.plain_start
