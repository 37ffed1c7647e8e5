"""Passes byte strings and images from a reader to a writer as views into the buffers that were read
(docs/decisions/0016-long-values-are-lent-to-writers.md)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.columns.types import IN_PARTS, ImageType, storage_of
from penstock.errors import LimitError


def lent_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of batches with views in place of byte strings and images. A writer whose format sets `takes_views`
    accepts such batches in place of those of `schema`.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.lending import lent_schema
        >>> lent_schema(pa.schema([("jpg", pa.binary()), ("n", pa.int64())])).field("jpg").type
        DataType(binary_view)
    """
    return pa.schema([_lent(field) for field in schema], schema.metadata)


def is_lent(field: pa.Field) -> bool:
    """Whether a field has another type in the `lent_schema`."""
    return _lent(field).type != field.type


def as_lent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to its `lent_schema` without copying the bytes."""
    schema = lent_schema(batch.schema)
    arrays: list[Any] = []
    for field, column in zip(schema, batch.columns, strict=True):
        array: Any = whole(column)
        if array.type != field.type:
            stored = array.storage if isinstance(array, pa.ExtensionArray) else array
            array = stored.cast(pa.binary_view())
            if isinstance(field.type, pa.BaseExtensionType):
                array = pa.ExtensionArray.from_storage(field.type, array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def owned(array: Any, type_: pa.DataType) -> Any:
    """Convert a column of a `lent_schema` to the type that it has in the schema itself. Other arrays are returned
    unchanged.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.lending import owned
        >>> owned(pa.array([b"a"], pa.binary_view()), pa.binary()).type
        DataType(binary)
    """
    array = whole(array)
    if array.type == type_ or storage_of(array.type) != pa.binary_view():
        return array
    stored: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    stored = stored.cast(storage_of(type_))
    is_plain = not isinstance(type_, pa.BaseExtensionType)
    return stored if is_plain else pa.ExtensionArray.from_storage(type_, stored)


def _lent(field: pa.Field) -> pa.Field:
    if storage_of(field.type) not in (pa.binary(), IN_PARTS):
        return field
    if isinstance(field.type, ImageType):
        return field.with_type(ImageType(field.type.codec, pa.binary_view()))
    return (
        field if isinstance(field.type, pa.BaseExtensionType) else field.with_type(pa.binary_view())
    )


def in_parts(codec: str, heads: Any, bodies: Any) -> Any:
    """An array of images with separate heads (binary) and bodies (binary_view)."""
    parts = pa.StructArray.from_arrays([heads, bodies], fields=list(IN_PARTS))
    return pa.ExtensionArray.from_storage(_type_in_parts(codec), parts)


@cache
def _type_in_parts(codec: str) -> ImageType:
    """Cached, so that pyarrow does not build the type from its metadata again."""
    return ImageType(codec, IN_PARTS)


def whole(array: Any) -> Any:
    """Join the heads and bodies of images. Other arrays are returned unchanged. Raises LimitError if the images take
    2 GiB or more.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.lending import in_parts, whole
        >>> heads = pa.array([b"P6 1 1 255 "], pa.binary())
        >>> whole(in_parts("ppm", heads, pa.array([b"rgb"], pa.binary_view()))).storage[0].as_py()
        b'P6 1 1 255 rgb'
    """
    if storage_of(array.type) != IN_PARTS:
        return array
    try:
        glued = pa.array(_core.glue(array.storage))
    except _core.KernelError as error:
        fault = error.args[0]
        raise LimitError(fault.message) from None
    return pa.ExtensionArray.from_storage(ImageType(array.type.codec), glued)
