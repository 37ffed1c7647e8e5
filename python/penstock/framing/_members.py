"""The regions of a compressed file: gzip members, or one zlib stream."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

from penstock.contract.regions import (
    MOST,
    WALK_BYTES,
    Region,
    checksum,
    damaged,
    fields,
    group,
    named,
    read,
    text_of,
)
from penstock.errors import FormatError, PenstockError, TruncatedError
from penstock.storage.base import Source

_STEP_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
_EXTRA, _NAME, _COMMENT, _CRC = 4, 8, 16, 2
_GZIP_HEAD = named("magic 2s, method B, flags B, mtime I, xfl B, os B")
_ZLIB_HEAD = named("CMF B, FLG B")


class _Inflated(NamedTuple):
    end: int
    """Where the deflated data ends."""
    crc: int
    adler: int
    size: int


def compressed(source: Source, container: str) -> Iterator[Region]:
    """The members of a gzip file, or the parts of a zlib file. If the file is large, only the first ones are read."""
    one = _member if container == "gzip" else _zlib
    at = number = 0
    while at < source.size:
        if at >= WALK_BYTES or number == MOST or (number and container != "gzip"):
            yield Region(at, source.size - at, "more compressed data", note="not read")
            return
        found = list[Region]()
        try:
            found.extend(one(source, at))
        except PenstockError as error:
            found.append(damaged(error, found[-1].end if found else at, source.size))
        end = found[-1].end
        name = f"gzip member {number}" if container == "gzip" else "zlib stream"
        yield group(name, at, end - at, found)
        at, number = end, number + 1


def _member(source: Source, start: int) -> Iterator[Region]:
    head = source.read(start, _HEAD_BYTES).to_bytes()
    if head[:2] != b"\x1f\x8b"[: len(head)]:
        raise FormatError("no gzip member begins here", byte=start, found=text_of(head))
    parts = list(fields(head, start, *_GZIP_HEAD))
    yield from parts
    at = parts[-1].end
    for part in _optional(head, start, int(parts[2].value)):
        yield part
        at = part.end
    data = yield from _deflated(source, at)
    if data is not None:
        tail = read(source, data.end, 8, "the trailer")
        stored, size = (int.from_bytes(tail[n : n + 4], "little") for n in (0, 4))
        yield checksum(data.end, 4, "CRC32", stored, data.crc)
        yield checksum(data.end + 4, 4, "ISIZE", size, data.size & 0xFFFFFFFF)


def _optional(head: bytes, start: int, flags: int) -> Iterator[Region]:
    """The parts of a member's header that its flags announce."""
    at = 10
    if flags & _EXTRA:
        (length,) = fields(head[at:], start + at, ("XLEN", "H"))
        yield length
        yield Region(
            length.end, length.value, "extra", text_of(head[at + 2 : at + 2 + length.value])
        )
        at += 2 + length.value
    for flag, name in ((_NAME, "name"), (_COMMENT, "comment")):
        if flags & flag:
            end = head.find(b"\0", at)
            if end < 0:
                raise TruncatedError(f"the {name} does not end", byte=start + at)
            yield Region(start + at, end + 1 - at, name, text_of(head[at:end]))
            at = end + 1
    if flags & _CRC:
        yield from fields(head[at:], start + at, ("header CRC16", "H"))


def _zlib(source: Source, start: int) -> Iterator[Region]:
    yield from fields(source.read(start, 2).to_bytes(), start, *_ZLIB_HEAD)
    data = yield from _deflated(source, start + 2)
    if data is not None:
        stored = int.from_bytes(read(source, data.end, 4, "the trailer"), "big")
        yield checksum(data.end, 4, "ADLER32", stored, data.adler)


def _deflated(source: Source, start: int) -> Generator[Region, None, _Inflated | None]:
    """Yield the region of the deflated data. Return what it inflates to, or None if it is too long to be read."""
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    crc, adler, size, at = 0, 1, 0, start
    waiting = b""
    while not inflating.eof:
        if not waiting:
            waiting = source.read(at, _STEP_BYTES).to_bytes()
            at += len(waiting)
        try:
            plain = inflating.decompress(waiting, _STEP_BYTES)
        except zlib.error as error:
            raise FormatError(f"the deflated data is damaged: {error}", byte=start) from None
        if not waiting and not plain:
            raise TruncatedError("the file ends inside the deflated data", byte=at)
        crc, adler, size = zlib.crc32(plain, crc), zlib.adler32(plain, adler), size + len(plain)
        waiting = inflating.unconsumed_tail
        if size > 4 * WALK_BYTES:
            length = source.size - start
            yield Region(start, length, "deflated data", note="not read to its end")
            return None
    end = at - len(inflating.unused_data)
    yield Region(start, end - start, "deflated data", note=f"inflates to {size} bytes")
    return _Inflated(end, crc, adler, size)
