"""Compares values of two columns, or of a column and a literal, whatever their types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import compute

from penstock.columns.types import is_bytes, is_text
from penstock.conditions._grammar import Literal
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
    """Convert values to types that Arrow can compare: no extension types, dictionaries or views."""
    if isinstance(values.type, pa.BaseExtensionType):
        if isinstance(values.type, pa.FixedShapeTensorType):
            return values
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type == pa.binary_view() or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.binary())
    return values.cast(pa.string()) if values.type == pa.string_view() else values


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(sign: str, left: Any, right: Any) -> Any:
    """Compare a column with a column or a literal. SchemaError: their types do not compare."""
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if pa.types.is_null(left.type):
        return Literal(None)
    if isinstance(right, Literal):
        if beyond := _beyond(right.value, left.type):
            # The number is above or below all values that the type can have.
            answer = sign in ("!=", *(("<", "<=") if beyond > 0 else (">", ">=")))
            return compute.if_else(left.is_valid(), answer, None)
        right = scalar(right.value, left.type)
    elif pa.types.is_null(right.type):
        return Literal(None)
    else:
        left, right = _comparable(left, right)
    try:
        return getattr(compute, _COMPARED[sign])(left, right)
    except ARROW_ERRORS:
        other = repr(right.as_py()) if isinstance(right, pa.Scalar) else right.type
        raise SchemaError(f"{left.type} cannot be compared with {other}") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _beyond(value: Any, type_: pa.DataType) -> int:
    """1 if a whole number is above the range of an integer type, -1 if it is below, otherwise 0."""
    if not (pa.types.is_integer(type_) and _is_whole(value)):
        return 0
    bits = type_.bit_width
    signed = pa.types.is_signed_integer(type_)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return (value > most) - (value < least)


def is_outside(value: Any, type_: pa.DataType) -> bool:
    has_part = isinstance(value, float) and not value.is_integer()
    return bool(_beyond(value, type_)) or (has_part and pa.types.is_integer(type_))


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Convert a literal to a scalar that Arrow can compare with values of a type."""
    if _is_whole(value):
        if pa.types.is_floating(type_):
            return pa.scalar(float(value))
        return pa.scalar(value, type_) if pa.types.is_uint64(type_) else pa.scalar(value)
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
    """Convert two columns to types that Arrow can compare: text and bytes to bytes, uint64 and int64 to decimals."""
    types = (left.type, right.type)
    if any(map(is_text, types)) and any(map(is_bytes, types)):
        return left.cast(pa.large_binary()), right.cast(pa.large_binary())
    is_mixed = pa.types.is_uint64(types[0]) != pa.types.is_uint64(types[1])
    if is_mixed and all(map(pa.types.is_integer, types)):
        return left.cast(pa.decimal128(20)), right.cast(pa.decimal128(20))
    return left, right


def is_in(values: pa.Array, members: tuple[Any, ...]) -> Any:
    """`in` with Kleene's logic: null for a null, and also if the value is not found but a member is null."""
    if pa.types.is_null(values.type):
        return Literal(None)
    given = [one for one in members if one is not None]
    known = [one for one in given if not is_outside(one, values.type)]
    if not known:
        found = pa.repeat(pa.scalar(False), len(values))
    else:
        for one in known:
            compared("==", values[:0], Literal(one))  # raises if the types cannot be compared
        scalars = [scalar(one, values.type).cast(values.type) for one in known]
        found = compute.is_in(values, pa.array(scalars, values.type))
    if len(given) < len(members):
        found = compute.if_else(found, True, None)
    return compute.if_else(values.is_valid(), found, None)
