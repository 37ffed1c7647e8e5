"""Where documents go when they are packed into rows of one length. Only their lengths decide.

All rows together are one line of positions: row r has the positions from r * length to (r + 1) * length. `Packing` says
where on this line each document begins and ends, in ascending order. A document that crosses the end of a row is cut
there. `in_one_line` puts documents one after another; `whole` lets none cross the end of a row; `apart` begins a new
row with each. With `shuffled`, the documents come in another order than in the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

_WINDOW_TOKENS = 1 << 22
WINDOW_ROWS = 64, 1024
"""`whole` considers the documents of a window together: as many rows as have 4 Mi tokens, but within these limits."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The parts of documents that are in some rows, row by row, from left to right. All arrays are int64[pieces]."""

    row: np.ndarray
    """Which of the requested rows."""
    record: np.ndarray
    """The record number of the document."""
    number: np.ndarray
    """The number of the piece in its row, from 1."""
    skip: np.ndarray
    """How many tokens of the document come before the piece."""
    size: np.ndarray
    """How many tokens the piece has."""
    is_end: np.ndarray
    """bool: whether the document ends with this piece."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The places of all documents that have tokens. All arrays are int64[documents]."""

    length: int
    records: np.ndarray
    """Their record numbers."""
    starts: np.ndarray
    ends: np.ndarray
    places: np.ndarray | None = None
    """Which part of the line each row is, int64[rows]; None: row r is part r."""

    @property
    def num_rows(self) -> int:
        return -(-int(self.ends[-1]) // self.length) if len(self.ends) else 0

    def first_records(self) -> np.ndarray:
        """The record number of the first document of each row. It never descends."""
        begin = self._begin(np.arange(self.num_rows))
        return self.records[np.searchsorted(self.ends, begin, "right")]

    def _begin(self, rows: np.ndarray) -> np.ndarray:
        return (rows if self.places is None else self.places[rows]) * self.length

    def last_records(self, rows: np.ndarray) -> np.ndarray:
        """The record numbers of the last documents of some rows."""
        return self.records[np.searchsorted(self.starts, self._begin(rows) + self.length) - 1]

    def pieces(self, rows: np.ndarray) -> Pieces:
        """The pieces of documents in some rows."""
        begin = self._begin(rows)
        end = begin + self.length
        first = np.searchsorted(self.ends, begin, "right")
        counts = np.searchsorted(self.starts, end) - first
        row = np.repeat(np.arange(len(rows)), counts)
        number = _counted(counts)
        document = first[row] + number
        start, stop = self.starts[document], self.ends[document]
        low, high = np.maximum(start, begin[row]), np.minimum(stop, end[row])
        return Pieces(
            row, self.records[document], number + 1, low - start, high - low, high == stop
        )


Pack = Callable[[np.ndarray, int], Packing]
"""`in_one_line`, `whole` or `apart`: takes the tokens of each record, and the length of a row."""


def _counted(counts: np.ndarray) -> np.ndarray:
    """0, 1, … for each count: its numbers from 0."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


def shuffled(pack: Pack, sizes: np.ndarray, length: int, order: np.ndarray) -> Packing:
    """Pack the records in an order, int64[n]. The rows are then sorted by their first documents, as without an order."""
    found = pack(sizes[order], length)
    found = replace(found, records=order[found.records])
    return replace(found, places=np.argsort(found.first_records(), kind="stable"))


def in_one_line(sizes: np.ndarray, length: int) -> Packing:
    """Put documents one after another. `sizes`: the tokens of each record; documents without tokens are left out."""
    records = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[records], dtype=np.int64)
    return Packing(length, records, ends - sizes[records], ends)


def apart(sizes: np.ndarray, length: int) -> Packing:
    """Begin a new row with each document."""
    records = np.flatnonzero(sizes)
    kept = sizes[records].astype(np.int64)
    rows = -(-kept // length)
    starts = (np.cumsum(rows) - rows) * length
    return Packing(length, records, starts, starts + kept)


def whole(sizes: np.ndarray, length: int) -> Packing:
    """Put each document into one row. None may be longer than a row.

    In each window, the longest document comes first, and each goes into the fullest row of the window that has room
    for it (best fit). A row has its documents in the order of the records, and rows have the order of their first
    documents.
    """
    records = np.flatnonzero(sizes)
    kept = sizes[records].astype(np.int64)
    rows_together = min(max(_WINDOW_TOKENS // length, WINDOW_ROWS[0]), WINDOW_ROWS[1])
    window = (np.cumsum(kept) - kept) // (rows_together * length)
    order = np.lexsort((-kept, window))
    edges = np.flatnonzero(np.diff(window, prepend=-1, append=-1))
    row_of = np.empty(len(kept), np.int64)
    num_rows = 0
    for begin, end in pairwise(edges.tolist()):
        documents = order[begin:end]
        found = _best_fit(kept[documents].tolist(), length)
        row_of[documents] = np.asarray(found) + num_rows
        num_rows += max(found) + 1
    # In descending order, the first document of a row is the last that is assigned.
    first = np.empty(num_rows, np.int64)
    first[row_of[::-1]] = np.arange(len(kept))[::-1]
    place = np.empty(num_rows, np.int64)
    place[np.argsort(first)] = np.arange(num_rows)
    row_of = place[row_of]
    order = np.argsort(row_of, kind="stable")
    row, kept = row_of[order], kept[order]
    ends = np.cumsum(kept)
    begins = np.searchsorted(row, np.arange(num_rows))
    ends += row * length - (ends - kept)[begins][row]
    return Packing(length, records[order], ends - kept, ends)


def _best_fit(sizes: list[int], length: int) -> list[int]:
    """The row of each document, with as many rows as needed.

    The bits of `open_spaces` are the spaces that some row has left, so its lowest bit from `size` on is the best fit.
    """
    rows_with: dict[int, list[int]] = {}
    open_spaces = num_rows = 0
    found: list[int] = []
    for size in sizes:
        fitting = open_spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            rows = rows_with[space]
            row = rows.pop()
            if not rows:
                open_spaces ^= 1 << space
        else:
            space, row = length, num_rows
            num_rows += 1
        found.append(row)
        space -= size
        if space:
            rows_with.setdefault(space, []).append(row)
            open_spaces |= 1 << space
    return found
