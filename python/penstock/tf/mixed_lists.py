"""Lists of values of several kinds, given where a tensor is expected."""

from __future__ import annotations

from itertools import islice
from typing import Any

from penstock.tf.dtypes import DType, as_dtype
from penstock.tf.errors import InvalidArgumentError

_MOST_SEEN = 64
"""How many values of a list are inspected: a list of a million numbers has one kind."""


def first_of(value: Any) -> Any:
    """The first value in nested lists."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def of_list(values: Any, dtype: DType | None) -> DType | None:
    """The dtype for a list that holds tensors: that of its first tensor; otherwise the given dtype.

    Raises:
        InvalidArgumentError: tensors of two dtypes.
        TypeError: a tensor of integers and a float of Python.
        ValueError: bools before numbers, or numbers before texts.
    """
    seen = list(islice(values, _MOST_SEEN))
    kinds = [getattr(value, "dtype", None) for value in seen if hasattr(value, "set_shape")]
    if not kinds:
        _check_kinds(seen)
        return dtype
    first = as_dtype(kinds[0])
    if any(as_dtype(kind) != first for kind in kinds):
        names = sorted({as_dtype(kind).name for kind in kinds})
        message = f"cannot pack tensors of {' and '.join(names)}: tf.cast them"
        raise InvalidArgumentError(None, None, message)
    if first.kind in "iub" and any(type(value) is float for value in seen):
        raise TypeError(f"Cannot convert {values!r} to a tensor of dtype {first.name}")
    return dtype or first


def _check_kinds(values: list[Any]) -> None:
    first = type(values[0]) if values else None
    kinds = {type(value) for value in values}
    wrong = {bool: {int, float}, int: {str, bytes}, float: {str, bytes}}.get(first, set())  # type: ignore[call-overload]
    if kinds & wrong:
        raise ValueError(
            f"Can't convert Python sequence with mixed types to Tensor: {values[:4]!r}"
        )
