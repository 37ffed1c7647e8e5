"""What the headers of a Parquet file's pages say of their sizes, before pyarrow makes room for one.

pyarrow decompresses a page whole, and copies its values: a string of a gigabyte takes several. So where a row group is
larger than one record may be, the headers of its pages are looked at first. They stand in front of each page, so that
only they are read.

Specification: parquet.thrift. ColumnMetaData field 3 is the path in the schema, 7 the bytes in the file, 9 and 11 the
offsets of the first page of values and of the dictionary; PageHeader field 2 is the size after decompressing, 3 the
size in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import FormatError, LimitError
from penstock.formats.parquet_footer import (
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
_PATH, _NUM_BYTES, _VALUES, _DICTIONARY = 3, 7, 9, 11
_PLAIN_SIZE, _SIZE = 2, 3
_HEADER_BYTES = (512, 1 << 16, 1 << 24)
"""How much is read for a header: nearly all are short; statistics may be long."""


class ColumnChunk(NamedTuple):
    """Where a column of a row group lies."""

    name: str
    """Of the column of the table, which may have several of these."""
    start: int
    end: int


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
        for start, plain_bytes in _pages(read, chunk):
            if plain_bytes > limits.record_bytes:
                message = (
                    f"a page of row group {group} takes {plain_bytes} bytes when it is decompressed, beyond the "
                    f"limit record_bytes={limits.record_bytes}"
                )
                hint = f"{raise_limit('record_bytes', plain_bytes)}, or other columns"
                raise LimitError(message, field=chunk.name, byte=start, hint=hint)


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
    name = ""
    number, kind = walk.field(0)
    while kind:
        if number == _PATH and kind in LISTS:
            name = _first_of(walk)
        elif kind in INTEGERS:
            facts[number] = walk.integer()
        else:
            walk.skip(kind)
        number, kind = walk.field(number)
    start = facts.get(_VALUES, 0)
    dictionary = facts.get(_DICTIONARY, 0)
    start = dictionary if 0 < dictionary < start else start
    return ColumnChunk(name, start, start + facts.get(_NUM_BYTES, 0))


def _first_of(walk: Walk) -> str:
    count, kind = walk.list_head()
    first = ""
    for number in range(count):
        if kind != BINARY:
            raise FormatError("the path of a column is no list of strings", found=kind)
        text = walk.binary()
        first = first if number else text.decode(errors="replace")
    return first


def _pages(read: Read, chunk: ColumnChunk) -> Iterator[tuple[int, int]]:
    """Where each page of a column begins, and its size after decompressing."""
    at = chunk.start
    while at < chunk.end:
        found = _header(read, at)
        if found is None:
            return
        length, plain_bytes, num_bytes = found
        yield at, plain_bytes
        if num_bytes < 0:
            return
        at += length + num_bytes


def _header(read: Read, at: int) -> tuple[int, int, int] | None:
    """The length of the header of a page, the size of the page after decompressing and that in the file."""
    for most in _HEADER_BYTES:
        data = read(at, most)
        walk = Walk(data)
        sizes: dict[int, int] = {}
        try:
            number, kind = walk.field(0)
            while kind:
                if kind in INTEGERS:
                    sizes[number] = walk.integer()
                else:
                    walk.skip(kind)
                number, kind = walk.field(number)
        except IndexError:
            if len(data) < most:
                return None
            continue
        except FormatError:
            return None
        return walk.at, sizes.get(_PLAIN_SIZE, 0), sizes.get(_SIZE, -1)
    return None


def longest_texts(batch: Any) -> int:
    """Bytes of a row that has the longest text of each column's dictionary."""
    total = 0
    for column in batch.columns if batch is not None else ():
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            # Offsets of 32 bits. No value of them is looked at, so they need not be sound.
            ends = np.frombuffer(column.dictionary.buffers()[1], np.int32)
            total += int(np.diff(ends[: len(column.dictionary) + 1]).max(initial=0))
    return total
