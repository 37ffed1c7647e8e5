"""Arrow batches as dicts of NumPy arrays, of which every one can be written to.

| column | in a batch of n records |
|---|---|
| numbers, truth values | `[n]` |
| complex numbers | `[n, …]` of complex64 or complex128 |
| bfloat16 | `[n, …]` of uint16, its bits; `Loader.torch` and `Loader.jax` make their own bfloat16 of them |
| fixed-size lists, tensors | `[n, …]`; of text and bytes `object[n, …]` |
| lists | `ragged="offsets"`: a tuple `(values, offsets)`, record i has `values[offsets[i]:offsets[i+1]]`; lists of lists `(values, inner offsets, outer offsets)`; `"pad"`: `[n, longest, …]` filled up with zeros; `"list"`: a list of arrays |
| text, bytes | `object[n]` of str and bytes (NumPy's own text drops zeros at the end) |
| class labels (dictionaries) | `[n]` of numbers of classes |
| structs | a dict of its fields |
| dates, times | `datetime64[n]`, `timedelta64[n]` |
| all else | `object[n]` of Python's values |

A missing list is an empty one. A missing number has no NumPy value: it is an error that names the
record, unless `fill` says what stands for it. Missing text, bytes and others are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError
from penstock.formats.dtypes import BFLOAT16, bits
from penstock.lending import whole
from penstock.types import DTYPE_KEY, is_bytes

RAGGED = ("offsets", "pad", "list")


def as_arrays(
    batch: pa.RecordBatch,
    ragged: str | Mapping[str, str] = "offsets",
    fill: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The columns of a batch by name; see the table of this module."""
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        way = ragged if isinstance(ragged, str) else ragged.get(name, "offsets")
        try:
            array = _as_array(column, way, (fill or {}).get(name))
        except SchemaError as error:
            raise error.at(field=name) from None
        named = (batch.schema.field(name).metadata or {}).get(DTYPE_KEY)
        found[name] = array if named is None else _of_dtype(array, named.decode("utf-8", "replace"))
    return found


def _of_dtype(array: Any, named: str) -> Any:
    """Pairs of floats as complex numbers, and the bits of bfloat16 marked as such; see `DTYPE_KEY`."""
    if not isinstance(array, np.ndarray):
        return array
    if named == BFLOAT16 and array.dtype == np.uint16:
        return array.view(bits(array.dtype, BFLOAT16))
    parts = {"complex64": np.float32, "complex128": np.float64}.get(named)
    if array.dtype == parts and array.shape[-1:] == (2,):
        return np.ascontiguousarray(array).view(named)[..., 0]
    return array


def _as_array(array: pa.Array, ragged: str, fill: Any) -> Any:
    type_ = array.type
    if isinstance(type_, pa.FixedShapeTensorType):
        values = _filled(array.storage, fill)
        shape = (len(array), *type_.shape)
        tensor = _values(values.flatten(), fill).reshape(shape)
        order = type_.permutation
        return tensor if order is None else tensor.transpose(0, *(1 + np.argsort(order)))
    if isinstance(type_, pa.BaseExtensionType):
        if hasattr(type_, "value_type") and type_.extension_name == "arrow.variable_shape_tensor":
            return _tensors(array.storage)
        return _as_array(whole(array).storage, ragged, fill)
    if pa.types.is_dictionary(type_):
        return _flat(array.indices, fill)
    if _is_flat(type_):
        return _flat(array, fill)
    if pa.types.is_fixed_size_list(type_):
        return _fixed(array, fill)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _ragged(array, ragged, fill)
    if pa.types.is_struct(type_):
        fields = zip(type_, array.flatten(), strict=True)
        return {field.name: _as_array(column, ragged, fill) for field, column in fields}
    return _objects(array)


def _is_flat(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    return any(is_kind(type_) for is_kind in kinds) and not pa.types.is_interval(type_)


def _filled(array: pa.Array, fill: Any) -> pa.Array:
    """An array without nulls, or an error that names the first."""
    if not array.null_count:
        return array
    if fill is None:
        missing = array.is_null()
        record = missing.index(True).as_py()
        raise SchemaError(
            "a value is missing, and NumPy's numbers cannot say so",
            record=record,
            hint="fill={name: value}, or a default in the schema of open",
        )
    if pa.types.is_nested(array.type):
        raise SchemaError("fill= stands for numbers, not for lists")
    return array.fill_null(fill)


def _flat(array: pa.Array, fill: Any) -> np.ndarray:
    """Numbers as an array of one's own."""
    array = _filled(array, fill)
    if pa.types.is_boolean(array.type):
        array, dtype = array.cast(pa.uint8()), np.dtype(bool)
    elif pa.types.is_temporal(array.type):
        return np.array(array.to_numpy(zero_copy_only=False))
    else:
        dtype = np.dtype(array.type.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize).copy()


def _fixed(array: pa.Array, fill: Any) -> Any:
    shape = [len(array)]
    while pa.types.is_fixed_size_list(array.type):
        shape.append(array.type.list_size)
        array = _filled(array, None).flatten()
    return _values(array, fill).reshape(shape)


def _values(array: pa.Array, fill: Any) -> np.ndarray:
    """What fixed-size lists and tensors are made of, one after another: numbers, or else objects."""
    return _flat(array, fill) if _is_flat(array.type) else _objects(array)


def _ragged(array: pa.Array, ragged: str, fill: Any) -> Any:
    if ragged not in RAGGED:
        raise ValueError(f"ragged={ragged!r} is not one of {', '.join(RAGGED)}")
    levels: list[np.ndarray] = []
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets, array = _offsets(array)
        levels.append(offsets)
    inner = _as_array(array, ragged, fill)
    if not isinstance(inner, np.ndarray):
        raise SchemaError("lists of lists and structs mixed have no arrays; use map or columns")
    if ragged == "offsets":
        return (inner, *reversed(levels))
    if ragged == "list":
        pieces: Any = inner
        for offsets in reversed(levels):
            pieces = [pieces[a:b] for a, b in pairwise(offsets)]
        return pieces
    for offsets in reversed(levels):
        inner = _padded(inner, offsets)
    return inner


def _offsets(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Where each list begins, from 0, and the values of all; a missing list is empty."""
    if array.null_count:
        lengths = array.value_lengths().fill_null(0)
        counts = np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), array.flatten()
    found = array.offsets
    dtype = np.dtype(np.int64 if pa.types.is_int64(found.type) else np.int32)
    data = found.buffers()[1]
    offsets = np.frombuffer(data, dtype, len(found), found.offset * dtype.itemsize)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets.astype(np.int64) - first, array.values.slice(first, last - first)


def _padded(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    counts = np.diff(offsets)
    longest = int(counts.max(initial=0))
    nothing = None if values.dtype == object else 0
    padded = np.full((len(counts), longest, *values.shape[1:]), nothing, values.dtype)
    padded[np.arange(longest) < counts[:, None]] = values
    return padded


def _tensors(storage: pa.StructArray) -> list[np.ndarray | None]:
    """Tensors of different shapes: an array for each record."""
    offsets, values = _offsets(storage.field("data"))
    flat = _values(values, None)
    shapes = storage.field("shape").to_pylist()
    return [
        None if shape is None else flat[a:b].reshape(shape)
        for shape, a, b in zip(shapes, offsets[:-1], offsets[1:], strict=True)
    ]


def _objects(array: pa.Array) -> np.ndarray:
    found = np.empty(len(array), object)
    found[:] = _core.bytes_list(array) if is_bytes(array.type) else array.to_pylist()
    return found
