"""Requests the row groups of an object ahead, while they are decoded in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.engine.locks import Lock
from penstock.formats.parquet._footer import ColumnChunk
from penstock.storage.base import Source

_MOST_GROUPS = 8
_PADDING_BYTES = 100
"""After a column, pyarrow reads a few bytes more of files of old programs."""

Names = tuple[str, ...]
Range = tuple[int, int]
"""The start and the end of bytes in the file."""


class Ahead:
    """The row groups that were requested and not read yet."""

    def __init__(self, source: Source, num_groups: int) -> None:
        self._source = source
        self.num_groups = num_groups
        """Groups after these are not requested."""
        self._coming: dict[tuple[int, Names], Sequence[object]] = {}
        self._begun: set[tuple[int, Names]] = set()
        self._lock = Lock()

    def begin(
        self, group: int, names: Names, ranges: Callable[[int, Sequence[str]], Sequence[Range]]
    ) -> Sequence[object] | None:
        """Request columns of a row group, and of those after it as far as there is room. The caller holds the result
        until it has read the group. `ranges` returns the bytes of columns of a row group."""
        with self._lock:
            for number in range(group, min(group + _MOST_GROUPS, self.num_groups)):
                if (number, names) in self._begun:
                    continue
                held = wanted(self._source, ranges(number, names))
                if held is None:
                    break
                self._coming[number, names] = held
                self._begun.add((number, names))
            for number, others in list(self._coming):
                if number < group - _MOST_GROUPS:
                    del self._coming[number, others]  # left out by who reads
            return self._coming.pop((group, names), None)


def ranges_of(columns: Sequence[ColumnChunk], end: int) -> list[Range]:
    """The bytes of columns, as the footer states them. The data of the file ends at `end`."""
    return [
        (column.start, min(column.end + _PADDING_BYTES, end))
        for column in columns
        if 0 <= column.start < column.end <= end
    ]


def wanted(source: Source, ranges: Sequence[Range]) -> Sequence[object] | None:
    """See `Source.want`."""
    return source.want([start for start, _ in ranges], [end - start for start, end in ranges])


def holding(batches: Iterator[Any], held: object) -> Iterator[Any]:
    """Yield the batches, and hold what was requested for them meanwhile."""
    yield from batches
    del held
