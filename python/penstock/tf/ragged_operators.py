"""Arithmetic and comparisons of ragged tensors, which work on the values of their rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor


class RaggedOperators:
    """The operators of a ragged tensor, with numbers, tensors of one value per row, and ragged tensors of the same
    rows."""


def _with(one: Any, other: Any, combine: Callable[[Any, Any], Any]) -> Any:
    if hasattr(other, "row_splits"):
        if not np.array_equal(one.row_splits, other.row_splits):
            raise InvalidArgumentError(None, None, "Inputs must have identical ragged splits")
        return one.with_values(combine(one.values, other.values))
    if hasattr(one.values, "row_splits") and np.ndim(other) < 2:
        return one.with_values(_with(one.values, other, combine))
    given = convert_to_tensor(other, None if isinstance(other, np.ndarray) else one.dtype)
    if given.ndim == 0 or (given.ndim == 1 and len(given) == 1):
        return one.with_values(combine(one.values, given))
    if given.ndim == 2 and given.shape[1] == 1:
        spread = np.repeat(given.view(np.ndarray)[:, 0], np.asarray(one.row_lengths()))
        return one.with_values(combine(one.values, spread.view(Tensor)))
    raise InvalidArgumentError(
        None, None, f"a ragged tensor of {len(one)} rows and a tensor of shape {given.shape}"
    )


def _forward(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: _with(self, other, combine)


def _backward(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: _with(self, other, lambda a, b: combine(b, a))


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
):
    _operation = getattr(operator, _name)
    setattr(RaggedOperators, f"__{_name}__", _forward(_operation))
    if _name in {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow"}:
        setattr(RaggedOperators, f"__r{_name}__", _backward(_operation))
RaggedOperators.__neg__ = lambda self: self.with_values(-self.values)  # type: ignore[attr-defined]
RaggedOperators.__hash__ = None  # type: ignore[assignment]
