"""More of `tf.math`: roots and logistic functions, sums over segments, counts, greatest values."""

from __future__ import annotations

import math as python_math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.tf.arithmetic import elementwise, elementwise_of_two, two
from penstock.tf.arrays import tensor
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.refusals import no_zero
from penstock.tf.tensor import Tensor, convert_to_tensor

rint = elementwise(np.rint, "The values rounded, halves to even.")
tan = elementwise(np.tan, "The tangents.")
asin = elementwise(np.arcsin, "The arc sines.")
acos = elementwise(np.arccos, "The arc cosines.")
atan = elementwise(np.arctan, "The arc tangents.")
sinh = elementwise(np.sinh, "The hyperbolic sines.")
cosh = elementwise(np.cosh, "The hyperbolic cosines.")
log1p = elementwise(np.log1p, "The natural logarithms of 1 + x.")
expm1 = elementwise(np.expm1, "e to the power of each value, less 1.")
real = elementwise(np.real, "The real parts.")
imag = elementwise(np.imag, "The imaginary parts.")
conj = elementwise(np.conj, "The complex conjugates.")
angle = elementwise(np.angle, "The angles of complex numbers.")
atan2 = elementwise_of_two(np.arctan2, "The angle of the point (x, y); y is the first argument.")
logical_xor = elementwise_of_two(np.logical_xor, "Whether exactly one of two values is true.")


truncatemod = elementwise_of_two(
    no_zero(np.fmod), "The remainder of truncatediv, value by value.", "bcO"
)


def _truncated(x: Any, y: Any) -> Any:
    if np.result_type(x, y).kind == "f":
        return np.trunc(np.divide(x, y))
    down = np.floor_divide(x, y)
    return down + ((down < 0) & (down * y != x)).astype(down.dtype)


truncatediv = elementwise_of_two(
    no_zero(_truncated), "The quotient rounded towards 0, value by value.", "bcO"
)


def timestamp(name: str | None = None) -> Tensor:
    """Seconds since 1970, as float64."""
    return tensor(np.float64(time.time()))


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Values scaled so that their Euclidean norm, over all or some axes, is at most a limit.

    Example:
        >>> import penstock.tf as tf
        >>> tf.clip_by_norm([3.0, 4.0], 1.0).numpy().round(2).tolist()
        [0.6000000238418579, 0.800000011920929]
    """
    given = _lasting(t)
    limit = np.asarray(clip_norm, given.dtype)
    over = None if axes is None else tuple(np.atleast_1d(axes).tolist())
    norms = np.sqrt(np.sum(given * given, axis=over, keepdims=True))
    return tensor(given * limit / np.maximum(norms, limit))


def _lasting(value: Any) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value).view(np.ndarray)


def rsqrt(x: Any, name: str | None = None) -> Tensor:
    """1 divided by the square roots."""
    given = _lasting(x)
    return tensor((1 / np.sqrt(given)).astype(given.dtype))


def reciprocal(x: Any, name: str | None = None) -> Tensor:
    """1 divided by the values."""
    given = _lasting(x)
    return tensor((1 / given).astype(given.dtype))


def sigmoid(x: Any, name: str | None = None) -> Tensor:
    """The logistic function, 1 / (1 + exp(-x)).

    Raises:
        InvalidArgumentError: values that are not floats.
    """
    given = _lasting(x)
    if given.dtype.kind in "biuO":
        raise InvalidArgumentError(
            None, None, f"{given.dtype} tensors have no sigmoid: use tf.cast"
        )
    return tensor((1 / (1 + np.exp(-given))).astype(given.dtype))


def softplus(features: Any, name: str | None = None) -> Tensor:
    """log(exp(x) + 1)."""
    given = _lasting(features)
    return tensor(np.logaddexp(given, np.zeros((), given.dtype)).astype(given.dtype))


def erf(x: Any, name: str | None = None) -> Tensor:
    """The error function."""
    given = _lasting(x)
    return tensor(np.vectorize(python_math.erf, otypes=[given.dtype])(given))


def squared_difference(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The squares of the differences."""
    first, second = two(x, y)
    return tensor(np.square(first - second))


