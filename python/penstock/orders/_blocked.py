"""Shuffling for slow disks: whole chunks in random order, and records shuffled within windows of chunks.

The chunks of an epoch are shuffled. Some consecutive chunks in this order are a window, and the records of a window
are shuffled together. A reader needs one window in memory, reads each chunk once, and can begin at any window.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from penstock import _core
from penstock.limits import checked_count
from penstock.orders._order import (
    EachOnce,
    Recent,
    checked_lengths,
    checked_records,
    checked_span,
    settle,
)
from penstock.orders.keys import Draw, checked_seed, permuted

_MOST_CHUNKS = 32
_WINDOW_BYTES = 128 << 20
"""The most chunks and bytes of a window, for `window_chunks="auto"`."""


@dataclass(frozen=True, eq=False)
class Window:
    """Records that are shuffled together.

    Attributes:
        number: the number of the window in the epoch.
        first, last: the positions of the window in the epoch, [first, last).
        chunks: the numbers of the window's chunks, int64[c], sorted.
        starts, stops: the ranges of consecutive records in the window, int64[r], sorted and disjoint.
        ends: the records at which its chunks end, int64[c], sorted.
    """

    number: int
    first: int
    last: int
    chunks: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    ends: np.ndarray

    def rows(self, records: np.ndarray) -> np.ndarray:
        """The index of each of these records, if the ranges of the window are read one after another: int64[n]."""
        before = np.concatenate(([0], np.cumsum(self.stops - self.starts)[:-1]))
        run = np.searchsorted(self.starts, records, side="right") - 1
        return before[run] + records - self.starts[run]


class Windows:
    """The windows of one epoch, and the record at each position. They need 40 bytes of memory per chunk.

    Example:
        >>> import penstock as ps
        >>> windows = ps.Blocked(seed=0, window_chunks=2).windows(8, 0, [2, 2, 2, 2])
        >>> len(windows), windows.edges.tolist()
        (2, [0, 4, 8])
        >>> window = windows.at(position=5)
        >>> window.chunks.tolist(), window.starts.tolist(), window.stops.tolist()
        ([2, 3], [4], [8])
        >>> sorted(windows.take(window.first, window.last).tolist())
        [4, 5, 6, 7]
    """

    def __init__(self, order: Blocked, epoch: int, lengths: np.ndarray) -> None:
        self._seed, self._epoch = order.seed, epoch
        # The chunks in the order of this epoch: their numbers, first records and first positions.
        chunks = permuted(len(lengths), order.seed, epoch, Draw.CHUNKS, 0, len(lengths))
        first_records = np.cumsum(lengths) - lengths
        ordered = lengths[chunks]
        self._chunks = chunks
        self._records = first_records[chunks]
        self._positions = np.concatenate(([0], np.cumsum(ordered)))
        self._first_chunks = _window_starts(
            self._positions, order.most_chunks, order.window_records
        )
        self.edges = self._positions[self._first_chunks]
        """Positions at which windows begin, followed by the end of the epoch: int64[len + 1]."""

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, number: int) -> Window:
        if not 0 <= number < len(self):
            raise IndexError(f"the epoch has {len(self)} windows")
        begin, end = self._first_chunks[number : number + 2]
        lengths = np.diff(self._positions[begin : end + 1])
        by_place = np.argsort(self._chunks[begin:end])
        starts = self._records[begin:end][by_place]
        stops = starts + lengths[by_place]
        chunks = self._chunks[begin:end][by_place]
        has_records = stops > starts
        ends = stops
        starts, stops = starts[has_records], stops[has_records]
        # Adjacent chunks form one range.
        is_joint = starts[1:] == stops[:-1]
        starts = np.delete(starts, np.flatnonzero(is_joint) + 1)
        stops = np.delete(stops, np.flatnonzero(is_joint))
        first, last = self.edges[number : number + 2].tolist()
        return Window(number, first, last, chunks, starts, stops, ends)

    def at(self, position: int) -> Window:
        """The window that contains a position."""
        checked_span(int(self.edges[-1]), 0, position, position + 1)
        return self[int(np.searchsorted(self.edges, position, side="right")) - 1]

    def take(self, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        _, start, stop = checked_span(int(self.edges[-1]), 0, start, stop)
        found = np.empty(stop - start, np.int64)
        number = int(np.searchsorted(self.edges, start, side="right")) - 1
        position = start
        while position < stop:
            first, last = self.edges[number : number + 2].tolist()
            end = min(last, stop)
            what = _core.key_of([Draw.WINDOWS, number])
            span = position - first, end - first
            places = first + permuted(last - first, self._seed, self._epoch, what, *span)
            begin, after = self._first_chunks[number : number + 2]
            inner = self._positions[begin : after + 1]
            chunk = begin + np.searchsorted(inner, places, side="right") - 1
            found[position - start : end - start] = (
                self._records[chunk] + places - self._positions[chunk]
            )
            position, number = end, number + 1
        return found


def _window_starts(
    positions: np.ndarray, most_chunks: int | None, most_records: int | None
) -> np.ndarray:
    """The first chunk of each window, followed by the number of chunks. A window has as many chunks as both limits
    allow, but at least one. Chunks without records join the previous window."""
    num_chunks = len(positions) - 1
    if most_records is None:
        starts = np.arange(0, num_chunks, most_chunks or max(num_chunks, 1))
    else:
        ends = np.searchsorted(positions, positions[:-1] + most_records, side="right") - 1
        ends = np.maximum(np.arange(1, num_chunks + 1), ends)
        if most_chunks is not None:
            ends = np.minimum(ends, np.arange(num_chunks) + most_chunks)
        starts = _followed(ends.tolist())
    found = np.append(starts, num_chunks).astype(np.int64)
    has_records = np.concatenate(([True], np.diff(positions[found]) > 0))
    has_records[0] = True
    found = found[has_records]
    found[-1] = num_chunks
    return found


def _followed(ends: list[int]) -> np.ndarray:
    """The starts of windows, if `ends[n]` is the end of a window that starts at n."""
    found, start = [], 0
    while start < len(ends):
        found.append(start)
        start = ends[start]
    return np.array(found, np.int64)


@dataclass(frozen=True)
class Blocked(EachOnce):
    """Whole chunks in random order, with records shuffled within windows of some chunks.

    Use it if single records are slow to read: on hard disks, in tar or Parquet, in object stores. Each chunk is read
    once per epoch, from beginning to end. A batch has records from all chunks of a window.

    Args:
        seed: 0 to 2^64 - 1.
        window_chunks: the most chunks in a window; None for no limit. "auto" is 32, or in a `Loader` fewer if 32 chunks
            take more than 128 MiB of the files, such as large row groups.
        window_records: the most records in a window, unless a single chunk has more; None for no limit.
        chunk_records: the records in each chunk, if the data does not give chunk lengths.

    Example:
        >>> import penstock as ps
        >>> order = ps.Blocked(seed=0, window_chunks=2)
        >>> order.take(8, 0, 0, 4, chunk_lengths=[2, 2, 2, 2])
        array([1, 2, 3, 0])
    """

    seed: int
    window_chunks: int | Literal["auto"] | None = "auto"
    window_records: int | None = None
    chunk_records: int = 1024
    _recent: Recent[Windows] = field(default_factory=Recent, init=False, repr=False, compare=False)

    layout = "chunk_lengths"

    def __post_init__(self) -> None:
        settle(self, seed=checked_seed(self.seed))
        unlimited = {
            "window_chunks": (None, "auto"),
            "window_records": (None,),
            "chunk_records": (),
        }
        for name, others in unlimited.items():
            if (value := getattr(self, name)) not in others:
                checked_count(name, value, 1)

    @property
    def most_chunks(self) -> int | None:
        """The most chunks in a window; None for no limit."""
        return _MOST_CHUNKS if self.window_chunks == "auto" else self.window_chunks

    def sized(self, chunk_bytes: float) -> Blocked:
        """This order, with "auto" replaced by the number of chunks that suits chunks of this mean size."""
        if self.window_chunks != "auto":
            return self
        fitting = int(_WINDOW_BYTES / max(chunk_bytes, 1))
        return replace(self, window_chunks=max(min(fitting, _MOST_CHUNKS), 1))

    def windows(self, num_records: int, epoch: int, chunk_lengths: Any = None) -> Windows:
        """The windows of an epoch. The two most recent results are cached.

        `chunk_lengths` has the number of records in each chunk, in file order; None for chunks of `chunk_records`.

        Raises:
            ValueError: the sum of the chunk lengths is not `num_records`.
        """
        num_records = checked_records(num_records)
        epoch = checked_span(num_records, epoch, 0, 0)[0]
        if chunk_lengths is None:
            full, rest = divmod(num_records, self.chunk_records)
            chunk_lengths = np.full(full + 1, self.chunk_records, np.int64)
            chunk_lengths[-1] = rest
        lengths = checked_lengths(chunk_lengths, num_records, "chunks")
        return self._recent.get(epoch, lengths, lambda: Windows(self, epoch, lengths))

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, chunk_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]. For many calls, use `windows`
        instead, because each call compares all chunk lengths."""
        epoch, start, stop = checked_span(self.length(num_records), epoch, start, stop)
        return self.windows(num_records, epoch, chunk_lengths).take(start, stop)

    def spec(self) -> dict[str, Any]:
        """All parameters, without chunk lengths, because these belong to the data."""
        return {
            "name": "blocked",
            "seed": self.seed,
            "window_chunks": self.most_chunks,
            "window_records": self.window_records,
            "chunk_records": self.chunk_records,
        }
