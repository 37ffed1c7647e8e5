"""Numbers as text and text as numbers: `tf.strings.as_string` and `to_number`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import each

_FLOAT = re.compile(
    r"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.IGNORECASE
)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Any:
    """Numbers as text.

    Args:
        input: the numbers, or truth values.
        precision: digits after the point; -1 for the default of 6.
        scientific: write an exponent.
        shortest: write the shorter of the forms with and without an exponent.
        width: the minimum number of characters.
        fill: fill up with spaces (" ") or zeros ("0") at the left, or with spaces at the right ("-"), or write the sign
            of positive numbers ("+").
        name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> (
        ...     tf.strings.as_string([1.5, 2]).numpy().tolist(),
        ...     tf.strings.as_string(3, width=3).numpy(),
        ... )
        ([b'1.500000', b'2.000000'], b'  3')
    """
    if isinstance(input, RaggedTensor):
        return input.with_flat_values(
            as_string(input.flat_values, precision, scientific, shortest, width, fill)
        )
    given = convert_to_tensor(input)
    if given.dtype == string:
        return given
    kind = as_dtype(given.dtype)
    form = "%" + fill.strip() + (str(width) if width >= 0 else "")
    if kind.is_floating:
        form += (f".{precision}" if precision >= 0 else "") + (
            "e" if scientific else "g" if shortest else "f"
        )
    else:
        form += "d"
    made = np.empty(np.shape(given), object)
    flat = made.reshape(-1)
    for place, value in enumerate(given.ravel().tolist()):
        flat[place] = (("true" if value else "false") if kind.is_bool else form % value).encode()
    return made.view(Tensor)


def to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    """Text as numbers, float32 unless `out_type` is int32, int64 or float64.

    Raises:
        InvalidArgumentError: a text is not a number, or the number does not fit the type.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.to_number(["3", "4"], tf.int32).numpy()
        array([3, 4], dtype=int32)
    """
    kind = as_dtype(out_type)
    return each(input, lambda text: number_of(text, kind), kind)


def number_of(text: bytes, kind: Any) -> Any:
    """Convert a text to a number.

    Raises:
        InvalidArgumentError: the text is not a number, or the number does not fit the type.
    """
    said = text.decode("utf-8", "replace")
    if kind.is_integer and _WHOLE.fullmatch(said) and kind.min <= int(said) <= kind.max:
        return int(said)
    if kind.is_floating and _FLOAT.fullmatch(said):
        return float(said)
    raise InvalidArgumentError(
        None, None, f"StringToNumberOp could not correctly convert string: {said}"
    )
