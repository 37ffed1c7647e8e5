"""Shuffled as well as a disk allows: whole chunks in random order, records within windows of chunks.

A window is a run of chunks of the shuffled chunk order whose records are shuffled together. Windows
cover an epoch one behind the other, so a reader holds one window at a time, reads each chunk once
and whole, and can begin at any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock import _core
from penstock.engine.locks import Lock
from penstock.orders._order import checked_records, checked_span
from penstock.orders.keys import Draw, checked_seed, permuted

_RECENT = 2


@dataclass(frozen=True, eq=False)
class Window:
    """Records that are shuffled together.

    Attributes: number; first and last, its positions in the epoch (last is not in it); chunks, their
    numbers, rising; starts and stops, its runs of consecutive records, rising and disjoint. Arrays
    are int64.
    """

    number: int
    first: int
    last: int
    chunks: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def rows(self, records: np.ndarray) -> np.ndarray:
        """Where records of this window are among its records, laid run behind run, as int64."""
        before = np.concatenate(([0], np.cumsum(self.stops - self.starts)[:-1]))
        run = np.searchsorted(self.starts, records, side="right") - 1
        return before[run] + records - self.starts[run]


class Windows:
    """The windows of one epoch, and which record comes at which position.

    Memory: 40 bytes a chunk.

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
        # The chunks in the order of the epoch: their numbers, first records, first positions.
        chunks = permuted(len(lengths), order.seed, epoch, Draw.CHUNKS, 0, len(lengths))
        first_records = np.cumsum(lengths) - lengths
        ordered = lengths[chunks]
        self._chunks = chunks
        self._records = first_records[chunks]
        self._positions = np.concatenate(([0], np.cumsum(ordered)))
        self._first_chunks = _cut(self._positions, order.window_chunks, order.window_records)
        self.edges = self._positions[self._first_chunks]
        """Positions at which windows begin, and the end of the epoch: int64[len + 1]."""

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, number: int) -> Window:
        """A window by its number, in the order of the epoch."""
        if not 0 <= number < len(self):
            raise IndexError(f"the epoch has {len(self)} windows")
        begin, end = self._first_chunks[number : number + 2]
        lengths = np.diff(self._positions[begin : end + 1])
        by_place = np.argsort(self._chunks[begin:end])
        starts = self._records[begin:end][by_place]
        stops = starts + lengths[by_place]
        chunks = self._chunks[begin:end][by_place]
        some = stops > starts
        starts, stops = starts[some], stops[some]
        # Chunks that follow each other are one run.
        new = np.concatenate(([True], starts[1:] != stops[:-1])) if len(starts) else some[:0]
        ends = np.concatenate((new[1:], [True])) if len(starts) else some[:0]
        first, last = self.edges[number : number + 2].tolist()
        return Window(number, first, last, chunks, starts[new], stops[ends])

    def at(self, position: int) -> Window:
        """The window that has a position."""
        checked_span(int(self.edges[-1]), 0, position, position + 1)
        return self[int(np.searchsorted(self.edges, position, side="right")) - 1]

    def take(self, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop, as int64[stop - start]."""
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


def _cut(positions: np.ndarray, most_chunks: int | None, most_records: int | None) -> np.ndarray:
    """Where windows begin, counted in chunks, and the number of chunks: as many chunks as both
    bounds allow, and one at least. Windows without records are left to the window before."""
    num_chunks = len(positions) - 1
    if most_records is None:
        begins = np.arange(0, num_chunks, most_chunks or max(num_chunks, 1))
    else:
        fitting = np.searchsorted(positions, positions[:-1] + most_records, side="right") - 1
        after = np.maximum(np.arange(1, num_chunks + 1), fitting)
        if most_chunks is not None:
            after = np.minimum(after, np.arange(num_chunks) + most_chunks)
        begins = _followed(after.tolist())
    found = np.append(begins, num_chunks).astype(np.int64)
    some = np.concatenate(([True], np.diff(positions[found]) > 0))
    some[0] = True
    found = found[some]
    found[-1] = num_chunks
    return found


def _followed(after: list[int]) -> np.ndarray:
    """Where one comes by from 0 on, if each place says which is next, before one is at the end."""
    found, place = [], 0
    while place < len(after):
        found.append(place)
        place = after[place]
    return np.array(found, np.int64)


@dataclass
class _Recent:
    """The windows used last, which pickling forgets."""

    kept: list[tuple[int, np.ndarray, Windows]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def __reduce__(self) -> tuple[type[_Recent], tuple[()]]:
        return _Recent, ()


@dataclass(frozen=True)
class Blocked:
    """Whole chunks in random order, and records shuffled within windows of some chunks.

    For what is slow at single records: disks, tar, Parquet, object stores. Each chunk is read once an
    epoch, whole. Batches are as mixed as a window: records of `window_chunks` places of the data.

    Args:
        seed: 0 to 2^64 - 1.
        window_chunks: A window has at most so many chunks; None: any number.
        window_records: A window has at most so many records, or one chunk; None: any number.
        chunk_records: How long chunks are where nobody says how long they are.

    Example:
        >>> import penstock as ps
        >>> order = ps.Blocked(seed=0, window_chunks=2)
        >>> order.take(8, 0, 0, 4, chunk_lengths=[2, 2, 2, 2])
        array([1, 2, 3, 0])
    """

    seed: int
    window_chunks: int | None = 32
    window_records: int | None = None
    chunk_records: int = 1024
    _recent: _Recent = field(default_factory=_Recent, init=False, repr=False, compare=False)

    layout = "chunk_lengths"
    """What `take` needs to know of the data besides: the keyword's name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", checked_seed(self.seed))
        for name in ("window_chunks", "window_records", "chunk_records"):
            size = getattr(self, name)
            if size is not None and (not isinstance(size, int) or size < 1):
                raise ValueError(f"{name} is {size!r}, and should be 1 or more")

    def length(self, num_records: int) -> int:
        """As many positions as records."""
        return checked_records(num_records)

    def windows(self, num_records: int, epoch: int, chunk_lengths: Any = None) -> Windows:
        """The windows of an epoch. The last ones asked for are kept.

        Args:
            num_records: Of the dataset.
            epoch: From 0.
            chunk_lengths: The numbers of records of the chunks, in file order; None: equal ones.

        Raises:
            ValueError: The chunks have more or fewer records than the dataset.
        """
        num_records = checked_records(num_records)
        epoch = checked_span(num_records, epoch, 0, 0)[0]
        if chunk_lengths is None:
            full, rest = divmod(num_records, self.chunk_records)
            lengths = np.full(full + (rest > 0), self.chunk_records, np.int64)
            if rest:
                lengths[-1] = rest
        else:
            lengths = np.asarray(chunk_lengths, np.int64)
            total = int(lengths.sum())
            if lengths.ndim != 1 or total != num_records or (lengths < 0).any():
                raise ValueError(
                    f"the chunks have {total} records in shape {lengths.shape}, "
                    f"and the dataset has {num_records}"
                )
        with self._recent.lock:
            for kept_epoch, kept_lengths, windows in self._recent.kept:
                if kept_epoch == epoch and np.array_equal(kept_lengths, lengths):
                    return windows
            windows = Windows(self, epoch, lengths)
            self._recent.kept.insert(0, (epoch, lengths.copy(), windows))
            del self._recent.kept[_RECENT:]
        return windows

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, chunk_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start].

        Who takes often keeps what `windows` gives: comparing chunk lengths costs more than a take.
        """
        epoch, start, stop = checked_span(self.length(num_records), epoch, start, stop)
        return self.windows(num_records, epoch, chunk_lengths).take(start, stop)

    def spec(self) -> dict[str, Any]:
        """All parameters; chunk lengths belong to the data."""
        return {
            "name": "blocked",
            "seed": self.seed,
            "window_chunks": self.window_chunks,
            "window_records": self.window_records,
            "chunk_records": self.chunk_records,
        }
