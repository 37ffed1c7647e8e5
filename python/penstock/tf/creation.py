"""Tensors made from a shape or a few numbers: `tf.zeros`, `tf.range`, `tf.one_hot` and others, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arrays import sizes_of, tensor
from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.refusals import refusing
from penstock.tf.tensor import Tensor, constant, convert_to_tensor

_WIDTHS = [np.dtype(name) for name in ("int32", "int64", "float16", "float32", "float64")]
"""The possible dtypes of a range. It has the dtype of its arguments that comes last in this list."""


@refusing
def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """A tensor filled with one value."""
    return tensor(np.full(sizes_of(dims), constant(value)))


def zeros(
    shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of zeros; of empty strings if the dtype is string."""
    kind = as_dtype(dtype)
    return fill(shape, b"") if kind is string else tensor(np.zeros(sizes_of(shape), kind.dtype))


def ones(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones."""
    return tensor(np.ones(sizes_of(shape), as_dtype(dtype).dtype))


def zeros_like(
    input: Any, dtype: Any = None, name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of zeros of the same shape."""
    value = convert_to_tensor(input)
    return zeros(value.shape, dtype or value.dtype)


def ones_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones of the same shape."""
    value = convert_to_tensor(input)
    return ones(value.shape, dtype or value.dtype)


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Tensor:
    """Numbers from `start` to before `limit`; from 0 if only one is given.

    Example:
        >>> import penstock.tf as tf
        >>> tf.range(3).numpy()
        array([0, 1, 2], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    parts = [convert_to_tensor(part) for part in (start, limit, delta)]
    if dtype is None:
        kind = max((part.dtype for part in parts), key=_WIDTHS.index)
    else:
        kind = as_dtype(dtype).dtype
    first, last, step = (part.astype(kind).item() for part in parts)
    if step == 0:
        raise InvalidArgumentError(None, None, "Requires delta != 0")
    is_beyond = first > last if step > 0 else first < last
    if is_beyond:
        wanted = "start <= limit when delta > 0" if step > 0 else "start >= limit when delta < 0"
        raise InvalidArgumentError(None, None, f"Requires {wanted}: {first}, {last}")
    return tensor(np.arange(first, last, step, dtype=kind))


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """For each index, a vector with `on_value` at that position and `off_value` elsewhere, or only `off_value` if the
    index is out of range.

    Example:
        >>> import penstock.tf as tf
        >>> tf.one_hot([1, -1], 2).numpy().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    places = np.asarray(indices)
    kind = as_dtype(dtype or "float32").dtype
    hot = places[..., None] == np.arange(int(depth))
    made = np.where(hot, np.asarray(on_value, kind), np.asarray(off_value, kind))
    return tensor(made if axis == -1 else np.moveaxis(made, -1, axis))


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    one = np.eye(int(num_rows), num_columns, dtype=as_dtype(dtype).dtype)
    return tensor(
        one if batch_shape is None else np.broadcast_to(one, (*sizes_of(batch_shape), *one.shape))
    )
