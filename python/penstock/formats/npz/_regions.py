"""The regions of an npz file: the members of the zip archive, its directory and its end."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from penstock.contract.regions import (
    MOST,
    WALK_BYTES,
    Region,
    checksum,
    fields,
    group,
    named,
    padding,
    read,
    text_of,
)
from penstock.errors import PenstockError
from penstock.formats.npz.zip_directory import DEFLATED, LOCAL, Directory, Member, read_directory
from penstock.formats.numpy.regions import array_regions
from penstock.limits import Limits
from penstock.storage.base import Source

_LOCAL = named(
    "signature 4s, version needed H, flags H, method H, time H, date H, crc-32 I, compressed size I,"
    "uncompressed size I, name length H, extra length H"
)
_ENTRY_BYTES = 46
_END = named(
    "signature 4s, disk H, disk of the directory H, members here H, members H, directory size I,"
    "directory offset I, comment length H"
)
_LOCATOR = named("signature 4s, disk I, zip64 end offset Q, disks I")
_END_64 = named(
    "signature 4s, size Q, version made by H, version needed H, disk I, disk of the directory I,"
    "members here Q, members Q, directory size Q, directory offset Q"
)
_END_BYTES, _LOCATOR_BYTES, _END_64_BYTES = 22, 20, 56
_OF_OTHERS = ("#bytes.npy", "#utf8.npy", "#values.npy", "#names.npy")
"""Arrays whose rows are not the records of the file."""


def archive(source: Source, record: int, limits: Limits) -> Iterator[Region]:
    """The regions of an archive. If its directory is damaged, yield the members that their local headers lead to, then
    raise the error."""
    try:
        directory = read_directory(source, limits)
    except PenstockError:
        yield from _by_headers(source)
        raise
    members = _Members(source, record)
    ordered = sorted(directory.members, key=lambda member: member.header_start)
    edges = [member.header_start for member in ordered] + [directory.start]
    for member, edge in zip(ordered[:MOST], edges[1:], strict=False):
        yield members.region(member)
        yield from padding(member.start + member.packed_bytes, edge, "data descriptor")
    if len(ordered) > MOST:
        length = directory.start - edges[MOST]
        yield Region(edges[MOST], length, "more members", note=f"{len(ordered) - MOST}")
    yield from _end(source, directory)


class _Members:
    """Shows members. To compute checksums, it reads up to `WALK_BYTES` of all members together."""

    def __init__(self, source: Source, record: int) -> None:
        self._source = source
        self._record = record
        self._left = WALK_BYTES

    def region(self, member: Member) -> Region:
        end = member.start + member.packed_bytes
        length = end - member.header_start
        parts = self._parts(member)
        return group(f"member {text_of(member.name.encode())}", member.header_start, length, parts)

    def _parts(self, member: Member) -> Iterator[Region]:
        plain = self._plain(member)
        header = read(self._source, member.header_start, LOCAL.size, "a local header")
        for field in fields(header, member.header_start, *_LOCAL):
            if field.name == "crc-32" and (field.value or not header[6] & 8):
                computed = None if plain is None else zlib.crc32(plain)
                yield checksum(field.start, 4, field.name, int(field.value), computed)
            else:
                yield field
        at = member.header_start + LOCAL.size
        end = at + int.from_bytes(header[26:28], "little")
        yield Region(at, end - at, "name", text_of(member.name.encode()))
        yield from padding(end, member.start, "extra fields")
        if member.method == DEFLATED:
            yield self._deflated(member, plain)
        else:
            yield group("data", member.start, member.packed_bytes, self._array(member, None))

    def _deflated(self, member: Member, plain: bytes | None) -> Region:
        found = () if plain is None else self._array(member, plain)
        inside = group("", 0, member.plain_bytes, found).moved(f"inflated {member.name}")
        note = f"inflates to {member.plain_bytes} bytes"
        return Region(
            member.start, member.packed_bytes, "deflated data", None, note, inside.children
        )

    def _array(self, member: Member, plain: bytes | None) -> Iterator[Region]:
        """The npy file in a member, at its positions in the archive, or in `plain`, the inflated bytes."""

        def part(start: int, length: int) -> bytes:
            if plain is not None:
                return plain[start : start + length]
            length = min(length, member.packed_bytes - start)
            return self._source.read(member.start + start, max(length, 0)).to_bytes()

        if not member.name.endswith(".npy"):
            return
        record = -1 if member.name.endswith(_OF_OTHERS) else self._record
        start = member.start if plain is None else 0
        yield from array_regions(part, member.plain_bytes, start, record)

    def _plain(self, member: Member) -> bytes | None:
        """The plain bytes of a member, or None if they are too many, or damaged."""
        self._left -= member.packed_bytes + member.plain_bytes
        if self._left < 0:
            return None
        data = self._source.read(member.start, member.packed_bytes).to_bytes()
        if member.method != DEFLATED:
            return data
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.plain_bytes or 1)
        except zlib.error:
            return b""  # its checksum will be shown as wrong


def _by_headers(source: Source) -> Iterator[Region]:
    """The members from the start of the file, up to the first damaged local header or one without a size."""
    at = 0
    for _ in range(MOST):
        head = source.read(at, LOCAL.size).to_bytes()
        if head[:4] != b"PK\3\4" or len(head) < LOCAL.size:
            return
        parts = {field.name: field for field in fields(head, at, *_LOCAL)}
        name_bytes = int(parts["name length"].value)
        name = source.read(at + LOCAL.size, name_bytes).to_bytes()
        size = int(parts["compressed size"].value)
        length = LOCAL.size + name_bytes + int(parts["extra length"].value) + size
        length = min(length, source.size - at)
        header = group("local header", at, LOCAL.size, parts.values())
        yield Region(at, length, f"member {text_of(name)}", children=(header,))
        if not size or size == 0xFFFFFFFF:
            return
        at += length


def _wide_end(source: Source, end: int) -> int | None:
    """Where the zip64 end of the directory is, if there is one."""
    start = end - _LOCATOR_BYTES - _END_64_BYTES
    if start < 0 or source.read(end - _LOCATOR_BYTES, 4).to_bytes() != b"PK\6\7":
        return None
    return start if source.read(start, 4).to_bytes() == b"PK\6\6" else None


def _end(source: Source, directory: Directory) -> Iterator[Region]:
    start, end = directory.start, source.size - len(directory.comment) - _END_BYTES
    wide = _wide_end(source, end)
    stop = end if wide is None else wide
    count = len(directory.members)
    entries = _entries(source, start, min(count, MOST))
    note, more = f"{count} members", "more entries"
    yield group("central directory", start, stop - start, entries, None, note, more)
    if wide is not None:
        data = read(source, wide, end - wide, "the zip64 end")
        parts = fields(data, wide, *_END_64)
        yield group("zip64 end of central directory", wide, _END_64_BYTES, parts)
        at = wide + _END_64_BYTES
        locator = fields(data[_END_64_BYTES:], at, *_LOCATOR)
        yield group("zip64 end locator", at, _LOCATOR_BYTES, locator)
    data = read(source, end, _END_BYTES, "the end of the archive")
    yield group("end of central directory", end, _END_BYTES, fields(data, end, *_END))
    if directory.comment:
        size = len(directory.comment)
        yield Region(end + _END_BYTES, size, "comment", text_of(directory.comment))


def _entries(source: Source, at: int, count: int) -> Iterator[Region]:
    for _ in range(count):
        head = read(source, at, _ENTRY_BYTES, "an entry of the directory")
        sizes = [int.from_bytes(head[n : n + 2], "little") for n in (28, 30, 32)]
        name = read(source, at + _ENTRY_BYTES, sizes[0], "a name in the directory")
        crc, offset = (int.from_bytes(head[n : n + 4], "little") for n in (16, 42))
        length = _ENTRY_BYTES + sum(sizes)
        yield Region(at, length, "entry", text_of(name), f"crc-32 {crc:#010x}, offset {offset}")
        at += length
