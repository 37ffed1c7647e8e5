"""Converts values to a form in which equal values have equal bytes, whatever their Arrow type was.

| values | form |
|---|---|
| integers, booleans, times and durations (as counts of their unit) | int64; uint64 for unsigned |
| floats | float64, with one NaN and without -0.0 |
| texts, bytes, images, the names of labels | bytes |
| tensors, lists of any kind, maps | lists |
| structs | structs whose fields have numbers as names |

So int32 5 equals int64 5, and a text equals its UTF-8 bytes. An integer never equals a float: 5 is not 5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from penstock.columns.lending import whole
from penstock.columns.types import IN_PARTS, is_list, is_text
from penstock.errors import SchemaError

_kinds = pa.types


def canonical(batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return columns of a batch in canonical form, named by their position.

    Raises:
        SchemaError: a column has a type that has no canonical form.
    """
    names = batch.schema.names
    places = range(len(names)) if columns is None else map(names.index, columns)
    made: list[pa.Array] = []
    for place in places:
        try:
            made.append(_values(batch.column(place)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            message = f"values of type {batch.column(place).type} cannot be compared: {error}"
            raise SchemaError(message, field=names[place]) from None
    return pa.RecordBatch.from_arrays(made, names=[str(number) for number in range(len(made))])


def _values(array: Any) -> Any:
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _values(whole(array) if type_.storage_type == IN_PARTS else array.storage)
    if _kinds.is_dictionary(type_):
        return _values(array.cast(type_.value_type))
    if _kinds.is_floating(type_):
        return _floats(array)
    if _kinds.is_map(type_):
        array = array.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
    if is_list(array.type):
        return _lists(array)
    if _kinds.is_struct(type_):
        return _structs(array)
    return _scalars(array)


def _scalars(array: Any) -> Any:
    type_ = array.type
    if _kinds.is_null(type_) or type_ in (pa.int64(), pa.uint64(), pa.binary(), pa.large_binary()):
        return array
    if _kinds.is_decimal(type_):
        return array.cast(pa.string()).cast(pa.binary())
    if _kinds.is_large_string(type_):
        return array.cast(pa.large_binary())
    if is_text(type_) or type_ == pa.binary_view() or _kinds.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    return _integers(array)


def _integers(array: Any) -> Any:
    type_ = array.type
    if _kinds.is_unsigned_integer(type_):
        return array.cast(pa.uint64())
    if _kinds.is_date32(type_) or _kinds.is_time32(type_):
        return array.cast(pa.int32()).cast(pa.int64())
    if _kinds.is_integer(type_) or _kinds.is_boolean(type_) or _kinds.is_temporal(type_):
        return array.cast(pa.int64())
    raise pa.ArrowNotImplementedError("no rule for this type")


def _floats(array: Any) -> Any:
    if _kinds.is_float16(array.type):
        array = array.cast(pa.float32())
    wide = compute.add(array.cast(pa.float64()), 0.0)  # -0.0 + 0.0 is 0.0
    is_nan = compute.is_nan(wide)
    if not compute.any(is_nan).as_py():
        return wide
    return compute.if_else(is_nan, pa.scalar(float("nan"), pa.float64()), wide)


def _lists(array: Any) -> Any:
    """Return the lists with canonical values. Offsets and nulls stay as they are."""
    if _kinds.is_list_view(array.type) or _kinds.is_large_list_view(array.type):
        return _list_views(array)
    values = _values(array.values)
    made: Any = pa.list_(values.type)
    if _kinds.is_large_list(array.type):
        made = pa.large_list(values.type)
    elif _kinds.is_fixed_size_list(array.type):
        made = pa.list_(values.type, array.type.list_size)
    buffers = array.buffers()[: 1 if _kinds.is_fixed_size_list(made) else 2]
    return pa.Array.from_buffers(made, len(array), buffers, offset=array.offset, children=[values])


def _list_views(array: Any) -> Any:
    lengths = compute.fill_null(compute.list_value_length(array), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = _values(array.flatten())
    return pa.LargeListArray.from_arrays(offsets, values, mask=array.is_null())


def _structs(array: Any) -> Any:
    fields = [_values(array.field(number)) for number in range(array.type.num_fields)]
    names = [str(number) for number in range(len(fields))]
    return pa.StructArray.from_arrays(fields, names, mask=array.is_null())
