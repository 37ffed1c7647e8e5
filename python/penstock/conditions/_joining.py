"""Joins values of two kinds to one column, for `if` and `coalesce`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns import nearest
from penstock.columns.types import is_bytes, is_text
from penstock.conditions._comparing import ARROW_ERRORS, scalar
from penstock.conditions._grammar import Literal
from penstock.conditions._numbers import decimal_of, exact_of, is_exact, joint_type, scalar_of
from penstock.errors import SchemaError


def joined(mask: np.ndarray, left: Any, right: Any) -> pa.Array:
    """A column with the values of `left` where the mask is true, and those of `right` elsewhere, in order. Each is an
    array of just these values, or a Literal. SchemaError: their types have no common type."""
    types = _type_of(left, right), _type_of(right, left)
    type_ = _common(*types)
    first = int(mask.sum())
    parts = [
        _with_type(one, type_, length)
        for one, length in ((left, first), (right, len(mask) - first))
    ]
    places = np.where(mask, np.cumsum(mask) - 1, first + np.cumsum(~mask) - 1)
    return pa.concat_arrays(parts).take(pa.array(places))


def _type_of(value: Any, other: Any) -> pa.DataType:
    """The type of values. A literal has the type of the other values if it can be one of them, and none if it is null."""
    if not isinstance(value, Literal):
        return value.type
    if value.value is None:
        return pa.null()
    if isinstance(other, Literal):
        return pa.scalar(value.value).type
    type_ = other.type
    if pa.types.is_decimal(type_):
        return _beside_decimals(value.value, type_)
    own = pa.scalar(value.value).type
    if isinstance(value.value, str):
        return type_ if is_bytes(type_) or is_text(type_) or pa.types.is_temporal(type_) else own
    return type_ if _can_hold(type_, value.value) else own


def _beside_decimals(value: Any, type_: pa.DataType) -> pa.DataType:
    """The type of a literal beside decimals: theirs if it can, or decimals with its own digits, if they are not too
    many."""
    if exact_of(value) is not None and scalar_of(value, type_) is not None:
        return type_
    own = decimal_of(value)
    return pa.scalar(value).type if own is None else own.type


def _can_hold(type_: pa.DataType, number: float) -> bool:
    """Whether a type of numbers has exactly this one. int8 has no 300, integers have no 1.5, and True is not a number."""
    if isinstance(number, bool) or not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        return False
    if is_exact(type_):
        return scalar_of(number, type_) is not None
    try:
        return pa.scalar(number, type_).as_py() == number
    except (*ARROW_ERRORS, ValueError):
        return False


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        joint = joint_type(left, right)
        if joint is not None:
            return joint
    schemas = [pa.schema([("", one)]) for one in (left, right)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except ARROW_ERRORS:
        raise SchemaError(
            f'{left} and {right} have no common type; cast one of them, as in cast(x, "string")'
        ) from None


def _with_type(value: Any, type_: pa.DataType, length: int) -> pa.Array:
    if isinstance(value, Literal) and value.value is not None:
        return pa.repeat(scalar(value.value, type_).cast(type_), length)
    if isinstance(value, Literal):
        return pa.nulls(length, type_)
    return value if value.type == type_ else nearest.cast(value, type_)
