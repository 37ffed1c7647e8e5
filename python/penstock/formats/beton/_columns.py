"""Encodes columns for a .beton: the values that go into rows, and the bytes that go into pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.losses import NO_NAMES, Losses
from penstock.columns.types import is_bytes, is_fixed_tensor, is_image, is_json, is_text, storage_of
from penstock.errors import SchemaError
from penstock.formats.beton._layout import (
    BYTES,
    FLOAT,
    IMAGE,
    INT,
    JSON,
    MAX_DIMENSIONS,
    NAME_BYTES,
    NDARRAY,
    Field,
    field_of,
)

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_HOLDS = "a .beton can hold numbers, bytes, text, JSON, tensors of a fixed shape and images"


class Stored(NamedTuple):
    """The values of one field of some records."""

    row: Any
    """The data for the rows: numbers, or a structured array whose places and lengths are not set yet."""
    values: Any = None
    """The data for the pages, a binary array; None for numbers. Images may be views, without empty values."""


Encode = Callable[[Any, int], Stored]
"""Encodes a column without nulls. The second argument is the number of its first record."""


class BetonColumn(NamedTuple):
    """How one column is written."""

    field: Field
    encode: Encode


def column_of(field: Any, images: Encode, losses: Losses) -> BetonColumn:
    """Return how to write a column of this Arrow field. `images` encodes a column of images. `losses` notes that class
    labels lose their names, or raises an error. Raise SchemaError if a .beton cannot hold such a field."""
    name, type_, types = field.name, field.type, pa.types
    _check_name(name)
    if is_image(type_):
        return BetonColumn(field_of(name, IMAGE), images)
    if is_json(type_):
        return BetonColumn(field_of(name, JSON), _json_of(name))
    if is_fixed_tensor(type_) or types.is_fixed_size_list(type_):
        return _tensor_column(name, type_)
    if types.is_boolean(type_) or types.is_integer(type_):
        return BetonColumn(field_of(name, INT), _integers(name))
    if types.is_dictionary(type_):
        losses.add(name, NO_NAMES)
        return BetonColumn(field_of(name, INT), Labels(name))
    if types.is_floating(type_):
        return BetonColumn(field_of(name, FLOAT), _floats)
    if is_bytes(type_) or is_text(type_) or types.is_fixed_size_binary(type_):
        return BetonColumn(field_of(name, BYTES), _bytes)
    raise SchemaError(
        f"{_HOLDS}; not {type_}",
        field=name,
        hint="cast it to a number, text or a tensor, write it as JSON, or leave it out (columns=)",
    )


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_BYTES or not name.isascii() or "\0" in name:
        raise SchemaError(
            "the name of a field in a .beton has 1 to 16 ASCII characters",
            field=name,
            found=f"{len(name.encode())} bytes",
            hint=f"rename the field: convert(..., rename={{{name!r}: ...}})",
        )


def _integers(name: str) -> Encode:
    def encode(array: Any, first: int) -> Stored:
        try:
            return Stored(np.asarray(array.cast(pa.int64())))
        except pa.ArrowInvalid:
            at = int(np.flatnonzero(np.asarray(array) > np.uint64(np.iinfo(np.int64).max))[0])
            raise SchemaError(
                "a .beton can hold integers below 2**63",
                record=first + at,
                field=name,
                found=array[at].as_py(),
            ) from None

    return encode


def _floats(array: Any, first: int) -> Stored:
    del first
    return Stored(np.asarray(array).astype(np.float64))


class Labels:
    """Encodes class labels as numbers: the positions of their names in the dictionary."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.names: Any = None

    def __call__(self, array: Any, first: int) -> Stored:
        names = array.dictionary
        if self.names is None or names.slice(0, len(self.names)).equals(self.names):
            self.names = names
        elif not self.names.slice(0, len(names)).equals(names):
            raise SchemaError(
                "labels are written as the positions of their names, and this batch has other names",
                record=first,
                field=self._name,
                hint="unify the dictionaries first (pyarrow.Table.unify_dictionaries)",
            )
        return Stored(np.asarray(array.indices.cast(pa.int64())))


