"""The cross-entropies of `tf.nn`, which programs use to check labels and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arrays import tensor
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]


def _array(value: Any, like: Any = None) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value, None if like is None else like.dtype).view(np.ndarray)


def _log_softmax(logits: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    given = logits - np.max(logits, axis=axis, keepdims=True)
    return given - np.log(np.sum(np.exp(given), axis=axis, keepdims=True))


def _same_shapes(labels: np.ndarray[Any, Any], logits: np.ndarray[Any, Any]) -> None:
    if labels.shape != logits.shape:
        raise ValueError(
            "`logits` and `labels` must have the same shape, "
            f"received ({logits.shape} vs {labels.shape})."
        )


def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> Tensor:
    """The cross-entropy of probabilities and the softmax of logits.

    Args:
        labels: the probabilities of the classes, [..., classes].
        logits: [..., classes].
        axis (int): the dimension of the classes.
        name: ignored.

    Returns:
        Tensor without that dimension.

    Raises:
        InvalidArgumentError: shapes that do not fit each other.

    Example:
        >>> import penstock.tf as tf
        >>> loss = tf.nn.softmax_cross_entropy_with_logits([[0.0, 1.0]], [[0.0, 0.0]])
        >>> loss.numpy().round(2).tolist()
        [0.6899999976158142]
    """
    given = _array(logits)
    wanted = _array(labels, given)
    try:
        return tensor(-np.sum(wanted * _log_softmax(given, axis), axis=axis, dtype=given.dtype))
    except ValueError:
        message = f"logits and labels must be broadcastable: {given.shape} and {wanted.shape}"
        raise InvalidArgumentError(None, None, message) from None


def sparse_softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, name: str | None = None
) -> Tensor:
    """The cross-entropy of class numbers and the softmax of logits.

    Args:
        labels: class numbers, int32 or int64 [...].
        logits: [..., classes].
        name: ignored.

    Returns:
        Tensor of the shape of labels.

    Raises:
        ValueError: shapes that do not fit each other.
        InvalidArgumentError: a label that is not a class number.
    """
    given, numbers = _array(logits), _array(labels)
    if numbers.shape != given.shape[:-1]:
        raise ValueError(
            "`labels.shape` must equal `logits.shape` except for the last dimension. "
            f"Received: labels.shape={numbers.shape} and logits.shape={given.shape}"
        )
    wrong = numbers[(numbers < 0) | (numbers >= given.shape[-1])]
    if wrong.size:
        message = f"Received a label value of {wrong[0]} which is outside the valid range of [0, {given.shape[-1]})"
        raise InvalidArgumentError(None, None, message)
    chosen = np.take_along_axis(_log_softmax(given, -1), numbers[..., None], -1)
    return tensor(-chosen[..., 0])


def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """The cross-entropy of probabilities and the sigmoid of logits, element by element.

    Raises:
        ValueError: other shapes than each other's.
    """
    given = _array(logits)
    wanted = _array(labels, given)
    _same_shapes(wanted, given)
    return tensor(np.maximum(given, 0) - given * wanted + np.log1p(np.exp(-np.abs(given))))


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: Any, name: str | None = None
) -> Tensor:
    """Like `sigmoid_cross_entropy_with_logits`, with positive labels multiplied by `pos_weight`.

    Raises:
        ValueError: other shapes than each other's.
    """
    given = _array(logits)
    wanted = _array(labels, given)
    _same_shapes(wanted, given)
    weight = 1 + (_array(pos_weight, given) - 1) * wanted
    more = np.log1p(np.exp(-np.abs(given))) + np.maximum(-given, 0)
    return tensor((1 - wanted) * given + weight * more)
