"""Reads schemas that untrusted files store as Arrow schema messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def schema_of(message: bytes) -> Any:
    """Parse a schema message. Raises pa.ArrowException, ValueError, TypeError, KeyError or OSError if it is not a
    schema or a name is not UTF-8.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.stored_schema import schema_of
        >>> schema_of(pa.schema({"x": pa.int8()}).serialize().to_pybytes()).names
        ['x']
    """
    schema: Any = pa.ipc.read_schema(pa.py_buffer(message))
    look_at_names(schema)
    return schema


def look_at_names(fields: Any) -> None:
    """Raise UnicodeDecodeError if the name of a field, or of a nested field, is not UTF-8. pyarrow itself fails only
    when the name is read."""
    for field in fields:
        _ = field.name
        type_ = field.type
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        look_at_names(type_.field(place) for place in range(type_.num_fields))
