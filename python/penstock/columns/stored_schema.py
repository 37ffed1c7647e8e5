"""Schemas that files keep as Arrow's schema messages, which anybody may have written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def schema_of(message: bytes) -> Any:
    """The schema of a message.

    Raises:
        pa.ArrowException, ValueError, TypeError, KeyError, OSError: it is none, or a name is no UTF-8.

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
    """Raise UnicodeDecodeError where the name of a field, or of a part of one, is no UTF-8.

    pyarrow keeps such a name as it is, and fails wherever it is asked for.
    """
    for field in fields:
        _ = field.name
        type_ = field.type
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        look_at_names(type_.field(place) for place in range(type_.num_fields))
