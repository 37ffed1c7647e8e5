"""Regions: what the bytes of a file are. `Format.layout` yields regions, and `penstock.layout` shows them.

Lengths and positions in a file may be wrong, so the functions here check them against the bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from penstock.errors import (
    FormatError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
    raise_unless_damage,
)
from penstock.storage.base import Source

MOST = 100
"""How many parts of one kind a format lists individually, at most."""
MOST_CHILDREN = 1000
"""How many regions one region, or a file, is divided into, at most."""
WALK_BYTES = 64 << 20
"""How many bytes are read, at most, for regions that the requested record does not need: the records after it, or the
checksum of a large part."""
_SHOWN_BYTES = 48

OK, DIFFERS, DAMAGE, UNSUPPORTED = "ok", "differs", "damage", "unsupported"


@dataclass(frozen=True, slots=True)
class Region:
    """Some bytes of a file: their start, their length, what they are, and their value.

    `state` is "ok" or "differs" for a checksum or a constant that was compared, "damage" for bytes that break the
    format's rules, "unsupported" for bytes that penstock does not read, and "" for all others. `within` names the
    stream in which `start` is an offset, such as "inflated"; it is "" for the file itself.
    """

    start: int
    length: int
    name: str
    value: Any = None
    note: str = ""
    children: tuple[Region, ...] = ()
    state: str = ""
    within: str = ""

    @property
    def end(self) -> int:
        """The offset of the first byte after the region."""
        return self.start + self.length

    def moved(self, within: str) -> Region:
        """The same region and its children, but as parts of the stream `within`."""
        children = tuple(child.moved(within) for child in self.children)
        return replace(self, within=self.within or within, children=children)

    def to_dict(self) -> dict[str, Any]:
        """The region as a dict for JSON, without the attributes that are not set."""
        found: dict[str, Any] = {"start": self.start, "length": self.length, "name": self.name}
        found |= {} if self.value is None else {"value": self.value}
        for word in ("note", "state", "within"):
            found |= {word: getattr(self, word)} if getattr(self, word) else {}
        if self.children:
            found["children"] = [child.to_dict() for child in self.children]
        return found


def text_of(data: bytes | memoryview) -> str:
    """Show the first bytes of `data`: as quoted text if they are printable text, otherwise in hexadecimal."""
    if not len(data):
        return '""'
    head = bytes(data[:_SHOWN_BYTES])
    more = "…" if len(data) > len(head) else ""
    try:
        text = head.decode() if not more else head.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and len(text.encode()) > len(head) - 4:
        return f'"{text}"{more}'
    return head[:16].hex(" ") + ("…" if len(data) > 16 else "")


def list_of(values: Sequence[Any], count: int | None = None) -> str:
    """Show the first values of a list. `count` is the length of the list if `values` holds only its beginning."""
    shown = [f"{v:.7g}" if isinstance(v, float) else str(v) for v in values[:8]]
    return f"[{', '.join(shown)}{', …' if (count or len(values)) > len(shown) else ''}]"


def named(specs: str) -> tuple[tuple[str, str], ...]:
    """Parse text such as "version H, page size I" to the names and number formats that `fields` takes."""
    pairs = (spec.rsplit(maxsplit=1) for spec in specs.split(","))
    return tuple((name.strip(), kind) for name, kind in pairs)


def fields(data: bytes, start: int, *specs: tuple[str, str]) -> Iterator[Region]:
    """Yield a region for each of the consecutive numbers in `data`, which starts at byte `start` of the file. A number
    is given as its name and its format for `struct`, which is little-endian unless the format says otherwise.

    Raises:
        TruncatedError: the data ends inside a number.
    """
    at = 0
    for name, kind in specs:
        packing = struct.Struct(kind if kind[0] in "<>" else "<" + kind)
        if at + packing.size > len(data):
            raise TruncatedError(f"the data ends inside {name}", byte=start + len(data))
        (value,) = packing.unpack_from(data, at)
        shown = text_of(value) if isinstance(value, bytes) else value
        yield Region(start + at, packing.size, name, shown)
        at += packing.size


def checksum(start: int, length: int, name: str, stored: int, computed: int | None) -> Region:
    """The region of a checksum, marked as right or wrong. `computed` is None if computing it would mean reading too
    many bytes."""
    digits = 2 * length + 2
    value = f"{stored:#0{digits}x}"
    if computed is None:
        return Region(start, length, name, value, "not computed")
    if stored == computed:
        return Region(start, length, name, value, "ok", state=OK)
    note = f"DIFFERS: computed {computed:#0{digits}x}"
    return Region(start, length, name, value, note, state=DIFFERS)


def constant(data: bytes, start: int, name: str, expected: bytes) -> Region:
    """The region of a constant at the start of `data`, which is the same in each file of the format."""
    found = data[: len(expected)]
    if len(found) < len(expected):
        raise TruncatedError(f"the data ends inside {name}", byte=start + len(found))
    if found == expected:
        return Region(start, len(found), name, text_of(found), "ok", state=OK)
    note = f"DIFFERS: expected {text_of(expected)}"
    return Region(start, len(found), name, text_of(found), note, state=DIFFERS)


def damaged(error: PenstockError, start: int, end: int) -> Region:
    """The region for an error: from the byte that the error names, but not before `start`, to `end`."""
    raise_unless_damage(error)
    at = start if error.byte is None else min(max(error.byte, start), max(start, end))
    said = ", ".join(f"{w} {getattr(error, w)}" for w in ("expected", "found") if getattr(error, w))
    is_valid = isinstance(error, UnsupportedError)
    note = f"byte {at if error.byte is None else error.byte}: {error.message}"
    name, state = ("unsupported", UNSUPPORTED) if is_valid else ("damage", DAMAGE)
    return Region(at, max(end - at, 0), name, said or None, note, state=state)


def group(
    name: str,
    start: int,
    length: int,
    children: Iterable[Region],
    value: Any = None,
    note: str = "",
    between: str = "",
) -> Region:
    """A region that consists of `children`. If finding them raises an error, the last child shows the damage.

    `between` names the bytes that are in no child. Such bytes are not shown if the name is empty.
    """
    end = start + length
    found: list[Region] = []
    try:
        found.extend(in_order(children, start, end, between))
    except PenstockError as error:
        inside = [child.end for child in found if not child.within]
        found.append(damaged(error, inside[-1] if inside else start, end))
    return Region(start, length, name, value, note, tuple(found))


def in_order(regions: Iterable[Region], at: int, end: int, between: str = "") -> Iterator[Region]:
    """Yield regions, and check that they are in order, do not overlap, and are inside [at, end).

    If `between` is not empty, the bytes between them become regions with this name.

    If there are too many, a single region stands for the rest.

    Raises:
        FormatError: a region is in the wrong place.
    """
    for number, region in enumerate(regions):
        if number == MOST_CHILDREN:
            yield Region(at, end - at, "more", note="not shown")
            return
        if not region.within:
            if region.length < 0 or not at <= region.start <= region.end <= end:
                message = f"{region.name} cannot be at this position"
                found = f"bytes {region.start} to {region.end}"
                raise FormatError(message, byte=at, expected=f"from {at} to {end}", found=found)
            yield from padding(at, region.start, between)
            at = region.end
        yield region
    yield from padding(at, end, between)


def first_of(regions: Iterable[Region], end: int, what: str) -> Iterator[Region]:
    """Yield the first regions, and one that stands for the others, up to `end`."""
    for number, region in enumerate(regions):
        if number == MOST:
            yield Region(region.start, end - region.start, f"more {what}")
            return
        yield region


def rows(
    start: int, row_bytes: int, count: int, record: int, described: Callable[[int], Region]
) -> Iterator[Region]:
    """Regions for records of equal size: one for those before `record`, one for `record` itself, and one for those
    after it. `described` makes the region of `record` from its start."""
    if not 0 <= record < count:
        yield from several(start, row_bytes * count, 0, count)
        return
    yield from several(start, row_bytes * record, 0, record)
    yield described(start + row_bytes * record)
    after = count - record - 1
    yield from several(start + row_bytes * (record + 1), row_bytes * after, record + 1, after)


def rows_at(edges: Any, record: int) -> Iterator[Region]:
    """Regions for records whose starts, and the end of the last one, are `edges`: one for those before `record`, one
    for `record` itself, and one for those after it."""
    count = len(edges) - 1
    cuts = [0, record, record + 1, count] if 0 <= record < count else [0, count]
    for first, last in pairwise(cuts):
        yield from several(int(edges[first]), int(edges[last] - edges[first]), first, last - first)


def several(
    start: int, length: int, first: int, count: int, what: str = "record", note: str = ""
) -> Iterator[Region]:
    """Yield one region for `count` consecutive records that are not shown individually; nothing if `count` is 0."""
    words = what + ("es" if what.endswith("ch") else "s")
    if count == 1:
        yield Region(start, length, f"{what} {first}", note=note)
    elif count > 1:
        name = f"{words} {first} to {first + count - 1}"
        yield Region(start, length, name, note=note or f"{count} {words}")


def padding(start: int, end: int, name: str = "padding") -> Iterator[Region]:
    """Yield the region of padding bytes, if there are any and `name` is not empty."""
    if end > start and name:
        yield Region(start, end - start, name)


def cut(what: str, byte: int, expected: int, found: int) -> TruncatedError:
    """The error for data that ends inside a part that should have `expected` bytes."""
    message = f"the data ends inside {what}"
    return TruncatedError(message, byte=byte, expected=f"{expected} bytes", found=f"{found} bytes")


def read(source: Source, start: int, length: int, what: str) -> bytes:
    """Read bytes that must be in the file.

    Raises:
        FormatError: `start` or `length` is negative.
        TruncatedError: the file ends before or inside these bytes.
    """
    if start < 0 or length < 0:
        raise FormatError(f"{what} cannot be {length} bytes at byte {start}")
    # Read no more than the file has: the length comes from the file and may be wrong.
    data = source.read(start, min(length, max(source.size - start, 0))).to_bytes()
    if len(data) < length:
        message = f"the file ends inside {what}"
        raise TruncatedError(message, byte=source.size, expected=f"{length} bytes", found=len(data))
    return data
