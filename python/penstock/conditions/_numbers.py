"""Exact numbers: literals as they are written, integers and decimals. They are compared as numbers, not as floats."""

from __future__ import annotations

import math
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

import pyarrow as pa
from pyarrow import compute

from penstock.columns import nearest
from penstock.conditions._grammar import Literal, Written

_MOST_DIGITS = 76
"""The most digits of Arrow's decimals."""
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The most decimal digits of an integer, by its number of bits. uint64 has one more."""
_WIDE = Context(prec=1000)
ARITHMETIC = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_OF_DECIMALS = {
    "+": _WIDE.add,
    "-": _WIDE.subtract,
    "*": _WIDE.multiply,
    "%": _WIDE.remainder,
}


def is_exact(type_: pa.DataType) -> bool:
    """Whether values are integers or decimals."""
    return pa.types.is_integer(type_) or pa.types.is_decimal(type_)


def exact_of(value: Any) -> int | Decimal | None:
    """The number that a literal stands for. None if it is no number, or a float that was computed."""
    if isinstance(value, Written):
        return value.exact
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def of_literals(sign: str, left: Any, right: Any) -> Any:
    """The exact result of an operation on two literals, of which one has a point. None if there is none."""
    a, b = exact_of(left), exact_of(right)
    if a is None or b is None or not (isinstance(a, Decimal) or isinstance(b, Decimal)):
        return None
    if sign not in _OF_DECIMALS or (sign == "%" and not b):
        return None
    _WIDE.clear_flags()
    found = _OF_DECIMALS[sign](Decimal(a), Decimal(b))
    return None if _WIDE.flags[Inexact] else Written.of(found)


# -- comparing ---------------------------------------------------------------------------------


def _whole(number: int | Decimal, type_: Any) -> tuple[int, bool]:
    """The greatest multiple of a type's last place that is not above a number, in units of this place; and whether it
    is the number."""
    scaled = Fraction(number) * 10 ** (0 if pa.types.is_integer(type_) else type_.scale)
    whole = math.floor(scaled)
    return whole, whole == scaled


def _range(type_: Any) -> tuple[int, int]:
    """The least and the greatest value of a type, in units of its last place."""
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        return -most, most
    bits = type_.bit_width
    if pa.types.is_signed_integer(type_):
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _scalar(whole: int, type_: Any) -> pa.Scalar:
    if pa.types.is_integer(type_):
        return pa.scalar(whole, type_)
    return pa.scalar(_WIDE.scaleb(Decimal(whole), -type_.scale), type_)


def scalar_of(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """A literal as a value of a type of integers or decimals. None if the type does not have this value."""
    number = exact_of(value)
    if number is None:
        return None
    whole, is_same = _whole(number, type_)
    least, most = _range(type_)
    return _scalar(whole, type_) if is_same and least <= whole <= most else None


def grounded(sign: str, number: int | Decimal, type_: pa.DataType) -> tuple[str, pa.Scalar] | bool:
    """A sign and a value of the type: the comparison with them means the same as `sign number` for all values of the
    type. Or the answer, if it is the same for all."""
    whole, is_same = _whole(number, type_)
    least, most = _range(type_)
    if whole < least:
        return sign in ("!=", ">", ">=")
    if whole > most:
        return sign in ("!=", "<", "<=")
    if is_same:
        return sign, _scalar(whole, type_)
    if sign in ("==", "!="):
        return sign == "!="
    return "<=" if sign in ("<", "<=") else ">", _scalar(whole, type_)


def alike(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two columns of numbers, of which one has decimals or floats, or uint64 beside int64, with types that Arrow can
    compare."""
    if not (is_exact(left.type) and is_exact(right.type)):
        return as_floats(left), as_floats(right)
    sides = [_as_decimals(side) for side in (left, right)]
    whole, scale = _joint(*(side.type for side in sides))
    wide = _widened(sides, whole + scale)
    return wide or (as_floats(left), as_floats(right))