def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The quotients; 0 if the divisor is 0."""
    first, second = (part.view(np.ndarray) for part in two(x, y, TypeError))
    if first.dtype.kind in "iu":
        kind = np.float32 if first.dtype.itemsize <= 2 else np.float64
        first, second = first.astype(kind), second.astype(kind)
    safe = np.where(second == 0, np.ones((), second.dtype), second)
    return tensor(np.where(second == 0, np.zeros((), first.dtype), first / safe))


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The products; 0 if the second factor is 0."""
    first, second = (part.view(np.ndarray) for part in two(x, y))
    return tensor(np.where(second == 0, np.zeros((), first.dtype), first * second))


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of several tensors."""
    parts = [convert_to_tensor(part) for part in inputs]
    total: Any = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None
) -> Tensor:
    """The values divided by their Euclidean norm along a dimension."""
    given = _lasting(x)
    over = axis if axis is None or np.ndim(axis) == 0 else tuple(int(a) for a in axis)
    squares = np.sum(np.square(given), axis=over, keepdims=True)
    return tensor((given / np.sqrt(np.maximum(squares, epsilon))).astype(given.dtype))


def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Cumulative products along a dimension, with the arguments of `cumsum`."""
    given = _lasting(x)
    turned = np.flip(given, axis) if reverse else given
    made = np.cumprod(turned, axis, dtype=given.dtype)
    if exclusive:
        first = np.ones_like(np.take(made, [0], axis))
        made = np.concatenate([first, np.delete(made, -1, axis)], axis)
    return tensor(np.flip(made, axis) if reverse else made)


