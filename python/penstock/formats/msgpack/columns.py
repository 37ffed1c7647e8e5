"""The Arrow types that MessagePack values are read into, and the MessagePack values that Arrow types are written as.

| MessagePack | Arrow type when read | Arrow types written as this |
|---|---|---|
| nil | null | nulls of any type |
| bool | bool | bool |
| integer | int64; uint64 if a value is beyond int64 | integers, times, durations |
| float 32; float 64 | float32; float64 | float16, float32; float64 |
| str; with schema= or types=, also bin | string | strings, JSON, the names of dictionaries |
| bin | binary | binary of any kind, images |
| array | list | lists of any kind |
| map | struct | struct |
| map of a NumPy array | tensor | tensors of fixed or of variable shape |
| ext -1 | timestamp[ns, UTC] | timestamps, dates |
| other ext | struct of type and data, marked | the same |
| values that no single type fits | binary, marked: the bytes of the value | the same |

The mark is the field's metadata `penstock.msgpack`: "ext", "raw", or "tensor" for a number that is a NumPy scalar. The
kernels support few types. If a schema has a type that they lack, values are cast from or to a type that they have,
without loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.batches import refuse_nul
from penstock.columns.casts import first_unfit, fitted
from penstock.columns.types import (
    VariableShapeTensorType,
    is_bytes,
    is_fixed_tensor,
    is_text,
    is_variable_tensor,
)
from penstock.errors import FormatError, SchemaError

MARK = b"penstock.msgpack"
_CASTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """A field, and the field of the kernels that its values are cast from or to."""

    field: pa.Field
    kernel: pa.Field
    cast: Callable[[Any], Any]
    """Casts the kernels' array to the field's type, or the reverse."""

    def convert(self, array: Any) -> Any:
        """Cast an array. Raise SchemaError (FormatError for bytes that are not UTF-8) for the first value that does not
        fit; its `record` is the row."""
        try:
            found = self.cast(array)
        except _CASTS as error:
            row = first_unfit(array, self.cast, _CASTS)
            if "Invalid UTF8" in str(error):
                message = "the value is not UTF-8, as a string must be; read it as binary"
                raise FormatError(message, record=row, field=self.field.name) from None
            raise SchemaError(f"does not fit: {error}", record=row, field=self.field.name) from None
        if not self.field.nullable and found.null_count:
            row = int(np.argmax(found.is_null().to_numpy(zero_copy_only=False)))
            raise SchemaError(
                "is nil or missing, but the field is required", record=row, field=self.field.name
            )
        return found


def inferred_field(kernel: pa.Field) -> pa.Field:
    """Return the field that users see for a field that the kernels inferred."""
    mark, _, numbers = (kernel.metadata or {}).get(MARK, b"").decode().partition(" ")
    if mark == "tensor" and numbers:
        shape = [int(axis) for axis in numbers.split(",")]
        return pa.field(kernel.name, pa.fixed_shape_tensor(kernel.type.value_type, shape))
    if mark == "ragged":
        values = kernel.type.field("data").type.value_type
        return pa.field(kernel.name, VariableShapeTensorType(values, int(numbers)))
    return kernel


def plan_reading(field: pa.Field, *, exact: bool) -> FieldPlan:
    """Return how a field is read. Raise SchemaError if its type cannot be read. `exact`, for inferred schemas, requires
    that float32 can represent every float64 of a float32 column, and that strings are str and not bin."""
    plain = _kernel_field(field, "exact" if exact else "cast")
    # The kernels read bin and str as binary, and refuse bin for a string.
    kernel = plain if exact else plain.with_type(_with_binary(plain.type))
    given: Any = field.type

    def cast(array: Any) -> Any:
        if kernel.type != plain.type:
            array = array.cast(plain.type)
        if isinstance(given, pa.BaseExtensionType):
            storage: Any = given.storage_type
            array = array if array.type == storage else fitted(array, storage)
            return pa.ExtensionArray.from_storage(given, array)
        if pa.types.is_list_view(given) or pa.types.is_large_list_view(given):
            return _viewed(array, given)
        return array if array.type == given else fitted(array, given)

    return _checked(FieldPlan(field, kernel, cast), kernel.type, "cast")


def plan_writing(field: pa.Field) -> FieldPlan:
    """Return how a field is written. Raise SchemaError if its type cannot be written."""
    kernel = _kernel_field(field, "write")
    wanted = kernel.type

    def cast(array: Any) -> Any:
        if is_fixed_tensor(array.type):
            array = _row_major(array)
        while isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
            array = _packed(array)
        return array if array.type == wanted else array.cast(wanted)

    return _checked(FieldPlan(field, kernel, cast), field.type, "write")


def _checked(plan: FieldPlan, start: pa.DataType, use: Use) -> FieldPlan:
    """Try the plan's cast on an empty array, and return the plan. Raise SchemaError if there is no such cast."""
    try:
        plan.cast(
            pa.nulls(0, start)
            if not isinstance(start, pa.BaseExtensionType)
            else pa.ExtensionArray.from_storage(start, pa.nulls(0, start.storage_type))
        )
    except _CASTS:
        raise _unheld(plan.field, use) from None
    return plan


def _unheld(field: pa.Field, use: Use) -> SchemaError:
    return SchemaError(
        f"penstock cannot convert between MessagePack values and a column of type {field.type}",
        field=field.name,
        hint="cast it to numbers, strings, binary, timestamps, or lists or structs of these, leave it "
        "out (columns=), or write Arrow"
        if use == "write"
        else "read it as numbers, strings, binary, timestamps, or lists or structs of these, and cast "
        "it afterwards",
    )


