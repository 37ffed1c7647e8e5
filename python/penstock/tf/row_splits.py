"""Converts the forms of row partitions (lengths, starts, row ids …) to row splits.

The checks are TensorFlow's. Without them, numbers are not checked, and rows may have negative lengths, overlap or
extend beyond the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import LimitError
from penstock.tf.errors import InvalidArgumentError

Numbers = np.ndarray[Any, Any]

MAX_ROWS = 1 << 24
"""Row ids are numbers, so without a limit a few bytes could request any number of empty rows."""


def sums(lengths: Numbers) -> Numbers:
    """0 and the cumulative sums of lengths."""
    splits = np.zeros(len(lengths) + 1, lengths.dtype)
    np.cumsum(lengths, dtype=lengths.dtype, out=splits[1:])
    return splits


def _refuse(form: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        None, None, f"Arguments to {form} do not form a valid RaggedTensor: {why}"
    )


def _check_rising(form: str, numbers: Numbers) -> None:
    falls = np.flatnonzero(np.diff(numbers) < 0)
    if len(falls):
        at = int(falls[0])
        raise _refuse(form, f"{numbers[at + 1]} follows {numbers[at]}")


def check_splits(splits: Numbers) -> None:
    """Raise InvalidArgumentError if these are not row splits."""
    if not len(splits):
        raise _refuse(
            "from_row_splits", "there must be one more row split than rows, but there is none"
        )
    if splits[0] != 0:
        raise _refuse("from_row_splits", f"the first row begins at {splits[0]}, not 0")
    _check_rising("from_row_splits", splits)


def check_end(splits: Numbers, num_values: int) -> None:
    """Raise InvalidArgumentError if the last row does not end with the values."""
    if splits[-1] != num_values:
        raise _refuse(
            "_from_row_partition", f"the rows have {splits[-1]} values, but there are {num_values}"
        )


def splits_of_lengths(lengths: Numbers, validate: bool) -> Numbers:
    """Row splits from the length of each row."""
    if validate and (lengths < 0).any():
        raise _refuse("from_row_lengths", f"a row of {lengths.min()} values")
    return sums(lengths)


def splits_of_starts(starts: Numbers, num_values: int, validate: bool) -> Numbers:
    """Row splits from the position where each row begins."""
    splits = np.append(starts, np.asarray(num_values, starts.dtype))
    if validate:
        if splits[0] != 0 and len(starts):
            raise _refuse("from_row_starts", f"the first row begins at {splits[0]}, not 0")
        _check_rising("from_row_starts", splits)
    return splits


def splits_of_limits(limits: Numbers, validate: bool) -> Numbers:
    """Row splits from the position where each row ends."""
    splits = np.append(np.zeros(1, limits.dtype), limits)
    if validate:
        _check_rising("from_row_limits", splits)
    return splits


def splits_of_rowids(
    rowids: Numbers, num_values: int, nrows: int | None = None, validate: bool = True
) -> Numbers:
    """Row splits from the row number of each value.

    Raises:
        InvalidArgumentError: a negative number; numbers that decrease or are too large, if validated.
        ValueError: different numbers of row ids and values, or more rows than `nrows`.
        LimitError: too many empty rows.
    """
    last = int(rowids[-1]) + 1 if len(rowids) else 0
    if nrows is None:
        nrows = last
    elif nrows < 0 or nrows < last:
        raise ValueError(f"Expected nrows >= value_rowids[-1] + 1; got nrows={nrows}, {last} rows")
    if validate:
        if len(rowids) and rowids[0] < 0:
            raise _refuse("from_value_rowids", f"row {rowids[0]}")
        _check_rising("from_value_rowids", rowids)
    if (rowids < 0).any():
        raise InvalidArgumentError(
            None, None, f"Input arr must be non-negative! There is row {rowids.min()}"
        )
    if nrows > MAX_ROWS + num_values:
        raise LimitError(f"row ids ask for {nrows} rows for {num_values} values")
    if len(rowids) != num_values:
        raise ValueError(f"Shapes ({num_values},) and ({len(rowids)},) are incompatible")
    lengths = np.bincount(rowids[rowids < nrows], minlength=nrows)
    return sums(lengths.astype(rowids.dtype))


def splits_of_uniform(
    length: int, num_values: int, nrows: int | None, validate: bool, dtype: Any
) -> Numbers:
    """Row splits of rows of one length.

    Raises:
        ValueError: a negative length, or one that does not divide the values, if validated.
    """
    if nrows is None:
        nrows = num_values // length if length else 0
    if validate and (length < 0 or nrows * length != num_values):
        raise ValueError(
            f"uniform_row_length={length} times nrows={nrows} must equal nvals={num_values}"
        )
    return np.arange(nrows + 1, dtype=dtype) * np.asarray(length, dtype)
