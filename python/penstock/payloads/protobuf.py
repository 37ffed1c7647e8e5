"""Decoding of payloads of any protobuf message type, with a message class from the caller. The caller's protobuf
runtime parses the payloads, so penstock itself needs none, and only converts messages to columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection
from penstock.contract.decoder import Decoder, FrameCheck
from penstock.errors import FormatError, SchemaError

_MAX_DEPTH = 32


class MessageDecoder(Decoder):
    """Decodes payloads of one message type, given as a generated class or a descriptor, to one column per field.

    A singular field that tracks presence is null if it is unset. Other unset fields have their default, as in protobuf.
    Enums become their names, maps become Arrow maps, and messages become structs. If a message type contains itself,
    the inner message becomes its serialized bytes.
    """

    def __init__(self, message: Any) -> None:
        self._class = _message_class(message)
        descriptor = self._class.DESCRIPTOR
        if not descriptor.fields:
            raise SchemaError(f"{descriptor.full_name} has no fields")
        self._columns = {f.name: _column(f, (descriptor.full_name,)) for f in descriptor.fields}
        self.schema = pa.schema([pa.field(n, type_) for n, (type_, _) in self._columns.items()])

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        if proof is not None:
            frames.prove(proof.indexed)
        names = self.schema.names if columns is None else list(columns)
        messages = [self._parse(frames, record) for record in range(len(frames))]
        if not names:
            empty = pa.array([{}] * len(messages), pa.struct([]))
            return pa.RecordBatch.from_struct_array(empty)
        arrays = []
        for name in names:
            type_, value = self._columns[name]
            arrays.append(_array(name, [value(message) for message in messages], type_))
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _parse(self, frames: _core.Frames, record: int) -> Any:
        try:
            return self._class.FromString(frames.payload(record))
        except Exception as error:
            # DecodeError, which is in another module in some releases of protobuf.
            name = self._class.DESCRIPTOR.full_name
            hint = "open(..., raw=True) for the bytes as they are"
            raise FormatError(f"is not a {name}: {error}", record=record, hint=hint) from None


def _array(name: str, values: list[Any], type_: pa.DataType) -> pa.Array:
    refusals = (pa.ArrowException, ValueError, OverflowError)
    try:
        return pa.array(values, type_)
    except refusals:
        for record, value in enumerate(values):
            try:
                pa.array([value], type_)
            except refusals as error:
                message = f"does not fit {type_}: {str(error)[:200]}"
                hint = "is it this message? open(..., raw=True) for the bytes as they are"
                raise SchemaError(message, record=record, field=name, hint=hint) from None
        raise


def _message_class(given: Any) -> Any:
    message: Any = given
    if isinstance(given, type) and hasattr(message, "DESCRIPTOR"):
        return message
    if hasattr(message, "fields_by_name") and hasattr(message, "full_name"):
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(message)
    raise TypeError(
        "schema takes a pyarrow.Schema, {name: penstock.features...}, or a protobuf message class "
        f"or descriptor, not {type(message).__name__}"
    )


_Value = Callable[[Any], Any]

# google.protobuf.FieldDescriptor.CPPTYPE_*: the numbers are part of its public interface.
_SCALARS: dict[int, pa.DataType] = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.uint32(),
    4: pa.uint64(),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
}
_ENUM, _STRING, _MESSAGE = 8, 9, 10
_TYPE_BYTES = 12


def _repeated(field: Any) -> bool:
    # Newer releases of protobuf have no `label`, and older releases no `is_repeated`.
    known = getattr(field, "is_repeated", None)
    return bool(field.label == 3 if known is None else known)


def _column(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, _Value]:
    """A field's Arrow type, and a function that gets the field's value from its message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key = _element(field.message_type.fields_by_name["key"], above)
        item = _element(field.message_type.fields_by_name["value"], above)

        def entries(message: Any) -> Any:
            pairs = getattr(message, name).items()
            return sorted(((key[1](k), item[1](v)) for k, v in pairs), key=lambda pair: pair[0])

        return pa.map_(key[0], item[0]), entries
    type_, convert = _element(field, above)
    if _repeated(field):
        return pa.list_(type_), lambda message: [convert(v) for v in getattr(message, name)]
    if field.has_presence:
        return (
            type_,
            lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
        )
    return type_, lambda message: convert(getattr(message, name))


def _element(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, _Value]:
    """The Arrow type of one value of a field, and a function that converts the value."""
    kind = field.cpp_type
    if kind in _SCALARS:
        return _SCALARS[kind], _same
    if kind == _STRING:
        return (pa.binary() if field.type == _TYPE_BYTES else pa.string()), _same
    if kind == _ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    assert kind == _MESSAGE
    inner = field.message_type
    if inner.full_name in above or len(above) >= _MAX_DEPTH or not inner.fields:
        return pa.binary(), lambda message: message.SerializeToString(deterministic=True)
    parts = {f.name: _column(f, (*above, inner.full_name)) for f in inner.fields}
    type_ = pa.struct([pa.field(n, part[0]) for n, part in parts.items()])
    return type_, lambda message: {n: part[1](message) for n, part in parts.items()}


def _same(value: Any) -> Any:
    return value
