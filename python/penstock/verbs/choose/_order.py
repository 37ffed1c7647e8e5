"""The stable order of values: numbers, then NaN, then null, in either direction.

A stable order is unique, so any algorithm may find it. NumPy's plain sort of integers is many times faster than its
stable argsort. Numbers are therefore sorted as integers, each of which combines the rank of a value and its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from penstock.columns.numbers import as_arrow
from penstock.columns.types import is_bytes, is_text
from penstock.errors import SchemaError

_kinds = pa.types
_compute: Any = compute  # Any: its functions are created at import, so they have no types


def order_by(table: pa.Table, *, descending: bool) -> np.ndarray:
    """Return the order of the rows of a table, int64. Rows are sorted by the first column, rows with equal values in it
    by the second column, and so on.

    Raises:
        SchemaError: the values of a column have no order.
    """
    order: np.ndarray | None = None
    # Sorting stably by one column after another, the last column first, gives the order by all columns.
    for name in reversed(table.schema.names):
        values = _plain(table.column(name), name)
        if order is None:
            order = stable_order(values, descending=descending)
        else:
            order = order[stable_order(values.take(as_arrow(order)), descending=descending)]
    assert order is not None, "there is at least one column"
    return order


def _plain(column: pa.ChunkedArray, name: str) -> Any:
    """Return a column as one array of integers, floats or bytes, which sort in the same order as the values."""
    values = _unwrapped(column)
    type_ = values.type
    if is_text(type_) or is_bytes(type_) or _kinds.is_fixed_size_binary(type_):
        values = values.cast(pa.string() if type_ == pa.string_view() else _bytes(type_))
        values = values.cast(pa.large_binary())
    else:
        values = values.cast(_number_type(type_, name))
    return values.combine_chunks()


def _unwrapped(column: pa.ChunkedArray) -> Any:
    """Return the values of a dictionary, and the texts or bytes of an extension type."""
    type_: Any = column.type
    if _kinds.is_dictionary(type_):
        return column.cast(type_.value_type)
    stored = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else None
    if stored is not None and (is_text(stored) or is_bytes(stored)):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], stored)
    return column


def _bytes(type_: pa.DataType) -> pa.DataType:
    is_odd = type_ == pa.binary_view() or _kinds.is_fixed_size_binary(type_)
    return pa.binary() if is_odd else type_


def _number_type(type_: pa.DataType, name: str) -> pa.DataType:
    """Return the type of numbers that have the order of values of this type."""
    if _kinds.is_float16(type_):
        return pa.float32()
    if _kinds.is_boolean(type_) or _kinds.is_null(type_):
        return pa.uint8()
    if _kinds.is_date32(type_) or _kinds.is_time32(type_):
        return pa.int32()
    if _kinds.is_temporal(type_) and not _kinds.is_interval(type_):
        return pa.int64()
    if _kinds.is_integer(type_) or _kinds.is_floating(type_) or _kinds.is_decimal(type_):
        return type_
    hint = "sort by a column of numbers, strings, bytes, times or booleans"
    raise SchemaError(f"values of type {type_} have no order", field=name, hint=hint)


def stable_order(values: Any, *, descending: bool) -> np.ndarray:
    """Return the row numbers of an array in the order of its values, int64."""
    if not (_kinds.is_integer(values.type) or _kinds.is_floating(values.type)):
        order = "descending" if descending else "ascending"
        found = _compute.array_sort_indices(values, order=order, null_placement="at_end")
        return found.to_numpy().astype(np.int64)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    keys = _compute.fill_null(values, 0).to_numpy()
    no_number = np.isnan(keys) & ~missing if keys.dtype.kind == "f" else np.zeros(0, bool)
    if not (values.null_count or no_number.any()):
        return _ordered(keys, descending=descending)
    odd = missing | no_number if len(no_number) else missing
    rows = np.flatnonzero(~odd)
    ends = [np.flatnonzero(no_number), np.flatnonzero(missing)]
    return np.concatenate([rows[_ordered(keys[rows], descending=descending)], *ends])


def _ordered(keys: np.ndarray, *, descending: bool) -> np.ndarray:
    """Return the stable order of numbers that are not NaN."""
    if descending:
        keys = -keys if keys.dtype.kind == "f" else ~keys  # neither overflows
    count = len(keys)
    if not count:
        return np.zeros(0, np.int64)
    is_whole = keys.dtype.kind != "f"
    least, most = (int(keys.min()), int(keys.max())) if is_whole else (0, 0)
    if is_whole and (most - least) << count.bit_length() < 1 << 62:
        wide = keys.astype(np.uint64 if keys.dtype.kind == "u" else np.int64)
        return _by_rank((wide - wide.dtype.type(least)).astype(np.int64), np.arange(count))
    order = np.argsort(keys)
    ordered = keys[order]
    is_next = ordered[1:] != ordered[:-1]
    if is_next.all():
        return order
    return _by_rank(np.concatenate([[0], np.cumsum(is_next)]), order)


def _by_rank(ranks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return row numbers sorted by rank, and those of equal rank in ascending order."""
    bits = len(rows).bit_length()
    both = ranks << bits
    both |= rows
    both.sort()
    both &= (1 << bits) - 1
    return both
