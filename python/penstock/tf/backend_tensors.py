"""Tensors of Keras's backend that cannot become NumPy arrays, in models, losses and metrics that call `tf`.

They are tracers of JAX, tensors of torch that need a gradient or are on a GPU, and Keras's symbolic tensors.
`keras_functions.py` computes functions of them. Here is only how to recognise them, because tensors and random numbers
need it, too. Nothing is asked about a value before NumPy has refused it.
"""

from __future__ import annotations

import operator
import sys
from types import FrameType
from typing import Any

import numpy as np

from penstock.tf.error_classes import UnimplementedError


class BackendTensorError(UnimplementedError):
    """A tensor of Keras's backend that cannot become a NumPy array."""


def is_of_backend(value: Any) -> bool:
    """Whether a value is a tensor, a symbolic tensor or a variable of Keras, if Keras is imported."""
    keras: Any = sys.modules.get("keras")
    if isinstance(value, np.ndarray) or not hasattr(keras, "ops"):
        return False
    return keras.ops.is_tensor(value) or isinstance(value, (keras.KerasTensor, keras.Variable))


def is_unreadable(value: Any) -> bool:
    """Whether a value is such a tensor and NumPy cannot read it, or a list, tuple or dict that has one."""
    if isinstance(value, (list, tuple)):
        return any(map(is_unreadable, value))
    if isinstance(value, dict):
        return any(map(is_unreadable, value.values()))
    if not is_of_backend(value):
        return False
    try:
        np.asarray(value)
    except Exception:  # each backend has its own
        return True
    return False


def refuse_unreadable(value: Any) -> None:
    """Raise an error if NumPy cannot read a value because it is, or has, a tensor of Keras's backend.

    Raises:
        BackendTensorError: it is one.
    """
    if is_unreadable(value):
        message = "a tensor has no values while Keras compiles, differentiates or builds a model"
        hint = "the function of keras.ops for this, or do it in Dataset.map"
        raise BackendTensorError(None, None, message, hint=hint)


def in_ops(name: str, *values: Any, **options: Any) -> Any:
    """Call a function of keras.ops."""
    return operator.attrgetter(name)(sys.modules["keras"].ops)(*values, **options)


def operated(operator: str, first: Any, second: Any) -> Any:
    """The result of Python's operator of this name, as keras.ops computes it."""
    return in_ops(_OPERATORS[operator], first, second)


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "mod", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip


def with_gradient_stopped(value: Any) -> Any:
    """A tensor of Keras's backend without its gradient; other values are returned unchanged."""
    return in_ops("stop_gradient", value) if is_of_backend(value) else value


def refuse_drawing() -> None:
    """Raise an error while JAX compiles a function: numbers drawn now would be the same in every call.

    Raises:
        BackendTensorError: JAX is compiling.
    """
    keras: Any = sys.modules.get("keras")
    jax: Any = sys.modules.get("jax")
    if jax is None or not hasattr(keras, "config") or keras.config.backend() != "jax":
        return
    if isinstance(jax.numpy.zeros(()), jax.core.Tracer):
        message = "random numbers drawn while JAX compiles a model would be the same in every step"
        hint = "keras.random, with a keras.random.SeedGenerator that the layer keeps"
        raise BackendTensorError(None, None, message, hint=hint)


_WRITES_IN_PLACE = "keras.src.applications.imagenet_utils"


def may_write(array: Any, frame: FrameType | None) -> bool:
    """Whether the function that called that of a frame may write into a tensor, which gets its own memory first.

    Only `preprocess_input` of Keras may: it writes into a view that it has made of a tensor, and that nobody else has.
    """
    writer = None if frame is None else frame.f_back
    if writer is None or writer.f_globals.get("__name__") != _WRITES_IN_PLACE:
        return False
    if not array.flags.owndata:
        state: Any = (1, np.shape(array), array.dtype.dtype, False, array.tobytes())
        array.__setstate__(state)
    return True
