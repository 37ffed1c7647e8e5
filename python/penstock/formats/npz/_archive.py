"""Writing a zip archive of arrays: member after member, each with its sizes written over its head when
they are known. The layout stands in `zip_directory.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from penstock.formats.npz.zip_directory import (
    CENTRAL,
    DEFLATED,
    END,
    END_64,
    LOCAL,
    LOCATOR,
    STORED,
    UTF8_NAME,
    ZIP64,
)
from penstock.storage.base import Sink

ALIGNMENT = 64
_PADDING = 0xD935
"""Id of the extra field that is only there to move what follows; zipalign's."""
_DATE = 1 << 5 | 1
"""1 January 1980, the first day that an archive can name: files do not depend on the day."""
_ALL_32 = 0xFFFFFFFF


class Archive:
    """An archive being written. `level` is that of deflate, or None to store members as they are."""

    def __init__(self, sink: Sink, level: int | None) -> None:
        self._sink = sink
        self._level = level
        self._entries: list[bytes] = []
        self.num_bytes = 0

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self.num_bytes += len(data)

    def add(self, text: str, parts: Iterable[bytes]) -> None:
        """Write a member, from the parts of its bytes."""
        name = text.encode()
        start = self.num_bytes
        # Sizes stand in a zip64 field, which has room for any; then zeros up to the alignment.
        padding = -(start + LOCAL.size + len(name) + 20 + 4) % ALIGNMENT
        crc = plain = packed = 0
        self._put(self._local(name, 0, 0, 0, padding))
        engine = None if self._level is None else zlib.compressobj(self._level, zlib.DEFLATED, -15)
        for data in parts:
            crc = zlib.crc32(data, crc)
            plain += len(data)
            out = data if engine is None else engine.compress(data)
            packed += len(out)
            if out:
                self._put(out)
        if engine is not None:
            out = engine.flush()
            packed += len(out)
            self._put(out)
        self._sink.patch(start, self._local(name, crc, packed, plain, padding))
        self._entries.append(self._central(name, crc, packed, plain, start))

    def _facts(self, name: bytes) -> tuple[int, int]:
        """Flags and method of a member."""
        return 0 if name.isascii() else UTF8_NAME, STORED if self._level is None else DEFLATED

    def _local(self, name: bytes, crc: int, packed: int, plain: int, padding: int) -> bytes:
        flags, method = self._facts(name)
        extra = struct.pack("<HHQQHH", ZIP64, 16, plain, packed, _PADDING, padding) + bytes(padding)
        head = (
            b"PK\3\4",
            45,
            flags,
            method,
            0,
            _DATE,
            crc,
            _ALL_32,
            _ALL_32,
            len(name),
            len(extra),
        )
        return LOCAL.pack(*head) + name + extra

    def _central(self, name: bytes, crc: int, packed: int, plain: int, start: int) -> bytes:
        flags, method = self._facts(name)
        wide = [number for number in (plain, packed, start) if number >= _ALL_32]
        extra = struct.pack(f"<HH{len(wide)}Q", ZIP64, 8 * len(wide), *wide) if wide else b""
        plain, packed, start = (min(number, _ALL_32) for number in (plain, packed, start))
        versions = (3 << 8 | 45, 45)
        facts = (flags, method, 0, _DATE, crc, packed, plain, len(name), len(extra), 0, 0, 0)
        return CENTRAL.pack(b"PK\1\2", *versions, *facts, 0o600 << 16, start) + name + extra

    def finish(self, comment: bytes) -> None:
        """Write the directory."""
        start, count = self.num_bytes, len(self._entries)
        for entry in self._entries:
            self._put(entry)
        size = self.num_bytes - start
        if count >= 0xFFFF or size >= _ALL_32 or start >= _ALL_32:
            end = self.num_bytes
            self._put(END_64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
            self._put(LOCATOR.pack(b"PK\6\7", 0, end, 1))
        shown = min(count, 0xFFFF)
        size, start = min(size, _ALL_32), min(start, _ALL_32)
        self._put(END.pack(b"PK\5\6", 0, 0, shown, shown, size, start, len(comment)))
        if comment:
            self._put(comment)