def _kernel_field(field: pa.Field, use: Use) -> pa.Field:
    refuse_nul(field.name)
    given: Any = field.type
    mark = (field.metadata or {}).get(MARK)
    if is_fixed_tensor(given):
        if use != "write" and given.permutation not in (None, list(range(len(given.shape)))):
            raise _unheld(field, use)
        axes: Any = _logical_shape(given)
        marked = "tensor " + ",".join(str(axis) for axis in axes)
        return pa.field(field.name, given.storage_type, metadata={MARK: marked.encode()})
    if is_variable_tensor(given):
        # Taken from the storage, because a type that came through the C interface is pyarrow's, not
        # penstock's.
        marked = f"ragged {given.storage_type.field('shape').type.list_size}"
        return pa.field(field.name, given.storage_type, metadata={MARK: marked.encode()})
    if mark in (b"tensor", b"ext", b"raw"):
        return pa.field(field.name, given, metadata={MARK: mark})
    kernel = _kernel_type(given, use)
    if kernel is None:
        raise _unheld(field, use)
    return pa.field(field.name, kernel)


_TIME = pa.timestamp("ns", "UTC")
Use = Literal["exact", "cast", "write"]


# Complexity: one line for each kind of type.
def _kernel_type(given: Any, use: Use) -> pa.DataType | None:
    """Return the kernels' type for an Arrow type, or None if there is none."""
    types = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return _kernel_type(given.storage_type, use)
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        return _kernel_type(given.value_type, use)
    if types.is_null(given) or types.is_boolean(given):
        return given
    if types.is_integer(given):
        return pa.uint64() if given == pa.uint64() else pa.int64()
    if types.is_time(given) or types.is_duration(given):
        return pa.int64()
    if types.is_floating(given):
        return pa.float64() if use == "cast" or given == pa.float64() else pa.float32()
    if types.is_timestamp(given):
        return _TIME if use != "write" else given
    if types.is_date(given):
        return _TIME if use != "write" else pa.timestamp("s" if types.is_date32(given) else "ms")
    if types.is_struct(given) or _is_list(given):
        return _nested_type(given, use)
    return _bytes_type(given, use)


def _bytes_type(given: Any, use: Use) -> pa.DataType | None:
    if is_text(given):
        return pa.string() if use != "write" else given
    if is_bytes(given) or pa.types.is_fixed_size_binary(given):
        return pa.binary() if use != "write" else given
    return None


def _is_list(given: Any) -> bool:
    types = pa.types
    views = types.is_list_view(given) or types.is_large_list_view(given)
    lists = types.is_list(given) or types.is_large_list(given)
    return views or lists or types.is_fixed_size_list(given)


def _nested_type(given: Any, use: Use) -> pa.DataType | None:
    if pa.types.is_struct(given):
        fields = [_nested_field(given.field(n), use) for n in range(given.num_fields)]
        return None if any(inner is None for inner in fields) else pa.struct(fields)
    item = _nested_field(given.value_field, use)
    if item is None:
        return None
    if pa.types.is_fixed_size_list(given) and use == "write":
        return pa.list_(item, given.list_size)
    is_large = use == "write" and not pa.types.is_list(given)
    return pa.large_list(item) if is_large else pa.list_(item)


def _with_binary(type_: Any) -> pa.DataType:
    """The type with binary in place of strings."""
    types = pa.types
    if types.is_string(type_):
        return pa.binary()
    if types.is_struct(type_):
        return pa.struct([field.with_type(_with_binary(field.type)) for field in type_])
    if types.is_list(type_):
        items = type_.value_field
        return pa.list_(items.with_type(_with_binary(items.type)))
    return type_


def _nested_field(field: pa.Field, use: Use) -> Any:
    refuse_nul(field.name)
    mark = (field.metadata or {}).get(MARK)
    if mark in (b"ext", b"raw"):
        return pa.field(field.name, field.type, metadata={MARK: mark})
    kernel = _kernel_type(field.type, use)
    return None if kernel is None else pa.field(field.name, kernel)


def _logical_shape(given: Any) -> list[int]:
    order = given.permutation
    return list(given.shape) if order is None else [given.shape[axis] for axis in order]


def _row_major(column: Any) -> Any:
    """Return a tensor column with its values in the order of its logical shape."""
    given = column.type
    order = given.permutation
    if order is None or list(order) == sorted(order):
        return column
    size = int(np.prod(given.shape))
    flat = column.storage.values.slice(column.storage.offset * size, len(column) * size)
    places = np.arange(size).reshape(given.shape).transpose(order).ravel()
    rows = (np.arange(len(column))[:, None] * size + places).ravel()
    mask = column.is_null() if column.null_count else None
    return pa.FixedSizeListArray.from_arrays(flat.take(pa.array(rows)), size, mask=mask)


def _viewed(column: Any, given: Any) -> Any:
    """Convert lists to list views, for which pyarrow has no cast."""
    is_small = pa.types.is_list_view(given)
    items = given.value_field
    lists = column.cast(pa.list_(items) if is_small else pa.large_list(items))
    offsets = lists.offsets
    sizes = pc.subtract(offsets.slice(1), offsets.slice(0, len(lists)))
    kind = pa.ListViewArray if is_small else pa.LargeListViewArray
    mask = lists.is_null() if lists.null_count else None
    return kind.from_arrays(offsets.slice(0, len(lists)), sizes, lists.values, given, mask=mask)


def _packed(column: Any) -> Any:
    """Convert list views to lists."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    mask = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(offsets, column.flatten(), mask=mask)
