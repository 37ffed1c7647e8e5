"""Finds bad records and continues after them, for scans, `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.selection import Projection
from penstock.contract.format import Chunk, Reader
from penstock.errors import (
    FormatError,
    LimitError,
    PenstockError,
    SchemaError,
    StaleIndexError,
    raise_unless_damage,
)

_FEW_RECORDS = 64
"""How many records are read in one call after a bad record. The number doubles until the next bad record."""
Found = tuple[int, int, pa.RecordBatch | PenstockError]
"""Rows [first, end) and their batch, or the error that prevents reading them."""


def around(
    read: Callable[[int, int], pa.RecordBatch],
    row_of: Callable[[PenstockError], int | None],
    first: int,
    last: int,
    error: PenstockError | None = None,
) -> Iterator[Found]:
    """Read rows [first, last) in order, and continue after each bad one.

    Args:
        read: reads rows [first, end).
        row_of: the row that an error is about; None if it names no row. Then the error applies to all rows of the call;
            but if it is about the size of the batch, the call is repeated with fewer rows.
        error: the error from reading all rows in one call, if the caller tried that.
    """
    run = last - first
    try:
        while first < last:
            end = min(first + run, last)
            if error is None:
                try:
                    batch = read(first, end)
                except StaleIndexError:
                    raise
                except (SchemaError, FormatError) as found:
                    error = found
                else:
                    yield first, end, batch
                    first, run = end, 2 * run
                    continue
            bad = row_of(error)
            if bad is not None and bad < first:
                # The fault of a record before these rows prevents reading them, so it is not of one record only.
                yield first, last, error
                first, error = last, None
            elif bad is not None and bad < end:
                yield from around(read, row_of, first, bad)
                yield bad, bad + 1, error
                # Do not read all remaining rows in one call: another bad row may be near, and the
                # rows after it would be read in vain.
                run = max(2 * (bad - first), _FEW_RECORDS)
                first, error = bad + 1, None
            elif is_of_a_batch(error) and end - first > 1:
                run, error = (end - first) // 2, None
            else:
                yield first, end, error
                first, error = end, None
    finally:
        error = None  # its traceback references this frame, and would keep the files open


def is_of_a_batch(error: PenstockError) -> bool:
    """Whether an error is about the size of a batch, not about a single record."""
    return isinstance(error, LimitError) and error.of_batch and error.record is None


def joined(found: Iterable[Found]) -> Iterator[Found]:
    """Join neighbouring rows that cannot be read because of the same fault, such as those of a lost block whose error
    names its first record."""
    lost: Any = None
    try:
        for one in found:
            if lost is not None:
                if is_same_fault(lost[2], one[2]):
                    lost = lost[0], one[1], lost[2]
                    continue
                yield lost
                lost = None
            if isinstance(one[2], PenstockError):
                lost = one
            else:
                yield one
        if lost is not None:
            yield lost
    finally:
        lost = one = None  # a traceback references this frame, and would keep the files open


def is_same_fault(one: PenstockError, other: pa.RecordBatch | PenstockError) -> bool:
    """Whether two errors name the same record for the same reason."""
    if type(one) is not type(other) or number_of(one) is None:
        return False
    names = ("record", "row", "file", "byte", "message")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def parts_around(reader: Reader, chunk: Chunk[Any], columns: Projection = None) -> Iterator[Found]:
    """Yield the records of a chunk, with their numbers in the chunk, and the errors that prevent reading some of
    them."""

    def read(first: int, end: int) -> pa.RecordBatch:
        are_all = first == 0 and end == chunk.num_records
        rows = None if are_all else np.arange(first, end)
        return reader.decode(chunk, rows, columns)

    def row_of(error: PenstockError) -> int | None:
        number = number_of(error)
        return None if number is None else place_of(reader, chunk, number)

    done = 0
    try:
        for found in joined(around(read, row_of, 0, chunk.num_records)):
            yield found
            done = found[1]
    except PenstockError as error:  # not about a single record
        raise_unless_damage(error)
        yield done, chunk.num_records, error


def number_of(error: PenstockError) -> int | None:
    """The number, in the reader that was asked, of the record that an error is about; None if it names none."""
    return error.record if error.row is None else error.row


def place_of(reader: Reader, chunk: Chunk[Any], record: int) -> int:
    """Return where in a chunk a record of the file is. If it is not there, return the chunk's number of records."""
    numbers = reader.record_numbers(chunk)
    place = int(np.searchsorted(numbers, record))
    return place if place < len(numbers) and numbers[place] == record else chunk.num_records
