"""The parts of a MessagePack value: the type, count and bytes of each value in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.contract.regions import Region, named, text_of
from penstock.errors import FormatError, TruncatedError
from penstock.limits import Limits

_MOST_ITEMS = 16
"""The most items of a list, or pairs of a map, that are shown one by one."""
_MOST_VALUES = 100_000
"""The most values of a record that are read."""
_NUMBERED = named(
    "bin >B, bin >H, bin >I, ext >B, ext >H, ext >I, float 32 >f, float 64 >d, uint 8 >B, uint 16 >H,"
    "uint 32 >I, uint 64 >Q, int 8 >b, int 16 >h, int 32 >i, int 64 >q, ext 1, ext 2, ext 4, ext 8,"
    "ext 16, str >B, str >H, str >I, array >H, array >I, map >H, map >I"
)
"""For each first byte from 0xC4 on: the type of the value, and the format of the number after the byte, which is the
value or its length. For an extension of fixed length, the length itself is here."""
_CONSTANTS = {0xC0: ("nil", "nil"), 0xC2: ("bool", "false"), 0xC3: ("bool", "true")}
_FIXED = ((0x80, 0x8F, "map", 15), (0x90, 0x9F, "array", 15), (0xA0, 0xBF, "str", 31))


class _EnoughError(Exception):
    """Stops the description of a record after `_MOST_VALUES` values."""


class _Head(NamedTuple):
    """The head of a value: its type, how many bytes the head has, and the length or count of the contents."""

    kind: str
    size: int
    length: int
    value: Any = None


class _Values:
    def __init__(self, data: bytes, start: int, nesting: int) -> None:
        self._data = data
        self._start = start
        self._nesting = nesting
        self._left = _MOST_VALUES

    def region(self, at: int, name: str, depth: int = 0) -> Region:
        """The value at `at`, with the values in it."""
        head = self._head(at, depth)
        if head.kind in ("map", "array"):
            children = tuple(self._items(at, head, depth + 1))
            end = children[-1].end - self._start if children else at + head.size
            words = ("pair", "pairs") if head.kind == "map" else ("item", "items")
            note = f"{head.length} {words[head.length != 1]}"
            return Region(self._start + at, end - at, name, head.kind, note, children)
        body = at + head.size
        end = body + head.length
        if end > len(self._data):
            message = "the data ends inside a value"
            raise TruncatedError(message, byte=self._start + len(self._data))
        is_bytes = head.value is None
        value = text_of(self._data[body:end]) if is_bytes else head.value
        return Region(self._start + at, end - at, name, value, head.kind)

    def _items(self, at: int, head: _Head, depth: int) -> Iterator[Region]:
        """The items of a list, or the keys and values of a map. A value is named after its key."""
        at += head.size
        for number in range(min(head.length, _MOST_ITEMS)):
            name = f"item {number}"
            if head.kind == "map":
                key = self.region(at, "key", depth)
                yield key
                name, at = f"value of {key.value}", at + key.length
            value = self.region(at, name, depth)
            yield value
            at += value.length
        left = head.length - _MOST_ITEMS
        if left > 0:
            end = self._skip(at, left * (2 if head.kind == "map" else 1), depth)
            yield Region(self._start + at, end - at, f"{left} more")

    def _skip(self, at: int, count: int, depth: int) -> int:
        """Return the position after `count` values."""
        while count > 0:
            head = self._head(at, depth)
            at += head.size
            if head.kind in ("map", "array"):
                count += head.length * (2 if head.kind == "map" else 1)
            else:
                at += head.length
            count -= 1
        return at

    def _head(self, at: int, depth: int) -> _Head:
        self._left -= 1
        if self._left < 0 or depth > self._nesting:
            raise _EnoughError
        if at >= len(self._data):
            message = "the data ends inside a value"
            raise TruncatedError(message, byte=self._start + len(self._data))
        return self._kind(at, self._data[at])

    def _kind(self, at: int, first: int) -> _Head:
        if first < 0x80 or first >= 0xE0:
            return _Head("fixint", 1, 0, first if first < 0x80 else first - 256)
        for low, high, kind, mask in _FIXED:
            if low <= first <= high:
                return _Head(kind, 1, first & mask)
        if first in _CONSTANTS:
            kind, value = _CONSTANTS[first]
            return _Head(kind, 1, 0, value)
        if first < 0xC4:
            raise FormatError("no value begins with this byte", byte=self._start + at, found="0xc1")
        kind, form = _NUMBERED[first - 0xC4]
        if form.isdigit():
            return _Head(kind, 2, int(form))
        number, size = self._unpacked(form, at + 1), 1 + struct.calcsize(form)
        if kind.startswith(("float", "uint", "int")):
            return _Head(kind, size, 0, number)
        return _Head(kind, size + (kind == "ext"), number)

    def _unpacked(self, form: str, at: int) -> Any:
        try:
            return struct.unpack_from(form, self._data, at)[0]
        except struct.error:
            message = "the data ends inside a value"
            raise TruncatedError(message, byte=self._start + len(self._data)) from None


def value_parts(data: bytes, start: int, limits: Limits) -> Iterator[Region]:
    """The value that starts at this byte, with the values in it."""
    values = _Values(data, start, min(limits.nesting, 100))
    try:
        yield values.region(0, "value")
    except _EnoughError:
        note = f"more than {_MOST_VALUES} values, or nested deeper than {limits.nesting}"
        yield Region(start, len(data), "value", None, f"not described: {note}")
