"""Thrift's compact protocol, the encoding of a Parquet footer and of page headers.

pyarrow reads the footer, but it crashes the process if it is asked about a column whose metadata is encrypted or
invalid (an unknown codec, histograms of another length), and it gives no access to page headers. So this module reads
both.

Invariant: this module reads all data that Thrift's C++ library accepts, and reads the same numbers. So a file cannot
hide the size of a page in a field that only one of the two readers understands (a field of another type, an overlong
number, a duplicate).

Specification: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import FormatError

BOOLS, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = (1, 2), *range(3, 14)
_BITS = {I16: 32, I32: 32, I64: 64}
_WIDTHS = {BYTE: 1, DOUBLE: 8, UUID: 16}
_MOST_DEPTH = 64

Field = tuple[int, int]
"""The number of a field in its struct, and its type as written."""


class Thrift:
    """Reads values one after another from `data`, beginning at a position. Reading beyond the end raises IndexError."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self) -> Iterator[Field]:
        """Yield the fields of a struct. The caller reads or skips the value of each field."""
        number = 0
        while (head := self._byte()) & 0x0F:
            number = number + (head >> 4) if head >> 4 else self._integer(32)
            number &= 0xFFFF
            yield number, head & 0x0F

    def only(self, wanted: Field) -> Iterator[None]:
        """Yield when the reader is at the value of this field of a struct. The caller reads that value. Other fields
        are skipped."""
        for field in self.fields():
            if field == wanted:
                yield
            else:
                self.skip(field[1])

    def elements(self) -> Iterator[int]:
        """Yield the type of each element of a list. The caller reads or skips each element."""
        head = self._byte()
        count, kind = head >> 4, head & 0x0F
        for _ in range(self._length() if count == 15 else count):
            yield BYTE if kind in BOOLS else kind

    def binary(self) -> bytes:
        """Return a byte string."""
        length = self._length()
        start = self.at
        self._jump(length)
        return self.data[start : self.at]

    def numbers(self, depth: int = 0) -> dict[Field, Any]:
        """Return the integers of a struct, including those of nested structs."""
        found: dict[Field, Any] = {}
        for field in self.fields():
            if field[1] in _BITS:
                found[field] = self._integer(_BITS[field[1]])
            elif field[1] == STRUCT and depth < _MOST_DEPTH:
                found.setdefault(field, {}).update(self.numbers(depth + 1))
            else:
                self.skip(field[1], depth + 1)
        return found

    # Complexity: one branch for each of Thrift's types.
    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > _MOST_DEPTH:
            raise FormatError("the footer or the header of a page nests too deep")
        if kind in _BITS:
            self._varint()
        elif kind in _WIDTHS:
            self._jump(_WIDTHS[kind])
        elif kind == BINARY:
            self._jump(self._length())
        elif kind in (LIST, SET):
            for inner in self.elements():
                self.skip(inner, depth + 1)
        elif kind == MAP:
            count = self._length()
            kinds = self._byte() if count else 0
            for _ in range(count):
                for inner in (kinds >> 4, kinds & 0x0F):
                    self.skip(BYTE if inner in BOOLS else inner, depth + 1)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind not in BOOLS:
            raise FormatError("the footer or the header of a page has an unknown type", found=kind)

    def _byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def _jump(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise IndexError("the value ends beyond the data")

    def _varint(self) -> int:
        value = self.data[self.at]
        if value < 0x80:  # as most are
            self.at += 1
            return value
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise FormatError("the footer or the header of a page has a number that is too long")

    def _integer(self, bits: int) -> int:
        value = self._varint() & ((1 << bits) - 1)
        return (value >> 1) ^ -(value & 1)

    def _length(self) -> int:
        return self._varint() & 0xFFFFFFFF
