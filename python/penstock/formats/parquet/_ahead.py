"""Requests the row groups of an object ahead, while they are decoded in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.engine.locks import Lock
from penstock.storage.base import Source

_MOST_GROUPS = 8

Names = tuple[str, ...]
Ranges = Callable[[int, Sequence[str]], tuple[list[int], list[int]]]
"""The starts and lengths of the columns of a row group."""


class Ahead:
    """The row groups that were requested and not read yet."""

    def __init__(self, source: Source, num_groups: int, ranges: Ranges) -> None:
        self._source = source
        self._num_groups = num_groups
        self._ranges = ranges
        self._coming: dict[tuple[int, Names], Sequence[object]] = {}
        self._begun: set[tuple[int, Names]] = set()
        self._lock = Lock()

    def begin(self, group: int, names: Names) -> Sequence[object] | None:
        """Request columns of a row group, and of those after it as far as there is room. The caller holds the result
        until it has read the group."""
        with self._lock:
            for number in range(group, min(group + _MOST_GROUPS, self._num_groups)):
                if (number, names) in self._begun:
                    continue
                held = self._source.want(*self._ranges(number, names))
                if held is None:
                    break
                self._coming[number, names] = held
                self._begun.add((number, names))
            for number, others in list(self._coming):
                if number < group - _MOST_GROUPS:
                    del self._coming[number, others]  # left out by who reads
            return self._coming.pop((group, names), None)
