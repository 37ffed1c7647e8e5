"""Blocks of Ray Data are Arrow tables, in which tensors have a type of Ray. penstock's batches have Arrow's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.extensions import (
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorType,
    create_arrow_fixed_shape_tensor_type,
)

from penstock.columns.types import ImageType, VariableShapeTensorType
from penstock.errors import SchemaError

_PANDAS = b"pandas"
_STUB = "__bsp_stub"
"""Ray's own name for it."""
SAME_HINT = "give all blocks the same columns and types, such as by dataset.map_batches"


def own_table(block: Any) -> pa.Table:
    """A block with Arrow's types, and without what pandas notes about its index."""
    table: pa.Table = BlockAccessor.for_block(block).to_arrow()
    metadata = dict(table.schema.metadata or {})
    if metadata.pop(_PANDAS, None) is not None:
        table = table.replace_schema_metadata(metadata or None)
    for number, field in enumerate(table.schema):
        wanted = own_type(field.type)
        if wanted is not field.type:
            column = [_own_tensors(chunk, wanted) for chunk in table.column(number).chunks]
            column = pa.chunked_array(column, wanted)
            table = table.set_column(number, field.with_type(wanted), column)
    return table


def own_type(kind: Any) -> pa.DataType:
    """The type for a column of Ray: another one for tensors."""
    if isinstance(kind, (ArrowTensorType, ArrowTensorTypeV2)):
        return pa.fixed_shape_tensor(kind.value_type, kind.shape)
    if isinstance(kind, ArrowVariableShapedTensorType):
        return VariableShapeTensorType(kind.value_type, kind.ndim)
    return kind


def _own_tensors(array: Any, wanted: Any) -> pa.Array:
    return pa.ExtensionArray.from_storage(wanted, array.storage.cast(wanted.storage_type))


def agreed(table: pa.Table, common: pa.Schema | None) -> pa.Schema:
    """The schema of what a task writes, if this is its first block, and `common` the schema of the first block of all. A
    column that has only nulls takes its type from the other."""
    if common is None:
        return table.schema
    own = {field.name: field for field in table.schema}
    return pa.schema(
        [
            own[field.name] if pa.types.is_null(field.type) and field.name in own else field
            for field in common
        ],
        common.metadata,
    )


def in_schema(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a block with this schema: columns in its order, nulls where a column is missing, safe casts.

    Raises:
        SchemaError: there are other columns, or values that do not fit.
    """
    if not table.schema.equals(schema, check_metadata=True):
        new = next((name for name in table.column_names if name not in schema.names), None)
        if new is not None:
            raise SchemaError("other blocks do not have this column", field=new, hint=SAME_HINT)
        columns = [_column(table, field) for field in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
    yield from table.to_batches()


def _column(table: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    column = table.column(field.name)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise SchemaError(
            "blocks have other types for this column",
            field=field.name,
            expected=field.type,
            found=column.type,
            hint=SAME_HINT,
        ) from None


def ray_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the blocks for batches with this schema: tensors have Ray's types, encoded images are bytes, JSON is
    text, and views are copied, because not all of Ray takes them."""
    return pa.schema([field.with_type(_ray_type(field.type)) for field in schema], schema.metadata)


def _ray_type(kind: Any) -> pa.DataType:
    if isinstance(kind, pa.FixedShapeTensorType) and not kind.permutation:
        return create_arrow_fixed_shape_tensor_type(tuple(kind.shape), kind.value_type)
    if isinstance(kind, VariableShapeTensorType):
        return ArrowVariableShapedTensorType(kind.value_type, kind.num_dimensions)
    if isinstance(kind, (ImageType, pa.JsonType)):
        return _ray_type(kind.storage_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def ray_table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """A block of these batches. `schema` is its schema."""
    if (
        not schema.names
    ):  # a table without columns has no records, so Ray has a column for their number
        return pa.table({_STUB: pa.nulls(sum(batch.num_rows for batch in batches))})
    made = [
        pa.RecordBatch.from_arrays(
            list(map(_ray_column, batch.columns, schema.types)), schema=schema
        )
        for batch in batches
    ]
    return pa.Table.from_batches(made, schema)


def _ray_column(column: Any, wanted: Any) -> pa.Array:
    if column.type.equals(wanted):
        return column
    if isinstance(column.type, (ImageType, pa.JsonType)):
        return _ray_column(column.storage, wanted)
    if isinstance(column.type, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(wanted, _lists(column.storage, wanted.storage_type))
    if isinstance(column.type, VariableShapeTensorType):
        return pa.ExtensionArray.from_storage(wanted, column.storage.cast(wanted.storage_type))
    return column.cast(wanted)


def _lists(array: Any, wanted: Any) -> pa.Array:
    """Lists of one size as lists of any size. The values are not copied, unless some are null."""
    if array.null_count:
        return array.cast(wanted)
    is_large, size = pa.types.is_large_list(wanted), array.type.list_size
    offsets = pa.array(np.arange(len(array) + 1) * size, pa.int64() if is_large else pa.int32())
    values = array.values.slice(array.offset * size, len(array) * size)
    return (pa.LargeListArray if is_large else pa.ListArray).from_arrays(offsets, values)
