"""TensorFlow's wrappers of functions. Functions run as plain Python, so most wrappers return the function itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.nest import flatten, map_structure, pack_sequence_as
from penstock.tf.tensor import Tensor, constant, convert_to_tensor


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself: it is not traced, and runs as Python at every call.

    Usable as `@tf.function` and as `@tf.function(jit_compile=True)`; options are ignored.

    Example:
        >>> import penstock.tf as tf
        >>> @tf.function
        ... def double(x):
        ...     return x * 2
        >>> double(tf.constant(4)).numpy()
        np.int32(8)
    """
    return function_with_options if func is None else func


def function_with_options(func: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that `tf.function(...)` returns."""
    return func


def py_function(
    func: Callable[..., Any] | None = None, inp: Any = (), Tout: Any = None, name: str | None = None
) -> Any:
    """The function's results for tensors, as tensors with the dtypes `Tout`.

    Args:
        func: a function of the inputs, as tensors.
        inp: the inputs.
        Tout: the dtype of its result; a list of dtypes for several results, None if it returns nothing.
        name: ignored.

    Raises:
        InvalidArgumentError: different numbers of results and dtypes.

    Example:
        >>> import penstock.tf as tf
        >>> tf.py_function(lambda x: x + 1, [tf.constant(1)], tf.int32).numpy()
        np.int32(2)
    """
    assert func is not None
    return _results(func(*(convert_to_tensor(x) for x in inp)), Tout)


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = (),
    Tout: Any = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """As `py_function`, but the function gets plain NumPy arrays, and bytes for single strings."""
    assert func is not None
    return _results(func(*(convert_to_tensor(x).numpy() for x in inp)), Tout)


def _results(found: Any, dtypes: Any) -> Any:
    if not isinstance(dtypes, (list, tuple)):
        return None if dtypes is None or found is None else _result(found, dtypes)
    several = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(several) != len(dtypes):
        raise InvalidArgumentError(
            None, None, f"the function returned {len(several)} values, Tout has {len(dtypes)}"
        )
    return [_result(value, dtype) for value, dtype in zip(several, dtypes, strict=True)]


def _result(value: Any, dtype: Any) -> Tensor:
    wanted = as_dtype(dtype)
    made = (
        value
        if isinstance(value, Tensor)
        else constant(value, None if isinstance(value, (np.ndarray, np.generic)) else wanted)
    )
    if made.dtype != wanted:
        raise InvalidArgumentError(
            None,
            None,
            f"the function returned {as_dtype(made.dtype).name}, but expects {wanted.name}",
        )
    return made


def executing_eagerly() -> bool:
    """Always True: nothing is traced."""
    return True


def get_logger() -> logging.Logger:
    """The logger with TensorFlow's name."""
    return logging.getLogger("tensorflow")


def print(*inputs: Any, **options: Any) -> None:
    """Write values to standard error, tensors without their shape and dtype.

    Args:
        inputs: the values.
        options: output_stream (a Python file), sep, end, summarize (values shown at either end of each dimension;
            -1 for all).

    Example:
        >>> import sys
        >>> import penstock.tf as tf
        >>> tf.print("sizes", tf.constant([1, 2, 3]), output_stream=sys.stdout)
        sizes [1 2 3]
    """
    stream, most = options.get("output_stream", sys.stderr), options.get("summarize")
    edge = 3 if most is None else int(most)
    if len(inputs) == 1 and isinstance(inputs[0], np.ndarray) and inputs[0].dtype == object:
        inputs = (inputs[0].item().decode(errors="replace"),) if inputs[0].ndim == 0 else inputs
    shown = (_printed(value, edge) for value in inputs)
    text = options.get("sep", " ").join(shown) + options.get("end", "\n")
    stream.write(text)


def _printed(value: Any, edge: int) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        limit = sys.maxsize if edge < 0 else 0
        return np.array2string(np.asarray(value), threshold=limit, edgeitems=abs(edge))
    plain = value.item() if isinstance(value, np.ndarray) else value
    return f'"{plain.decode(errors="replace")}"' if isinstance(plain, bytes) else str(plain)


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """The tensor itself, because penstock.tf has no gradients."""
    return input


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of one of two functions, depending on a condition. The other function is not called."""
    assert true_fn is not None
    assert false_fn is not None
    return true_fn() if bool(np.asarray(pred)) else false_fn()


def map_fn(fn: Callable[..., Any], elems: Any, dtype: Any = None, **options: Any) -> Any:
    """The function's results for each slice along the first dimension, stacked; also for structures.

    Example:
        >>> import penstock.tf as tf
        >>> tf.map_fn(lambda x: x * x, tf.constant([1, 2, 3])).numpy()
        array([1, 4, 9], dtype=int32)
    """
    parts = map_structure(convert_to_tensor, elems)
    rows = zip(*flatten(parts), strict=True)
    results = [fn(pack_sequence_as(parts, row)) for row in rows]
    if not results:
        raise ValueError("tf.map_fn needs at least one element to know the shape of its results")
    return map_structure(lambda *leaves: np.stack(leaves).view(Tensor), *results)


@contextmanager
def name_scope(name: str) -> Generator[str]:
    """Has no effect, because operations have no names."""
    yield name


@contextmanager
def device(device_name: Any) -> Generator[None]:
    """Has no effect, because tensors are in CPU memory."""
    yield
