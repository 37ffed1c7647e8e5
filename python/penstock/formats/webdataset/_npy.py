"""Converts columns of npy files, one file per record, to arrays and back. If all records of a batch have the same
header and size, they are decoded together. Only arrays of numbers are read, and nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import rounds
from penstock.columns.casts import fitted
from penstock.columns.numbers import as_arrow
from penstock.columns.types import (
    VariableShapeTensorType,
    fixed_tensors,
    is_fixed_tensor,
    is_variable_tensor,
)
from penstock.errors import FormatError, PenstockError, SchemaError
from penstock.formats.numpy.dtypes import name_of_bits
from penstock.formats.numpy.npy_header import Header, header_bytes, parse_header

_MOST_HEADER = 4096
_MOST_VALUES = (1 << 31) - 1
_MOST_AXES = 32
_KEPT_HEADERS = 4096


def header_of(data: bytes) -> Header | None:
    """Return the header of an npy file. None if the data is not an npy file, or its values are not numbers."""
    if len(data) < 12:
        return None
    prefix = 10 if data[6] == 1 else 12
    start = prefix + int.from_bytes(data[8:prefix], "little")
    return None if start > min(len(data), _MOST_HEADER) else _known(data[:start])


@lru_cache(_KEPT_HEADERS)
def _known(front: bytes) -> Header | None:
    try:
        header = parse_header(lambda start, length: front[start : start + length])
    except PenstockError:
        return None
    if header.dtype.kind not in "biuf" or name_of_bits(header.dtype) is not None:
        return None
    fits = len(header.shape) <= _MOST_AXES and header.num_values <= _MOST_VALUES
    return header if fits else None


def type_of(headers: Sequence[Header | None]) -> Any:
    """Return the type of a column from the headers of its first records. If they agree, it is a number or a fixed-shape
    tensor. If only the shapes differ, it is a variable-shape tensor. Otherwise, it is bytes."""
    known = [header for header in headers if header is not None]
    kinds = {(header.dtype.kind, len(header.shape)) for header in known}
    if len(kinds) != 1 or len(known) < len(headers):
        return pa.binary()
    dtypes = {header.dtype.newbyteorder("=") for header in known}
    value = pa.from_numpy_dtype(np.result_type(*dtypes))
    shape, *others = {header.shape for header in known}
    if others:
        return VariableShapeTensorType(value, len(shape))
    return pa.fixed_shape_tensor(value, shape) if shape else value


def column(values: Any, type_: Any, exact: bool = False) -> Any:
    """Convert npy files (binary; nulls stay nulls) to values of a type. With `exact`, rounding is an error. Raise
    SchemaError or FormatError, which name the row, if a value is not an array or does not fit the type."""
    there = values.is_valid()
    full = values.drop_null() if values.null_count else values
    found = _stacked(full, type_, exact)
    if found is None:
        rows = np.flatnonzero(there.to_numpy(zero_copy_only=False))
        arrays = [_array(data, int(row)) for data, row in zip(full.to_pylist(), rows, strict=True)]
        if exact:
            _check_exact(arrays, rows, type_)
        found = _joined(arrays, rows, type_)
    if not values.null_count:
        return found
    valid = there.to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, found.storage.take(places))
    return found.take(places)


def _check_exact(arrays: list[np.ndarray], rows: np.ndarray, type_: Any) -> None:
    wanted = _number_type(type_)
    for array, row in zip(arrays, rows, strict=True):
        if rounds(pa.from_numpy_dtype(array.dtype), wanted):
            raise SchemaError(
                f"an array of {array.dtype} would be rounded to the type of the first records",
                record=int(row),
                expected=wanted,
                found=array.dtype,
                hint='open(..., infer_records="all"), or schema= with the wider type',
            )


def _number_type(type_: Any) -> pa.DataType:
    """Return the type of the numbers in arrays of this type."""
    while isinstance(type_, pa.BaseExtensionType) or pa.types.is_nested(type_):
        type_ = type_.value_type
    return type_


def _stacked(values: Any, type_: Any, exact: bool) -> Any:
    """Convert all arrays together if they share one header and size, and fit the type. Otherwise return None."""
    if not len(values):
        return None
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    size = int(offsets[1] - offsets[0])
    if (np.diff(offsets) != size).any():
        return None
    rows = data[offsets[0] : offsets[-1]].reshape(len(values), size)
    header = header_of(rows[0].tobytes())
    if header is None or header.shape != _shape_of(type_) or not header.num_values:
        return None
    if size != header.start + header.num_values * header.dtype.itemsize:
        return None
    if exact and rounds(pa.from_numpy_dtype(header.dtype.newbyteorder("=")), _number_type(type_)):
        return None
    if (rows[:, : header.start] != rows[0, : header.start]).any():
        return None
    body = np.ascontiguousarray(rows[:, header.start :]).view(header.dtype)
    if header.fortran_order:
        arrays = body.reshape(len(values), *header.shape[::-1])
        arrays = arrays.transpose(0, *range(arrays.ndim - 1, 0, -1))
    else:
        arrays = body.reshape(len(values), *header.shape)
    return _shaped(np.ascontiguousarray(arrays, header.dtype.newbyteorder("=")), type_)


def _shape_of(type_: Any) -> tuple[int, ...] | None:
    """Return the shape of each value's array, or None if shapes may differ."""
    if is_fixed_tensor(type_):
        return tuple(type_.shape)
    if pa.types.is_fixed_size_list(type_):
        return (type_.list_size,)
    return None if pa.types.is_nested(type_) or is_variable_tensor(type_) else ()


