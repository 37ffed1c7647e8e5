"""NumPy's errors about shapes, indices and dimensions, raised as TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from penstock.tf import graphs, probing
from penstock.tf.errors import InvalidArgumentError

P = ParamSpec("P")
R = TypeVar("R")


def refusing(operation: Callable[P, R]) -> Callable[P, R]:
    """Decorate an operation: arguments that NumPy refuses raise InvalidArgumentError."""

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return operation(*args, **kwargs)
        except (ValueError, IndexError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(None, None, str(error)) from None

    return run


def refusal_of(kind: type[Exception], text: str) -> Exception:
    """The error for operands of dtypes that an operation does not take. In a function given to a dataset, which
    TensorFlow traces, it is a TypeError instead of an InvalidArgumentError."""
    if kind is not InvalidArgumentError:
        return kind(text)
    is_traced = graphs.current() is not None or probing.is_on()
    return TypeError(text) if is_traced else InvalidArgumentError(None, None, text)


def no_zero(numpys: Callable[..., Any]) -> Callable[..., Any]:
    """A division by NumPy that refuses to divide integers by 0."""

    @wraps(numpys)
    def run(x: Any, y: Any) -> Any:
        divisors = np.asarray(y)
        if divisors.dtype.kind in "iu" and not divisors.all() and not _is_float(x):
            if probing.is_on():
                divisors = np.where(divisors, divisors, divisors.dtype.type(1))
                return numpys(x, divisors)
            raise InvalidArgumentError(None, None, "Integer division by zero")
        return numpys(x, y)

    return run


def _is_float(value: Any) -> bool:
    return np.asarray(value).dtype.kind == "f"
