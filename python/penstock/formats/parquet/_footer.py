"""The columns in a Parquet footer, and the depth of its schema.

Specification: parquet.thrift. FileMetaData field 2 is the list of SchemaElements in depth-first order. Field 5 of a
SchemaElement is the number of its children. FileMetaData field 4 is the list of RowGroups. Field 1 of a RowGroup is the
list of ColumnChunks. Field 3 of a ColumnChunk is its ColumnMetaData. It has a field 8 only if the column is encrypted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.contract.format import Options
from penstock.errors import FormatError, LimitError, TruncatedError, UnsupportedError
from penstock.formats.parquet._thrift import I32, I64, LIST, STRUCT, Field, Thrift
from penstock.limits import raise_limit
from penstock.storage.base import Source

_SCHEMA, _CHILDREN = (2, LIST), (5, I32)
_GROUPS, _COLUMNS, _METADATA, _CRYPTO = (4, LIST), (1, LIST), (3, STRUCT), (8, STRUCT)
_TYPE, _CODEC, _NUM_BYTES, _VALUES, _DICTIONARY = (1, I32), (4, I32), (7, I64), (9, I64), (11, I64)
CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")


class ColumnChunk(NamedTuple):
    """A column of a row group: its physical type, its codec, and where its pages are. An encrypted column has no pages
    here, and pyarrow refuses to read it."""

    type: int
    codec: int
    start: int
    end: int


class Footer:
    """The columns of each row group."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # A file can have the list twice. Like pyarrow, penstock uses the last.
        self._groups = dict(row_groups(data))

    def columns(self, group: int) -> list[ColumnChunk]:
        """Return the columns of a row group in schema order."""
        return _columns(self._data, self._groups[group])


def check_ends(source: Source, options: Options) -> int:
    """Check both ends of the file. Return where its data ends and its footer begins."""
    path, size = source.path, source.size
    head = source.read(0, 4).to_bytes()
    if head not in (b"PAR1", b"PARE"):
        raise FormatError(
            "the file does not start like Parquet", file=path, byte=0, expected=b"PAR1", found=head
        )
    if size < 12:
        raise TruncatedError(
            "the file is too short for Parquet", file=path, expected="12 bytes", found=size
        )
    tail = source.read(size - 8, 8).to_bytes()
    if head == b"PARE" or tail[4:] == b"PARE":
        raise UnsupportedError(
            "the file is encrypted, and penstock holds no keys",
            file=path,
            hint="decrypt it with the program that wrote it",
        )
    if tail[4:] != b"PAR1":
        raise TruncatedError(
            "the file does not end with a Parquet footer; it was truncated, or never finished",
            file=path,
            byte=size - 4,
            expected=b"PAR1",
            found=tail[4:],
        )
    footer_bytes = int.from_bytes(tail[:4], "little")
    if footer_bytes > size - 12:
        raise FormatError(
            "the footer is longer than the file",
            file=path,
            byte=size - 8,
            expected=f"at most {size - 12} bytes",
            found=footer_bytes,
        )
    try:
        options.limits.check("footer_bytes", footer_bytes)
    except LimitError as error:
        raise error.at(file=path, byte=size - 8 - footer_bytes) from None
    return size - 8 - footer_bytes


def codecs(footer: bytes) -> set[str]:
    """Return the codecs of the columns of the first row group. An encrypted column may lack its codec."""
    first = next(row_groups(footer), None)
    codes = {column.codec for column in _columns(footer, first[1])} if first else set()
    return {CODECS[code] for code in codes if 0 < code < len(CODECS)}


def row_groups(footer: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number of each row group, and where it starts in the footer."""
    thrift = Thrift(footer)
    for _ in thrift.only(_GROUPS):
        for number, _ in enumerate(thrift.elements()):
            yield number, thrift.at
            thrift.skip(STRUCT)


def _columns(footer: bytes, at: int) -> list[ColumnChunk]:
    found: list[ColumnChunk] = []
    thrift = Thrift(footer, at)
    for _ in thrift.only(_COLUMNS):
        found = [_column(thrift.numbers()) for _ in thrift.elements()]
    return found


def _column(chunk: dict[Field, Any]) -> ColumnChunk:
    facts = chunk.get(_METADATA, {})
    start = facts.get(_VALUES, 0)
    dictionary = facts.get(_DICTIONARY, 0)
    start = dictionary if 0 < dictionary < start else start
    end = 0 if _CRYPTO in chunk else start + facts.get(_NUM_BYTES, 0)
    return ColumnChunk(facts.get(_TYPE, -1), facts.get(_CODEC, 0), start, end)


def check_nesting(footer: bytes, limit: int) -> None:
    """Raise LimitError if the schema nests deeper than `limit`. pyarrow builds a schema by recursion: before release
    26, a deeply nested schema of a few hundred kilobytes crashed the process."""
    thrift = Thrift(footer)
    try:
        for _ in thrift.only(_SCHEMA):
            _check_schema(thrift, limit)
    except IndexError:
        raise FormatError("the footer is truncated") from None


def _check_schema(thrift: Thrift, limit: int) -> None:
    left: list[int] = []  # for each level, how many children still follow
    for _ in thrift.elements():
        while left and left[-1] == 0:
            left.pop()
        if left:
            left[-1] -= 1
        children = thrift.numbers().get(_CHILDREN, 0)
        if children > 0:
            left.append(children)
        # The first element is the root, which does not count as a level.
        if len(left) - 1 > limit:
            raise too_deep(limit)


def too_deep(limit: int) -> LimitError:
    message = f"the schema nests deeper than the limit nesting={limit}"
    return LimitError(message, hint=raise_limit("nesting", 2 * limit))
