"""Arithmetic for preparing data: `tf.cast`, `tf.reduce_mean` and others, computed by NumPy.

Results have TensorFlow's dtypes, which sometimes differ from NumPy's: a sum of int32 stays int32, a mean of integers
is an integer, a Python number takes the dtype of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError, UnimplementedError
from penstock.tf.refusals import no_zero, refusal_of, refusing
from penstock.tf.tensor import Tensor, beside, convert_to_tensor, numpy_dtype


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Convert values to a dtype. A tensor that already has the dtype is returned unchanged.

    Fractions are truncated towards zero. As bool, every value except zero is True. Sparse and ragged tensors keep their
    indices and rows.

    Raises:
        UnimplementedError: a conversion from or to strings.

    Example:
        >>> import penstock.tf as tf
        >>> tf.cast([1.8, -1.8], tf.int32).numpy()
        array([ 1, -1], dtype=int32)
    """
    wanted = as_dtype(dtype)
    if hasattr(x, "with_values"):  # sparse or ragged
        return x.with_values(cast(x.values, wanted))
    value = convert_to_tensor(x)
    if wanted == value.dtype:
        return value
    if wanted is string or value.dtype == object:
        source = as_dtype(value.dtype).name
        raise UnimplementedError(None, None, f"Cast {source} to {wanted.name} is not supported")
    return value.astype(wanted.dtype).view(Tensor)


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """The values converted to a dtype, clipped to its range."""
    given, wanted = convert_to_tensor(value), as_dtype(dtype)
    if wanted.is_integer:
        given = np.clip(given, wanted.min, wanted.max).view(Tensor)
    return cast(given, wanted)


def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """The same bytes read as another dtype of the same size."""
    return convert_to_tensor(input).view(as_dtype(type).dtype).view(Tensor)


def two(x: Any, y: Any, error: type[Exception] = InvalidArgumentError) -> tuple[Tensor, Tensor]:
    """Two operands as tensors. Beside a tensor, arrays and numbers take its dtype; tensors of two dtypes raise the
    error."""
    if isinstance(x, Tensor):
        return x, _tensor_of(beside(x, y, error), x)
    if isinstance(y, Tensor):
        return _tensor_of(beside(y, x, error), y), y
    if isinstance(y, np.ndarray) and not isinstance(x, (np.ndarray, np.generic)):
        second = convert_to_tensor(y)
        return convert_to_tensor(x, second.dtype), second
    first = convert_to_tensor(x)
    kind = None if isinstance(y, (np.ndarray, np.generic)) else first.dtype
    return first, convert_to_tensor(y, kind)


def _tensor_of(value: Any, other: Tensor) -> Tensor:
    if type(value) is Tensor:
        return value
    return np.asarray(value, numpy_dtype(other)).view(Tensor)


def elementwise_of_two(
    numpys: Callable[..., Any],
    words: str,
    refused: str = "",
    error: type[Exception] = InvalidArgumentError,
) -> Callable[..., Tensor]:
    """Make an operation on two tensors of the same dtype.

    Args:
        numpys: the function that computes it.
        words: its docstring.
        refused: the kinds of NumPy dtypes that have no such operation in TensorFlow.
        error: what tensors of two dtypes, or of a refused kind, raise.
    """
    compute = refusing(numpys)

    def operation(x: Any, y: Any, name: str | None = None) -> Tensor:
        first, second = two(x, y, error)
        kind = numpy_dtype(first)
        if kind != numpy_dtype(second):
            raise refusal_of(
                error, f"cannot compute {operation.__name__} of {as_dtype(kind).name} and "
                f"{as_dtype(second.dtype).name}: tf.cast one of them",
            )  # fmt: skip
        if kind.kind in refused:
            raise refusal_of(
                error, f"{as_dtype(kind).name} tensors have no {operation.__name__}: use tf.cast"
            )
        return np.asarray(compute(first, second)).view(Tensor)

    operation.__doc__ = words
    operation.__name__ = operation.__qualname__ = numpys.__name__
    return operation


def elementwise(numpys: Callable[..., Any], words: str, refused: str = "") -> Callable[..., Tensor]:
    """Make an operation on one tensor. `refused` are the kinds of NumPy dtypes that have none in TensorFlow."""

    def operation(x: Any, name: str | None = None) -> Tensor:
        value = convert_to_tensor(x)
        if numpy_dtype(value).kind in refused:
            raise refusal_of(
                InvalidArgumentError,
                f"{value.dtype.name} tensors have no {operation.__name__}: use tf.cast",
            )
        return np.asarray(numpys(value)).view(Tensor)

    operation.__doc__ = words
    operation.__name__ = operation.__qualname__ = numpys.__name__
    return operation


def _quotient(x: Tensor, y: Tensor) -> Any:
    return x / y


_add = elementwise_of_two(np.add, "The sum, value by value.", "b")


