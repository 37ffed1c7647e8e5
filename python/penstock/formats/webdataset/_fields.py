"""Decodes the fields of WebDataset records, depending on the last part of their names and on the Arrow type.

| last part of the field | column |
|---|---|
| jpg jpeg png webp ppm pgm bmp gif tif tiff | encoded image, its bytes untouched |
| json jsn | JSON |
| cls cls2 index inx id | int64, surrounding whitespace allowed |
| txt text transcript | string |
| npy | the number or tensor in it; the first records determine the type |
| npz mp msg msgpack cbor | a struct of the values in it; the first records determine the type |
| any other, and always pyd pickle pkl pth pt | bytes |

`x.gz` is inflated if `x` is an ending above. The webdataset library uses the same table, but it also decodes endings
for which decoding can execute code.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.batches import wider_hint
from penstock.columns.casts import check_survived, first_unfit, fitted
from penstock.columns.types import (
    ImageType,
    is_bytes,
    is_fixed_tensor,
    is_text,
    is_variable_tensor,
    storage_of,
)
from penstock.errors import FormatError, LimitError, SchemaError
from penstock.formats.webdataset._npy import column as npy_column
from penstock.formats.webdataset._objects import OBJECTS, column_of_objects
from penstock.limits import Limits

IMAGES = {
    "jpg": "jpeg",
    "jpeg": "jpeg",
    "png": "png",
    "webp": "webp",
    "ppm": "ppm",
    "pgm": "ppm",
    "bmp": "bmp",
    "gif": "gif",
    "tif": "tiff",
    "tiff": "tiff",
}
NUMBERS = ("cls", "cls2", "index", "inx", "id")
TEXTS = ("txt", "text", "transcript")
JSONS = ("json", "jsn")
NPY = "npy"
KNOWN = (*IMAGES, *NUMBERS, *TEXTS, *JSONS, NPY)
BY_CONTENTS = (NPY, *OBJECTS)

SKIP_HINT = 'open(..., damage="skip") leaves such records out, open(..., decode=False) gives fields as bytes'

_PIECE_BYTES = 1 << 20
_GIVEN_BYTES = 16 << 10
_NOT_ZERO = re.compile(rb"[^\0]")


def ending(field: str) -> tuple[str, bool]:
    """Return the part of a field's name that determines its type, and whether the field is gzipped."""
    parts = field.rsplit(".", 2)
    if parts[-1] == "gz" and len(parts) > 1 and parts[-2] in KNOWN:
        return parts[-2], True
    return parts[-1], False


def type_by_name(field: str) -> Any:
    """Return the type of a field's column from its name, or None if the contents determine it."""
    last, _ = ending(field)
    if last in IMAGES:
        return ImageType(IMAGES[last])
    if last in JSONS:
        return pa.json_()
    if last in NUMBERS:
        return pa.int64()
    if last in TEXTS:
        return pa.string()
    return None if last in BY_CONTENTS else pa.binary()


Finish = Callable[[Any], Any]
_MISFITS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """How a column is made from a field: what the kernel returns, and how that is converted."""

    column: pa.Field
    field: str
    contents: str
    finish: Finish
    inflates: bool = False
    is_asked: bool = False
    """Whether the caller chose the type, so valid contents may not fit it."""
    exact: bool = False
    """Whether the type was inferred from other records, so rounding a float to fit it is an error."""

    def make(self, values: Any, limits: Limits) -> Any:
        """Convert what the kernel returned to the column. Errors name the field, and the row of the batch.

        Raises:
            FormatError: the contents cannot be decoded.
            SchemaError: the contents are valid, but of another type.
        """
        try:
            if self.inflates:
                values = inflated(values, limits)
            found = self._finished(values)
        except FormatError as error:
            raise error.at(field=self.column.name, hint=SKIP_HINT) from None
        except SchemaError as error:
            if not self._breaks_rules():
                raise error.at(field=self.column.name) from None
            raise undecodable(error.message, record=error.record, field=self.column.name) from None
        except _MISFITS as error:
            message = f"the contents do not fit {self.column.type}: {error}"
            place: dict[str, Any] = {"record": self._misfit(values), "field": self.column.name}
            if self._breaks_rules():
                raise undecodable(message, **place) from None
            hint = wider_hint(self.column, values.type)
            raise SchemaError(message, hint=hint, **place) from None
        if not self.column.nullable and found.null_count:
            row = pc.index(pc.is_null(found), pa.scalar(value=True)).as_py()
            raise SchemaError("the record has no such field", record=row, field=self.column.name)
        return found

    def _breaks_rules(self) -> bool:
        """Whether contents that do not fit the column's type break the rules of their field. Contents that store their
        own types can be valid without fitting."""
        return not self.is_asked and ending(self.field)[0] not in BY_CONTENTS

    def _finished(self, values: Any) -> Any:
        if self.inflates and self.contents != "bytes":
            values = values.cast(pa.string())
            if self.contents == "number":
                values = pc.utf8_trim_whitespace(values).cast(pa.int64())
        return self.finish(values)

    def _misfit(self, values: Any) -> int | None:
        """Return the first row whose value by itself does not fit the type, or None."""
        for row in range(len(values)):
            try:
                self._finished(values.slice(row, 1))
            except _MISFITS:
                return row
        return None


