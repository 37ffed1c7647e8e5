"""The regions of a tf.train.Example or SequenceExample: its features, with keys, kinds, counts and values."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.contract.regions import Region, group, list_of, text_of

_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_DELIMITED = 2
_MOST_PARTS = 100
"""How many parts of an entry are read, at most. A normal entry has two."""
_MOST_VALUES = 1 << 20
"""How many values of a feature are counted, at most, unless they are packed."""


class _Field(NamedTuple):
    """A field of a message: its number, its wire type, and where it and its value are."""

    number: int
    kind: int
    start: int
    value: int
    end: int


class _OtherError(Exception):
    """The bytes are not an Example."""


def example_regions(data: bytes, start: int) -> tuple[Region, ...]:
    """The features of a message that starts at byte `start`; nothing if it is not an Example."""
    try:
        return group("", start, len(data), _message(data, start)).children
    except _OtherError:
        return ()


def _message(data: bytes, start: int) -> Iterator[Region]:
    for part in _fields(data, 0, len(data)):
        if part.kind != _DELIMITED or part.number not in (1, 2):
            raise _OtherError
        in_lists = part.number == 2
        entries = _fields(data, part.value, part.end)
        children = (_entry(data, entry, start, in_lists=in_lists) for entry in entries)
        name = "feature_lists" if in_lists else "features"
        yield group(name, start + part.start, part.end - part.start, children)


def _entry(data: bytes, entry: _Field, start: int, *, in_lists: bool) -> Region:
    """One entry of the map: a key and a feature, or a key and a list of features."""
    if entry.kind != _DELIMITED or entry.number != 1:
        raise _OtherError
    name, children = "", list[Region]()
    for part in _fields(data, entry.value, entry.end):
        where = start + part.start, part.end - part.start
        if part.kind != _DELIMITED or part.number not in (1, 2) or len(children) > _MOST_PARTS:
            raise _OtherError
        if part.number == 1:
            name = text_of(data[part.value : part.end])
            children.append(Region(*where, "key", name))
        elif in_lists:
            children.append(Region(*where, "feature list", note=_count_of(data, part)))
        else:
            kind, count, shown = _feature(data, part)
            children.append(Region(*where, f"{kind}_list", shown, _counted(count, "value")))
    where = start + entry.start, entry.end - entry.start
    return Region(*where, f"feature {name}", None, "", tuple(children))


def _count_of(data: bytes, part: _Field) -> str:
    found = itertools.islice(_fields(data, part.value, part.end), _MOST_VALUES)
    return _counted(sum(1 for _ in found), "feature")


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _feature(data: bytes, part: _Field) -> tuple[str, int, str]:
    """The kind of a feature, the number of its values, and the first of them."""
    lists = list(itertools.islice(_fields(data, part.value, part.end), _MOST_VALUES))
    if not lists:
        return "empty", 0, "[]"
    if any(one.number not in _KINDS or one.kind != _DELIMITED for one in lists):
        raise _OtherError
    kind = _KINDS[lists[-1].number]
    shown: list[Any] = []
    count = 0
    values = (value for one in lists for value in _fields(data, one.value, one.end))
    for value in itertools.islice(values, _MOST_VALUES):
        more, some = _values(data, value, kind)
        count += more
        shown += some[: 9 - len(shown)]
    return kind, count, list_of(shown, count)


def _values(data: bytes, field: _Field, kind: str) -> tuple[int, list[Any]]:
    """The number of values in one field of a list, and the first of them."""
    body = data[field.value : field.end]
    if kind == "bytes":
        return 1, [text_of(body)]
    if kind == "float":
        count = len(body) // 4
        return count, list(struct.unpack_from(f"<{min(count, 9)}f", body))
    if field.kind != _DELIMITED:
        return 1, [_signed(_varint(data, field.value)[0])]
    count = int(np.count_nonzero(np.frombuffer(body, np.uint8) < 0x80))
    values, at = list[int](), 0
    while at < len(body) and len(values) < 9:
        value, at = _varint(body, at)
        values.append(_signed(value))
    return count, values


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """The fields of the message in data[at:end]."""
    while at < end:
        start = at
        tag, at = _varint(data, at)
        kind, value = tag & 7, at
        if kind == _DELIMITED:
            length, value = _varint(data, at)
            at = value + length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 0:
            _, at = _varint(data, at)
        else:
            raise _OtherError
        if at > end:
            raise _OtherError
        yield _Field(tag >> 3, kind, start, value, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint (a number in base 128), and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _OtherError
