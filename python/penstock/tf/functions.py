"""TensorFlow's wrappers of functions. Functions run as plain Python here, so most return the function itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.tf import graphs, probing
from penstock.tf.backend_tensors import with_gradient_stopped
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.nest import flatten, map_structure, pack_sequence_as
from penstock.tf.shapes import TypeSpec
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
    return function_with_options if func is None else function_with_options(func)


def function_with_options(func: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that `tf.function(...)` returns."""
    graphs.as_graph(func)
    return func


def py_function(
    func: Callable[..., Any] | None = None, inp: Any = (), Tout: Any = None, name: str | None = None
) -> Any:
    """Call a function with tensors, and return its results as tensors with the dtypes `Tout`.

    Args:
        func: the function, which gets the inputs as tensors.
        inp: the inputs.
        Tout: the dtype of its result, a list of them for several, None for none.
        name: ignored.

    Raises:
        InvalidArgumentError: the numbers of results and dtypes differ.

    Example:
        >>> import penstock.tf as tf
        >>> tf.py_function(lambda x: x + 1, [tf.constant(1)], tf.int32).numpy()
        np.int32(2)
    """
    assert func is not None
    if probing.is_on():
        return _unknown(Tout)
    return _results(func(*map(_argument, inp)), Tout, _converted)


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = (),
    Tout: Any = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """As `py_function`, but the function gets plain NumPy arrays, and bytes for single strings."""
    assert func is not None
    if probing.is_on():
        return _unknown(Tout)
    return _results(func(*(convert_to_tensor(x).numpy() for x in inp)), Tout, _result)


def _argument(value: Any) -> Any:
    return value if hasattr(value, "with_values") else convert_to_tensor(value)


def _unknown(dtypes: Any) -> Any:
    """Placeholders for the results of a function that is not called: their shapes are unknown."""
    if dtypes is None:
        return None
    if isinstance(dtypes, (list, tuple)):
        return [_unknown(dtype) for dtype in dtypes]
    if isinstance(dtypes, TypeSpec):
        return probing.array(dtypes.shape, dtypes.dtype).view(Tensor)
    return probing.array(None, dtypes).view(Tensor)


def _results(found: Any, dtypes: Any, convert: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(dtypes, (list, tuple)):
        if isinstance(found, (list, tuple)) and found and convert is _converted:
            found = found[0]  # as in TensorFlow, which takes a list for several results
        return None if dtypes is None or found is None else convert(found, dtypes)
    several = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(several) != len(dtypes):
        raise InvalidArgumentError(
            None, None, f"the function returned {len(several)} values, Tout has {len(dtypes)}"
        )
    return [convert(value, dtype) for value, dtype in zip(several, dtypes, strict=True)]


def _converted(value: Any, dtype: Any) -> Any:
    """A result of py_function, converted like any argument of an operation."""
    wanted = dtype.dtype if isinstance(dtype, TypeSpec) else as_dtype(dtype)
    if hasattr(value, "with_values"):
        return value
    if not isinstance(value, Tensor):
        return _constant(value, wanted)
    if value.dtype != wanted:
        raise InvalidArgumentError(
            None,
            None,
            f"ValueError: Tensor conversion requested dtype {wanted.name} for Tensor with dtype "
            f"{as_dtype(value.dtype).name}",
        )
    return value


def _constant(value: Any, wanted: Any) -> Tensor:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
        return np.asarray(value).astype(wanted.dtype).view(Tensor)
    try:
        return constant(value, wanted)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(None, None, f"{type(error).__name__}: {error}") from error


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
    """The logger with the name of TensorFlow's."""
    return logging.getLogger("tensorflow")


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """The tensor itself: penstock.tf has no gradients. Tensors of Keras lose theirs."""
    return with_gradient_stopped(input)


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Call one of two functions, depending on a condition, and return its result."""
    assert true_fn is not None
    assert false_fn is not None
    holds = is_true(pred)
    with graphs.inside("true" if holds else "false"):
        return true_fn() if holds else false_fn()


def is_true(pred: Any) -> bool:
    """Whether a condition holds. During a call with placeholders, both answers are tried in turn."""
    return probing.decision() if probing.is_on() else bool(np.asarray(pred))


def map_fn(fn: Callable[..., Any], elems: Any, dtype: Any = None, **options: Any) -> Any:
    """Call a function with each slice along the first dimension, and stack its results. Structures are allowed.

    Example:
        >>> import penstock.tf as tf
        >>> tf.map_fn(lambda x: x * x, tf.constant([1, 2, 3])).numpy()
        array([1, 4, 9], dtype=int32)
    """
    parts = map_structure(_argument, elems)
    rows = zip(*flatten(parts), strict=True)
    results = [
        each(pack_sequence_as(parts, row))
        for row, each in zip(rows, graphs.rounds(fn), strict=False)
    ]
    if not results:
        return _none_of(fn, parts)
    return map_structure(lambda *leaves: np.stack(leaves).view(Tensor), *results)


def vectorized_map(
    fn: Callable[..., Any], elems: Any, fallback_to_while_loop: bool = True, **_: Any
) -> Any:
    """The same as `map_fn`: the function is called for each slice."""
    return map_fn(fn, elems)


def _none_of(fn: Callable[..., Any], parts: Any) -> Any:
    """The result of `map_fn` for no elements: zero rows, with the shapes that the function returns for placeholders."""
    with probing.probing(0):
        rows = [probing.array(part.shape[1:], part.dtype).view(Tensor) for part in flatten(parts)]
        first = fn(pack_sequence_as(parts, rows))
    with probing.probing(2):
        rows = [probing.array(part.shape[1:], part.dtype).view(Tensor) for part in flatten(parts)]
        other = fn(pack_sequence_as(parts, rows))

    def empty(one: Any, two: Any) -> Tensor:
        one, two = convert_to_tensor(one), convert_to_tensor(two)
        sizes = (a if a == b else 0 for a, b in zip(one.shape, two.shape, strict=True))
        return np.zeros((0, *sizes), one.dtype.dtype).view(Tensor)

    return map_structure(empty, first, other)


class name_scope:  # noqa: N801 -- TensorFlow's name
    """No effect: operations have no names. Also in TensorFlow 1's form, `name_scope(name, default_name, values)`."""

    def __init__(self, name: Any = None, default_name: Any = None, values: Any = None) -> None:
        self.name = name or default_name or ""

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def device(device_name: Any) -> Generator[None]:
    """No effect: tensors are in CPU memory."""
    yield


@contextmanager
def control_dependencies(control_inputs: Any) -> Generator[None]:
    """No effect: operations run in the order of the program."""
    yield


def group(*inputs: Any, name: str | None = None) -> None:
    """No effect: the operations have already run."""


def no_op(name: str | None = None) -> None:
    """No effect."""
