"""Finds bad records and continues after them, for scans, `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.format import Chunk, Reader
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError, StaleIndexError

_FEW_RECORDS = 64
"""Records that are read in one call after a bad record. The number doubles while none is bad."""
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
        row_of: the row that an error is about; None if it names no row. Such an error applies to all rows of the call.
            If it is about the size of the batch, fewer rows are read in one call.
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
            if bad is not None and first <= bad < end:
                yield from around(read, row_of, first, bad)
                yield bad, bad + 1, error
                # Not all that follow, because another bad row may be near, and rows after it would be read in vain.
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


def parts_around(reader: Reader, chunk: Chunk[Any]) -> Iterator[Found]:
    """The records of a chunk, by their numbers in it, or errors that prevent reading some of them."""

    def read(first: int, end: int) -> pa.RecordBatch:
        are_all = first == 0 and end == chunk.num_records
        rows = None if are_all else np.arange(first, end)
        return reader.decode(chunk, rows, None)

    def row_of(error: PenstockError) -> int | None:
        return None if error.record is None else place_of(reader, chunk, error.record)

    done = 0
    try:
        for found in around(read, row_of, 0, chunk.num_records):
            yield found
            done = found[1]
    except PenstockError as error:  # not about a single record
        yield done, chunk.num_records, error


def place_of(reader: Reader, chunk: Chunk[Any], record: int) -> int:
    """Return the place in a chunk of a record of the file; the number of the chunk's records if it is not there."""
    numbers = reader.record_numbers(chunk)
    place = int(np.searchsorted(numbers, record))
    return place if place < len(numbers) and numbers[place] == record else chunk.num_records
