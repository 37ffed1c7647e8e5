"""Finds the gzip members that penstock writes, by hopping from header to header without inflating.

A member holds whole records, and its header gives its length and number of records. Members can therefore be read
separately and in parallel, and a broken member does not affect the others. Inflating verifies the header's numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass

from penstock import _core
from penstock.storage.base import Source
from penstock.tuned import GZIP_GROUP_BYTES

_HEAD_BYTES = 24
_TRAILER_BYTES = 8
_WINDOW_BYTES = 4 << 20
_MAGIC = b"\x1f\x8b\x08\x04"


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its position in the file, and the sizes that its header and trailer claim."""

    start: int
    num_bytes: int
    plain_bytes: int
    num_records: int

    @property
    def end(self) -> int:
        return self.start + self.num_bytes


def hop(source: Source, start: int = 0, dead: Container[int] = ()) -> tuple[list[Member], int]:
    """The consecutive members from `start` on, and the end of the last (the end of the file if penstock wrote all of
    it). Stops at an offset in `dead`, which is known not to lead to the end."""
    members: list[Member] = []
    at = start
    head = source.read(at, _HEAD_BYTES)
    while at not in dead and (claim := _core.member_head(head, 0)) is not None:
        num_bytes, num_records = claim
        # One read for the trailer of the member and the header of the next.
        both = source.read(at + num_bytes - _TRAILER_BYTES, _TRAILER_BYTES + _HEAD_BYTES)
        if len(both) < _TRAILER_BYTES:
            break
        plain = int.from_bytes(both.slice(4, 4).to_bytes(), "little")
        members.append(Member(at, num_bytes, plain, num_records))
        at += num_bytes
        head = both.slice(_TRAILER_BYTES, _HEAD_BYTES)
    return members, at


def hop_to_end(source: Source, start: int = 0) -> list[Member]:
    """The members from `start` to the end of the file; empty if they do not reach it."""
    members, end = hop(source, start)
    return members if end == source.size else []


class Chain:
    """The members that lead, one after another, to the end of a file whose front is damaged.

    Bytes inside a member can look like members, but these end before the enclosing member, where no header follows. The
    result of a search holds for all later offsets, so one search is enough.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._starts: list[int] | None = None

    def after(self, start: int) -> int | None:
        """The start of the first such member at or after `start`. `start` must not decrease from call to call."""
        if self._starts is None:
            self._starts = [member.start for member in self._found(start)]
        place = bisect_left(self._starts, start)
        return self._starts[place] if place < len(self._starts) else None

    def _found(self, start: int) -> list[Member]:
        dead: set[int] = set()
        at = start
        while at < self._source.size:
            window = self._source.read(at, _WINDOW_BYTES).to_bytes()
            place = window.find(_MAGIC)
            while place >= 0:
                if at + place not in dead:
                    members, end = hop(self._source, at + place, dead)
                    if members and end == self._source.size:
                        return members
                    dead.update(member.start for member in members)
                place = window.find(_MAGIC, place + 1)
            if len(window) < _WINDOW_BYTES:
                break
            at += len(window) - (len(_MAGIC) - 1)
        return []


def groups(members: list[Member]) -> list[list[Member]]:
    """Group members into runs of about GZIP_GROUP_BYTES plain bytes."""
    runs: list[list[Member]] = []
    held = GZIP_GROUP_BYTES
    for member in members:
        if held >= GZIP_GROUP_BYTES:
            runs.append([])
            held = 0
        runs[-1].append(member)
        held += member.plain_bytes
    return runs


def inflate(source: Source, run: list[Member], max_bytes: int) -> _core.Buffer:
    """The plain bytes of consecutive members. Raises KernelError if a checksum or length is wrong."""
    begin = run[0].start
    data = source.read(begin, run[-1].end - begin)
    places = [(member.start - begin, member.num_bytes) for member in run]
    return _core.inflate_members(data, places, max_bytes)
