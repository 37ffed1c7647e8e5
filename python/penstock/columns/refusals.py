"""Refuses columns that a container cannot hold, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.columns.types import DTYPE_KEY, innermost, ragged_in, storage_of
from penstock.errors import SchemaError


def refuse_bits(schema: pa.Schema, container: str) -> None:
    """Raise SchemaError for a field whose values are the bits of another dtype, such as bfloat16. `container` names a
    format that cannot record the dtype, so the values would read back as plain numbers or bytes.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.refusals import refuse_bits
        >>> from penstock.columns.types import DTYPE_KEY
        >>> field = pa.field("x", pa.uint16(), metadata={DTYPE_KEY: "bfloat16"})
        >>> refuse_bits(pa.schema([field]), "tfrecord")
        Traceback (most recent call last):
        penstock.errors.SchemaError: field 'x': a tfrecord file cannot record that these are the bits of bfloat16
          try: make them float32 first, or write npy, npz, HDF5, Parquet, Arrow or a tar, which can
    """
    for field in schema:
        named = _bits_in(field)
        if named is not None:
            raise SchemaError(
                f"a {container} file cannot record that these are the bits of {named}",
                field=field.name,
                hint="make them float32 first, or write npy, npz, HDF5, Parquet, Arrow or a tar, which can",
            )


def _bits_in(field: pa.Field) -> str | None:
    """The dtype whose bits the values hold, also inside structs and lists."""
    named = (field.metadata or {}).get(DTYPE_KEY)
    # Complex numbers are pairs of floats, and read back as the right floats.
    if named is not None and not pa.types.is_floating(innermost(field.type)):
        return named.decode("utf-8", "replace")
    type_ = storage_of(field.type)
    inner = (type_.field(n) for n in range(type_.num_fields)) if pa.types.is_nested(type_) else ()
    return next((name for name in map(_bits_in, inner) if name is not None), None)


def refuse_ragged(schema: pa.Schema, container: str) -> None:
    """Raise SchemaError for tensors whose shapes differ by record, also inside lists and structs. `container` names a
    format that holds only tensors of one shape.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.refusals import refuse_ragged
        >>> from penstock.columns.types import VariableShapeTensorType
        >>> refuse_ragged(pa.schema([("x", VariableShapeTensorType(pa.uint8(), 3))]), "npz")
        Traceback (most recent call last):
        penstock.errors.SchemaError: field 'x': npz holds only tensors of one shape, and these differ in shape
          try: pad them to one shape, leave them out (columns=), or write Arrow, Parquet, MessagePack or a tar
    """
    for field in schema:
        found = next(ragged_in(field.type), None)
        if found is not None:
            formats = "Arrow, Parquet, MessagePack or a tar"
            if found is not field.type:
                formats = (
                    "Arrow or Parquet"  # the only formats that hold them inside lists and structs
                )
            raise SchemaError(
                f"{container} holds only tensors of one shape, and these differ in shape",
                field=field.name,
                hint=f"pad them to one shape, leave them out (columns=), or write {formats}",
            )


def refuse_twins(schema: pa.Schema, names: Iterable[str]) -> None:
    """Raise SchemaError if two columns have the same name, as Arrow and Parquet files allow."""
    for name in names:
        if len(schema.get_all_field_indices(name)) > 1:
            message = "two columns have this name, so neither can be selected by name"
            raise SchemaError(message, field=name, hint="scan() returns both")