def undecodable(message: str, **place: Any) -> FormatError:
    """Return the error for contents that break the rules of their field."""
    return FormatError(message, **place, hint=SKIP_HINT)


def plan_field(
    column: pa.Field, field: str, limits: Limits, is_asked: bool = False, exact: bool = False
) -> ReadingPlan:
    """Return how a column of this type is made from a field. For `is_asked` and `exact` see ReadingPlan."""
    last, inflates = ending(field)
    contents, finish = _how(column, last, limits, exact)
    if column.type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        inflates = False  # a column of bytes gets the member's bytes unchanged
    if inflates and contents == "views":
        contents = "bytes"  # views point into the file, which does not have the inflated contents
    return ReadingPlan(column, field, contents, finish, inflates, is_asked, exact)


# Complexity: one branch for each kind of type.
def _how(column: pa.Field, last: str, limits: Limits, exact: bool) -> tuple[str, Finish]:
    type_, kind = column.type, pa.types
    storage = storage_of(type_)
    if holds_bytes(storage) or is_text(storage):
        contents = "bytes" if holds_bytes(storage) else "text"
        if storage == pa.binary_view():
            contents = "views"
        return contents, lambda values: _wrapped(type_, as_type(values, storage))
    if kind.is_null(type_):
        return "bytes", _nulls
    if last == NPY:
        return "bytes", lambda values: npy_column(values, type_, exact)
    if last in OBJECTS and kind.is_struct(type_):
        return "bytes", lambda values: column_of_objects(last, values, type_, limits, exact)
    if kind.is_uint64(type_):
        return "text", lambda values: pc.utf8_trim_whitespace(values).cast(type_)
    if is_number(type_) or is_time(type_):
        return "number", lambda values: _from_int64(values, type_)
    if kind.is_floating(type_):
        return "text", lambda values: _floats(values, type_)
    if is_label(type_):
        return "text", lambda values: values.cast(type_.value_type).dictionary_encode().cast(type_)
    return "text", lambda values: _from_json(values, type_)


def holds_bytes(type_: Any) -> bool:
    """Whether values are byte strings, of fixed or variable length."""
    return is_bytes(type_) or bool(pa.types.is_fixed_size_binary(type_))


def is_number(type_: Any) -> bool:
    """Whether values are integers or booleans."""
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def is_time(type_: Any) -> bool:
    """Whether values are times or durations, which are stored as integers."""
    return bool(pa.types.is_temporal(type_)) and not pa.types.is_interval(type_)


def is_label(type_: Any) -> bool:
    """Whether values are class labels: texts from a dictionary."""
    return bool(pa.types.is_dictionary(type_)) and is_text(type_.value_type)


def is_npy(type_: Any) -> bool:
    """Whether values are written as npy files: floats, and arrays of numbers."""
    kind = pa.types
    tests = (
        is_fixed_tensor,
        is_variable_tensor,
        kind.is_list,
        kind.is_large_list,
        kind.is_fixed_size_list,
    )
    if any(test(type_) for test in tests):
        return is_number(type_.value_type) or bool(kind.is_floating(type_.value_type))
    return bool(kind.is_floating(type_))


def _nulls(values: Any) -> Any:
    """Return a column of the null type. Raise SchemaError if the field has a value."""
    if values.null_count < len(values):
        raise SchemaError(
            "the field has a value here, but had none in the records from which its type was inferred",
            record=pc.index(values.is_valid(), pa.scalar(value=True)).as_py(),
            hint="open(..., schema=...) with a type for it",
        )
    return pa.nulls(len(values))


def as_type(values: Any, type_: Any) -> Any:
    """Convert values to a type, which most already have."""
    return values if values.type == type_ else fitted(values, type_)


