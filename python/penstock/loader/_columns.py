"""Converts Arrow batches to dicts of writable NumPy arrays.

| column | in a batch of n records |
|---|---|
| numbers, booleans | `[n]` |
| complex numbers | `[n, …]` of complex64 or complex128 |
| bfloat16 | `[n, …]` of uint16, its bits; `Loader.torch` and `Loader.jax` convert them to bfloat16 |
| fixed-size lists, tensors | `[n, …]`, with text and bytes as `object[n, …]` |
| lists | `ragged="offsets"`: a tuple `(values, offsets)`, record i has `values[offsets[i]:offsets[i+1]]`; lists of lists `(values, inner offsets, outer offsets)`; `"pad"`: `[n, longest, …]` filled up with zeros, or `[n, length, …]` with `pad_to=`; `"list"`: a list of arrays |
| text, bytes | `object[n]` of str and bytes (NumPy's own text type drops trailing zeros) |
| class labels (dictionaries of names) | int64[n], indices into `Loader.class_names` |
| dictionaries of more than 65,536 names, or of other values | their values |
| structs | a dict of their fields |
| lists of structs | a dict of their fields, each as if it were a column of lists; they share one array of offsets |
| dates, times | `datetime64[n]`, `timedelta64[n]` |
| everything else | `object[n]` of Python values |

A missing list becomes an empty list. A missing number is an error that names the record, unless `fill` gives a
replacement; it also fills missing lists of fixed size, and missing tensors. Missing text and bytes become None, or what
`fill` gives as str or bytes. Other missing values become None.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.lending import whole
from penstock.columns.types import DTYPE_KEY, is_bytes, is_text
from penstock.errors import SchemaError
from penstock.formats.numpy.dtypes import BFLOAT16, bits
from penstock.loader._fill import UNFIT, fitted, type_at, usual
from penstock.loader._padding import ArrayOptions, ColumnOptions, has_offsets, is_tensor
from penstock.loader.padding import Pad

_MISSING = "a value is missing, and NumPy's numbers have no missing values"


def as_arrays(batch: pa.RecordBatch, options: ArrayOptions) -> dict[str, Any]:
    """Convert the columns of a batch to arrays, by name, as the table of this module describes."""
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            put(found, name, _as_array(column, options.of(name)))
        except SchemaError as error:
            error.at(field=name)
            value = usual(type_at(batch.schema, error.field or name))
            if error.message == _MISSING:
                error.hint = f"columns= without it, or fill={{{error.field!r}: {value!r}}}"
            elif error.message.endswith(UNFIT):
                error.hint = f"fill={{{error.field!r}: {value!r}}}"
            raise error from None
        dtype = (batch.schema.field(name).metadata or {}).get(DTYPE_KEY)
        if dtype is not None:
            found[name] = _of_dtype(found[name], dtype.decode("utf-8", "replace"))
    return found


class _Padded(NamedTuple):
    """Padded lists, and what `Pad` adds for them."""

    array: np.ndarray
    mask: np.ndarray | None
    lengths: np.ndarray | None


def put(found: dict[str, Any], name: str, value: Any) -> None:
    """Add a column to a batch, and the columns that `Pad` adds."""
    if not isinstance(value, _Padded):
        found[name] = value
        return
    found[name] = value.array
    if value.mask is not None:
        found[f"{name}_mask"] = value.mask
    if value.lengths is not None:
        found[f"{name}_length"] = value.lengths


def _of_dtype(array: Any, dtype: str) -> Any:
    """Convert pairs of floats to complex numbers, and bfloat16 bits to a marked dtype. See `DTYPE_KEY`."""
    if not isinstance(array, np.ndarray):
        return array
    if dtype == BFLOAT16 and array.dtype == np.uint16:
        return array.view(bits(array.dtype, BFLOAT16))
    parts = {"complex64": np.float32, "complex128": np.float64}.get(dtype)
    if array.dtype == parts and array.shape[-1:] == (2,):
        return np.ascontiguousarray(array).view(dtype)[..., 0]
    return array


def _as_array(array: Any, how: ColumnOptions) -> Any:
    type_ = array.type
    if isinstance(type_, pa.FixedShapeTensorType):
        return _tensor(array, how.fill)
    if isinstance(type_, pa.BaseExtensionType):
        return _tensors(array.storage) if is_tensor(type_) else _as_array(whole(array).storage, how)
    if pa.types.is_fixed_size_list(type_):
        return _fixed(array, how.fill)
    if has_offsets(type_):
        return _ragged(array, how, [])
    if pa.types.is_struct(type_):
        return _fields(array, how, [])
    return _values(array, how.fill)


class Structs(dict[str, Any]):
    """The fields of lists of structs in a batch. `depth` is how many lists are around a struct."""

    def __init__(self, fields: dict[str, Any], depth: int) -> None:
        super().__init__(fields)
        self.depth = depth

    def __reduce__(self) -> tuple[type[Structs], tuple[dict[str, Any], int]]:
        return Structs, (dict(self), self.depth)


def _fields(array: Any, how: ColumnOptions, levels: list[np.ndarray]) -> dict[str, Any]:
    """Convert each field of structs like a column. `levels`: the starts of the lists around the structs, outermost
    first; all fields share them."""
    found: dict[str, Any] = {}
    for field, column in zip(array.type, array.flatten(), strict=True):
        inside = how.field(field.name)
        try:
            is_listed = len(levels) > 0
            value = _ragged(column, inside, levels) if is_listed else _as_array(column, inside)
            put(found, field.name, value)
        except SchemaError as error:
            raise error.at(field=inside.path) from None
    return Structs(found, len(levels)) if levels else found


def _is_flat(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    return any(is_kind(type_) for is_kind in kinds) and not pa.types.is_interval(type_)


def _filled(array: pa.Array, fill: Any) -> pa.Array:
    """Replace the nulls of an array, or raise an error that names the first null."""
    if not array.null_count:
        return array
    if fill is None:
        raise SchemaError(_MISSING, record=array.is_null().index(True).as_py())
    return array.fill_null(fitted(fill, array.type))


def _slots(array: Any, fill: Any) -> pa.Array:
    """The values of fixed-size lists, null in missing lists. If `fill` is None, a missing list is an error."""
    if not array.null_count:
        return array.flatten()
    if fill is None:
        raise SchemaError(_MISSING, record=array.is_null().index(True).as_py())
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    missing = np.repeat(array.is_null().to_numpy(zero_copy_only=False), size)
    return values.take(pa.array(np.arange(len(values)), mask=missing))


def _flat(array: pa.Array, fill: Any) -> np.ndarray:
    array = _filled(array, fill)
    if pa.types.is_boolean(array.type):
        array, dtype = array.cast(pa.uint8()), np.dtype(bool)
    elif pa.types.is_temporal(array.type):
        try:
            return np.array(array.to_numpy(zero_copy_only=False))
        except (pa.ArrowInvalid, OverflowError) as error:
            raise _no_value(error) from None
    else:
        dtype = np.dtype(array.type.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize).copy()


def _tensor(array: Any, fill: Any) -> Any:
    type_ = array.type
    values = _slots(array.storage, fill)
    try:
        tensor = _values(values, fill).reshape(len(array), *type_.shape)
    except SchemaError as error:
        raise of_record(error, prod(type_.shape)) from None
    order = type_.permutation
    return tensor if order is None else tensor.transpose(0, *(1 + np.argsort(order)))


def _fixed(array: Any, fill: Any) -> Any:
    shape = [len(array)]
    try:
        while pa.types.is_fixed_size_list(array.type):
            values = _slots(array, fill)
            shape.append(array.type.list_size)
            array = values
        return _values(array, fill).reshape(shape)
    except SchemaError as error:
        raise of_record(error, prod(shape[1:])) from None


def _values(array: pa.Array, fill: Any) -> np.ndarray:
    if pa.types.is_dictionary(array.type):
        return _flat(array.indices, fill)
    if _is_flat(array.type):
        return _flat(array, fill)
    # The `fill` of a struct may be a number, which its texts do not take.
    is_fitting = is_text if isinstance(fill, str) else is_bytes
    if isinstance(fill, (str, bytes)) and is_fitting(array.type):
        array = _filled(array, fill)
    return _objects(array)


def _ragged(array: Any, how: ColumnOptions, outer: list[np.ndarray]) -> Any:
    """Lists as arrays. `outer`: the starts of the lists around them, outermost first."""
    levels = list(outer)
    array = _stored(array)
    while has_offsets(array.type):
        offsets, values = _offsets(array)
        levels.append(offsets)
        array = _stored(values)
    if pa.types.is_struct(array.type):
        return _fields(array, how, levels)
    try:
        values = _as_array(array, how)
    except SchemaError as error:
        raise of_record(error, *reversed(levels)) from None
    if not isinstance(values, np.ndarray):
        raise SchemaError(
            "lists of tensors of several shapes cannot become arrays; use decode=, or columns= without this column"
        )
    if how.is_padded:
        return padded_levels(values, levels, how)
    if how.ragged == "offsets":
        return (values, *reversed(levels))
    pieces: Any = values
    for offsets in reversed(levels):
        pieces = [pieces[a:b] for a, b in pairwise(offsets)]
    return pieces


def _stored(array: Any) -> Any:
    is_plain = not isinstance(array.type, pa.BaseExtensionType) or is_tensor(array.type)
    return array if is_plain else _stored(whole(array).storage)


def padded_levels(values: np.ndarray, levels: list[np.ndarray], how: ColumnOptions) -> Any:
    pad = how.pad
    array = _filled_up(values, levels, how, pad.value)
    real = how.given.real
    if real is not None and pad != Pad():
        # Records that only fill the batch have no values.
        array[~real] = 0 if pad.value is None and array.dtype != object else pad.value
    if not (pad.mask or pad.lengths):
        return array
    mask = _filled_up(np.ones(len(values), bool), levels, how, False) if pad.mask else None
    lengths = np.minimum(np.diff(levels[0]), array.shape[1]) if pad.lengths else None
    for added in (mask, lengths):
        if real is not None and added is not None:
            added[~real] = 0
    return _Padded(array, mask, lengths)


def _filled_up(
    values: np.ndarray, levels: list[np.ndarray], how: ColumnOptions, value: Any
) -> np.ndarray:
    lengths = how.lengths or (None,) * len(levels)
    for depth in reversed(range(len(levels))):
        try:
            truncate, is_left = how.given.truncate, how.pad.side == "left"
            values = _padded(values, levels[depth], lengths[depth], truncate, value, is_left)
        except SchemaError as error:
            raise of_record(error, *reversed(levels[:depth])) from None
    return values


def of_record(error: SchemaError, *levels: Any) -> SchemaError:
    """Change the `record` of an error from the index of a value in lists to the index of the record that holds it.
    `levels`, innermost first: the starts of all lists, int64[lists + 1], or the length that all lists have."""
    for level in levels:
        if error.record is not None:
            if isinstance(level, int):
                error.record //= max(level, 1)
            else:
                error.record = int(np.searchsorted(level, error.record, "right")) - 1
    return error


def list_parts(array: Any) -> tuple[np.ndarray, Any]:
    """The start of each list, int64[n + 1], and all values. A missing fixed-size list is an error."""
    if not pa.types.is_fixed_size_list(array.type):
        return _offsets(array)
    starts = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
    return starts, _slots(array, None)


def _offsets(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The start of each list, counted from 0, and all values; a missing list is empty."""
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


