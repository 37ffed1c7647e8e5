"""The ranges of an object that were announced by `Source.want`: on their way, or here, until they were read."""

from __future__ import annotations

import weakref
from bisect import insort
from collections.abc import Callable, Sequence

from penstock import _core
from penstock.engine.locks import Lock

PIECE_BYTES = 8 << 20
"""The most bytes of one request."""
_GAP_BYTES = 256 << 10
"""Ranges with less than this between them are requested as one."""


class Coming:
    """A range on its way. It is given up when nothing holds this object."""

    def __init__(self, start: int, end: int, fetch: _core.Fetch) -> None:
        self.start = start
        self.end = end
        self.fetch = fetch


class Announced:
    """The announced ranges of an object that their owners still hold."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, weakref.ref[Coming]]] = []
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, coming: Coming) -> None:
        """Add a range, and forget those that are gone."""
        with self._lock:
            self._ranges = [one for one in self._ranges if one[2]() is not None]
            insort(
                self._ranges, (coming.start, coming.end, weakref.ref(coming)), key=lambda r: r[:2]
            )

    def parts(self, start: int, end: int) -> list[Callable[[], _core.Buffer]] | None:
        """Functions that wait for the bytes [start, end), part by part. None if some were not announced."""
        found: list[Callable[[], _core.Buffer]] = []
        with self._lock:
            for first, last, ref in self._ranges:
                if first > start:
                    break
                if last > start and (coming := ref()) is not None:
                    found.append(_part(coming, start, min(last, end)))
                    start = last
                    if start >= end:
                        return found
        return None

    def clear(self) -> None:
        """Forget all ranges."""
        with self._lock:
            self._ranges.clear()


def _part(coming: Coming, start: int, end: int) -> Callable[[], _core.Buffer]:
    return lambda: coming.fetch.wait().slice(start - coming.start, end - start)


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges (start, end) as pieces that are worth a request each, in file order."""
    whole: list[list[int]] = []
    for start, end in sorted(ranges):
        if whole and start <= whole[-1][1] + _GAP_BYTES:
            whole[-1][1] = max(whole[-1][1], end)
        else:
            whole.append([start, end])
    return [
        (at, min(at + PIECE_BYTES, end))
        for start, end in whole
        for at in range(start, end, PIECE_BYTES)
    ]
