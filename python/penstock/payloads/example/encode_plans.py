"""Which columns a TFRecord payload can hold, and as what: Arrow types to the three of Example.

| Arrow | stored as |
|---|---|
| integers, bool, dates, times, timestamps, durations | int64 |
| float16, float32; float64, rounded as FloatList rounds it | float32 |
| strings, binary, fixed-size binary, views | bytes |
| lists of these, fixed or not; fixed-shape tensors | the same, row-major |
| lists of lists; lists that were read from feature lists | feature lists of a SequenceExample |
| dictionaries, run-end encoded, extensions | their values, their storage |
| structs | one feature a field, called `parent/child` |
| null | nothing |

What does not fit (a uint64 beyond int64, a float64 beyond float32's range, a null inside a list, a
decimal) is a SchemaError that names record and field.

A feature list that has one value a frame is a plain list in Arrow, and only the metadata of its field
(`schema.IN_LISTS_KEY`) tells it from a feature of the context. So it goes by these, unless records are
to be Examples, which have no feature lists. The key is the column's name, which may have been changed
since it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.batches import refuse_nul
from penstock.columns.casts import first_unfit, map_values
from penstock.columns.losses import ROUNDED, Losses
from penstock.columns.types import cast_values, is_bytes, is_bytes_view, is_text, storage_of
from penstock.errors import SchemaError
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    WIRE_KEY,
    is_raw,
)

Payload = Literal["example", "sequence", "raw"]
"""The column of records as they stand."""

_ROUND_HINT = "leave out exact=True to store the nearest float32, or cast the column yourself"
_RANGE_HINT = "scale the values, or store them as bytes"


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How one column of a schema is handed to the kernel: its key, its type and the casts there."""

    path: tuple[int, ...]
    """The column's number, then those of the fields within structs."""
    key: str
    steps: tuple[Callable[[Any], Any], ...]

    def convert(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self.path[0])
        for child in self.path[1:]:
            column = column.flatten()[child]
        for step in self.steps:
            column = self._checked(column, step)
        return column

    def _checked(self, column: pa.Array, step: Callable[[Any], Any]) -> pa.Array:
        try:
            return step(column)
        except (pa.ArrowInvalid, _Unfit) as error:
            record = first_unfit(column, step, (pa.ArrowInvalid, _Unfit))
            hint = error.hint if isinstance(error, _Unfit) else None
            raise SchemaError(
                f"does not fit: {error}", record=record, field=self.key, hint=hint
            ) from None
        except pa.ArrowNotImplementedError:
            raise _unheld(self.key, column.type) from None


class _Unfit(Exception):
    """A value has no exact counterpart."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class PayloadPlan:
    """What kind of message the records of a schema become, and the casts of its columns."""

    kind: Payload
    columns: tuple[ColumnPlan, ...]
    as_it_is: bool
    """The kernel takes the batch without any cast."""

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the kernel takes it. Raises SchemaError; its record is that in the batch."""
        if self.as_it_is:
            # Metadata of fields may be any bytes, and Rust takes only text.
            return pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
        if not self.columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        arrays = [column.convert(batch) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[c.key for c in self.columns])


def plan_payload(
    schema: pa.Schema, payload: Payload | None = None, losses: Losses | None = None
) -> PayloadPlan:
    """How records of this schema are written.

    Args:
        schema: the columns.
        payload: "example", "sequence" or "raw"; None decides: a lone binary column "record" is
            raw; lists of lists, columns called `feature_lists/...` and those that were read from
            SequenceExamples make SequenceExamples.
        losses: notes a float64 that is rounded to float32, or refuses it.

    Raises:
        SchemaError: a column has a type that no payload holds.
    """
    losses = Losses(exact=False) if losses is None else losses
    if payload is None and is_raw(schema):
        payload = "raw"
    if payload == "raw":
        return _plan_raw(schema)
    if payload is None and any(_is_of_sequence(field) for field in schema):
        payload = "sequence"
    columns: list[ColumnPlan] = []
    depths: list[int] = []
    as_it_is = True
    for number, field in enumerate(schema):
        name = _name_in_sequence(field) if payload == "sequence" else field.name
        for path, key, given in _leaves((number,), name, field.type):
            if payload == "sequence" and key.startswith(LISTS_PREFIX):
                steps, wanted = _list_steps(key, given, losses)
            else:
                steps, wanted = _steps(key, given, losses)
            depths.append(_depth(wanted))
            columns.append(ColumnPlan(path, key, steps))
            as_it_is &= not steps and len(path) == 1 and name == field.name
    if payload is None:
        listed = any(len(c.path) > 1 and c.key.startswith(LISTS_PREFIX) for c in columns)
        payload = "sequence" if listed or 2 in depths else "example"
    for column, depth in zip(columns, depths, strict=True):
        if payload == "example" and depth > 1:
            message = "a tf.train.Example cannot hold lists of lists"
            raise SchemaError(message, field=column.key, hint='payload="sequence"')
    return PayloadPlan(payload, tuple(columns), as_it_is and bool(columns))


