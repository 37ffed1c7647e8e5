"""The columns that a TFRecord payload can hold, and the mapping of Arrow types to the three types of Example.

| Arrow | stored as |
|---|---|
| integers, bool, dates, times, timestamps, durations | int64 |
| float16, float32; float64, rounded as FloatList rounds it | float32 |
| strings, binary, fixed-size binary, views | bytes |
| lists of these, fixed or not; fixed-shape tensors | their values as above, row-major |
| lists of lists; lists that were read from feature lists | feature lists of a SequenceExample |
| dictionaries, run-end encoded, extensions | their decoded values or their storage |
| structs | one feature per field, called `parent/child` |
| null | nothing |

A value that does not fit (a uint64 beyond int64, a float64 beyond float32's range, a null inside a list, a decimal) is
a SchemaError that names record and field.

A feature list with one value per frame is a plain list in Arrow. Only the metadata of its field (`IN_LISTS_KEY`)
distinguishes it from a context feature, unless records are written as Examples, which have no feature lists. The key is
the column's name, even if the column was renamed since it was read.
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
    is_permuted,
    is_raw,
    unnested,
)

Payload = Literal["example", "sequence", "raw"]
"""The kind of message that a record is written as. "raw" writes a column of bytes unchanged."""

_ROUND_HINT = "leave out exact=True to store the nearest float32, or cast the column yourself"
_RANGE_HINT = "scale the values, or store them as bytes"


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The key of one column of a schema, and the casts that it needs before the kernel can take it."""

    path: tuple[int, ...]
    """The number of the column, then of the field in each nested struct."""
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
            message = f"does not fit: {error}"
            raise SchemaError(message, record=record, field=self.key, hint=hint) from None
        except pa.ArrowNotImplementedError:
            raise _unheld(self.key, column.type) from None


