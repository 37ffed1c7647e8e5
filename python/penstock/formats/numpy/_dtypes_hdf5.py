"""Dtypes that h5py marks with metadata: text and lists of any length, and names for numbers. This module reads the
marks without h5py, so that `dtypes.py` does not need it.

| mark | Arrow type |
|---|---|
| `vlen`: str or bytes | string |
| `vlen`: uint8 | binary; for other numbers, a list |
| `vlen`: S | list of binary, or of string if `h5py_encoding` is marked |
| `enum`: FALSE 0, TRUE 1 | bool (h5py itself converts it) |
| `enum`: other names | dictionary of the names, in the order of their numbers |
| `h5py_encoding` on S | string |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FormatError, UnsupportedError, batch_limit


def marked_type(dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type of a marked dtype, or None if it has no mark. Raise UnsupportedError if penstock does not
    support the mark, such as a reference."""
    marks: Any = dtype.metadata or {}
    if "vlen" in marks:
        return pa.string() if marks["vlen"] in (str, bytes) else _list_type(np.dtype(marks["vlen"]))
    if "enum" in marks:
        fits = len(marks["enum"]) - 1 <= np.iinfo(dtype).max
        index = pa.from_numpy_dtype(dtype.newbyteorder("=")) if fits else pa.int32()
        return pa.dictionary(index, pa.string())
    if "h5py_encoding" in marks and dtype.kind == "S":
        return pa.string()
    return None


def _list_type(base: np.dtype[Any]) -> Any:
    if base.kind == "S":
        return pa.list_(marked_type(base) or pa.binary())
    if base.kind not in "biuf" or base.itemsize > 8 or base.metadata:
        raise UnsupportedError(f"penstock does not read lists of {base}")
    if base == np.uint8:
        return pa.binary()
    return pa.list_(pa.from_numpy_dtype(base.newbyteorder("=")))


def marked_column(values: np.ndarray, type_: Any) -> Any:
    """Convert an array with one value per record, whose dtype has the mark vlen or enum, to a column."""
    marks: Any = values.dtype.metadata or {}
    if "enum" in marks:
        return _named(values, marks["enum"], type_)
    if marks["vlen"] in (str, bytes):
        strings = _joined([_as_bytes(value) for value in values])
        return strings if type_ == strings.type else text_column(strings)
    base = np.dtype(marks["vlen"])
    return _list_column(values, type_, base if base.kind == "S" else base.newbyteorder("="))


def _list_column(values: np.ndarray, type_: Any, base: np.dtype[Any]) -> Any:
    parts = [np.zeros(0, base) if _is_nothing(part) else np.asarray(part) for part in values]
    offsets = offsets_of([len(part) for part in parts], "lists")
    data = np.concatenate(parts) if parts else np.zeros(0, base)
    places = pa.py_buffer(offsets.astype(np.int32))
    if base.kind == "S":
        inner = _texts(data, offsets, type_.value_type)
        return pa.Array.from_buffers(type_, len(parts), [None, places], children=[inner])
    data = np.ascontiguousarray(data.astype(base, copy=False))
    if type_ == pa.binary():
        return pa.Array.from_buffers(type_, len(parts), [None, places, pa.py_buffer(data)])
    if base.kind == "b":
        data = np.packbits(data.view(np.uint8) != 0, bitorder="little")
    inner = pa.Array.from_buffers(type_.value_type, int(offsets[-1]), [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(type_, len(parts), [None, places], children=[inner])


def _texts(data: np.ndarray, offsets: np.ndarray, type_: Any) -> Any:
    """Convert strings of fixed length to a column. `offsets` are those of the lists that hold them."""
    strings = _joined(data.tolist())
    if type_ == strings.type:
        return strings
    try:
        return text_column(strings)
    except FormatError as error:
        error.record = int(np.searchsorted(offsets, error.record or 0, "right")) - 1
        raise


def text_column(array: Any) -> Any:
    """Convert bytes to text. Raise FormatError if a value is not UTF-8."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    for record, value in enumerate(array.to_pylist()):
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"the text is not UTF-8: {error}",
                record=record,
                hint='open(..., types={FIELD: "binary"}) reads bytes; damage="skip" leaves such records out',
            ) from None
    raise FormatError("the text is not UTF-8")


def offsets_of(lengths: Any, what: str = "text") -> np.ndarray:
    """Return the offsets of values (int64) from their lengths. Raise LimitError if 32 bits cannot hold them."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > 0x7FFFFFFF:
        raise batch_limit(f"more than 2 GiB of {what} in one batch")
    return offsets


def _joined(values: list[bytes]) -> Any:
    """Convert byte strings to a column. `pa.array` would import pandas for this."""
    offsets = offsets_of([len(value) for value in values])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else b""


def _is_nothing(part: Any) -> bool:
    return part is None or (isinstance(part, int) and part == 0)


def _named(values: np.ndarray, names: dict[str, int], type_: Any) -> Any:
    ordered = sorted(names.items(), key=lambda item: (item[1], item[0]))
    codes = np.array([code for _, code in ordered], np.int64)
    numbers = values.astype(np.int64)
    places = np.minimum(np.searchsorted(codes, numbers), max(len(codes) - 1, 0))
    wrong = codes[places] != numbers if len(codes) else np.ones(len(numbers), bool)
    if wrong.any():
        record = int(np.flatnonzero(wrong)[0])
        raise FormatError("the number has no name", record=record, found=int(numbers[record]))
    indices = places.astype(type_.index_type.to_pandas_dtype())
    stored = pa.Array.from_buffers(type_.index_type, len(values), [None, pa.py_buffer(indices)])
    texts = [name.encode("utf-8", "surrogateescape") for name, _ in ordered]
    return pa.DictionaryArray.from_arrays(stored, text_column(_joined(texts)))