def as_floats(values: Any) -> Any:
    """Numbers as the nearest float64."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.float64(), safe=False)
    return nearest.cast(values, pa.float64()) if isinstance(values, pa.Array) else values


# -- decimals ----------------------------------------------------------------------------------


def decimal_of(value: Any) -> pa.Scalar | None:
    """A literal as a decimal with the digits that it is written with. None if these are too many."""
    number = exact_of(value)
    if number is None:
        return None
    _, digits, exponent = Decimal(number).as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > _MOST_DIGITS:
        return None
    return pa.scalar(Decimal(number), _decimal(precision, scale))


def _decimal(precision: int, scale: int) -> pa.DataType:
    is_wide = precision > 38
    return pa.decimal256(precision, scale) if is_wide else pa.decimal128(precision, scale)


def _as_decimals(value: Any) -> Any:
    """Integers and literals as decimals. None for floats, and for other values."""
    if isinstance(value, Literal):
        return decimal_of(value.value)
    type_ = value.type
    return value.cast(_decimal_type(type_)) if is_exact(type_) else None


def _decimal_type(type_: pa.DataType) -> pa.DataType:
    """The type of decimals that holds all values of a type of integers or decimals."""
    if pa.types.is_decimal(type_):
        return type_
    return pa.decimal128(20 if type_ == pa.uint64() else _DIGITS[type_.bit_width], 0)


def _joint(left: Any, right: Any) -> tuple[int, int]:
    """The digits before and after the point that values of both types need."""
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return whole, max(left.scale, right.scale)


def joint_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type for all values of two types of numbers, of which one is decimal. None if one has no numbers."""
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if not all(is_exact(one) or pa.types.is_floating(one) for one in (left, right)):
        return None
    if not (is_exact(left) and is_exact(right)):
        return pa.float64()
    whole, scale = _joint(_decimal_type(left), _decimal_type(right))
    return _decimal(whole + scale, scale) if whole + scale <= _MOST_DIGITS else pa.float64()


def _widened(sides: list[Any], precision: int) -> tuple[Any, Any] | None:
    """Both sides with a type that can be rescaled to so many digits. None if no type can."""
    if precision > _MOST_DIGITS:
        return None
    if precision > 38:
        sides = [side.cast(pa.decimal256(side.type.precision, side.type.scale)) for side in sides]
    return sides[0], sides[1]


def of_decimals(sign: str, left: Any, right: Any) -> pa.Array | None:
    """The result of + - * or % for decimals: one side has them, and the other has decimals, integers or a literal. None
    if it is to be computed with floats: for other values, for /, and if the result can have more than 76 digits."""
    has_decimals = any(
        isinstance(side, pa.Array) and pa.types.is_decimal(side.type) for side in (left, right)
    )
    if not has_decimals or sign == "/":
        return None
    sides = [_as_decimals(side) for side in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    types: list[Any] = [side.type for side in sides]
    whole, scale = _joint(*types)
    if sign == "*":
        precision = types[0].precision + types[1].precision + 1
    else:
        precision = whole + scale + (sign != "%")
    wide = _widened(sides, precision)
    if wide is None:
        return None
    if sign == "%":
        return _remainders(*wide, _decimal(precision, scale))
    return getattr(compute, ARITHMETIC[sign])(*wide)


def _remainders(left: Any, right: Any, type_: pa.DataType) -> pa.Array:
    """Arrow has no kernel for the remainder. That of a division by zero is null."""
    count = len(left if isinstance(left, pa.Array) else right)
    lefts, rights = (
        side.to_pylist() if isinstance(side, pa.Array) else [side.as_py()] * count
        for side in (left, right)
    )
    pairs = zip(lefts, rights, strict=True)
    found = [_WIDE.remainder(a, b) if a is not None and b else None for a, b in pairs]
    return pa.array(found, type_)


def rounded(values: Any) -> pa.Array:
    """Numbers rounded to whole ones, halves away from zero. Decimals get a digit more, which Arrow's kernel lacks for
    9.99."""
    type_ = values.type
    if pa.types.is_decimal(type_) and type_.precision < _MOST_DIGITS:
        values = values.cast(_decimal(type_.precision + 1, type_.scale))
    return compute.round(values, round_mode="half_towards_infinity")


def plain_numbers(values: Any) -> pa.Array:
    """Numbers with types that Arrow can compare: no float16, no narrow decimals, no decimals of hundreds."""
    type_ = values.type
    if pa.types.is_float16(type_):
        return values.cast(pa.float32())
    if not pa.types.is_decimal(type_):
        return values
    precision, scale = type_.precision - min(type_.scale, 0), max(type_.scale, 0)
    if scale == type_.scale and type_.bit_width >= 128:
        return values
    return values.cast(_decimal(min(precision, _MOST_DIGITS), scale))