def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The sum, value by value. Two tensors have the same dtype; a Python number as `x` counts as a tensor.

    Raises:
        InvalidArgumentError: operands of two dtypes, or shapes that do not fit each other.
    """
    first = x if isinstance(x, np.ndarray) else convert_to_tensor(x)
    try:
        return _add(first, y)
    except TypeError as error:
        raise refusal_of(InvalidArgumentError, str(error)) from None


subtract = elementwise_of_two(np.subtract, "The difference, value by value.", "bO")
multiply = elementwise_of_two(np.multiply, "The product, value by value.", "bO")
divide = truediv = elementwise_of_two(
    _quotient, "The quotient, value by value; integers also give floats.", "bO", TypeError
)
floordiv = elementwise_of_two(
    no_zero(np.floor_divide), "The quotient rounded down, value by value.", "bO"
)
floormod = mod = elementwise_of_two(
    no_zero(np.mod), "The remainder of floordiv, value by value.", "bO"
)
pow = elementwise_of_two(np.power, "The power, value by value.", "bO")
maximum = elementwise_of_two(np.maximum, "The greater value of the two.", "bO")
minimum = elementwise_of_two(np.minimum, "The lesser value of the two.", "bO")
equal = elementwise_of_two(np.equal, "Whether values are equal.")
not_equal = elementwise_of_two(np.not_equal, "Whether values differ.")
less = elementwise_of_two(np.less, "Whether the first value is less.", "bO")
less_equal = elementwise_of_two(np.less_equal, "Whether the first value is less or equal.", "bO")
greater = elementwise_of_two(np.greater, "Whether the first value is greater.", "bO")
greater_equal = elementwise_of_two(
    np.greater_equal, "Whether the first value is greater or equal.", "bO"
)
logical_and = elementwise_of_two(np.logical_and, "Whether both values are true.", "iufcO")
logical_or = elementwise_of_two(np.logical_or, "Whether one of the two values is true.", "iufcO")
_matmul = elementwise_of_two(np.matmul, "The product of matrices.", "bO")
logical_not = elementwise(np.logical_not, "Whether values are false.", "iufcO")
abs = elementwise(np.abs, "The absolute values.", "bO")
negative = elementwise(np.negative, "The values with the opposite sign.", "ubO")
sign = elementwise(np.sign, "-1, 0 or 1 for each value.", "ubO")
square = elementwise(np.square, "The squares.", "bO")
sqrt = elementwise(np.sqrt, "The square roots.", "iubO")
exp = elementwise(np.exp, "e to the power of each value.", "iubO")
log = elementwise(np.log, "The natural logarithms.", "iubO")
sin = elementwise(np.sin, "The sines.", "iubO")
cos = elementwise(np.cos, "The cosines.", "iubO")
tanh = elementwise(np.tanh, "The hyperbolic tangents.", "iubO")
floor = elementwise(np.floor, "The values rounded down.", "iubO")
ceil = elementwise(np.ceil, "The values rounded up.", "iubO")
round = elementwise(np.round, "The values rounded, halves to even.", "bO")
is_nan = elementwise(np.isnan, "Whether values are NaN.")
is_inf = elementwise(np.isinf, "Whether values are infinite.")
is_finite = elementwise(np.isfinite, "Whether values are finite.")


def matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, name: str | None = None
) -> Tensor:
    """The product of matrices, or of batches of them.

    Args:
        a, b: [..., n, k] and [..., k, m].
        transpose_a, transpose_b (bool): exchange the last two dimensions first.
        name: ignored.

    Returns:
        Tensor[..., n, m].

    Raises:
        InvalidArgumentError: the dtypes differ.
    """
    first, second = (
        np.swapaxes(x, -1, -2) if turn else x
        for x, turn in zip(two(a, b), (transpose_a, transpose_b), strict=True)
    )
    return _matmul(first, second)


def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Tensor:
    """The values clipped to limits.

    Example:
        >>> import penstock.tf as tf
        >>> tf.clip_by_value([-1.0, 0.5, 3.0], 0, 1).numpy()
        array([0. , 0.5, 1. ], dtype=float32)
    """
    values = convert_to_tensor(t)
    if values.dtype.kind == "f" and np.ndim(clip_value_min) == np.ndim(clip_value_max) == 0:
        edges = [two(values, one)[1] for one in (clip_value_min, clip_value_max)]
        if all(one.dtype == values.dtype for one in edges):
            # The same as below, and several times as fast.
            low, high = (one.view(np.ndarray) for one in edges)
            return np.asarray(np.clip(values.view(np.ndarray), low, high)).view(Tensor)
    return minimum(maximum(values, clip_value_min), clip_value_max)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Values of `x` where the condition is true, else of `y`. Without x and y: the positions where it is true.

    Returns:
        The values; or the positions, int64 [number of true values, rank].

    Raises:
        ValueError: only one of x and y is given.

    Example:
        >>> import penstock.tf as tf
        >>> (
        ...     tf.where([True, False, True]).numpy().tolist(),
        ...     tf.where([True, False], 1, 2).numpy().tolist(),
        ... )
        ([[0], [2]], [1, 2])
    """
    chosen = np.asarray(condition, bool)
    if x is None and y is None:
        return np.argwhere(chosen).view(Tensor)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    first, second = two(x, y)
    return np.asarray(np.where(chosen, first, second)).view(Tensor)


