"""Columns of encoded images as arrays of bytes, however they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.null_slots import cleaned
from penstock.columns.types import storage_of
from penstock.errors import SchemaError

PICTURE_HINT = 'open(..., damage="skip"), or penstock repair --decode leaves out the records whose pictures are damaged'

_EMBED_HINT = (
    'ds.with_format("arrow").map(datasets.table.embed_table_storage, batched=True) puts the bytes of such files into a '
    "dataset of Hugging Face, which can then be saved again"
)


def bytes_of(array: Any) -> pa.Array:
    """Return encoded images as one array of bytes. Text and numbers are refused.

    Takes arrays of bytes and sequences of bytes; rows of uint8, each an image file filled up with zeros; and structs
    of `bytes` and `path`, as Hugging Face's `datasets` stores images.

    Raises:
        SchemaError: the array holds something else; or a struct has a path and no bytes.
    """
    array = _as_array(array)
    type_ = storage_of(array.type)
    types = pa.types
    if types.is_struct(type_) and type_.get_field_index("bytes") >= 0:
        return bytes_of(_embedded(array))
    if _is_any(type_, types.is_list, types.is_large_list, types.is_fixed_size_list):
        if type_.value_type == pa.uint8():
            return _rows(array)
    elif _is_any(
        type_,
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    ):
        return cleaned(array)
    elif types.is_null(type_):
        return array.cast(pa.binary())
    raise SchemaError(f"images are bytes, not {type_}", hint="name the column that holds them")


def _is_any(type_: Any, *kinds: Callable[[Any], bool]) -> bool:
    return any(is_kind(type_) for is_kind in kinds)


def _as_array(images: Any) -> Any:
    """Return images as one pyarrow array whose type is not an extension type."""
    array: Any = images
    if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 2:
        array = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(images))
    elif isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    elif not isinstance(array, pa.Array):
        array = pa.array(array, pa.binary())
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _embedded(structs: Any) -> Any:
    """Return the bytes of structs of `bytes` and `path`. No file that a record names is opened."""
    for error in only_paths(structs).values():
        raise error
    return embedded(structs)


def embedded(structs: Any) -> Any:
    """Return the bytes of structs of `bytes` and `path`, null where there is only a path."""
    array = _as_array(structs)
    return array.flatten()[array.type.get_field_index("bytes")]


def only_paths(array: Any) -> dict[int, SchemaError]:
    """Return an error for each struct of `bytes` and `path` that has a path and no bytes, by its row."""
    array = _as_array(array)
    if not pa.types.is_struct(array.type) or array.type.get_field_index("bytes") < 0:
        return {}
    place = array.type.get_field_index("path")
    found: Any = array.flatten()[array.type.get_field_index("bytes")]
    paths: Any = None if place < 0 else array.flatten()[place]
    if paths is None or not found.null_count:
        return {}
    rows = np.flatnonzero(pc.and_(found.is_null(), paths.is_valid())).tolist()
    message = "the record has only the path of this image, {!r}, which is not opened"
    return {
        row: SchemaError(message.format(str(paths[row])), record=row, hint=_EMBED_HINT)
        for row in rows
    }


def _rows(array: Any) -> pa.Array:
    """Return rows of uint8 as bytes, without copying them."""
    if pa.types.is_fixed_size_list(array.type):
        length = array.type.list_size
        values = array.values.slice(array.offset * length, len(array) * length)
        storage = pa.Array.from_buffers(
            pa.binary(length),
            len(array),
            [None, values.buffers()[1]],
            offset=values.offset // max(length, 1),
        )
        return pc.if_else(array.is_valid(), storage, None) if array.null_count else storage
    is_large = pa.types.is_large_list(array.type)
    valid, offsets = array.buffers()[:2]
    values = array.values
    if values.offset or values.null_count:
        raise SchemaError("images are rows of uint8, none missing")
    kind = pa.large_binary() if is_large else pa.binary()
    buffers = [valid, offsets, values.buffers()[1]]
    return cleaned(pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset))