def of_every_record(values: Any, field: pa.Field) -> Any:
    """Convert keys or file names to the type of their column. Errors name the column, and the row of the batch."""
    try:
        return as_type(values, field.type)
    except _MISFITS:
        row = first_unfit(values, lambda part: as_type(part, field.type), _MISFITS)
        message = f"{values[row].as_py()!r} does not fit {field.type}"
        raise SchemaError(message, record=row, field=field.name) from None


def _wrapped(type_: Any, storage: Any) -> Any:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, storage)
    return storage


def _from_int64(values: Any, type_: Any) -> Any:
    if is_time(type_) and type_.bit_width == 32:
        return values.cast(pa.int32()).cast(type_)
    if pa.types.is_boolean(type_):
        wrong = pc.any(pc.and_(pc.not_equal(values, 0), pc.not_equal(values, 1))).as_py()
        if wrong:
            raise pa.ArrowInvalid("a number is neither 0 nor 1")
    return as_type(values, type_)


def _floats(texts: Any, type_: Any) -> Any:
    made = texts.cast(type_)
    check_survived(texts.cast(pa.float64()), made)
    return made


# -- texts of JSON --------------------------------------------------------------------------------


def _from_json(values: Any, type_: Any) -> Any:
    found: list[Any] = []
    for row, text in enumerate(values.to_pylist()):
        try:
            found.append(None if text is None else _revived(json.loads(text), type_))
        except (ValueError, TypeError, AttributeError, Base64Error, RecursionError):
            raise FormatError(f"the contents are not JSON of {type_}", record=row) from None
    return pa.array(found, type_)


def as_json(value: Any, type_: Any) -> str | None:
    """Convert a nested value to JSON, with byte strings as base64."""
    if value is None:
        return None
    return json.dumps(_plain(value, type_), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, type_: Any) -> Any:
    kind = pa.types
    if value is None:
        return None
    if kind.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if kind.is_map(type_):
        return [[_plain(k, type_.key_type), _plain(v, type_.item_type)] for k, v in value]
    if hasattr(type_, "value_type") and not kind.is_dictionary(type_):
        return [_plain(item, type_.value_type) for item in value]
    if holds_bytes(type_):
        return b64encode(value).decode()
    return value


def _revived(value: Any, type_: Any) -> Any:
    kind = pa.types
    if value is None:
        return None
    if kind.is_struct(type_):
        return {field.name: _revived(value.get(field.name), field.type) for field in type_}
    if kind.is_map(type_):
        return [(_revived(k, type_.key_type), _revived(v, type_.item_type)) for k, v in value]
    if hasattr(type_, "value_type") and not kind.is_dictionary(type_):
        if not isinstance(value, list):
            raise TypeError
        items: list[Any] = value
        return [_revived(item, type_.value_type) for item in items]
    if holds_bytes(type_):
        return b64decode(value, validate=True)
    return value


# -- gzip -----------------------------------------------------------------------------------------


def inflated(values: Any, limits: Limits) -> Any:
    """Inflate byte strings that are gzip files."""
    found: list[bytes | None] = []
    total = 0
    for row, value in enumerate(values.to_pylist()):
        found.append(None if value is None else _inflate(value, limits, row))
        total += len(found[-1] or b"")
        limits.check_batch(total)
    return pa.array(found, pa.binary())


def _inflate(data: bytes, limits: Limits, row: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    left = limits.member_bytes
    view, at = memoryview(data), 0
    try:
        while at < len(data):
            stream = zlib.decompressobj(31)
            while not stream.eof:
                # In small pieces, because zlib copies all input after the end of each gzip member.
                given = view[at : at + _GIVEN_BYTES]
                part = stream.decompress(given, min(_PIECE_BYTES, left + 1))
                at += len(given) - len(stream.unconsumed_tail) - len(stream.unused_data)
                left -= len(part)
                parts.append(part)
                if left < 0:
                    raise LimitError(
                        f"inflates beyond the limit member_bytes={limits.member_bytes}", record=row
                    )
                if not part and at == len(data) and not stream.eof:
                    raise FormatError("the gzip data is truncated", record=row)
            filled = _NOT_ZERO.search(data, at)
            at = len(data) if filled is None else filled.start()
    except zlib.error:
        raise FormatError("the contents are not gzip data", record=row) from None
    return b"".join(parts)


def keys(first: int, count: int) -> Any:
    """Return keys for records without keys: their numbers in the shard, with nine digits."""
    numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
    return pc.utf8_lpad(numbers, 9, "0")
