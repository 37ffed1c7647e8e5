"""`tf.debugging`: checks of values in programs that prepare data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.missing import absent_from
from penstock.tf.tensor import convert_to_tensor

__all__ = [
    "Assert",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_non_negative",
    "assert_none_equal",
    "assert_positive",
    "assert_rank",
    "assert_type",
    "check_numerics",
    "set_log_device_placement",
]


def _comparison(compare: Callable[..., Any], sign: str) -> Callable[..., None]:
    def check(
        x: Any, y: Any, message: str | None = None, summarize: Any = None, name: str | None = None
    ) -> None:
        first, second = convert_to_tensor(x), convert_to_tensor(y)
        if not probing.is_on() and not np.all(compare(first, second)):
            message = f"{message or ''}\nCondition x {sign} y did not hold.".strip()
            raise InvalidArgumentError(
                None, None, f"{message}\nx: {first.numpy()}\ny: {second.numpy()}"
            )

    check.__doc__ = f"Raise InvalidArgumentError unless x {sign} y for all values."
    return check


assert_equal = _comparison(np.equal, "==")
assert_none_equal = _comparison(np.not_equal, "!=")
assert_greater = _comparison(np.greater, ">")
assert_greater_equal = _comparison(np.greater_equal, ">=")
assert_less = _comparison(np.less, "<")
assert_less_equal = _comparison(np.less_equal, "<=")


def assert_positive(
    x: Any, message: str | None = None, summarize: Any = None, name: str | None = None
) -> None:
    """Raise InvalidArgumentError if a value is not above 0."""
    assert_greater(x, np.zeros((), convert_to_tensor(x).dtype), message)


def assert_non_negative(
    x: Any, message: str | None = None, summarize: Any = None, name: str | None = None
) -> None:
    """Raise InvalidArgumentError if a value is below 0."""
    assert_greater_equal(x, np.zeros((), convert_to_tensor(x).dtype), message)


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> None:
    """Check the number of dimensions.

    Raises:
        ValueError: it differs.
    """
    found = convert_to_tensor(x)
    if found.ndim != int(rank):
        raise ValueError(
            f"{message or ''}\nTensor {found.shape} must have rank {int(rank)}.".strip()
        )


def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> None:
    """Check the dtype.

    Raises:
        TypeError: it differs.
    """
    found, wanted = as_dtype(convert_to_tensor(tensor).dtype), as_dtype(tf_type)
    if found != wanted:
        raise TypeError(f"{message or ''}\ntensor must be of type {wanted}, not {found}.".strip())


def Assert(  # noqa: N802 -- TensorFlow's name
    condition: Any, data: Any, summarize: Any = None, name: str | None = None
) -> None:
    """Raise InvalidArgumentError with the data if a condition is false."""
    if not probing.is_on() and not np.all(condition):
        shown = ", ".join(str(convert_to_tensor(value).numpy()) for value in data)
        raise InvalidArgumentError(
            None, None, f"Expected '{condition}' to be true. Summarized data: {shown}"
        )


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Any:
    """The tensor itself. InvalidArgumentError is raised if it has a NaN or an infinity."""
    value = convert_to_tensor(tensor)
    for what, found in (("NaN", np.isnan(value)), ("Inf", np.isinf(value))):
        if found.any():
            raise InvalidArgumentError(None, None, f"{message} : Tensor had {what} values")
    return value


def set_log_device_placement(enabled: bool) -> None:
    """Has no effect, because everything runs on the CPU."""


__getattr__ = absent_from("tf.debugging")
