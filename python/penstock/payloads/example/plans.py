"""Plans for decoding tf.train.Example payloads to the columns of a schema.

A field of the schema is made from one or more *wires*. A wire is a column as the kernel decodes it, of one of the three
kinds that an Example can store. `FieldPlan.finish` converts the wires' arrays to the field's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.casts import check_survived, first_unfit, map_values
from penstock.columns.types import ImageType, is_bytes, is_list, is_text, storage_of
from penstock.errors import FormatError, SchemaError

if TYPE_CHECKING:
    from penstock.contract.decoder import Places

IN_LISTS_KEY = b"penstock.feature_list"
WIRE_KEY = b"penstock.key"
"""The metadata key for a field's key in the message, if that differs from the column's name."""
RECORD = "record"
"""The column of raw records."""
CONTEXT_PREFIX = "context/"
LISTS_PREFIX = "feature_lists/"
"""Prefixes of column names for a key in the context or in the feature lists of a SequenceExample."""

_VALUE_BYTES = {"int64": 8, "any_int64": 8, "float": 4, "any_float": 4, "any_double": 8, "bytes": 4}
"""The bytes of a value of each kind. For a byte string, only its end offset counts."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One column as the kernel decodes it.

    `kind` is "int64", "float", "bytes", or None for a column of nulls. "any_int64", "any_float" and "any_double" accept
    integers and floats if no value changes. `layout` is "scalar", "list", "fixed" (with `size` values), or, for feature
    lists, "frame_scalars" or "frame_lists". `strings` is the result for byte strings: "bytes", "text", or "views" into
    the buffer read. `default` has the values for a missing feature.
    """

    key: str
    kind: str | None
    layout: str = "scalar"
    size: int = 0
    in_lists: bool = False
    strings: str = "bytes"
    required: bool = False
    default: tuple[Any, ...] | None = None

    @property
    def row_bytes(self) -> int:
        """The minimum bytes of a record in this column, with or without values."""
        if self.layout not in ("scalar", "fixed"):
            return 4  # the end offset of a list
        num_values = self.size if self.layout == "fixed" else 1
        strings = [value for value in self.default or () if isinstance(value, (str, bytes))]
        return num_values * _VALUE_BYTES.get(self.kind or "", 0) + sum(map(len, strings))


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """The plan for decoding one field of the schema."""

    field: pa.Field
    wires: tuple[Wire, ...]
    finish: Callable[[Sequence[pa.Array]], pa.Array] = lambda arrays: arrays[0]


def example_plan(
    wires: Sequence[Wire],
    dialect: str,
    keys: Sequence[bytes] | None = None,
    *,
    complete: bool = False,
) -> _core.ExamplePlan:
    """The kernel's plan for these columns. `keys` are the columns' keys if these are not valid text. With `complete`,
    records may not have other keys."""
    if keys is None:
        keys = [w.key.encode("utf-8", "surrogateescape") for w in wires]
    columns = [
        (
            str(number),
            key,
            w.in_lists,
            w.kind,
            w.layout,
            w.size,
            w.strings,
            w.required,
            None if w.default is None else list(w.default),
        )
        for number, (key, w) in enumerate(zip(keys, wires, strict=True))
    ]
    return _core.ExamplePlan(columns, dialect, complete)


class DecodePlan:
    """The plan for decoding batches of a schema, made once for many batches."""

    def __init__(
        self, fields: Sequence[FieldPlan], dialect: str, *, complete: bool = False
    ) -> None:
        self.fields = tuple(fields)
        self.schema = pa.schema([f.field for f in fields])
        wires = [w for f in fields for w in f.wires]
        self._plan = example_plan(wires, dialect, complete=complete)

    def decode(
        self, frames: _core.Frames, check: bool = False, indexed: pa.Array | None = None
    ) -> pa.RecordBatch:
        """Decode payloads. With `check`, verify them first. Raises KernelError with a Fault that names record and
        field."""
        return self._finished(frames.decode(self._plan, check, indexed))

    def decode_at(self, places: Places, records: np.ndarray) -> pa.RecordBatch | None:
        """Read and decode records of a file by number. None if any record is damaged or does not fit."""
        made = places.examples(records, self._plan)
        try:
            return None if made is None else self._finished(made)
        except (SchemaError, FormatError):
            return None  # the caller uses `decode` instead, which names the record

    def _finished(self, made: _core.ArrowArray) -> pa.RecordBatch:
        decoded = pa.record_batch(made)
        if not self.fields:
            return decoded
        arrays = _finish_all(self.fields, decoded.columns)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _finish_all(fields: Sequence[FieldPlan], arrays: Sequence[pa.Array]) -> list[pa.Array]:
    done: list[pa.Array] = []
    at = 0
    for plan in fields:
        done.append(plan.finish(arrays[at : at + len(plan.wires)]))
        at += len(plan.wires)
    return done


def lent(plan: FieldPlan) -> FieldPlan:
    """The plan with byte strings as views into the buffer that was read, if the field has one string per record."""
    wire = plan.wires[0] if len(plan.wires) == 1 else None
    given = plan.field.type
    if wire is None or storage_of(given) != pa.binary():
        return plan
    if isinstance(given, ImageType):
        field = plan.field.with_type(ImageType(given.codec, pa.binary_view()))
    elif given == pa.binary():
        field = plan.field.with_type(pa.binary_view())
    else:
        return plan
    return FieldPlan(field, (replace(wire, strings="views"),), _finisher(field))


# -- from a pyarrow schema ------------------------------------------------------------------------


def plan_fields(schema: pa.Schema, *, convert: bool = False) -> list[FieldPlan]:
    """Plans for decoding the fields of a pyarrow schema from Examples. With `convert`, float columns accept stored
    integers, and integer columns stored floats, if no value changes. Raises SchemaError if an Example cannot store a
    field's type."""
    return [_plan_field(field, convert=convert) for field in schema]


