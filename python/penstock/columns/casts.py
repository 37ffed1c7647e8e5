"""Casts columns, and refuses to change a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.numbers import as_arrow
from penstock.columns.types import cast_values, is_bytes, is_fixed_tensor, is_list, is_text


def map_values(
    given: pa.DataType, value: Callable[[pa.DataType], pa.DataType | None]
) -> pa.DataType | None:
    """The list type with `value` applied to its innermost value type. None if `value` returns None, or if the type is
    or contains a list view. An extension type is treated as its storage type."""
    types = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return map_values(given.storage_type, value)
    if not (types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)):
        is_view = types.is_list_view(given) or types.is_large_list_view(given)
        return None if is_view else value(given)
    inner = map_values(given.value_type, value)
    if inner is None:
        return None
    if inner == given.value_type:
        return given
    if types.is_fixed_size_list(given):
        return pa.list_(inner, given.list_size)
    return pa.large_list(inner) if types.is_large_list(given) else pa.list_(inner)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds all values of both types exactly. None if there is none, or if their values are of
    different kinds. Names and nullability of the values in lists do not matter; the first type's are kept."""
    if one == other:
        return one
    if is_list(one) and is_list(other):
        return _common_list(one, other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _common_struct(one, other)
    if is_text(one) and is_text(other):
        return pa.large_string()
    if is_bytes(one) and is_bytes(other):
        return pa.large_binary()
    return _common_number(one, other)


def _common_list(one: Any, other: Any) -> pa.DataType | None:
    inner = common_type(one.value_type, other.value_type)
    if inner is None:
        return None
    may_miss = one.value_field.nullable or other.value_field.nullable
    value = one.value_field.with_type(inner).with_nullable(may_miss)
    are_fixed = [pa.types.is_fixed_size_list(type_) for type_ in (one, other)]
    if all(are_fixed):
        return pa.list_(value, one.list_size) if one.list_size == other.list_size else None
    if any(are_fixed):
        return None
    is_small = pa.types.is_list(one) and pa.types.is_list(other)
    return pa.list_(value) if is_small else pa.large_list(value)


def _common_struct(one: Any, other: Any) -> pa.DataType | None:
    if one.names != other.names:
        return None
    fields: list[pa.Field] = []
    for a, b in zip(one, other, strict=True):
        type_ = common_type(a.type, b.type)
        if type_ is None:
            return None
        fields.append(a.with_type(type_).with_nullable(a.nullable or b.nullable))
    return pa.struct(fields)


_SIGNED = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    kinds = (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating)
    if any(is_kind(one) and is_kind(other) for is_kind in kinds):
        return max(one, other, key=lambda type_: type_.bit_width)
    if not (pa.types.is_integer(one) and pa.types.is_integer(other)):
        return None
    signed, unsigned = (one, other) if pa.types.is_signed_integer(one) else (other, one)
    return _SIGNED.get(max(signed.bit_width, 2 * unsigned.bit_width))


def fitted(array: Any, wanted: pa.DataType) -> Any:
    """Cast an array to another type. Floats may be rounded. Raises ArrowInvalid if a value would otherwise change."""
    given = array.type
    are_tensors = is_fixed_tensor(given) and is_fixed_tensor(wanted)
    if are_tensors and (given.shape, given.permutation) == (wanted.shape, wanted.permutation):
        storage = fitted(array.storage, wanted.storage_type)
        return pa.ExtensionArray.from_storage(wanted, storage)
    made = cast_values(array, wanted)
    check_survived(array, made)
    return made


def check_survived(array: Any, made: Any) -> None:
    """Raise ArrowInvalid if a pyarrow cast turned a number other than 0 or 1 into true, or a number too large for a
    float into infinity."""
    array, made = _stored(array), _stored(made)
    given, type_ = array.type, made.type
    before = _inside(array)
    for name, values in _inside(made).items():
        if name in before:
            check_survived(before[name], values)
    is_number = pa.types.is_integer(given) or pa.types.is_floating(given)
    if given == type_ or not is_number:
        return
    import pyarrow.compute

    compute: Any = pyarrow.compute
    if pa.types.is_boolean(type_):
        lost = array.filter(compute.not_equal(made.cast(pa.uint8()).cast(given), array))
        if len(lost):
            raise pa.ArrowInvalid(str(lost[0].as_py()))
    elif pa.types.is_float16(type_) or pa.types.is_float32(type_):
        wide, made = (x.cast(pa.float64(), safe=False) for x in (array, made))
        lost = array.filter(compute.and_(compute.is_inf(made), compute.not_equal(wide, made)))
        if len(lost):
            raise pa.ArrowInvalid(f"{lost[0].as_py()} is outside the range of the type {type_}")


def _stored(array: Any) -> Any:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _inside(array: Any) -> dict[str, Any]:
    if is_list(array.type):
        return {"": array.flatten()}
    if not pa.types.is_struct(array.type):
        return {}
    return dict(zip(array.type.names, array.flatten(), strict=True))


def in_microseconds(column: Any) -> Any:
    """Convert nanosecond times to microseconds if that loses nothing. Python has no type for nanoseconds, so for them
    pyarrow would import pandas and return pandas objects."""
    given = column.type
    if not pa.types.is_temporal(given) and not is_list(given):
        return column
    wanted = map_values(given, _microseconds_of)
    if wanted is None or wanted == given:
        return column
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        return column


def _microseconds_of(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    return {pa.duration("ns"): pa.duration("us"), pa.time64("ns"): pa.time64("us")}.get(
        type_, type_
    )


def first_unfit(
    column: Any, cast: Callable[[Any], Any], refusals: tuple[type[Exception], ...]
) -> int:
    """The first row that a cast refuses. The cast must refuse at least one row."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        part = column.slice(low, middle - low)
        if is_list(part.type):
            # pyarrow also casts values outside the slice.
            part = part.take(as_arrow(np.arange(len(part))))
        try:
            cast(part)
        except refusals:
            high = middle
        else:
            low = middle
    return low
