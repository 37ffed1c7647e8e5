"""Builds lists of lists from flat values and the columns that divide them into rows, for a whole batch in one call.

TensorFlow's Ragged and Sparse features store one field under several keys of an Example. This module joins their
columns into one Arrow array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import LimitError, SchemaError

Offsets = npt.NDArray[np.int64]

MAX_EMPTY_ROWS = 1 << 24
"""ValueRowIds are row numbers. Without a limit, a few bytes could request any number of empty rows."""


def split(array: pa.Array) -> tuple[Offsets, pa.Array]:
    """The offsets, beginning with 0, and the values of a list array. A null list has no values."""
    offsets = np.asarray(array.offsets, dtype=np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, array.values.slice(first, last - first)


def join(offsets: Offsets, values: pa.Array, nulls_of: pa.Array | None = None) -> pa.Array:
    """Build a list array that is null where `nulls_of` is null."""
    mask = None
    if nulls_of is not None and nulls_of.null_count:
        mask = nulls_of.is_null()
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def rows_of(array: pa.Array, shape: Sequence[int]) -> pa.Array:
    """Group the values of a list array into nested fixed_size_lists of this shape. The length of each list must be a
    multiple of the shape's size."""
    offsets, values = split(array)
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return join(offsets // int(np.prod(shape)), values, array)


def partitioned(
    name: str,
    values: pa.Array,
    partitions: Sequence[tuple[str, pa.Array | int]],
    *,
    validate: bool,
    record_of: Callable[[int], int] = int,
) -> pa.Array:
    """Build a nested list array from flat values and their partitions, outermost first.

    Args:
        name: the field, for errors.
        values: list array with one list of flat values for each record.
        partitions: pairs of a word and a list array of int64. The word says what the numbers mean: "lengths", "splits",
            "starts", "limits", "row_ids", or "starts_or_none" (a value need not be in any row). In place of the array,
            "uniform" has the length of all rows.
        validate: raise SchemaError if the rows do not cover the values exactly. Otherwise such rows are truncated,
            and values outside all rows are lost, as in TensorFlow.
        record_of: converts an index in the arrays to the record number for an error.
    """
    items, inner = split(values)
    for place, (form, numbers) in reversed(list(enumerate(partitions, 1))):
        if isinstance(numbers, int):
            starts, ends, rows, bad = _uniform(numbers, items)
        else:
            starts, ends, rows, bad = _FORMS[form](items, *_flat(numbers))
        # Rows of equal length are a tensor, which TensorFlow does not truncate either.
        is_tensor = all(isinstance(inside, int) for _, inside in partitions[place - 1 :])
        if (validate or is_tensor or form == "row_ids") and bad.any():
            what = "rows of one length" if isinstance(numbers, int) else form.replace("_", " ")
            message = f"its {what} do not match its values"
            raise SchemaError(message, field=name, record=record_of(int(bad.argmax())))
        inner, items = _cut(inner, starts, ends), rows
    return join(items, inner, values)


def partitioned_frames(
    name: str,
    frames: pa.Array,
    partitions: Sequence[tuple[str, pa.Array | int]],
    *,
    validate: bool,
) -> pa.Array:
    """Like `partitioned`, for feature lists: every array has one more level of lists, the frames. SchemaError is also
    raised if the frames of a partition differ from those of the values."""
    outer, values = split(frames)
    inside: list[tuple[str, pa.Array | int]] = []
    for form, numbers in partitions:
        if not isinstance(numbers, int):
            offsets, numbers = split(numbers)
            if (differ := np.diff(offsets) != np.diff(outer)).any():
                message = f"its {form.replace('_', ' ')} have different frames from its values"
                raise SchemaError(message, field=name, record=int(differ.argmax()))
        inside.append((form, numbers))

    def record_of(frame: int) -> int:
        return int(np.searchsorted(outer, frame, side="right")) - 1

    rows = partitioned(name, values, inside, validate=validate, record_of=record_of)
    return join(outer, rows, frames)


def _flat(numbers: pa.Array) -> tuple[Offsets, Offsets]:
    offsets, flat = split(numbers)
    return offsets, np.asarray(flat, dtype=np.int64)


def _cut(values: pa.Array, starts: Offsets, ends: Offsets) -> pa.Array:
    """Make the lists `values[start:end]`. Values are copied only if the lists do not cover them in order."""
    lengths = ends - starts
    offsets = _sums(lengths)
    if offsets[-1] != len(values) or not np.array_equal(starts, offsets[:-1]):
        chosen = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        values = values.take(pa.array(chosen))
    return join(offsets, values)


def _sums(lengths: npt.NDArray[Any]) -> Offsets:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


_Rows = tuple[Offsets, Offsets, Offsets, npt.NDArray[np.bool_]]
"""The start and end of each row among the items, the offset of each record's first row, and which records are wrong."""


def _uniform(length: int, items: Offsets) -> _Rows:
    counts = np.diff(items)
    rows = _sums(counts // length)
    record = np.repeat(np.arange(len(counts)), np.diff(rows))
    starts = items[record] + (np.arange(rows[-1]) - rows[record]) * length
    return starts, starts + length, rows, counts % length != 0


def _limits(items: Offsets, rows: Offsets, limits: Offsets) -> _Rows:
    record = np.repeat(np.arange(len(items) - 1), np.diff(rows))
    low, high = items[record], items[record + 1]
    # Clipped before the addition, because limits may be any numbers. Decreasing limits give empty rows.
    ends = np.maximum.accumulate(low + np.clip(limits, 0, high - low))
    starts = np.maximum(np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)], low)
    bad = np.zeros(len(items) - 1, np.bool_)
    bad[record[ends - low != limits]] = True
    reached = items[:-1].copy()
    np.maximum.at(reached, record, ends)
    return starts, ends, rows, bad | (reached != items[1:])


