"""Compares values of two columns, or of a column and a literal, whatever their types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import compute

from penstock.columns.types import is_bytes, is_text
from penstock.conditions._grammar import Literal
from penstock.conditions._numbers import (
    alike,
    as_floats,
    exact_of,
    grounded,
    is_exact,
    plain_numbers,
    scalar_of,
)
from penstock.errors import SchemaError

ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError)
_COMPARED = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def as_array(value: Any, length: int) -> pa.Array:
    """A literal, as one value for each record; anything else as it is."""
    if not isinstance(value, Literal):
        return value
    scalar = pa.scalar(value.value) if value.value is not None else pa.scalar(None, pa.bool_())
    return pa.repeat(scalar, length)


def plain(values: pa.Array) -> pa.Array:
    """Convert values to types that Arrow can compare: no extension types, dictionaries, views or
    float16."""
    if isinstance(values.type, pa.BaseExtensionType):
        if isinstance(values.type, pa.FixedShapeTensorType):
            return values
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type == pa.binary_view() or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.binary())
    return values.cast(pa.string()) if values.type == pa.string_view() else plain_numbers(values)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(sign: str, left: Any, right: Any) -> Any:
    """Compare a column with a column or a literal. SchemaError: their types do not compare."""
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if pa.types.is_null(left.type):
        return Literal(None)
    if isinstance(right, Literal):
        found = _fitted(sign, right.value, left.type)
        if isinstance(found, bool):
            return compute.if_else(left.is_valid(), found, None)
        sign, right = found
        if is_exact(left.type) and pa.types.is_floating(right.type):
            left = as_floats(left)
    elif pa.types.is_null(right.type):
        return Literal(None)
    else:
        left, right = _comparable(left, right)
    try:
        return getattr(compute, _COMPARED[sign])(left, right)
    except ARROW_ERRORS:
        other = repr(right.as_py()) if isinstance(right, pa.Scalar) else right.type
        raise SchemaError(f"{left.type} cannot be compared with {other}") from None


def _fitted(sign: str, value: Any, type_: pa.DataType) -> tuple[str, pa.Scalar] | bool:
    """A comparison with a literal as one that Arrow computes exactly, or its answer if it is the same for all values."""
    number = exact_of(value) if is_exact(type_) else None
    return (sign, scalar(value, type_)) if number is None else grounded(sign, number, type_)


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Convert a literal to a scalar that Arrow can compare with values of a type."""
    if exact_of(value) is not None:
        if pa.types.is_floating(type_):
            return pa.scalar(float(value))
        own = scalar_of(value, type_) if is_exact(type_) else None
        return pa.scalar(value) if own is None else own
    if isinstance(value, str):
        if is_bytes(type_):
            return pa.scalar(value.encode(), type_)
        if pa.types.is_temporal(type_):
            return _time(value, type_)
    return pa.scalar(value)


def _time(value: str, type_: Any) -> pa.Scalar:
    """A text as a time. A text without a zone is taken as UTC, if the type has a zone."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        try:
            plain_time = pa.scalar(value).cast(pa.timestamp(type_.unit))
            return plain_time.cast(pa.int64()).cast(type_)
        except pa.ArrowInvalid:
            pass  # the text has a zone
    return pa.scalar(value).cast(type_)


def _comparable(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Convert two columns to types that Arrow can compare: text and bytes to bytes, numbers of several kinds to decimals
    or float64."""
    types = (left.type, right.type)
    if any(map(is_text, types)) and any(map(is_bytes, types)):
        return left.cast(pa.large_binary()), right.cast(pa.large_binary())
    are_numbers = all(is_exact(type_) or pa.types.is_floating(type_) for type_ in types)
    is_mixed = pa.types.is_uint64(types[0]) != pa.types.is_uint64(types[1])
    if are_numbers and (is_mixed or not all(map(pa.types.is_integer, types))):
        return alike(left, right)
    return left, right


def is_in(values: pa.Array, members: tuple[Any, ...]) -> Any:
    """`in` with Kleene's logic: null for a null, and also if the value is not found but a member is null."""
    if pa.types.is_null(values.type):
        return Literal(None)
    given = [one for one in members if one is not None]
    for one in given:
        compared("==", values[:0], Literal(one))  # raises if the types cannot be compared
    if pa.types.is_floating(values.type):
        values = compute.add(values.cast(pa.float64()), 0.0)  # is_in finds no 0.0 in -0.0
        given = [one + 0.0 for one in given]
    type_ = values.type
    if is_exact(type_):
        scalars = [one for one in (scalar_of(one, type_) for one in given) if one is not None]
    else:
        scalars = [scalar(one, type_).cast(type_) for one in given]
    found = compute.is_in(values, pa.array(scalars, type_))
    if len(given) < len(members):
        found = compute.if_else(found, True, None)
    return compute.if_else(values.is_valid(), found, None)