def is_raw(schema: pa.Schema) -> bool:
    """Whether this is the schema of raw records: one column `record` of bytes that is not marked as a feature."""
    return (
        schema.names == [RECORD]
        and is_bytes(schema.field(0).type)
        and WIRE_KEY not in (schema.field(0).metadata or {})
    )


def wire_key(field: pa.Field) -> str:
    """The key of a field in an Example: its name, unless its metadata has another key. Raises SchemaError if that is
    not valid text."""
    try:
        return (field.metadata or {}).get(WIRE_KEY, field.name.encode()).decode()
    except UnicodeError:
        message = f"the metadata {WIRE_KEY.decode()} of the field is not UTF-8"
        raise SchemaError(message, field=field.name) from None


def is_permuted(type_: pa.DataType) -> bool:
    """Whether a type is a tensor type with permuted axes."""
    order: Any = type_.permutation if isinstance(type_, pa.FixedShapeTensorType) else None
    return order is not None and list(order) != sorted(order)


def unnested(type_: Any) -> tuple[pa.DataType, int]:
    """The type inside nested lists, and the depth of the lists."""
    types, depth = pa.types, 0
    while types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        type_, depth = type_.value_type, depth + 1
    return type_, depth


def _plan_field(field: pa.Field, *, convert: bool) -> FieldPlan:
    if pa.types.is_struct(field.type):
        return _plan_struct(field, convert=convert)
    key, type_ = wire_key(field), field.type
    is_nested = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    is_nested = is_nested and is_list(type_.value_type)  # only feature lists are nested
    in_lists = is_nested or (field.metadata or {}).get(IN_LISTS_KEY) == b"1"
    if is_permuted(type_):
        raise SchemaError(
            f"an Example cannot store the permuted axes of {type_}",
            field=field.name,
            hint="a tensor type without a permutation, with the shape of the values",
        )
    inner, depth = unnested(storage_of(type_))
    kind = (_converting_kind(inner) if convert else None) or _kind_of(inner, field)
    layout, size = _layout(field, depth, in_lists)
    views = "views" if pa.types.is_binary_view(inner) else "bytes"
    strings = "text" if is_text(inner) else views
    wire = Wire(key, kind, layout, size, in_lists, strings, not field.nullable)
    return FieldPlan(field, (wire,), _finisher(field))