class _Unfit(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class PayloadPlan:
    """The kind of message for the records of a schema, and the casts of its columns."""

    kind: Payload
    columns: tuple[ColumnPlan, ...]
    as_it_is: bool
    """Whether the kernel accepts the batch without any cast."""

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as input for the kernel. Errors count the record in the batch."""
        if self.as_it_is:
            # Without the fields' metadata, which may be any bytes. Rust accepts only text.
            return pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)
        if not self.columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        arrays = [column.convert(batch) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[c.key for c in self.columns])


def plan_payload(
    schema: pa.Schema, payload: Payload | None = None, losses: Losses | None = None
) -> PayloadPlan:
    """The plan for writing records of this schema.

    Args:
        payload: None infers it. A single binary column "record" is raw. Lists of lists, columns called
            `feature_lists/...` and columns that were read from SequenceExamples make SequenceExamples. All else makes
            Examples.
        losses: notes or refuses the rounding of float64 to float32.

    Raises:
        SchemaError: the payload cannot hold the type of a column.
    """
    losses = Losses(exact=False) if losses is None else losses
    if payload is None:
        payload = _shown_payload(schema)
    if payload == "raw":
        return _plan_raw(schema)
    columns, depths = _plan_columns(schema, payload, losses)
    if payload is None:
        listed = any(len(c.path) > 1 and c.key.startswith(LISTS_PREFIX) for c in columns)
        payload = "sequence" if listed or 2 in depths else "example"
    if payload == "example" and 2 in depths:
        message = "a tf.train.Example cannot hold lists of lists"
        nested = columns[depths.index(2)].key
        raise SchemaError(message, field=nested, hint='payload="sequence"')
    return PayloadPlan(payload, tuple(columns), _is_cast_free(schema, columns))


def _shown_payload(schema: pa.Schema) -> Payload | None:
    """The kind of payload, if names and metadata of the columns determine it."""
    if is_raw(schema):
        return "raw"
    return "sequence" if any(map(_is_of_sequence, schema)) else None


def _plan_columns(
    schema: pa.Schema, payload: Payload | None, losses: Losses
) -> tuple[list[ColumnPlan], list[int]]:
    """The plans of the columns, and the depths of their lists (at most 2)."""
    columns: list[ColumnPlan] = []
    depths: list[int] = []
    for number, field in enumerate(schema):
        name = _name_in_sequence(field) if payload == "sequence" else field.name
        for path, key, given in _leaves((number,), name, field.type):
            is_list = payload == "sequence" and key.startswith(LISTS_PREFIX)
            steps, wanted = (_list_steps if is_list else _steps)(key, given, losses)
            depths.append(unnested(wanted)[1])
            columns.append(ColumnPlan(path, key, steps))
    return columns, depths


def _is_cast_free(schema: pa.Schema, columns: list[ColumnPlan]) -> bool:
    def is_plain(column: ColumnPlan) -> bool:
        is_top = len(column.path) == 1 and column.key == schema.field(column.path[0]).name
        return is_top and not column.steps

    return bool(columns) and all(map(is_plain, columns))


def _is_of_sequence(field: pa.Field) -> bool:
    """Whether a column is a feature list, or has a part of a SequenceExample in its name."""
    key = _key_of(field)
    by_name = field.name.startswith(LISTS_PREFIX) if key is None else field.name != key
    return by_name or _is_feature_list(field)


def _key_of(field: pa.Field) -> str | None:
    """The key from which a column was read, unless the column was renamed since."""
    key = (field.metadata or {}).get(WIRE_KEY, b"").decode(errors="replace")
    is_its_own = field.name in (key, CONTEXT_PREFIX + key, LISTS_PREFIX + key)
    return key if key and is_its_own else None


def _is_feature_list(field: pa.Field) -> bool:
    return IN_LISTS_KEY in (field.metadata or {}) and not pa.types.is_struct(field.type)


def _name_in_sequence(field: pa.Field) -> str:
    """The column's name for the kernel, with its part of a SequenceExample."""
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
    """The path, key and type of a column, or of each field of a struct column at any depth."""
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
    """The casts from a type to a type that the kernel accepts, and that type."""
    steps: list[Callable[[Any], Any]] = []
    if is_permuted(given):
        steps.append(_row_major)
    if pa.types.is_list_view(given) or pa.types.is_large_list_view(given):
        steps.append(_packed)
        given = pa.large_list(given.value_type)
    stored, wanted = _kernel_types(key, given)
    if stored != given:
        is_run_end = pa.types.is_run_end_encoded(given)
        steps.append(pc.run_end_decode if is_run_end else _cast_to(stored))
    if wanted != stored:
        is_double = unnested(stored)[0] == pa.float64()
        steps.append(_narrow_to(wanted, key, losses) if is_double else _cast_to(wanted))
    return tuple(steps), wanted


def _kernel_types(key: str, given: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """Return the type without extensions and dictionaries, and the type that the kernel accepts. Raise SchemaError if
    there is none."""
    stored = map_values(given, _stored)
    wanted = None if stored is None else map_values(stored, _wire)
    if stored is None or wanted is None or unnested(wanted)[1] > 2 or _is_list_of_views(given):
        raise _unheld(key, given)
    return stored, wanted


def _is_list_of_views(given: pa.DataType) -> bool:
    """Whether pyarrow would cast this list of extension types wrongly: see `types.cast_values`."""
    leaf, depth = unnested(given)
    is_extension = isinstance(leaf, pa.BaseExtensionType)
    return depth > 0 and is_extension and is_bytes_view(storage_of(leaf))


def _list_steps(
    key: str, given: pa.DataType, losses: Losses
) -> tuple[tuple[Callable[[Any], Any], ...], pa.DataType]:
    """Like `_steps`, but for a feature list: each record has a list of frames."""
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
    if not unnested(wanted)[1]:
        raise SchemaError(
            f"a feature list needs a list in each record, not a column of type {given}",
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
    """The type of the values, without an extension type or a dictionary around it."""
    types = pa.types
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        return _stored(given.value_type)
    if types.is_date32(given) or types.is_time32(given):
        return pa.int32()
    return given


def _wire(given: pa.DataType) -> pa.DataType | None:
    """The type in which the kernel accepts a value; None if there is none."""
    types = pa.types
    if types.is_null(given) or is_bytes(given) or is_text(given):
        return given
    if types.is_fixed_size_binary(given) and not types.is_decimal(given):
        return given
    if types.is_floating(given):
        return pa.float32()
    is_time = types.is_temporal(given) and not types.is_interval(given)
    is_count = types.is_integer(given) or types.is_boolean(given) or is_time
    return pa.int64() if is_count else None


def _row_major(column: pa.Array) -> pa.Array:
    """A permuted tensor column as plain lists, in the order of its logical shape."""
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
    """A tensor column as lists of frames, one for each position along the first axis."""
    type_ = column.type
    flat = _row_major(column) if is_permuted(type_) else column.storage
    width = flat.type.list_size
    size = _logical_shape(type_)[0]
    values = flat.values.slice(flat.offset * width, len(flat) * width)
    frames = pa.FixedSizeListArray.from_arrays(values, width // size)
    mask = column.is_null() if column.null_count else None
    return pa.FixedSizeListArray.from_arrays(frames, size, mask=mask)


def _packed(column: pa.Array) -> pa.Array:
    """A column of list views as lists. pyarrow 26 casts a slice to an invalid array."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    mask = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(offsets, column.flatten(), mask=mask)


def _cast_to(wanted: pa.DataType) -> Callable[[Any], Any]:
    def cast(column: pa.Array) -> pa.Array:
        if wanted == pa.binary() and storage_of(column.type) == pa.binary_view():
            return column.storage if isinstance(column, pa.ExtensionArray) else column
        return cast_values(column, wanted)

    return cast


def _narrow_to(wanted: pa.DataType, key: str, losses: Losses) -> Callable[[Any], Any]:
    """A cast of float64 to float32 that refuses numbers beyond its range. `losses` notes or refuses rounding."""

    def narrow(column: pa.Array) -> pa.Array:
        flat = column
        for _ in range(unnested(column.type)[1]):
            flat = flat.flatten()
        values = flat.drop_null().to_numpy()
        with np.errstate(over="ignore"):
            stored = values.astype(np.float32)
        fits = np.isfinite(stored) | ~np.isfinite(values)
        same = (stored.astype(np.float64) == values) | np.isnan(values)
        wrong = ~(fits & same) if losses.exact else ~fits
        if wrong.any():
            # The first value of either kind, because the error names the first record.
            place = int(np.argmax(wrong))
            value = values[place].item()
            if fits[place]:
                raise _Unfit(f"float32 would round {value!r}", _ROUND_HINT)
            raise _Unfit(f"{value!r} is beyond the range of float32", _RANGE_HINT)
        if not same.all():
            losses.add(key, ROUNDED)
        return cast_values(column, wanted)

    return narrow