def _bytes(array: Any, first: int) -> Stored:
    del first
    type_ = array.type
    if type_ in (pa.string_view(), pa.large_string()):
        array = array.cast(pa.string())
    return Stored(np.zeros(len(array), []), array.cast(pa.binary()))


def _json_of(name: str) -> Encode:
    def encode(array: Any, first: int) -> Stored:
        return Stored(np.zeros(len(array), []), _json_texts(array.storage, name, first))

    return encode


def _json_texts(texts: Any, name: str, first: int) -> Any:
    """Return JSON texts as ffcv needs them: in ASCII, with other characters escaped, and each with a NUL at its end."""
    texts = texts.cast(pa.string())
    if (bytes_of(texts) > 0x7F).any():
        escaped = [_NOT_ASCII.sub(lambda s: json.dumps(s[0])[1:-1], t) for t in texts.to_pylist()]
        texts = pa.array(escaped, pa.string())
    if not bytes_of(texts).all():
        at = next(n for n, text in enumerate(texts.to_pylist()) if "\0" in text)
        raise SchemaError("a JSON text cannot hold a NUL", record=first + at, field=name)
    count = len(texts)
    index = np.full(2 * count, count)
    index[0::2] = np.arange(count)
    both = picked([texts.cast(pa.binary()), pa.array([b"\0"], pa.binary())], index)
    return binary_from(np.diff(edges_of(both)[0::2]), bytes_of(both))


def _tensor_column(name: str, type_: Any) -> BetonColumn:
    lists = storage_of(type_)
    value = lists.value_type
    shape = tuple(type_.shape) if is_fixed_tensor(type_) else (lists.list_size,)
    permutation = getattr(type_, "permutation", None)
    if permutation is not None and list(permutation) != sorted(permutation):
        raise SchemaError("the axes of the tensor are permuted", field=name)
    if not shape or not shape[-1] or len(shape) > MAX_DIMENSIONS:
        raise SchemaError(
            "a .beton cannot hold this shape: it has 1 to 32 dimensions, and the last is not 0",
            field=name,
            found=list(shape),
        )
    types = pa.types
    if not (types.is_boolean(value) or types.is_integer(value) or types.is_floating(value)):
        raise SchemaError(f"{_HOLDS}; not {type_}", field=name)
    dtype = np.dtype("|b1") if types.is_boolean(value) else np.dtype(value.to_pandas_dtype())
    field = field_of(name, NDARRAY, shape, dtype.newbyteorder("<"))

    def encode(array: Any, first: int) -> Stored:
        flat = (array.storage if isinstance(array, pa.ExtensionArray) else array).flatten()
        if flat.null_count:
            at = int(np.flatnonzero(np.asarray(flat.is_null()))[0]) // lists.list_size
            message = "a value of the tensor is null"
            raise SchemaError(message, record=first + at, field=name)
        values = flat.to_numpy(zero_copy_only=False).astype(field.dtype, copy=False)
        lengths = np.full(len(array), field.value_bytes)
        return Stored(np.zeros(len(array), []), binary_from(lengths, values.view(np.uint8)))

    return BetonColumn(field, encode)


# -- binary arrays --------------------------------------------------------------------------------


def edges_of(array: Any) -> np.ndarray:
    """Return where each value of a binary array begins in its data, and where the last value ends."""
    _, offsets, _ = array.buffers()
    if offsets is None:
        return np.zeros(1, np.int64)
    return np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]


def bytes_of(array: Any) -> np.ndarray:
    """Return all bytes of a binary array, without a copy."""
    data = array.buffers()[2]
    edges = edges_of(array)
    if data is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]


def picked(arrays: list[Any], index: np.ndarray) -> Any:
    """Return values of several binary arrays. `index` counts through all arrays."""
    return pa.concat_arrays(arrays).take(pa.array(index))


def binary_from(lengths: np.ndarray, data: np.ndarray) -> Any:
    """Return a binary array of values with these lengths, which are contiguous in `data`."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
