"""What a Parquet footer's bytes tell without pyarrow: how deep its schema nests, and its codecs.

pyarrow builds a schema by recursion, and before it had a limit of its own a nested one of a few
hundred kilobytes ended the process. So the list of schema elements is walked here first: it lies
at the footer's start, and what follows it is not looked at. Of what a column's metadata say pyarrow
ends the process too, where the column is encrypted; so its codec is read here.

Specification: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
and parquet.thrift: FileMetaData field 2 is the list of SchemaElement in depth-first order;
SchemaElement field 5 is its number of children; field 4 of the first are the RowGroups, field 1 of
those the ColumnChunks, field 3 of those their metadata, and field 4 of that the codec.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import FormatError, LimitError

BOOLS, BYTE, INTEGERS, DOUBLE, BINARY = (1, 2), 3, (4, 5, 6), 7, 8
LISTS, MAP, STRUCT = (9, 10), 11, 12
SCHEMA_FIELD, CHILDREN_FIELD = 2, 5
GROUPS_FIELD, COLUMNS_FIELD, METADATA_FIELD, CODEC_FIELD = 4, 1, 3, 4
CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")
SKIPPED_DEPTH = 32
"""Structs within structs of a part that is passed over; the format has fewer than ten."""


def check_nesting(footer: bytes, limit: int) -> None:
    """Raise LimitError if the schema nests deeper than `limit`, FormatError if it is no schema."""
    try:
        Walk(footer).file_metadata(limit)
    except IndexError:
        raise FormatError("the footer ends inside its schema") from None


def codecs(footer: bytes) -> set[str]:
    """The codecs of the columns of the first row group, as far as they are told in the clear."""
    try:
        found = Walk(footer).codecs()
    except (IndexError, FormatError):
        return set()  # pyarrow made sense of it; only the telling is left out
    return {CODECS[code] for code in found if 0 < code < len(CODECS)}


class Walk:
    """A place in bytes of Thrift's compact protocol. Reading beyond the end is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise FormatError("the footer has a number that is too long")

    def integer(self) -> int:
        """A number with a sign."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        length = self.varint()
        self.at += length
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - length : self.at]

    def field(self, last: int) -> tuple[int, int]:
        """The next field's number and kind; kind 0 ends a struct."""
        head = self.byte()
        kind = head & 0x0F
        if kind == 0:
            return 0, 0
        if head >> 4:
            return last + (head >> 4), kind
        return self.integer(), kind

    def list_head(self) -> tuple[int, int]:
        head = self.byte()
        count = head >> 4
        return (self.varint() if count == 15 else count), head & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > SKIPPED_DEPTH:
            raise FormatError("the footer nests deeper than its format")
        if kind in INTEGERS:
            self.varint()
        elif kind == BINARY:
            length = self.varint()
            self.at += length
        elif kind == BYTE:
            self.at += 1
        elif kind == DOUBLE:
            self.at += 8
        elif kind in LISTS:
            count, inner = self.list_head()
            for _ in range(count):
                self.skip_element(inner, depth + 1)
        elif kind == MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip_element(kinds >> 4, depth + 1)
                self.skip_element(kinds & 0x0F, depth + 1)
        elif kind == STRUCT:
            number, inner = self.field(0)
            while inner:
                self.skip(inner, depth + 1)
                number, inner = self.field(number)
        elif kind not in BOOLS:
            raise FormatError("the footer has a value of an unknown kind", found=kind)
        if self.at > len(self.data):
            raise IndexError

    def skip_element(self, kind: int, depth: int) -> None:
        """As `skip`, but booleans within a list or map take a byte of their own."""
        self.skip(BYTE if kind in BOOLS else kind, depth)

    def file_metadata(self, limit: int) -> None:
        number, kind = self.field(0)
        while kind:
            if number == SCHEMA_FIELD and kind in LISTS:
                self.schema(limit)
                # The list is the second field of every writer; what follows is pyarrow's to read.
                return
            self.skip(kind)
            number, kind = self.field(number)

    def schema(self, limit: int) -> None:
        """Walk the elements, with the numbers of children still to come on a stack."""
        count, kind = self.list_head()
        if kind != STRUCT:
            raise FormatError("the footer's schema is no list of structs", found=kind)
        if count <= limit:
            return  # too few to nest too deep
        left: list[int] = []
        for _ in range(count):
            while left and left[-1] == 0:
                left.pop()
            if left:
                left[-1] -= 1
            children = self.element()
            if children > 0:
                left.append(children)
            # The first element is the root, which is no level of its own.
            if len(left) - 1 > limit:
                raise LimitError(
                    f"the schema nests deeper than the limit nesting={limit}",
                    hint=f"open(..., limits={{'nesting': {2 * limit}}})",
                )

    def element(self) -> int:
        """Pass over one element; its number of children."""
        children = number = 0
        number, kind = self.field(0)
        while kind:
            if number == CHILDREN_FIELD and kind in INTEGERS:
                children = self.integer()
            else:
                self.skip(kind)
            number, kind = self.field(number)
        return children

    def codecs(self) -> set[int]:
        found: set[int] = set()
        for _ in self.until(GROUPS_FIELD, LISTS):
            count, _ = self.list_head()
            if not count:
                return found
            for _ in self.until(COLUMNS_FIELD, LISTS):
                count, _ = self.list_head()
                for _ in range(count):
                    for _ in self.until(METADATA_FIELD, (STRUCT,)):
                        for _ in self.until(CODEC_FIELD, INTEGERS):
                            found.add(self.varint() >> 1)
                return found
        return found

    def until(self, wanted: int, kinds: tuple[int, ...]) -> Iterator[None]:
        """Go through a struct; stop at the field that is wanted, for the caller to read it."""
        number, kind = self.field(0)
        while kind:
            if number == wanted and kind in kinds:
                yield
            else:
                self.skip(kind)
            number, kind = self.field(number)
