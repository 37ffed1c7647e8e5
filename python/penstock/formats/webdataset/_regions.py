"""The parts of a record in a tar archive: headers, their fields and checksums, contents, padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.contract.regions import (
    DIFFERS,
    OK,
    Region,
    cut,
    fields,
    group,
    named,
    padding,
    text_of,
)
from penstock.errors import FormatError

_BLOCK = 512
_HEADER = named(
    "name 100s, mode 8s, uid 8s, gid 8s, size 12s, mtime 12s, chksum 8s, typeflag 1s, linkname 100s,"
    "magic 6s, version 2s, uname 32s, gname 32s, devmajor 8s, devminor 8s, prefix 155s, padding 12s"
)
_CHECKSUM = slice(148, 156)
_KINDS = {
    b"\0": "file",
    b"0": "file",
    b"1": "hard link",
    b"2": "symbolic link",
    b"5": "folder",
    b"x": "pax header",
    b"g": "pax global header",
    b"L": "GNU long name",
    b"K": "GNU long link name",
}
_NO_CONTENTS = (b"1", b"2", b"3", b"4", b"5", b"6")


def members(data: bytes, start: int) -> Iterator[Region]:
    """The members of a record that starts at this byte, each with its header, contents and padding."""
    at = 0
    size_from_pax: int | None = None
    while at < len(data):
        header = data[at : at + _BLOCK]
        if not any(header):
            end = at
            while end < len(data) and not any(data[end : end + _BLOCK]):
                end += _BLOCK
            yield from padding(
                start + at, start + min(end, len(data)), "end of archive: zero blocks"
            )
            at = end
            continue
        kind = header[156:157]
        size = _number(header[124:136]) if kind not in _NO_CONTENTS else 0
        if size_from_pax is not None and kind not in (b"x", b"g", b"L", b"K"):
            size = size_from_pax
        # Only padding up to the end of a block belongs to a member, not the zero blocks after it.
        length = min(_BLOCK + size + -size % _BLOCK, len(data) - at)
        member = data[at : at + length]
        name = text_of(header[:100].partition(b"\0")[0])
        yield group(f"member {name}", start + at, length, _member(member, start + at, size))
        size_from_pax = _pax_size(member[_BLOCK : _BLOCK + size]) if kind == b"x" else size_from_pax
        size_from_pax = None if kind in (b"0", b"\0") else size_from_pax
        at += length


def _member(data: bytes, start: int, size: int) -> Iterator[Region]:
    yield group("header", start, min(len(data), _BLOCK), _header(data[:_BLOCK], start))
    contents = data[_BLOCK : _BLOCK + size]
    kind = data[156:157]
    what = _KINDS.get(kind, "contents") if kind in (b"x", b"g", b"L", b"K") else "contents"
    if contents:
        yield Region(
            start + _BLOCK, len(contents), what, text_of(contents.rstrip(b"\n\0") or contents)
        )
    if len(contents) < size:
        raise cut("a member", start + len(data), size, len(contents))
    yield from padding(start + _BLOCK + size, start + len(data))


def _header(data: bytes, start: int) -> Iterator[Region]:
    """The fields of a header that are not empty."""
    for field in fields(data, start, *_HEADER):
        at = field.start - start
        value = data[at : at + field.length]
        if field.name == "chksum":
            yield _checksum(field, data)
        elif field.name == "typeflag":
            yield replace(field, note=_KINDS.get(value, "another kind"))
        elif any(value):
            shown = text_of(value.rstrip(b"\0")) if value[0] < 0x80 else text_of(value)
            yield replace(field, value=shown)


def _checksum(field: Region, data: bytes) -> Region:
    """The checksum of a header: the sum of its bytes, with blanks in place of the checksum."""
    blanked = data[:148] + b" " * 8 + data[156:]
    # Old programs summed signed bytes.
    signed = sum(byte - 256 if byte > 127 else byte for byte in blanked)
    try:
        stored = _number(data[_CHECKSUM])
    except FormatError:
        stored = -1
    value = text_of(data[_CHECKSUM].rstrip(b"\0 "))
    if stored in (sum(blanked), signed):
        return replace(field, value=value, note="ok", state=OK)
    note = f"DIFFERS: computed {sum(blanked):06o}"
    return replace(field, value=value, note=note, state=DIFFERS)


def _number(field: bytes) -> int:
    """Parse an octal number, or GNU tar's number in base 256."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        text = field.replace(b"\0", b" ").split()
        return int(text[0], 8) if text else 0
    except ValueError:
        raise FormatError(
            "a size or checksum is not an octal number", found=text_of(field)
        ) from None


def _pax_size(records: bytes) -> int | None:
    """The size that a pax header gives the member after it."""
    for line in records.split(b"\n"):
        _, _, pair = line.partition(b" ")
        if pair.startswith(b"size=") and pair[5:].isdigit() and len(pair) < 25:
            return int(pair[5:])
    return None
