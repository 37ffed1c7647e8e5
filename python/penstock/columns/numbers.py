"""Converts numbers between Arrow and NumPy, and byte strings between Arrow and Python, without copying.

pyarrow's own conversions (`pa.array(ndarray)`, `Array.to_numpy`) import pandas if it is installed, which takes at least
a third of a second. The functions here do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.limits import checked_count

_DTYPES = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}
_IN_VIEW = 12
"""The longest value, in bytes, that an Arrow view stores inline."""
_TYPES = {np.dtype(dtype): type_ for type_, dtype in _DTYPES.items()}


def as_numpy(values: Any) -> np.ndarray:
    """The numbers of an array, or of an object with the Arrow C interface. There must be no nulls."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    dtype = np.dtype(_DTYPES[array.type])
    data = array.buffers()[1]
    if data is None:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def in_bytes(data: _core.Buffer, dtype: Any = np.uint8) -> np.ndarray:
    """View the bytes of a buffer as numbers."""
    return np.frombuffer(memoryview(data), dtype)


def as_arrow(numbers: np.ndarray) -> pa.Array:
    """Convert an array with one axis to an Arrow array. Other values than numbers are converted by pyarrow."""
    numbers = np.ascontiguousarray(numbers)
    type_ = _TYPES.get(numbers.dtype)
    if type_ is None:
        return pa.array(numbers)
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def as_booleans(mask: np.ndarray) -> pa.BooleanArray:
    """Convert truth values to an Arrow array."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def as_texts(texts: Sequence[str]) -> pa.StringArray:
    """Convert texts to an Arrow array.

    Example:
        >>> from penstock.columns.numbers import as_texts
        >>> as_texts(["a", "", "bc"]).to_pylist()
        ['a', '', 'bc']
    """
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(data), buffers)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers, sorted. `np.unique` imports numpy.ma at its first call, which takes 15 ms.

    Example:
        >>> import numpy as np
        >>> from penstock.columns.numbers import distinct
        >>> distinct(np.array([3, 1, 3])).tolist(), distinct(np.array([], np.int64)).tolist()
        ([1, 3], [])
    """
    found = np.sort(numbers)
    return found[np.diff(found, prepend=found[:1] - 1) != 0]


def outside(numbers: np.ndarray, count: int) -> bool:
    """Whether any of the int64 numbers is outside 0 to `count` - 1. They are compared as unsigned, so that a negative
    number is too large."""
    return len(numbers) > 0 and int(numbers.view(np.uint64).max()) >= count


def memoryviews(column: Any) -> list[memoryview]:
    """The bytes of each value of a byte string column without nulls.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.numbers import memoryviews
        >>> [
        ...     bytes(view)
        ...     for view in memoryviews(pa.array([b"one", b"a second value"], pa.binary_view()))
        ... ]
        [b'one', b'a second value']
    """
    array = column.storage if isinstance(column, pa.ExtensionArray) else column
    if array.type == pa.binary_view():
        return _of_views(array)
    if array.type not in (pa.binary(), pa.large_binary()):
        array = array.cast(pa.large_binary())
    width = np.int32 if array.type == pa.binary() else np.int64
    _, offsets, values = array.buffers()
    if offsets is None:
        return []
    edges = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].tolist()
    whole = memoryview(b"" if values is None else values).cast("B")
    return [whole[start:end] for start, end in pairwise(edges)]


def _of_views(array: Any) -> list[memoryview]:
    """Read an array of views. A view begins with the length of its value. A short value follows in full. For a long
    value, its first four bytes, the number of a buffer, and an offset in that buffer follow."""
    _, heads, *buffers = array.buffers()
    if heads is None:
        return []
    wholes = [memoryview(buffer).cast("B") for buffer in buffers]
    own = memoryview(heads).cast("B")[16 * array.offset :]
    words = np.frombuffer(own, np.int32, 4 * len(array)).reshape(-1, 4).tolist()
    return [
        wholes[number][start : start + length]
        if length > _IN_VIEW
        else own[16 * at + 4 : 16 * at + 4 + length]
        for at, (length, _, number, start) in enumerate(words)
    ]


def view_lengths(array: Any) -> np.ndarray:
    """The length in bytes of each value of an array of views, int32; undefined for nulls."""
    heads = array.buffers()[1]
    if heads is None:
        return np.zeros(0, np.int32)
    return np.frombuffer(heads, np.int32, 4 * len(array), 16 * array.offset)[::4]


def checked_infer(value: Any) -> None:
    """Raise TypeError or ValueError unless `infer_records` is "all" or a whole number of at least 1."""
    if not isinstance(value, str):
        checked_count("infer_records", value, 1)
    elif value != "all":
        raise ValueError(f'infer_records is a whole number or "all", not {value!r}')