def _is_of_sequence(field: pa.Field) -> bool:
    """Whether a column is a feature list, or the half in the context of a key that both parts have."""
    key = _key_of(field)
    by_name = field.name.startswith(LISTS_PREFIX) if key is None else field.name != key
    return by_name or _is_feature_list(field)


def _key_of(field: pa.Field) -> str | None:
    """The key that a column was read from, if that is known and the column was not renamed since."""
    key = (field.metadata or {}).get(WIRE_KEY, b"").decode(errors="replace")
    is_its_own = field.name in (key, CONTEXT_PREFIX + key, LISTS_PREFIX + key)
    return key if key and is_its_own else None


def _is_feature_list(field: pa.Field) -> bool:
    return IN_LISTS_KEY in (field.metadata or {}) and not pa.types.is_struct(field.type)


def _name_in_sequence(field: pa.Field) -> str:
    """The name by which the kernel knows the part of a SequenceExample that a column belongs to."""
    key, is_list = _key_of(field), _is_feature_list(field)
    if key is not None:
        return (LISTS_PREFIX if is_list else CONTEXT_PREFIX) + key
    if not is_list or field.name.startswith(LISTS_PREFIX):
        return field.name
    return LISTS_PREFIX + field.name


def _plan_raw(schema: pa.Schema) -> PayloadPlan:
    if len(schema) != 1:
        raise SchemaError(f"raw records are one binary column; the schema has {len(schema)}")
    field = schema.field(0)
    if not (is_bytes(field.type) or is_text(field.type)):
        message = f"raw records are a binary column, not {field.type}"
        raise SchemaError(message, field=field.name)
    return PayloadPlan("raw", (ColumnPlan((0,), field.name, ()),), True)


def _leaves(
    path: tuple[int, ...], key: str, given: pa.DataType
) -> list[tuple[tuple[int, ...], str, pa.DataType]]:
    """A column, or the fields of a struct column, however deep."""
    if not pa.types.is_struct(given):
        refuse_nul(key)
        return [(path, key, given)]
    found: list[tuple[tuple[int, ...], str, pa.DataType]] = []
    for number in range(given.num_fields):
        child = given.field(number)
        found += _leaves((*path, number), f"{key}/{child.name}", child.type)
    return found


def _steps(
    key: str, given: pa.DataType, losses: Losses
) -> tuple[tuple[Callable[[Any], Any], ...], pa.DataType]:
    """The casts from a type to one that the kernel takes, and that type."""
    steps: list[Callable[[Any], Any]] = []
    if isinstance(given, pa.FixedShapeTensorType) and _is_permuted(given):
        steps.append(_row_major)
    if _is_view(given):
        steps.append(_packed)
        given = pa.large_list(given.value_type)
    stored = map_values(given, _stored)
    if stored is None:
        raise _unheld(key, given)
    if stored != given:
        steps.append(_decode if pa.types.is_run_end_encoded(given) else _cast_to(stored))
    wanted = map_values(stored, _wire)
    leaf = _leaf(given)
    if leaf != given and isinstance(leaf, pa.BaseExtensionType) and is_bytes_view(storage_of(leaf)):
        # See types.cast_values: pyarrow's cast of lists of these is wrong as well.
        raise _unheld(key, given)
    if wanted is None or _depth(wanted) > 2:
        raise _unheld(key, given)
    if wanted != stored:
        is_double = _leaf(stored) == pa.float64()
        steps.append(_narrow_to(wanted, key, losses) if is_double else _cast_to(wanted))
    return tuple(steps), wanted


def _list_steps(
    key: str, given: pa.DataType, losses: Losses
) -> tuple[tuple[Callable[[Any], Any], ...], pa.DataType]:
    """The same for a feature list: each record has a list of frames."""
    if pa.types.is_null(given):
        wanted = pa.list_(given)
        return (_cast_to(wanted),), wanted
    first: tuple[Callable[[Any], Any], ...] = ()
    if isinstance(given, pa.FixedShapeTensorType) and len(given.shape) > 1 and all(given.shape):
        first = (_in_frames,)
        size = _logical_shape(given)[0]
        width = given.storage_type.list_size // size
        given = pa.list_(pa.list_(given.value_type, width), size)
    steps, wanted = _steps(key, given, losses)
    if not _depth(wanted):
        raise SchemaError(
            f"a feature list takes a list for each record, not a column of type {given}",
            field=key,
            hint="[value] instead of value, or another name for a feature of the context",
        )
    return first + steps, wanted


