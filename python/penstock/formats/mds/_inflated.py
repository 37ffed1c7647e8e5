"""Compressed shards of MDS. A shard is compressed as a whole, so a record needs all bytes before it. The plain bytes of
the last few shards stay in memory, each up to `limits.member_bytes`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.engine.locks import Lock
from penstock.errors import FormatError, LimitError, UnsupportedError
from penstock.limits import Limits, raise_limit
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
"""Endings of file names, and pyarrow's names of the codecs."""
CACHED_SHARDS = 4
"""How many shards stay in memory, for all datasets together."""
CACHED_BYTES = 1 << 30
"""The maximum bytes of these shards, not counting the last one that was read."""
_STEP = 8 << 20

_cache: dict[int, Inflated] = {}
_cache_lock = Lock()


class Inflated:
    """The plain bytes of a compressed file, which is decompressed when its first bytes are read."""

    def __init__(self, source: Source, ending: str, limits: Limits) -> None:
        self.path = source.path
        self.size: int | None = None
        """The number of plain bytes; None until they are decompressed."""
        self._source = source
        self._codec = CODECS[ending]
        self._limits = limits
        self._lock = Lock()
        self._data: _core.Buffer | None = None
        self._head = b""

    def front(self, length: int) -> bytes:
        """Return the first bytes. If the codec allows it, no more are decompressed."""
        if self._codec == "snappy":
            return self._whole().slice(0, length).to_bytes()
        if len(self._head) < length:
            self._limits.check("member_bytes", length)
            self._head = self._decompress(length)
        return self._head[:length]

    def read(self, start: int, length: int) -> _core.Buffer:
        """Return bytes [start, start + length), or fewer at the end of the shard."""
        return self._whole().slice(start, length)

    def _whole(self) -> _core.Buffer:
        with self._lock:
            data = self._data
            if data is None:
                data = self._data = _core.Buffer.from_bytes(self._decompress_whole())
                self.size = len(data)
        with _cache_lock:
            _cache.pop(id(self), None)
            _cache[id(self)] = self
            _evict()
        return data

    def _decompress_whole(self) -> bytes:
        if self._codec == "snappy":
            return self._decompress_snappy()
        limit = self._limits.member_bytes
        plain = self._decompress(limit + 1)
        if len(plain) > limit:
            raise LimitError(
                f"a compressed shard is larger than the limit member_bytes={limit}",
                file=self.path,
                hint=raise_limit("member_bytes", ...),
            )
        return plain

    def _decompress(self, length: int) -> bytes:
        """Return the first plain bytes, or all if there are fewer."""
        if not self._source.size:
            raise FormatError("the file is empty", file=self.path, byte=0)
        file: Any = pa.PythonFile(PositionedFile(self._source), mode="r")
        parts: list[bytes] = []
        try:
            with pa.CompressedInputStream(file, self._codec) as stream:
                while length > 0 and (part := stream.read(min(length, _STEP))):
                    parts.append(part)
                    length -= len(part)
        except OSError as error:
            if error.errno is not None:
                raise
            raise FormatError(f"the compressed data is damaged: {error}", file=self.path) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _decompress_snappy(self) -> bytes:
        """Decompress a block of Snappy: its size as a varint, then the data."""
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
            raise UnsupportedError(
                "the Snappy data expands more than 64 times, which penstock does not read",
                file=self.path,
            )
        try:
            return pa.Codec("snappy").decompress(data, size, asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"the compressed data is damaged: {error}", file=self.path) from None

    def forget(self) -> None:
        """Free the plain bytes. The next read decompresses them again."""
        self._data = None

    def close(self) -> None:
        with _cache_lock:
            _cache.pop(id(self), None)
        self.forget()
        self._source.close()


def _evict() -> None:
    """Free the least recently read shards if there are too many, or they take too much memory."""
    sizes = [one.size or 0 for one in _cache.values()]
    for place, key in enumerate(list(_cache)[:-1]):
        if len(sizes) - place > CACHED_SHARDS or sum(sizes[place:]) > CACHED_BYTES:
            _cache.pop(key).forget()