def reduce_logsumexp(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """log(sum(exp(x))) over all dimensions, or over those in `axis`."""
    given = _lasting(input_tensor)
    over = axis if axis is None or np.ndim(axis) == 0 else tuple(axis)
    most = np.max(given, axis=over, keepdims=True)
    made = np.log(np.sum(np.exp(given - most), axis=over, keepdims=True)) + most
    return tensor(made if keepdims else np.squeeze(made, over))


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The Euclidean norm over all dimensions, or over those in `axis`."""
    given = _lasting(input_tensor)
    over = axis if axis is None or np.ndim(axis) == 0 else tuple(axis)
    made = np.sqrt(np.sum(np.square(given), axis=over, keepdims=keepdims))
    return tensor(made.astype(given.dtype))


def count_nonzero(
    input: Any,
    axis: Any = None,
    keepdims: Any = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Tensor:
    """The number of values that are not 0, False or empty."""
    given = _lasting(input)
    counted = given != b"" if given.dtype == object else given
    made = np.count_nonzero(counted, axis=axis, keepdims=bool(keepdims))
    return tensor(np.asarray(made, as_dtype(dtype).dtype))


def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The fraction of values that are 0, float32."""
    return tensor(np.asarray(np.mean(_lasting(value) == 0), np.float32))


def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """The inverse permutation: the index of each number."""
    given = _lasting(x)
    made = np.empty_like(given)
    made[given] = np.arange(len(given), dtype=given.dtype)
    return tensor(made)


# -- segments -----------------------------------------------------------------------------------


def _over_segments(
    data: Any, ids: Any, count: int, combine: Any, start: Any
) -> np.ndarray[Any, Any]:
    given, places = _lasting(data), np.asarray(ids)
    made = np.full((count, *given.shape[places.ndim :]), start(given.dtype), given.dtype)
    kept = (places >= 0) & (places < count)
    combine.at(made, places[kept], given[kept])
    return made


def _zero(dtype: Any) -> Any:
    return 0


def _least(dtype: Any) -> Any:
    return as_dtype(dtype).min


def _greatest(dtype: Any) -> Any:
    return as_dtype(dtype).max


def _one(dtype: Any) -> Any:
    return 1


def _segments(combine: Any, start: Any, what: str) -> Callable[..., Tensor]:
    def reduction(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
        places = np.asarray(segment_ids)
        if (np.diff(places) < 0).any() or (places < 0).any():
            raise InvalidArgumentError(None, None, "segment ids are not increasing")
        count = int(places[-1]) + 1 if len(places) else 0
        made = _over_segments(data, places, count, combine, start)
        empty = np.bincount(places, minlength=count)[:count] == 0
        made[empty] = 1 if start is _one else 0
        return tensor(made)

    reduction.__doc__ = f"The {what} of the rows of each segment; segment ids do not decrease."
    return reduction


def _unsorted(combine: Any, start: Any, what: str) -> Callable[..., Tensor]:
    def reduction(
        data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
    ) -> Tensor:
        return tensor(_over_segments(data, segment_ids, int(num_segments), combine, start))

    reduction.__doc__ = (
        f"The {what} of the rows of each segment, in any order; negative ids are left out."
    )
    return reduction


segment_sum = _segments(np.add, _zero, "sum")
segment_max = _segments(np.maximum, _least, "greatest value")
segment_min = _segments(np.minimum, _greatest, "least value")
segment_prod = _segments(np.multiply, _one, "product")
unsorted_segment_sum = _unsorted(np.add, _zero, "sum")
unsorted_segment_max = _unsorted(np.maximum, _least, "greatest value")
unsorted_segment_min = _unsorted(np.minimum, _greatest, "least value")
unsorted_segment_prod = _unsorted(np.multiply, _one, "product")


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """The mean of the rows of each segment, in any order; 0 without rows."""
    total = unsorted_segment_sum(data, segment_ids, num_segments).view(np.ndarray)
    places = np.asarray(segment_ids)
    counts = np.bincount(places[places >= 0].ravel(), minlength=int(num_segments))
    shape = (-1,) + (1,) * (total.ndim - 1)
    return tensor((total / np.maximum(counts[: len(total)], 1).reshape(shape)).astype(total.dtype))


def segment_mean(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
    """The mean of the rows of each segment; 0 without rows."""
    places = np.asarray(segment_ids)
    return unsorted_segment_mean(data, places, int(places[-1]) + 1 if len(places) else 0)


# -- counts and greatest values ---------------------------------------------------------------


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
    axis: Any = None,
    binary_output: bool = False,
) -> Tensor:
    """How often each number from 0 occurs, or the sum of its weights.

    Args:
        arr: the numbers.
        weights: the weights of the numbers.
        minlength, maxlength: the minimum and maximum number of counts.
        dtype: the dtype of the counts.
        axis: -1 for the counts of each row.
        binary_output: 1 for each number that occurs, instead of its count.
        name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> tf.math.bincount([0, 1, 1, 3]).numpy()
        array([1, 2, 0, 1], dtype=int32)
    """
    given = np.asarray(arr)
    size = int(given.max()) + 1 if given.size else 0
    size = max(size, int(minlength or 0))
    size = size if maxlength is None else min(size, int(maxlength))
    kind = as_dtype(dtype).dtype if weights is None else _lasting(weights).dtype
    rows = given.reshape(1, -1) if axis is None or given.ndim < 2 else given
    made = np.zeros((len(rows), size), kind)
    heavy = (
        np.ones(rows.shape, kind) if weights is None else np.reshape(_lasting(weights), rows.shape)
    )
    for place, row in enumerate(rows):
        kept = row < size
        np.add.at(made[place], row[kept], heavy[place][kept])
    made = (made > 0).astype(kind) if binary_output else made
    return tensor(made if axis is not None and given.ndim > 1 else made[0])


class TopK(NamedTuple):
    """The greatest values and their indices."""

    values: Tensor
    indices: Tensor


def top_k(
    input: Any, k: Any = 1, sorted: bool = True, index_type: Any = "int32", name: str | None = None
) -> TopK:
    """The greatest values along the last dimension, and their indices. Of equal values, the first come first.

    Example:
        >>> import penstock.tf as tf
        >>> tf.math.top_k([3, 1, 3], 2).indices.numpy()
        array([0, 2], dtype=int32)
    """
    given = _lasting(input)
    if int(k) > given.shape[-1]:
        raise InvalidArgumentError(None, None, f"input must have at least {int(k)} columns")
    turned = -np.flip(given, -1) if given.dtype.kind == "f" else given.astype(np.int64) * -1
    turned = np.flip(turned, -1) if given.dtype.kind == "f" else turned
    order = np.argsort(turned, axis=-1, kind="stable")[..., : int(k)]
    values = np.take_along_axis(given, order, -1)
    return TopK(tensor(values), tensor(order.astype(as_dtype(index_type).dtype)))


def in_top_k(targets: Any, predictions: Any, k: int, name: str | None = None) -> Tensor:
    """Whether each target is among the greatest predictions of its row."""
    scores, places = _lasting(predictions), np.asarray(targets)
    own = np.take_along_axis(scores, places[:, None], 1)
    return tensor((scores > own).sum(1) < k)


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
) -> Tensor:
    """How often each prediction (column) occurs for each label (row)."""
    rows, columns = np.asarray(labels).ravel(), np.asarray(predictions).ravel()
    size = num_classes if num_classes is not None else max(rows.max(), columns.max()) + 1
    made = np.zeros((int(size), int(size)), as_dtype(dtype).dtype)
    heavy = 1 if weights is None else np.asarray(weights).astype(made.dtype)
    np.add.at(made, (rows, columns), heavy)
    return tensor(made)
