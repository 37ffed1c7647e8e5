"""Requests the row groups of an object ahead, while they are decoded in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.engine.locks import Lock
from penstock.engine.pipeline import default_threads
from penstock.engine.threads import wait_for
from penstock.formats.parquet._footer import ColumnChunk
from penstock.storage.base import Source

_MOST_GROUPS = 8
_CORE_BYTES = 12 << 20
"""Bytes that are requested ahead for each core. Decoding a row group takes several times its bytes, so this is little
more than a link needs."""
_FREED_BYTES = 4 << 20
_DECODED_BYTES = 10 << 20
"""Bytes of row groups that each core decodes at the same time."""
_PADDING_BYTES = 100
"""After a column, pyarrow reads a few bytes more of files of old programs."""

Names = tuple[str, ...]
Range = tuple[int, int]
"""The start and the end of bytes in the file."""


def _cores() -> int:
    return max(default_threads(), 2)


class Ahead:
    """The row groups that were requested and not read yet."""

    def __init__(self, source: Source, num_groups: int) -> None:
        self._source = source
        self.num_groups = num_groups
        """Groups after these are not requested."""
        self._coming: dict[tuple[int, Names], tuple[Sequence[object], int]] = {}
        """What holds a row group, and its bytes."""
        self._begun: set[tuple[int, Names]] = set()
        self._most = _CORE_BYTES * _cores()
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
                asked = ranges(number, names)
                size = sum(end - start for start, end in asked)
                is_full = sum(one for _, one in self._coming.values()) + size > self._most
                if number > group and is_full:
                    break
                held = wanted(self._source, asked)
                if held is None:
                    break
                self._coming[number, names] = held, size
                self._begun.add((number, names))
            for number, others in list(self._coming):
                if number < group - _MOST_GROUPS:
                    del self._coming[number, others]  # left out by who reads
            held, _ = self._coming.pop((group, names), (None, 0))
            return held


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


class Room:
    """How many bytes of row groups of objects are decoded at the same time, in this process. A row group that is larger
    is decoded alone. Memory holds several times as many bytes meanwhile."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._used = 0
        self._process = os.getpid()
        self._lock = Lock()
        self._turn = threading.Condition(self._lock)

    @contextmanager
    def of(self, num_bytes: int) -> Generator[None]:
        """Wait until there is room for these bytes, and use it."""
        most = self._most()
        with self._lock:
            if self._process != os.getpid():
                self._used, self._process = 0, os.getpid()  # what the parent's threads decode
            wait_for(self._turn, lambda: not self._used or self._used + num_bytes <= most)
            self._used += num_bytes
        try:
            yield
        finally:
            with self._lock:
                self._used -= num_bytes
                self._turn.notify_all()


class Freed:
    """Returns memory that pyarrow does not use to the system, each time so many bytes were decoded. pyarrow keeps it for
    a second, and in this time a scan of objects frees a hundred megabytes."""

    def __init__(self) -> None:
        self._num_bytes = 0

    def decoded(self, num_bytes: int) -> None:
        """So many bytes were decoded. Threads may miss each other's bytes, which does no harm."""
        self._num_bytes += num_bytes
        if self._num_bytes >= _FREED_BYTES:
            self._num_bytes = 0
            pa.default_memory_pool().release_unused()


FREED = Freed()
ROOM = Room(lambda: _DECODED_BYTES * _cores())
