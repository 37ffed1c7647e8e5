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


def printed(value: Any, edge: int) -> str:
    """A value as text, with this many values at either end of each dimension."""
    if isinstance(value, np.ndarray) and value.ndim:
        limit = sys.maxsize if edge < 0 else 0
        return np.array2string(np.asarray(value), threshold=limit, edgeitems=abs(edge))
    plain = value.item() if isinstance(value, np.ndarray) else value
    return f'"{plain.decode(errors="replace")}"' if isinstance(plain, bytes) else str(plain)