def _shaped(arrays: np.ndarray, type_: Any) -> Any:
    """Convert arrays of one shape, stacked along the first axis, to values of a type."""
    if not arrays.ndim > 1:
        return fitted(as_arrow(arrays), type_)
    value = type_.value_type
    if pa.types.is_fixed_size_list(type_):
        flat = fitted(as_arrow(arrays.ravel()), value)
        return pa.FixedSizeListArray.from_arrays(flat, type=type_)
    tensors = fixed_tensors(arrays)
    storage = tensors.storage
    if storage.type.value_type != value or storage.type != type_.storage_type:
        storage = fitted(storage, type_.storage_type)
    return pa.ExtensionArray.from_storage(type_, storage)


def _array(data: bytes, row: int) -> np.ndarray:
    header = header_of(data)
    if header is None:
        raise FormatError("the contents are not an npy file of numbers", record=row)
    size = header.num_values * header.dtype.itemsize
    if len(data) != header.start + size:
        message = "the npy file does not have as many bytes as its header says"
        raise FormatError(message, record=row, expected=header.start + size, found=len(data))
    flat = np.frombuffer(data, header.dtype, offset=header.start)
    array = flat.reshape(header.shape, order="F" if header.fortran_order else "C")
    return np.asarray(array, header.dtype.newbyteorder("="))


def _joined(arrays: list[np.ndarray], rows: np.ndarray, type_: Any) -> Any:
    """Convert arrays that may differ in shape to values of a type."""
    kind, wanted = pa.types, _shape_of(type_)
    _check_shapes(arrays, rows, type_, wanted)
    value = type_.value_type if wanted != () else type_
    parts = [fitted(pa.array(array.ravel()), value) for array in arrays]
    flat = pa.concat_arrays(parts) if parts else pa.array([], value)
    if wanted == ():
        return flat
    if kind.is_fixed_size_list(type_):
        return _fixed_list(flat, type_, len(arrays))
    if is_fixed_tensor(type_):
        storage = _fixed_list(flat, type_.storage_type, len(arrays))
        return pa.ExtensionArray.from_storage(type_, storage)
    ends = np.cumsum([0, *(array.size for array in arrays)])
    if not is_variable_tensor(type_):
        make = pa.LargeListArray if kind.is_large_list(type_) else pa.ListArray
        width = np.int64 if kind.is_large_list(type_) else np.int32
        return make.from_arrays(pa.array(ends.astype(width)), flat, type=type_)
    return _variable(arrays, flat, ends, type_)


def _check_shapes(
    arrays: list[np.ndarray], rows: np.ndarray, type_: Any, wanted: tuple[int, ...] | None
) -> None:
    levels = type_.num_dimensions if is_variable_tensor(type_) else 1
    for array, row in zip(arrays, rows, strict=True):
        if array.shape != wanted if wanted is not None else array.ndim != levels:
            message = f"an array has the shape {array.shape}, and the schema wants {type_}"
            raise SchemaError(message, record=int(row))


def _fixed_list(flat: Any, type_: Any, count: int) -> Any:
    return pa.FixedSizeListArray.from_buffers(type_, count, [None], children=[flat])


def _variable(arrays: list[np.ndarray], flat: Any, ends: np.ndarray, type_: Any) -> Any:
    fields = type_.storage_type
    offsets = pa.array(ends.astype(np.int32))
    data = pa.ListArray.from_arrays(offsets, flat, type=fields.field("data").type)
    shapes = pa.array(np.array([a.shape for a in arrays], np.int32).reshape(-1))
    shape = _fixed_list(shapes, fields.field("shape").type, len(arrays))
    storage = pa.StructArray.from_arrays([data, shape], fields=list(fields))
    return pa.ExtensionArray.from_storage(type_, storage)


# -- writing --------------------------------------------------------------------------------------


_header = lru_cache(_KEPT_HEADERS)(header_bytes)


def stacked_files(arrays: np.ndarray) -> Any:
    """Convert arrays of one shape, stacked along the first axis, to a binary column of npy files."""
    arrays = np.ascontiguousarray(arrays)
    header = np.frombuffer(_header(arrays.dtype.str, arrays.shape[1:]), np.uint8)
    body = arrays.view(np.uint8).reshape(len(arrays), -1) if arrays.size else None
    size = 0 if body is None else body.shape[1]
    out = np.empty((len(arrays), len(header) + size), np.uint8)
    out[:, : len(header)] = header
    if body is not None:
        out[:, len(header) :] = body
    offsets = np.arange(len(arrays) + 1, dtype=np.int64) * out.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(arrays), buffers)


def files(flat: np.ndarray, ends: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> Any:
    """Convert slices of an array of numbers to a binary column of npy files. `ends` has n + 1 offsets for n slices."""
    data = np.ascontiguousarray(flat).view(np.uint8)
    width = flat.dtype.itemsize
    descr = flat.dtype.str
    parts = [
        _header(descr, shape) + data[int(a) * width : int(b) * width].tobytes()
        for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
    ]
    return pa.array(parts, pa.large_binary())
