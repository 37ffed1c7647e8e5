"""Verification that a conversion has written every value of every record exactly as it was read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute

from penstock.columns import nearest
from penstock.columns.types import is_image, is_list
from penstock.datasets.scan import rebatch
from penstock.errors import FormatError
from penstock.payloads.example.encode_plans import plan_payload
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    RECORD,
    WIRE_KEY,
)
from penstock.verbs.convert._proof_images import first_other_picture

_BATCH_RECORDS = 4096
_compute: Any = pyarrow.compute  # Any: its functions are created at import, so they have no types


class Wire:
    """The values that a TFRecord writer stores for batches, after its documented conversions. `schema` reads the same
    values back."""

    def __init__(self, schema: pa.Schema, payload: Any) -> None:
        self._plan = plan_payload(schema, payload)
        self.is_raw = self._plan.kind == "raw"
        nothing = [_empty(field.type) for field in schema]
        empty = self.convert(pa.RecordBatch.from_arrays(nothing, schema=schema))
        self.schema = pa.schema([self._field(field) for field in empty.schema])

    def _field(self, field: pa.Field) -> pa.Field:
        type_ = _plain(field.type)
        nested = pa.types.is_list(type_) and pa.types.is_list(type_.value_type)
        if self._plan.kind == "sequence" and (field.name.startswith(LISTS_PREFIX) or nested):
            key = field.name.removeprefix(LISTS_PREFIX)
            return pa.field(
                field.name, type_, metadata={IN_LISTS_KEY: b"1", WIRE_KEY: key.encode()}
            )
        if self._plan.kind == "sequence" and field.name.startswith(CONTEXT_PREFIX):
            key = field.name.removeprefix(CONTEXT_PREFIX)
            return pa.field(field.name, type_, metadata={WIRE_KEY: key.encode()})
        is_feature = field.name == RECORD and not self.is_raw
        return pa.field(field.name, type_, metadata={WIRE_KEY: RECORD} if is_feature else None)

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.is_raw:
            column = batch.column(0).cast(pa.binary())
            return pa.RecordBatch.from_arrays([column], names=["record"])
        return self._plan.convert(batch)


def _empty(type_: pa.DataType) -> pa.Array:
    # pyarrow cannot create an array of a tensor type with a permutation.
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array([], type_.storage_type))
    return pa.array([], type_)


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a decoder returns a stored type."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    types = pa.types
    if is_list(type_):
        return pa.list_(_plain(type_.value_type))
    if types.is_integer(type_):
        return pa.int64()
    if types.is_floating(type_):
        return pa.float32()
    return type_ if types.is_null(type_) else pa.binary()


def as_stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the values in the types in which a container returns them. A container may have int64 as its only
    integer type, and may store class numbers without their names. Values that are not numbers stay as they are."""
    columns: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        at = schema.get_field_index(name)
        type_ = column.type if at < 0 else schema.field(at).type
        if pa.types.is_dictionary(column.type) and _is_number(type_):
            column = column.indices
        if column.type != type_ and _is_number(column.type) and _is_number(type_):
            column = column.cast(type_)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_)


def prove_equal(
    wanted: Iterator[pa.RecordBatch], found: Iterator[pa.RecordBatch], path: str, first_record: int
) -> None:
    """Compare two streams of records value by value. `first_record` is the number of their first record. If two values
    differ, the FormatError names the record and field, with both values."""
    filled = [(b for b in side if b.num_rows) for side in (wanted, found)]
    done = first_record
    for a, b in zip_longest(*(rebatch(side, _BATCH_RECORDS) for side in filled)):
        counts = [0 if batch is None else batch.num_rows for batch in (a, b)]
        if a is None or b is None or counts[0] != counts[1]:
            raise FormatError(
                "the written file has a different number of records than the source",
                file=path,
                expected=done + counts[0],
                found=done + counts[1],
            )
        _compare(a, b, path, done)
        done += counts[0]


def _compare(a: pa.RecordBatch, b: pa.RecordBatch, path: str, first_record: int) -> None:
    for name in a.schema.names:
        wanted, found = a.column(name), b.column(b.schema.get_field_index(name))
        if same(wanted, found):
            continue
        if is_image(wanted.type) and is_image(found.type):
            row = first_other_picture(wanted, found)
        else:
            row = _first_difference(wanted, found)
        if row is None:
            continue
        raise FormatError(
            "the written value differs from the value read",
            file=path,
            record=first_record + row,
            field=name,
            expected=_short(wanted[row].as_py()),
            found=_short(found[row].as_py()),
        )


def same(a: pa.Array, b: pa.Array) -> bool:
    """Whether two arrays hold the same values. Floats, NaN included, are compared bit for bit. Variants of a list or
    binary type (large or view) count as equal."""
    a, b = (x.storage if isinstance(x.type, pa.BaseExtensionType) else x for x in (a, b))
    if len(a) != len(b) or not a.is_valid().equals(b.is_valid()):
        return False
    if pa.types.is_dictionary(a.type) or pa.types.is_dictionary(b.type):
        return same(_dense(a), _dense(b))
    for is_kind, are_same in _COMPARED:
        if is_kind(a.type) and is_kind(b.type):
            return bool(are_same(a, b))
    if a.type != b.type:
        try:
            b = nearest.cast(b, a.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
    return bool(a.equals(b))


def _dense(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _same_floats(a: Any, b: Any) -> bool:
    if a.type != b.type:
        return False
    bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[a.type.bit_width]
    return a.drop_null().view(bits).equals(b.drop_null().view(bits))


def _same_lists(a: Any, b: Any) -> bool:
    lengths = [_compute.list_value_length(x).cast(pa.int64()) for x in (a, b)]
    values = [x.drop_null().flatten() for x in (a, b)]
    return lengths[0].equals(lengths[1]) and same(*values)


def _same_maps(a: Any, b: Any) -> bool:
    return a.equals(b) or a.to_pylist() == b.to_pylist()


def _same_structs(a: Any, b: Any) -> bool:
    return a.type.num_fields == b.type.num_fields and all(map(same, a.flatten(), b.flatten()))


_COMPARED = (
    (pa.types.is_floating, _same_floats),
    (is_list, _same_lists),
    (pa.types.is_map, _same_maps),
    (pa.types.is_struct, _same_structs),
)


def _first_difference(a: pa.Array, b: pa.Array) -> int:
    low, high = 0, len(a)
    while high - low > 1:
        middle = (low + high) // 2
        if same(a.slice(low, middle - low), b.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