def _name_of(value: np.ndarray[Any, Any]) -> str:
    return as_dtype(value.dtype).name


def _reduced(numpys: Callable[..., Any], words: str, *, keeps_dtype: bool) -> Callable[..., Tensor]:
    compute = refusing(numpys)

    def reduction(
        input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
    ) -> Tensor:
        if hasattr(input_tensor, "row_splits"):
            return _reduced_rows(reduction, input_tensor, axis, keepdims)
        value = convert_to_tensor(input_tensor).view(np.ndarray)
        if keeps_dtype and value.dtype.kind in "bO":
            raise refusal_of(
                InvalidArgumentError,
                f"{_name_of(value)} tensors have no such reduction: use tf.cast",
            )
        over = None if axis is None else tuple(int(a) for a in np.atleast_1d(np.asarray(axis)))
        found = np.asarray(compute(value, axis=over, keepdims=keepdims))
        return (found.astype(value.dtype) if keeps_dtype else found).view(Tensor)

    reduction.__doc__ = (
        words
        + "\n\nReduces all dimensions, or those in `axis`. `keepdims` keeps these dimensions with size 1."
    )
    return reduction


def _reduced_rows(reduction: Callable[..., Tensor], given: Any, axis: Any, keepdims: bool) -> Any:
    """Reduce a ragged tensor: all values (axis None), across rows (0), within each row (1), or in inner rows."""
    if axis is None:
        return reduction(given.flat_values)
    if axis in {1, -1} and not hasattr(given.values, "row_splits"):
        parts = [reduction(row, 0) for row in given]
        made = np.array([part.numpy() for part in parts], given.dtype.dtype).view(Tensor)
        return np.expand_dims(made, 1) if keepdims else made
    if axis == 0:
        return reduction(given.to_tensor(), 0)
    if axis > 1:
        return given.with_values(reduction(given.values, axis - 1, keepdims))
    raise UnimplementedError(None, None, f"a reduction of a ragged tensor along dimension {axis}")


def _mean(value: Any, axis: Any, keepdims: Any) -> Any:
    if value.dtype.kind in "iu":
        count = value.size if axis is None else np.prod([value.shape[a] for a in axis])
        total = np.sum(value, axis=axis, keepdims=keepdims)
        return np.trunc(total / np.maximum(count, 1))
    return np.mean(value, axis=axis, keepdims=keepdims)


reduce_sum = _reduced(np.sum, "The sum.", keeps_dtype=True)
reduce_mean = _reduced(_mean, "The mean; the mean of integers is an integer.", keeps_dtype=True)
reduce_prod = _reduced(np.prod, "The product.", keeps_dtype=True)
reduce_max = _reduced(np.max, "The greatest value.", keeps_dtype=True)
reduce_min = _reduced(np.min, "The least value.", keeps_dtype=True)
reduce_all = _reduced(np.all, "Whether all are true.", keeps_dtype=False)
reduce_any = _reduced(np.any, "Whether any is true.", keeps_dtype=False)
reduce_std = _reduced(np.std, "The standard deviation.", keeps_dtype=True)
reduce_variance = _reduced(np.var, "The variance.", keeps_dtype=True)


def argmax(
    input: Any, axis: int = 0, output_type: Any = "int64", name: str | None = None
) -> Tensor:
    """The index of the greatest value along a dimension; the first if there are several."""
    found = np.argmax(convert_to_tensor(input), int(axis or 0))
    return np.asarray(found, as_dtype(output_type).dtype).view(Tensor)


def argmin(
    input: Any, axis: int = 0, output_type: Any = "int64", name: str | None = None
) -> Tensor:
    """The index of the least value along a dimension; the first if there are several."""
    found = np.argmin(convert_to_tensor(input), int(axis or 0))
    return np.asarray(found, as_dtype(output_type).dtype).view(Tensor)


def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Cumulative sums along a dimension.

    Args:
        x: the values.
        axis: the dimension.
        exclusive: leave each value out of its own sum.
        reverse: sum from the end to the beginning.
        name: ignored.
    """
    value = convert_to_tensor(x).view(np.ndarray)
    turned = np.flip(value, axis) if reverse else value
    sums = np.cumsum(turned, axis, dtype=value.dtype)
    sums = sums - turned if exclusive else sums
    return np.asarray(np.flip(sums, axis) if reverse else sums).view(Tensor)


def sort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> Tensor:
    """The values in order along a dimension; `direction` is ASCENDING or DESCENDING."""
    found = np.sort(convert_to_tensor(values).view(np.ndarray), axis)
    return (np.flip(found, axis) if direction == "DESCENDING" else found).view(Tensor)


def argsort(
    values: Any,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """The indices that sort the values along a dimension, as int32; equal values keep their order."""
    value = convert_to_tensor(values).view(np.ndarray)
    if direction == "DESCENDING":
        found = np.flip(
            value.shape[axis] - 1 - np.argsort(np.flip(value, axis), axis, kind="stable"), axis
        )
    else:
        found = np.argsort(value, axis, kind="stable")
    return found.astype(np.int32).view(Tensor)
