"""Converts batches to Python records, like Arrow's `to_pylist`, but with tensors as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_fixed_tensor, is_list, is_variable_tensor


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The records of a batch, one dict each."""
    names = batch.schema.names
    columns = [_values_of(column) for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values_of(column: Any) -> list[Any]:
    """The values of a column, with None for nulls. NumPy arrays are copies."""
    type_ = column.type
    if not has_tensors(type_):
        return column.to_pylist()
    if is_fixed_tensor(type_):
        return _fixed(column)
    if is_variable_tensor(type_):
        return _variable(column.storage)
    if pa.types.is_struct(type_):
        return _structs(column)
    inner, at, found = _values_of(column.flatten()), 0, list[Any]()
    for length in column.value_lengths().to_pylist():
        found.append(None if length is None else inner[at : at + length])
        at += length or 0
    return found


def _structs(column: Any) -> list[dict[str, Any] | None]:
    names = [field.name for field in column.type]
    if len(set(names)) < len(names):
        raise ValueError("two fields of a struct have the same name")
    rows = zip(*(_values_of(field) for field in column.flatten()), strict=True)
    pairs = zip(rows, column.is_valid().to_pylist(), strict=True)
    return [dict(zip(names, row, strict=True)) if there else None for row, there in pairs]


def has_tensors(type_: Any) -> bool:
    """Whether values of a type are tensors, or lists or structs of them."""
    if is_fixed_tensor(type_) or is_variable_tensor(type_):
        return True
    if is_list(type_):
        return has_tensors(type_.value_type)
    if pa.types.is_struct(type_):
        return any(has_tensors(field.type) for field in type_)
    return False


def _fixed(column: Any) -> list[np.ndarray | None]:
    type_, storage = column.type, column.storage
    size = storage.type.list_size
    flat = _flat(storage.values.slice(storage.offset * size, len(storage) * size))
    tensors = flat.reshape(len(storage), *type_.shape)
    if type_.permutation is not None:
        tensors = tensors.transpose(0, *(1 + np.argsort(type_.permutation)))
    if not storage.null_count:
        return [tensor.copy() for tensor in tensors]
    pairs = zip(tensors, storage.is_valid().to_pylist(), strict=True)
    return [tensor.copy() if there else None for tensor, there in pairs]


def _variable(storage: Any) -> list[np.ndarray | None]:
    data, shapes = storage.flatten()
    flat, at, found = _flat(data.flatten()), 0, list[Any]()
    lengths = data.value_lengths().to_pylist()
    for shape, length in zip(shapes.to_pylist(), lengths, strict=True):
        length = length or 0
        found.append(None if shape is None else flat[at : at + length].reshape(shape).copy())
        at += length
    return found


def _flat(values: Any) -> np.ndarray:
    """Consecutive values as one array. Its dtype is object if the values are bytes or texts or contain nulls."""
    type_ = values.type
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if (is_number or pa.types.is_boolean(type_)) and not values.null_count:
        return values.to_numpy(zero_copy_only=False)
    found = np.empty(len(values), object)
    found[:] = values.to_pylist()
    return found
