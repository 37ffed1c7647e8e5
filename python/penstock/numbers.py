"""Numbers between Arrow and NumPy, without copying; and whole numbers that users gave.

pyarrow's own ways (`pa.array(ndarray)`, `Array.to_numpy`) import pandas where it is installed, which
costs the first read of a process a third of a second and more. These do not.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pyarrow as pa

_DTYPES = {
    pa.uint8(): np.uint8,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.int64(): np.int64,
}
_TYPES = {np.dtype(dtype): type_ for type_, dtype in _DTYPES.items()}


def as_numpy(values: Any) -> np.ndarray:
    """The numbers of an array, or of what has the Arrow C interface; none may be null."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    dtype = np.dtype(_DTYPES[array.type])
    data = array.buffers()[1]
    if data is None:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def as_arrow(numbers: np.ndarray) -> pa.Array:
    """The same numbers as an Arrow array."""
    numbers = np.ascontiguousarray(numbers)
    type_ = _TYPES[numbers.dtype]
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def checked_count(word: str, value: Any, least: int) -> int:
    """What a user gave for `word`, as a Python number of at least so much.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is smaller.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{word} is a whole number, not {value!r}")
    if number < least:
        raise ValueError(f"{word} must be at least {least}, not {number}")
    return number