def _layout(field: pa.Field, depth: int, in_lists: bool) -> tuple[str, int]:
    """The layout of a wire, and the size of a fixed-size list."""
    layouts = {1: "frame_scalars", 2: "frame_lists"} if in_lists else {0: "scalar", 1: "list"}
    if depth not in layouts:
        message = f"a feature list needs a list in each record, not {field.type}"
        if depth:
            message = f"an Example cannot hold {field.type}, which is nested too deeply"
        raise SchemaError(message, field=field.name)
    storage: Any = storage_of(field.type)
    if depth != 1 or not _is_fixed(storage):
        return layouts[depth], 0
    return layouts[depth] if in_lists else "fixed", storage.list_size


def _plan_struct(field: pa.Field, *, convert: bool) -> FieldPlan:
    """The plan of a struct. Its fields, at any depth, are features called `key/name`. It is never null, because a null
    struct is stored like a struct of nulls."""
    key, type_ = wire_key(field), field.type
    inside = [
        _plan_field(pa.field(f"{key}/{child.name}", child.type, child.nullable), convert=convert)
        for child in type_
    ]
    wires = tuple(wire for plan in inside for wire in plan.wires)
    if not wires:
        raise SchemaError("an Example cannot hold a struct without fields", field=field.name)

    def finish(arrays: Sequence[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(_finish_all(inside, arrays), fields=list(type_))

    return FieldPlan(field, wires, finish)


def _is_fixed(type_: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(type_))


def _converting_kind(type_: pa.DataType) -> str | None:
    """The kind for a column that accepts integers and floats; None for other types."""
    if pa.types.is_integer(type_):
        return "any_int64"
    return {pa.float32(): "any_float", pa.float64(): "any_double"}.get(type_)


def _kind_of(type_: pa.DataType, field: pa.Field) -> str | None:
    types = pa.types
    if types.is_null(type_):
        return None
    is_time = types.is_temporal(type_) and not types.is_interval(type_)
    if types.is_integer(type_) or types.is_boolean(type_) or is_time:
        return "int64"
    if types.is_floating(type_):
        return "float"
    if is_bytes(type_) or is_text(type_) or types.is_fixed_size_binary(type_):
        return "bytes"
    if types.is_dictionary(type_):
        return _kind_of(type_.value_type, field)
    raise SchemaError(
        f"an Example holds int64, float32 and bytes, not {type_}",
        field=field.name,
        hint="read it as one of those and cast afterwards",
    )


def _finisher(field: pa.Field) -> Callable[[Sequence[pa.Array]], pa.Array]:
    """A function that casts the decoded array to the field's type, or raises SchemaError."""

    def finish(arrays: Sequence[pa.Array]) -> pa.Array:
        array = arrays[0]
        if array.type == field.type:
            return array
        if isinstance(field.type, pa.BaseExtensionType):
            storage = _cast(array, field.type.storage_type, field.name)
            return pa.ExtensionArray.from_storage(field.type, storage)
        return _cast(array, field.type, field.name)

    return finish


def _cast(array: pa.Array, type_: pa.DataType, name: str) -> pa.Array:
    if array.type == type_:
        return array
    try:
        return _made(array, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        refusals = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
        row = first_unfit(array, lambda part: _made(part, type_), refusals)
        raise SchemaError(f"does not fit {type_}: {error}", field=name, record=row) from None


def _made(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return array.cast(type_.value_type).dictionary_encode().cast(type_)
    if array.null_count and _is_fixed(type_) and pa.types.is_fixed_size_binary(type_.value_type):
        # Null lists hold empty values, which do not fit the type.
        there = array.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return _made(array.drop_null(), type_).take(places)
    numbers = map_values(type_, _numbers_of)
    made = (array if numbers is None else array.cast(numbers)).cast(type_)
    if numbers is not None:
        made.validate(full=True)  # a time must be before midnight, and a date64 a whole day
    check_survived(array, made)
    return made


def _numbers_of(type_: pa.DataType) -> pa.DataType | None:
    """The integer type from which pyarrow casts to a date or time type: the one of the same width."""
    if not pa.types.is_temporal(type_):
        return None
    return pa.int32() if type_.bit_width == 32 else pa.int64()
