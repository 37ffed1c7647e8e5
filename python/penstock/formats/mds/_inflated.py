"""A compressed shard of MDS as the plain one in it.

A shard is compressed as a whole, so any record needs all bytes before it. The last few shards that
were inflated stay in memory; how large one may be, `limits.member_bytes` says.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.engine.locks import Lock
from penstock.errors import FormatError, LimitError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Source
from penstock.storage.pyarrow_files import PositionedFile

CODECS = {
    "zstd": "zstd",
    "zst": "zstd",
    "gz": "gzip",
    "bz2": "bz2",
    "br": "brotli",
    "snappy": "snappy",
}
"""Endings of names, and what pyarrow calls the codecs."""
KEPT = 4
"""Inflated shards that stay in memory, of all datasets together."""
KEPT_BYTES = 1 << 30
"""What they may take; the one that was read last stays all the same."""
_STEP = 8 << 20

_kept: dict[int, Inflated] = {}
_keeping = Lock()


def _let_go() -> None:
    """Of those that were read longest ago, as many as are too many, or too large together."""
    sizes = [one.size or 0 for one in _kept.values()]
    for place, key in enumerate(list(_kept)[:-1]):
        if len(sizes) - place > KEPT or sum(sizes[place:]) > KEPT_BYTES:
            _kept.pop(key).forget()


class Inflated:
    """The plain bytes of a compressed file, inflated when the first of them are read."""

    def __init__(self, source: Source, ending: str, limits: Limits) -> None:
        self.path = source.path
        self.size: int | None = None
        """Bytes in all, None while nobody knows."""
        self._source = source
        self._codec = CODECS[ending]
        self._limits = limits
        self._lock = Lock()
        self._data: _core.Buffer | None = None
        self._head = b""

    def front(self, length: int) -> bytes:
        """The first bytes, inflating no more than those where the codec allows it."""
        if self._codec == "snappy":
            return self._whole().slice(0, length).to_bytes()
        if len(self._head) < length:
            self._limits.check("member_bytes", length)
            self._head = self._inflated(length)
        return self._head[:length]

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length); shorter only where the shard ends."""
        return self._whole().slice(start, length)

    def _whole(self) -> _core.Buffer:
        with self._lock:
            data = self._data
            if data is None:
                most = self._limits.member_bytes
                plain = self._unsnapped() if self._codec == "snappy" else self._inflated(most + 1)
                if len(plain) > most:
                    raise LimitError(
                        f"a compressed shard is larger than the limit member_bytes={most}",
                        file=self.path,
                        hint="open(..., limits={'member_bytes': ...})",
                    )
                data = self._data = _core.Buffer.from_bytes(plain)
                self.size = len(data)
        with _keeping:
            _kept.pop(id(self), None)
            _kept[id(self)] = self
            _let_go()
        return data

    def _inflated(self, most: int) -> bytes:
        """The first bytes of the stream, all of it if it has no more."""
        if not self._source.size:
            raise FormatError("the file is empty", file=self.path, byte=0)
        file: Any = pa.PythonFile(PositionedFile(self._source), mode="r")
        parts: list[bytes] = []
        try:
            with pa.CompressedInputStream(file, self._codec) as stream:
                while most > 0:
                    part = stream.read(min(most, _STEP))
                    if not part:
                        break
                    parts.append(part)
                    most -= len(part)
        except OSError as error:
            if error.errno is not None:
                raise
            raise FormatError(f"the compressed data is damaged: {error}", file=self.path) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unsnapped(self) -> bytes:
        """A block of Snappy: its size as a varint, then the data."""
        data = self._source.read(0, self._source.size).to_bytes()
        size = shift = 0
        for byte in data[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            raise FormatError("the compressed data has no size", file=self.path, byte=0)
        self._limits.check("member_bytes", size)
        if size > 64 * max(len(data), 1):
            raise UnsupportedError("Snappy data of this density", file=self.path)
        try:
            return pa.Codec("snappy").decompress(data, size, asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"the compressed data is damaged: {error}", file=self.path) from None

    def forget(self) -> None:
        """Let go of what was inflated; it is inflated again when it is read."""
        self._data = None

    def close(self) -> None:
        """Let go of the file and what was inflated of it."""
        with _keeping:
            _kept.pop(id(self), None)
        self.forget()
        self._source.close()