def _lengths(items: Offsets, rows: Offsets, lengths: Offsets) -> _Rows:
    record = np.repeat(np.arange(len(items) - 1), np.diff(rows))
    sums = _sums(np.clip(lengths, 0, np.diff(items)[record]))
    limits = sums[1:] - sums[rows[record]]
    starts, ends, rows, bad = _limits(items, rows, limits)
    bad[record[ends - starts != lengths]] = True
    return starts, ends, rows, bad


def _splits(items: Offsets, offsets: Offsets, splits: Offsets) -> _Rows:
    """The first split of each record must be 0; the others are limits."""
    given = np.diff(offsets) > 0
    firsts = offsets[:-1][given]
    rest = np.delete(splits, firsts)
    starts, ends, rows, bad = _limits(items, _sums(np.diff(offsets) - given), rest)
    bad[given] |= splits[firsts] != 0
    return starts, ends, rows, bad


def _starts(items: Offsets, rows: Offsets, given: Offsets, *, covers: bool = True) -> _Rows:
    """`covers`: whether values outside all rows are an error. TensorFlow drops them."""
    record = np.repeat(np.arange(len(items) - 1), np.diff(rows))
    low, high = items[record], items[record + 1]
    starts = np.maximum.accumulate(low + np.clip(given, 0, high - low))
    following = np.concatenate([starts[1:], np.zeros(1, np.int64)])[: len(starts)]
    last = np.concatenate([record[1:] != record[:-1], np.ones(1, np.bool_)])[: len(starts)]
    ends = np.where(last, high, following)
    bad = np.zeros(len(items) - 1, np.bool_)
    bad[record[starts - low != given]] = True
    counts = np.diff(rows)
    bad[counts == 0] |= covers & (np.diff(items)[counts == 0] > 0)
    firsts = rows[:-1][counts > 0]
    bad[counts > 0] |= given[firsts] != 0
    return starts, ends, rows, bad


def _row_ids(items: Offsets, offsets: Offsets, ids: Offsets) -> _Rows:
    num_records = len(items) - 1
    bad = np.diff(items) != np.diff(offsets)
    record = np.repeat(np.arange(num_records), np.diff(offsets))
    back = np.diff(ids, prepend=0) < 0
    back[offsets[:-1][np.diff(offsets) > 0]] = False
    bad[record[back | (ids < 0)]] = True
    if bad.any():
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros(num_records + 1, np.int64), bad
    counts = np.zeros(num_records, np.int64)
    # Clipped, so that nothing overflows before the check.
    np.maximum.at(counts, record, np.minimum(ids, MAX_EMPTY_ROWS + len(ids)) + 1)
    rows = _sums(counts)
    if rows[-1] > MAX_EMPTY_ROWS + len(ids):
        raise LimitError(f"row ids request {rows[-1]} rows for {len(ids)} values")
    lengths = np.bincount(ids + rows[record], minlength=int(rows[-1]))
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths, ends, rows, bad


_FORMS: dict[str, Callable[[Offsets, Offsets, Offsets], _Rows]] = {
    "lengths": _lengths,
    "splits": _splits,
    "starts": _starts,
    "starts_or_none": partial(_starts, covers=False),
    "limits": _limits,
    "row_ids": _row_ids,
}


def sparse(
    name: str,
    indices: Sequence[pa.Array],
    values: pa.Array,
    *,
    size: Sequence[int] | None,
    already_sorted: bool,
) -> pa.Array:
    """Build a struct array with the indices and values of sparse tensors, one for each record.

    Args:
        name: the field, for errors.
        indices: list arrays of int64, one for each dimension.
        values: list array of the values.
        size: raise SchemaError for an index outside these dimensions; None: indices are not checked.
        already_sorted: keep the order. Otherwise the values of a record are sorted by index, with a stable sort.

    Returns:
        struct<indices: list<int64>, values: list<T>>, null where `values` is null. With several dimensions, an
        index is a fixed_size_list of int64.
    """
    offsets, flat = split(values)
    counts = np.diff(offsets)
    record = np.repeat(np.arange(len(counts)), counts)
    columns: list[Offsets] = []
    for dimension, array in enumerate(indices):
        found, numbers = _flat(array)
        if (differ := np.diff(found) != counts).any():
            at = int(differ.argmax())
            message = "there must be one index for each value"
            raise SchemaError(
                message,
                field=name,
                record=at,
                expected=int(counts[at]),
                found=int(np.diff(found)[at]),
            )
        if size is not None:
            outside = (numbers < 0) | (numbers >= size[dimension])
            if outside.any():
                at = int(outside.argmax())
                message = f"an index is outside the size {list(size)}"
                raise SchemaError(
                    message, field=name, record=int(record[at]), found=int(numbers[at])
                )
        columns.append(numbers)
    if not already_sorted:
        order = np.lexsort([*reversed(columns), record])
        columns = [column[order] for column in columns]
        flat = flat.take(pa.array(order))
    together = pa.array(np.stack(columns, axis=1).reshape(-1), pa.int64())
    if len(columns) > 1:
        together = pa.FixedSizeListArray.from_arrays(together, len(columns))
    parts = [join(offsets, together), join(offsets, flat)]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(parts, names=["indices", "values"], mask=mask)
