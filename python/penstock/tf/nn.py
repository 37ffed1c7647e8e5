"""`tf.nn`: the functions that occur in programs that prepare data."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arithmetic import tanh
from penstock.tf.arrays import tensor
from penstock.tf.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.missing import absent_from
from penstock.tf.more_math import (
    in_top_k,
    l2_normalize,
    sigmoid,
    softplus,
    top_k,
    zero_fraction,
)
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "avg_pool2d",
    "depthwise_conv2d",
    "embedding_lookup",
    "gelu",
    "in_top_k",
    "l2_normalize",
    "leaky_relu",
    "log_softmax",
    "max_pool2d",
    "moments",
    "relu",
    "relu6",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "sparse_softmax_cross_entropy_with_logits",
    "tanh",
    "top_k",
    "weighted_cross_entropy_with_logits",
    "zero_fraction",
]


def _array(value: Any) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value).view(np.ndarray)


def _floats(value: Any, name: str) -> np.ndarray[Any, Any]:
    given = _array(value)
    if given.dtype.kind in "biuO":
        raise InvalidArgumentError(None, None, f"{given.dtype} tensors have no {name}: use tf.cast")
    return given


def softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """exp(x) divided by its sum along a dimension, by default the last.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nn.softmax([0.0, 0.0]).numpy()
        array([0.5, 0.5], dtype=float32)
    """
    given = _floats(logits, "softmax")
    over = -1 if axis is None else axis
    powers = np.exp(given - np.max(given, axis=over, keepdims=True))
    return tensor(powers / np.sum(powers, axis=over, keepdims=True))


def log_softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    given = _floats(logits, "log_softmax")
    over = -1 if axis is None else axis
    given = given - np.max(given, axis=over, keepdims=True)
    return tensor(given - np.log(np.sum(np.exp(given), axis=over, keepdims=True)))


def relu(features: Any, name: str | None = None) -> Tensor:
    """The values, with 0 for negative values."""
    given = _array(features)
    return tensor(np.maximum(given, np.zeros((), given.dtype)))


def relu6(features: Any, name: str | None = None) -> Tensor:
    """The values clipped to 0 and 6."""
    given = _array(features)
    return tensor(np.clip(given, given.dtype.type(0), given.dtype.type(6)))


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """The values, with negative values multiplied by `alpha`."""
    given = _array(features)
    return tensor(np.where(given > 0, given, given * given.dtype.type(alpha)))


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """x times the probability that a normal number is below x."""
    from penstock.tf.more_math import erf

    given = _array(features)
    if approximate:
        inner = np.sqrt(2 / np.pi) * (given + 0.044715 * given**3)
        return tensor((0.5 * given * (1 + np.tanh(inner))).astype(given.dtype))
    tail = erf(given / np.sqrt(2)).view(np.ndarray)
    return tensor((0.5 * given * (1 + tail)).astype(given.dtype))


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and the variance along dimensions.

    Example:
        >>> import penstock.tf as tf
        >>> [float(part) for part in tf.nn.moments(tf.constant([1.0, 3.0]), axes=[0])]
        [2.0, 1.0]
    """
    given = _array(x)
    over = tuple(int(a) for a in np.atleast_1d(np.asarray(axes)))
    mean, variance = (f(given, axis=over, keepdims=keepdims) for f in (np.mean, np.var))
    return tensor(np.asarray(mean, given.dtype)), tensor(np.asarray(variance, given.dtype))


def embedding_lookup(
    params: Any, ids: Any, max_norm: Any = None, name: str | None = None
) -> Tensor:
    """The rows of a matrix with these numbers."""
    return tensor(np.take(_array(params), np.asarray(ids), 0))


def _windows(
    given: np.ndarray[Any, Any], size: tuple[int, int], strides: Any, padding: Any, fill: Any
) -> np.ndarray[Any, Any]:
    """Windows of images [batch, rows, columns, channels, height, width], with TensorFlow's padding."""
    steps = [int(s) for s in np.atleast_1d(np.asarray(strides))]
    down, right = (steps[1], steps[2]) if len(steps) == 4 else (steps[0], steps[-1])
    if padding == "SAME":
        around = [
            _same(n, k, s) for n, k, s in zip(given.shape[1:3], size, (down, right), strict=True)
        ]
        given = np.pad(given, [(0, 0), *around, (0, 0)], constant_values=fill)
    elif padding != "VALID":
        raise InvalidArgumentError(None, None, f"padding must be SAME or VALID, not {padding!r}")
    found = np.lib.stride_tricks.sliding_window_view(given, size, (1, 2))
    return found[:, ::down, ::right]


def _same(size: int, window: int, step: int) -> tuple[int, int]:
    more = max((-(-size // step) - 1) * step + window - size, 0)
    return more // 2, more - more // 2


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Images convolved with a filter for each channel.

    Args:
        input: [batch, height, width, channels].
        filter: [height, width, channels, multiples].
        strides: [1, down, right, 1].
        padding: SAME or VALID.
        data_format, dilations, name: ignored.

    Returns:
        Tensor[batch, rows, columns, channels * multiples].
    """
    given, kernel = _array(input), _array(filter)
    found = _windows(given, kernel.shape[:2], strides, padding, 0)
    made = np.einsum("bxychw,hwcm->bxycm", found, kernel, optimize=True)
    return tensor(made.reshape(*made.shape[:3], -1).astype(given.dtype))


def _pair(size: Any) -> tuple[int, int]:
    sides = [int(s) for s in np.atleast_1d(np.asarray(size))]
    return (sides[1], sides[2]) if len(sides) == 4 else (sides[0], sides[-1])


def max_pool2d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The greatest value of each window of images."""
    given = _array(input)
    found = _windows(given, _pair(ksize), strides, padding, given.min(initial=0))
    return tensor(found.max((-1, -2)))


def avg_pool2d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The mean of each window of images, without padding."""
    given = _array(input)
    size = _pair(ksize)
    total = _windows(given, size, strides, padding, 0).sum((-1, -2))
    ones = np.ones((1, *given.shape[1:3], 1), given.dtype)
    return tensor(
        (total / _windows(ones, size, strides, padding, 0).sum((-1, -2))).astype(given.dtype)
    )


__getattr__ = absent_from("tf.nn")
