"""Makes the columns of packed rows from the documents that they hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.numbers import as_booleans
from penstock.datasets._packing import Pieces


class Documents(NamedTuple):
    """Documents in memory."""

    lists: pa.RecordBatch
    """Their columns of lists."""
    records: np.ndarray
    """Their record numbers, int64[documents], ascending."""


class Added(NamedTuple):
    """What is added to the beginning and the end of each document (None: nothing), and to the end of a row."""

    bos: float | None
    eos: float | None
    pad: float


class MissingTokenError(Exception):
    """A document has a null in place of a token."""

    def __init__(self, record: int) -> None:
        super().__init__(record)
        self.record = record


class MadeRows:
    """Rows of `length` values, made of pieces of documents."""

    def __init__(self, pieces: Pieces, num_rows: int, length: int) -> None:
        self._pieces = pieces
        self._shape = num_rows, length
        self._ends = np.cumsum(pieces.size)
        self._total = int(self._ends[-1]) if len(self._ends) else 0
        filled = np.bincount(pieces.row, pieces.size, num_rows)
        self._mask = (
            np.arange(length) < filled[:, None] if self._total < num_rows * length else None
        )
        """bool[rows, length]: False for padding. None if there is none."""

    def column(self, name: str) -> pa.Array:
        """Return one of the columns that do not need the tokens: "mask", "document", "record" or "position"."""
        size = self._pieces.size
        if name == "mask":
            mask = np.ones(self._total, bool) if self._mask is None else self._mask.reshape(-1)
            return as_booleans(mask)
        if name == "document":
            return self._spread(np.repeat(self._pieces.number.astype(np.int32), size))
        if name == "record":
            return self._spread(np.repeat(self._pieces.record, size), -1)
        begin = (self._ends - size).astype(np.int32)
        return self._spread(np.arange(self._total, dtype=np.int32) - np.repeat(begin, size))

    def tokens(self, documents: Documents, name: str, added: Added) -> pa.Array:
        """Return the values of a column of the documents, for all rows.

        Raises:
            MissingTokenError: a document has a null.
        """
        pieces, ends = self._pieces, self._ends
        offsets, values = _flat(documents.lists.column(name), documents.records)
        begin = offsets[np.searchsorted(documents.records, pieces.record)] + pieces.skip
        bos, eos, pad = added
        if bos is not None:
            begin -= 1  # before the first value
        if bos is None and eos is None and (begin[1:] == (begin + pieces.size)[:-1]).all():
            first = int(begin[0]) if len(begin) else 0
            return self._spread(values[first : first + self._total], pad)
        index = np.repeat(begin - (ends - pieces.size), pieces.size)
        index += np.arange(self._total)
        found = values.take(
            index, mode="clip"
        )  # a bos may be before the first value, an eos after the last
        if bos is not None:
            found[(ends - pieces.size)[pieces.skip == 0]] = bos
        if eos is not None:
            found[ends[pieces.is_end] - 1] = eos
        return self._spread(found, pad)

    def _spread(self, values: np.ndarray, pad: float = 0) -> pa.Array:
        """Put the values of all tokens into rows, and fill them up."""
        if self._mask is None:
            return pa.array(values)
        spread = np.full(self._shape, pad, values.dtype)
        spread[self._mask] = values
        return pa.array(spread.reshape(-1))


def _flat(lists: Any, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The start of each list, and all values."""
    offsets = np.asarray(lists.offsets.to_numpy(zero_copy_only=False), np.int64)
    values = lists.values
    if values.null_count:
        missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        missing = missing[(missing >= offsets[0]) & (missing < offsets[-1])]
        if len(missing):
            place = int(np.searchsorted(offsets, missing[0], "right")) - 1
            raise MissingTokenError(int(records[place]))
        values = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    return offsets, values.to_numpy(zero_copy_only=False)
