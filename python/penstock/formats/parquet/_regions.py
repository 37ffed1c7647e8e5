"""The regions of a Parquet file: row groups, the column chunks and pages of one of them, and the footer."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from penstock.contract.format import Options, check_record
from penstock.contract.regions import (
    MOST,
    WALK_BYTES,
    Region,
    checksum,
    constant,
    first_of,
    group,
    padding,
    read,
    several,
)
from penstock.errors import FormatError
from penstock.formats.parquet._footer import CODECS, ColumnChunk, Footer, check_ends, row_groups
from penstock.formats.parquet._thrift import BINARY, I32, I64, LIST, STRUCT, Thrift
from penstock.storage.base import Source

_MAGIC = b"PAR1"
_TYPES = (
    *("boolean", "int32", "int64", "int96", "float", "double"),
    *("byte_array", "fixed_len_byte_array"),
)
_OTHER = "another encoding"
_ENCODINGS = (
    *("PLAIN", _OTHER, "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED"),
    *("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"),
)
_PAGES = (
    *(("data page", 5, 2), ("index page", 6, 0)),
    *(("dictionary page", 7, 2), ("data page v2", 8, 4)),
)
"""For each kind of page: its name, the number of the struct for it in the page header, and the number of the field
with the encoding in this struct."""
_HEADER_BYTES = (512, 1 << 16, 1 << 24)


class _Group(NamedTuple):
    number: int
    place: int
    """The position of its metadata in the footer."""
    first_record: int
    num_records: int
    start: int
    end: int
    columns: list[ColumnChunk]


def file_regions(source: Source, record: int, options: Options) -> Iterator[Region]:
    """The regions of a file. If its footer is damaged, yield the first pages, found by their headers, then raise the
    error."""
    head = source.read(0, 4).to_bytes()
    yield constant(head, 0, "magic", head if head == b"PARE" else _MAGIC)
    try:
        start = check_ends(source, options)
        footer = read(source, start, source.size - 8 - start, "the footer")
    except FormatError:
        yield from islice(_pages(source, 4, source.size), MOST)
        raise
    groups = list(_groups(footer, start))
    num_records = sum(one.num_records for one in groups)
    at = 4
    before: list[_Group] = []
    # The position of a group is unknown if all its columns are encrypted.
    for one in sorted((one for one in groups if one.end > one.start), key=lambda one: one.start):
        if one.start < at:
            raise FormatError("a row group begins inside another one", byte=one.start)
        if not 0 <= record - one.first_record < one.num_records:
            before.append(one)
        else:
            yield from _summed(before)
            yield from padding(at, one.start)
            yield _row_group(source, footer, one)
            before = []
        at = one.end
    yield from _summed(before)
    yield from padding(at, start, "page indexes, bloom filters")
    note = f"{num_records} records"
    yield Region(start, len(footer), "footer", _creator(footer), note)
    yield Region(source.size - 8, 4, "footer length", len(footer))
    yield constant(source.read(source.size - 4, 4).to_bytes(), source.size - 4, "magic", _MAGIC)
    check_record(record, num_records)


@contextmanager
def _parsing(byte: int) -> Generator[None]:
    """Converts errors of the Thrift parser to FormatErrors at `byte`."""
    try:
        yield
    except IndexError:
        raise FormatError("the footer is truncated", byte=byte) from None
    except FormatError as error:
        raise error.at(byte=byte) from None


def _groups(footer: bytes, end: int) -> Iterator[_Group]:
    """The row groups, in the order of the footer."""
    first = 0
    with _parsing(end):
        columns_of = Footer(footer).columns
        for number, place in dict(row_groups(footer)).items():
            facts = Thrift(footer, place).numbers()
            count = facts.get((3, I64), 0)
            columns = columns_of(number)
            places = [(column.start, column.end) for column in columns if column.end > 0]
            start = min((place[0] for place in places), default=4)
            stop = max((place[1] for place in places), default=start)
            if count < 0 or not 4 <= start <= stop <= end:
                found = f"bytes {start} to {stop}"
                raise FormatError(
                    "a row group has an impossible position or number of records",
                    byte=end,
                    found=found,
                )
            yield _Group(number, place, first, count, start, stop, columns)
            first += count


def _summed(groups: list[_Group]) -> Iterator[Region]:
    if groups:
        start, length = groups[0].start, groups[-1].end - groups[0].start
        note = f"{sum(one.num_records for one in groups)} records"
        yield from several(start, length, groups[0].number, len(groups), "row group", note)


def _row_group(source: Source, footer: bytes, one: _Group) -> Region:
    note = f"records {one.first_record} to {one.first_record + one.num_records - 1}"
    columns = first_of(_columns(source, footer, one), one.end, "columns")
    return group(f"row group {one.number}", one.start, one.end - one.start, columns, note=note)


def _columns(source: Source, footer: bytes, one: _Group) -> Iterator[Region]:
    """The column chunks of a row group. Encrypted ones are left out, because their positions are unknown."""
    left = WALK_BYTES
    pairs = zip(_names(footer, one), one.columns, strict=False)
    placed = [(name, column) for name, column in pairs if column.end > column.start >= 4]
    for name, column in sorted(placed, key=lambda pair: pair[1].start):
        length = column.end - column.start
        left -= length
        kind = _TYPES[column.type] if 0 <= column.type < len(_TYPES) else "?"
        codec = CODECS[column.codec] if 0 < column.codec < len(CODECS) else "not compressed"
        pages = _pages(source, column.start, column.end, computes=left >= 0)
        shown = first_of(pages, column.end, "pages")
        yield group(f"column {name}", column.start, length, shown, kind, codec)


def _names(footer: bytes, one: _Group) -> list[str]:
    """The paths of the columns of a row group."""
    found: list[str] = []
    with _parsing(one.end):
        thrift = Thrift(footer, one.place)
        for _ in thrift.only((1, LIST)):
            found = [_path(thrift) for _ in thrift.elements()]
    return found


def _path(thrift: Thrift) -> str:
    """The path in the metadata of a column chunk."""
    path = list[str]()
    for _ in thrift.only((3, STRUCT)):
        for _ in thrift.only((3, LIST)):
            path = [thrift.binary().decode("utf-8", "replace") for _ in thrift.elements()]
    return ".".join(path)


def _pages(source: Source, at: int, end: int, *, computes: bool = True) -> Iterator[Region]:
    """The pages of a column chunk."""
    while at < end:
        length, facts = _header(source, at, end)
        size = facts.get((3, I32), -1)
        if size < 0 or at + length + size > end:
            raise FormatError("a page ends beyond its column", byte=at, found=f"{size} bytes")
        kind = facts.get((1, I32), 0)
        name, field, encoding = _PAGES[kind] if 0 <= kind < len(_PAGES) else ("page", 0, 0)
        inner: dict[Any, Any] = facts.get((field, STRUCT), {})
        count, code = inner.get((1, I32), 0), inner.get((encoding, I32), -1)
        note = f"{count} values, {_ENCODINGS[code] if 0 <= code < len(_ENCODINGS) else _OTHER}"
        data = _data(source, at + length, size, facts, computes=computes)
        children = (Region(at, length, "page header"), data)
        yield Region(at, length + size, name, None, note, children)
        at += length + size


def has_checksum(source: Source, column: ColumnChunk) -> bool:
    """Whether the first page of a column has one."""
    return (4, I32) in _header(source, column.start, column.end)[1]


def _header(source: Source, at: int, end: int) -> tuple[int, dict[Any, Any]]:
    """The length of a page's header, and the numbers in it."""
    for most in _HEADER_BYTES:
        data = source.read(at, min(most, end - at)).to_bytes()
        thrift = Thrift(data)
        try:
            facts = thrift.numbers()
            return thrift.at, facts
        except IndexError:
            if len(data) < most:
                break
        except FormatError as error:
            raise error.at(byte=at) from None
    raise FormatError("the header of a page does not end", byte=at)


def _data(
    source: Source, start: int, size: int, facts: dict[Any, Any], *, computes: bool
) -> Region:
    """The data of a page, compared with the checksum in its header if there is one."""
    stored = facts.get((4, I32))
    plain = f"{facts.get((2, I32), 0)} bytes when decompressed"
    if stored is None:
        return Region(start, size, "data", None, plain)
    computed = zlib.crc32(read(source, start, size, "a page")) if computes else None
    found = checksum(start, 4, "data", stored & 0xFFFFFFFF, computed)
    return replace(found, length=size, value=f"crc {found.value}", note=f"{found.note}, {plain}")


def _creator(footer: bytes) -> str | None:
    """The program that wrote the file."""
    with _parsing(0):
        thrift = Thrift(footer)
        for _ in thrift.only((6, BINARY)):
            return thrift.binary().decode("utf-8", "replace")[:80]
    return None
