"""What the headers of a Parquet file's pages say of their sizes, before pyarrow makes room for one.

pyarrow decompresses a page whole, and copies its values: a string of a gigabyte takes several. So where a row group is
larger than one record may be, the headers of its pages are looked at first. They stand in front of each page, so that
only they are read.

Specification: parquet.thrift. ColumnMetaData field 1 is the type, 3 the path in the schema, 7 the bytes in the file, 9
and 11 the offsets of the first page of values and of the dictionary; PageHeader field 1 is the kind of the page, 2 the
size after decompressing, 3 the size in the file, 5, 7 and 8 have the number of values as their field 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from penstock.errors import FormatError, LimitError
from penstock.formats.parquet._footer import (
    BINARY,
    COLUMNS_FIELD,
    GROUPS_FIELD,
    INTEGERS,
    LISTS,
    METADATA_FIELD,
    STRUCT,
    Walk,
)
from penstock.limits import Limits, raise_limit

Read = Callable[[int, int], bytes]
_TYPE, _PATH, _NUM_BYTES, _VALUES, _DICTIONARY = 1, 3, 7, 9, 11
_KIND, _PLAIN_SIZE, _SIZE = 1, 2, 3
_OF_KIND = (5, 7, 8)
"""The fields of a page's header that tell of its values: of each kind its own."""
_HEADER_BYTES = (512, 1 << 16, 1 << 24)
"""How much is read for a header: nearly all are short; statistics may be long."""


class ColumnChunk(NamedTuple):
    """Where a column of a row group lies."""

    path: tuple[str, ...]
    """Of the column of the table, which may have several of these, and of what is inside of it."""
    type: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """The column of the table."""
        return self.path[0] if self.path else ""


class Page(NamedTuple):
    """What the header of a page says."""

    start: int
    kind: int
    plain_bytes: int
    num_values: int


def check_pages(
    read: Read, footer: bytes, group: int, names: Collection[str], limits: Limits
) -> None:
    """Raise LimitError if a page of some columns of a row group is larger than one record may be.

    What makes no sense here is passed over: pyarrow tells what is wrong with it.
    """
    try:
        chunks = list(column_chunks(footer, group))
    except (IndexError, FormatError):
        return
    for chunk in chunks:
        if chunk.name not in names:
            continue
        for page in pages(read, chunk):
            if page.plain_bytes > limits.record_bytes:
                message = (
                    f"a page of row group {group} takes {page.plain_bytes} bytes when it is decompressed, beyond the "
                    f"limit record_bytes={limits.record_bytes}"
                )
                hint = f"{raise_limit('record_bytes', page.plain_bytes)}, or other columns"
                raise LimitError(message, field=chunk.name, byte=page.start, hint=hint)


def column_chunks(footer: bytes, group: int) -> Iterator[ColumnChunk]:
    """The columns of a row group, as far as the footer tells of them in the clear."""
    walk = Walk(footer)
    for _ in walk.until(GROUPS_FIELD, LISTS):
        count, _ = walk.list_head()
        for number in range(count):
            if number < group:
                walk.skip(STRUCT)
                continue
            for _ in walk.until(COLUMNS_FIELD, LISTS):
                num_columns, _ = walk.list_head()
                for _ in range(num_columns):
                    for _ in walk.until(METADATA_FIELD, (STRUCT,)):
                        yield _column_chunk(walk)
            return


def _column_chunk(walk: Walk) -> ColumnChunk:
    facts: dict[int, int] = {}
    path: tuple[str, ...] = ()
    number, kind = walk.field(0)
    while kind:
        if number == _PATH and kind in LISTS:
            path = _path(walk)
        elif kind in INTEGERS:
            facts[number] = walk.integer()
        else:
            walk.skip(kind)
        number, kind = walk.field(number)
    start = facts.get(_VALUES, 0)
    dictionary = facts.get(_DICTIONARY, 0)
    start = dictionary if 0 < dictionary < start else start
    return ColumnChunk(path, facts.get(_TYPE, -1), start, start + facts.get(_NUM_BYTES, 0))


def _path(walk: Walk) -> tuple[str, ...]:
    count, kind = walk.list_head()
    parts: list[str] = []
    for _ in range(count):
        if kind != BINARY:
            raise FormatError("the path of a column is no list of strings", found=kind)
        parts.append(walk.binary().decode(errors="replace"))
    return tuple(parts)


def pages(read: Read, chunk: ColumnChunk) -> Iterator[Page]:
    """The pages of a column, as far as their headers can be read."""
    at = chunk.start
    while at < chunk.end:
        found = _header(read, at)
        if found is None:
            return
        page, length, num_bytes = found
        yield page
        if num_bytes < 0:
            return
        at += length + num_bytes


def _header(read: Read, at: int) -> tuple[Page, int, int] | None:
    """The header of a page, its length, and the size of the page in the file."""
    for most in _HEADER_BYTES:
        data = read(at, most)
        walk = Walk(data)
        facts: dict[int, int] = {}
        num_values = 0
        try:
            number, kind = walk.field(0)
            while kind:
                if kind in INTEGERS:
                    facts[number] = walk.integer()
                elif kind == STRUCT and number in _OF_KIND:
                    num_values = _first_number(walk)
                else:
                    walk.skip(kind)
                number, kind = walk.field(number)
        except IndexError:
            if len(data) < most:
                return None
            continue
        except FormatError:
            return None
        page = Page(at, facts.get(_KIND, 0), facts.get(_PLAIN_SIZE, 0), max(num_values, 0))
        return page, walk.at, facts.get(_SIZE, -1)
    return None


def _first_number(walk: Walk) -> int:
    """Field 1 of a struct, which is passed over."""
    found = 0
    number, kind = walk.field(0)
    while kind:
        if number == 1 and kind in INTEGERS:
            found = walk.integer()
        else:
            walk.skip(kind)
        number, kind = walk.field(number)
    return found