def _padded(
    values: np.ndarray,
    offsets: np.ndarray,
    length: int | None,
    truncate: bool,
    value: Any,
    is_left: bool,
) -> np.ndarray:
    """Pad lists with a value (None: zero) to rows of `length`, or of the longest list's length if that is None."""
    counts = np.diff(offsets)
    longest = int(counts.max(initial=0))
    if length is None:
        length = longest
    elif longest > length:
        if not truncate:
            record = int(np.argmax(counts > length))
            raise SchemaError(
                f"a list of {counts[record]} values does not fit pad_to",
                record=record,
                expected=f"at most {length} values",
                hint="a larger pad_to=, or truncate=True to shorten longer lists",
            )
        values = values[np.arange(len(values)) - np.repeat(offsets[:-1], counts) < length]
        counts = np.minimum(counts, length)
    nothing = 0 if value is None and values.dtype != object else value
    padded = np.full((len(counts), length, *values.shape[1:]), nothing, values.dtype)
    places = np.arange(length)[::-1] if is_left else np.arange(length)
    padded[places < counts[:, None]] = values
    return padded


def _tensors(storage: pa.StructArray) -> list[np.ndarray | None]:
    offsets, values = _offsets(storage.field("data"))
    try:
        flat = _values(values, None)
    except SchemaError as error:
        raise of_record(error, offsets) from None
    shapes = storage.field("shape").to_pylist()
    return [
        None if shape is None else flat[a:b].reshape(shape)
        for shape, a, b in zip(shapes, offsets[:-1], offsets[1:], strict=True)
    ]


def _objects(array: pa.Array) -> np.ndarray:
    found = np.empty(len(array), object)
    try:
        found[:] = _core.bytes_list(array) if is_bytes(array.type) else array.to_pylist()
    except (pa.ArrowInvalid, OverflowError, ValueError) as error:
        raise _no_value(error) from None
    return found


def _no_value(error: Exception) -> SchemaError:
    message = f"neither Python nor NumPy can hold a value: {error}"
    return SchemaError(message, hint="leave the column out: columns=[...]")
