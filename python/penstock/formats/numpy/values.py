"""Converts Arrow columns to NumPy arrays for writing: the reverse of `dtypes.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError
from penstock.formats.numpy.dtypes import NOT_A_TIME, without_sub_array


def values_of(array: Any, dtype: np.dtype[Any], name: str) -> np.ndarray:
    """Convert a column to an array of `dtype`, which `dtype_of` returned; a sub-array becomes further axes. Raise
    SchemaError if a value is missing or does not fit; its `record` counts from the start of the column."""
    base, shape = without_sub_array(dtype)
    count = len(array)
    if base.kind in "mM" and not shape:
        width = np.int32 if array.type == pa.date32() else np.int64
        found = _numbers(array, np.dtype(width)).astype(np.int64)
        if array.null_count:
            found[missing_of(array)] = NOT_A_TIME
        return found.view(base)
    if array.null_count:
        record = int(np.flatnonzero(missing_of(array))[0])
        raise _missing("the value is null, and an array cannot hold nulls", record, name)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if shape:
        return _flat(array, base, name).reshape(count, *shape)
    if base.kind == "c" or pa.types.is_fixed_size_list(array.type):  # a tensor without axes
        return _flat(array, base, name).reshape(count)
    return _plain_values(array, base, name)


def _missing(message: str, record: int, name: str) -> SchemaError:
    return SchemaError(
        message, record=record, field=name, hint="fill it, or write Parquet or Arrow"
    )


def _flat(array: Any, base: np.dtype[Any], name: str) -> np.ndarray:
    per_record = 1
    while pa.types.is_fixed_size_list(array.type):
        per_record *= array.type.list_size
        array = array.values.slice(
            array.offset * array.type.list_size, len(array) * array.type.list_size
        )
        if array.null_count:
            first = int(np.flatnonzero(missing_of(array))[0])
            message = "a value in a list is null, and an array cannot hold nulls"
            raise _missing(message, first // max(per_record, 1), name)
    if base.kind == "c":
        part = np.dtype(f"<f{base.itemsize // 2}")
        return _plain_values(array, part, name).view(base)
    return _plain_values(array, base, name)


def _plain_values(array: Any, dtype: np.dtype[Any], name: str) -> np.ndarray:
    if dtype.names is not None:
        return _structs(array, dtype, name)
    if dtype.kind == "V":
        width = dtype.itemsize
        found = np.zeros(len(array), dtype)
        if width:
            data = (
                np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.zeros(0, np.uint8)
            )
            start = array.offset * width
            found = data[start : start + len(array) * width].view(dtype)
        return found
    if dtype.kind in "SU":
        return _fixed_text(array, dtype, name)
    if dtype.kind in "mM":
        return values_of(array, dtype, name)
    if dtype.kind == "b":
        return _set(array.buffers()[1], array.offset, len(array))
    return _numbers(array, dtype)


def _numbers(array: Any, dtype: np.dtype[Any]) -> np.ndarray:
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def _set(bits_: Any, start: int, count: int) -> np.ndarray:
    """Return some bits as booleans."""
    if bits_ is None or not count:
        return np.zeros(count, bool)
    found = np.unpackbits(np.frombuffer(bits_, np.uint8), count=start + count, bitorder="little")
    return found[start:].view(bool)


def missing_of(array: Any) -> np.ndarray:
    """Return which values are null."""
    return ~_set(array.buffers()[0], array.offset, len(array))


def _structs(array: Any, dtype: np.dtype[Any], name: str) -> np.ndarray:
    found = np.zeros(len(array), dtype)
    assert dtype.names is not None
    assert dtype.fields is not None
    for n, field in enumerate(dtype.names):
        child = array.field(n)
        found[field] = values_of(child, dtype[field], f"{name}.{field}")
    return found


def _fixed_text(array: Any, dtype: np.dtype[Any], name: str) -> np.ndarray:
    width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    found: list[Any] = array.to_pylist()
    for record, value in enumerate(found):
        if len(value) > width:
            message = f"a value of length {len(value)} exceeds text_length={width}"
            raise SchemaError(message, record=record, field=name)
        if value and value[-1] in ("\0", 0):
            message = "a value ends in a NUL, which NumPy's text cannot hold"
            raise SchemaError(message, record=record, field=name)
    return np.array(found, dtype)
