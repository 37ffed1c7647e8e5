"""`tf.print`, and tensors as text."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


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
    shown = (printed(value, edge) for value in inputs)
    text = options.get("sep", " ").join(shown) + options.get("end", "\n")
    stream.write(text)


def printed(value: Any, edge: int, errors: str = "replace") -> str:
    """A value as text, with this many values at either end of each dimension. `errors` says how bytes that are not
    UTF-8 are decoded."""
    if isinstance(value, np.ndarray) and value.ndim:
        return _rows(np.asarray(value), edge, errors, 1)
    return _scalar(np.asarray(value)[()] if isinstance(value, np.ndarray) else value, errors)


def _rows(array: np.ndarray[Any, Any], edge: int, errors: str, depth: int) -> str:
    if not array.ndim:
        return _scalar(array[()], errors)
    parts = [_rows(part, edge, errors, depth + 1) for part in _at_ends(array, edge)]
    if 0 <= 2 * edge < len(array):
        parts.insert(edge, "...")
    between = "\n" * (array.ndim - 1) + " " * depth if array.ndim > 1 else " "
    return f"[{between.join(parts)}]"


def _at_ends(array: np.ndarray[Any, Any], edge: int) -> list[Any]:
    if edge < 0 or len(array) <= 2 * edge:
        return [array[n, ...] for n in range(len(array))]
    return [array[n, ...] for n in (*range(edge), *range(-edge, 0))]


def _scalar(value: Any, errors: str) -> str:
    plain = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(plain, bytes):
        return f'"{plain.decode(errors=errors)}"'
    if isinstance(value, np.bool_):
        return str(int(value))
    if isinstance(value, np.floating):
        return _number(np.float32(value) if value.dtype.itemsize < 4 else value)
    return str(plain)


def _number(value: Any) -> str:
    """A number with 6 (float64: 15) digits if they identify it, otherwise with 9 (17), as in TensorFlow."""
    few, all_digits = (6, 9) if value.dtype.itemsize == 4 else (15, 17)
    short = f"{float(value):.{few}g}"
    return short if value.dtype.type(short) == value else f"{float(value):.{all_digits}g}"