def _unheld(key: str, given: pa.DataType) -> SchemaError:
    return SchemaError(
        f"a TFRecord payload cannot hold a column of type {given}",
        field=key,
        hint="cast it to integers, floats, strings, binary or lists of these, leave it out (columns=), "
        "or write Arrow",
    )


def _stored(given: pa.DataType) -> pa.DataType | None:
    """The type of the values themselves."""
    types = pa.types
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        return _stored(given.value_type)
    if types.is_date32(given) or types.is_time32(given):
        return pa.int32()
    return given


def _wire(given: pa.DataType) -> pa.DataType | None:
    """The type in which the kernel takes a value."""
    types = pa.types
    if types.is_null(given) or is_bytes(given) or is_text(given):
        return given
    if types.is_fixed_size_binary(given) and not types.is_decimal(given):
        return given
    if types.is_floating(given):
        return pa.float32()
    is_count = types.is_integer(given) or types.is_boolean(given) or types.is_duration(given)
    if is_count or types.is_timestamp(given) or types.is_date(given) or types.is_time(given):
        return pa.int64()
    return None


def _is_view(given: pa.DataType) -> bool:
    return pa.types.is_list_view(given) or pa.types.is_large_list_view(given)


def _is_list(given: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)


def _leaf(given: pa.DataType) -> pa.DataType:
    while _is_list(given):
        given = given.value_type
    return given


def _depth(given: pa.DataType) -> int:
    depth = 0
    while _is_list(given):
        given, depth = given.value_type, depth + 1
    return depth


def _is_permuted(given: pa.FixedShapeTensorType) -> bool:
    order = given.permutation
    return order is not None and list(order) != sorted(order)


def _row_major(column: pa.Array) -> pa.Array:
    """A permuted tensor column's values in the order of its logical shape, as plain lists."""
    given = column.type
    size = int(np.prod(given.shape))
    first = column.storage.offset * size
    flat = column.storage.values.slice(first, len(column) * size)
    places = np.arange(size).reshape(given.shape).transpose(given.permutation).ravel()
    order = (np.arange(len(column))[:, None] * size + places).ravel()
    values = flat.take(pa.array(order))
    mask = column.is_null() if column.null_count else None
    return pa.FixedSizeListArray.from_arrays(values, size, mask=mask)


def _logical_shape(given: pa.FixedShapeTensorType) -> list[int]:
    order = range(len(given.shape)) if given.permutation is None else given.permutation
    return [given.shape[axis] for axis in order]


def _in_frames(column: pa.Array) -> pa.Array:
    """A tensor column as lists of frames, one for each place along the first axis."""
    type_ = column.type
    flat = _row_major(column) if _is_permuted(type_) else column.storage
    width = flat.type.list_size
    size = _logical_shape(type_)[0]
    values = flat.values.slice(flat.offset * width, len(flat) * width)
    frames = pa.FixedSizeListArray.from_arrays(values, width // size)
    mask = column.is_null() if column.null_count else None
    return pa.FixedSizeListArray.from_arrays(frames, size, mask=mask)


def _packed(column: pa.Array) -> pa.Array:
    """A column of list views as lists; pyarrow 26's own cast of a slice is not valid."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    mask = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(offsets, column.flatten(), mask=mask)


def _decode(column: pa.Array) -> pa.Array:
    return pc.run_end_decode(column)


def _cast_to(wanted: pa.DataType) -> Callable[[Any], Any]:
    def cast(column: pa.Array) -> pa.Array:
        if wanted == pa.binary() and storage_of(column.type) == pa.binary_view():
            return column.storage if isinstance(column, pa.ExtensionArray) else column
        return cast_values(column, wanted)

    return cast


def _narrow_to(wanted: pa.DataType, key: str, losses: Losses) -> Callable[[Any], Any]:
    """A cast of float64 to float32 that refuses infinity for a finite value, and notes that it rounds, or refuses
    to."""

    def narrow(column: pa.Array) -> pa.Array:
        flat = column
        while _is_list(flat.type):
            flat = flat.flatten()
        values = flat.drop_null().to_numpy()
        with np.errstate(over="ignore"):
            stored = values.astype(np.float32)
        fits = np.isfinite(stored) | ~np.isfinite(values)
        if not fits.all():
            value = values[np.argmin(fits)].item()
            raise _Unfit(f"{value!r} is beyond the range of float32", _RANGE_HINT)
        same = (stored.astype(np.float64) == values) | np.isnan(values)
        if not same.all():
            if losses.exact:
                value = values[np.argmin(same)].item()
                raise _Unfit(f"float32 would round {value!r}", _ROUND_HINT)
            losses.add(key, ROUNDED)
        return cast_values(column, wanted)

    return narrow
