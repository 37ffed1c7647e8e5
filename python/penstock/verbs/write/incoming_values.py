"""Columns of Python values to write: type inference, and conversion to Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError

_OTHER_SHAPES = (
    "bring them to one shape, or write a column of penstock.types.VariableShapeTensorType to Parquet, "
    "Arrow, MessagePack or a tar"
)

_OTHER_TYPES = (
    "give them one type; or write record batches with a type that fits both, such as "
    "pa.RecordBatch.from_pylist(rows, schema)"
)

SCHEMA_HINT = (
    "the columns and types are inferred from the first records; to choose them, write record batches, such as "
    "pa.RecordBatch.from_pylist(rows, schema)"
)


def copied(value: Any) -> Any:
    """Return a copy that does not change if the caller reuses arrays, lists and dicts."""
    if isinstance(value, np.ndarray):
        return cast("np.ndarray[Any, Any]", value).copy()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {key: copied(part) for key, part in pairs.items()}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        is_flat = not parts or isinstance(parts[0], (int, float, str, bytes))
        return parts.copy() if is_flat else [copied(part) for part in parts]
    return value


def weight(value: Any) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple)):
        parts = cast("list[Any]", value)
        is_flat = not parts or isinstance(parts[0], (int, float))
        return 8 * len(parts) if is_flat else sum(map(weight, parts))
    if isinstance(value, Mapping):
        return sum(map(weight, cast("Mapping[Any, Any]", value).values()))
    return int(getattr(value, "nbytes", 8))


def type_name(value: object) -> str:
    """Return the name of a value's type, with its module unless the type is built in."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def no_text(name: str, values: Iterable[Any], first_record: int = 0) -> SchemaError:
    """Return the error for a column that Arrow cannot encode because a string is not valid Unicode."""
    place = (at for at, value in enumerate(values, first_record) if not _is_text(value))
    return SchemaError(
        "a string with half a surrogate pair is not valid Unicode",
        record=next(place, None),
        field=name,
        hint='write bytes: value.encode("utf-8", "surrogatepass"), or os.fsencode(name) for a file name',
    )


def _is_text(value: Any) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return all(_is_text(part) for pair in pairs.items() for part in pair)
    if isinstance(value, (list, tuple, np.ndarray)):
        return all(_is_text(part) for part in cast("Iterable[Any]", value))
    return True


def tensors(values: np.ndarray[Any, Any], mask: list[bool] | None = None) -> pa.Array:
    """Return a column of tensors. The first axis of `values` is the record."""
    shape = values.shape[1:]
    size = int(np.prod(shape))
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    valid = None if mask is None else pa.array([not m for m in mask]).buffers()[1]
    stored = pa.Array.from_buffers(pa.list_(flat.type, size), len(values), [valid], children=[flat])
    if not (pa.types.is_primitive(flat.type) and size):
        return stored
    kind = pa.fixed_shape_tensor(flat.type, shape)
    return pa.ExtensionArray.from_storage(kind, stored)


class Field:
    """One column of Python values: its inferred type, and its conversion to Arrow arrays."""

    def __init__(self, name: str, values: list[Any]) -> None:
        self.name = name
        self.values = values = _unboxed(values)
        self.shape: tuple[int, ...] | None = None
        self.type: pa.DataType = pa.null()
        self._known: set[type] = set()
        for record, value in enumerate(values):
            self._learn(record, value)

    def _learn(self, record: int, value: Any) -> None:
        # For a plain scalar, the Python type determines the Arrow type. Other values must be inspected.
        if type(value) in self._known or value is None:
            return
        found, shape = _type_of(self.name, record, value)
        if pa.types.is_null(self.type):
            self.type, self.shape = found, shape
        else:
            merged = _merged(self.type, found)
            if merged is None or shape != self.shape:
                raise self._mismatch(record, found, shape)
            self.type = merged
        if isinstance(value, (bool, int, float, str, bytes, np.number, np.bool_)):
            self._known.add(type(value))

    def _mismatch(
        self, record: int, found: pa.DataType, shape: tuple[int, ...] | None
    ) -> SchemaError:
        return SchemaError(
            "this value has another type than the values before it",
            record=record,
            field=self.name,
            expected=_described(self.type, self.shape),
            found=_described(found, shape),
            hint=_OTHER_TYPES
            if None in (shape, self.shape) or shape == self.shape
            else _OTHER_SHAPES,
        )

    def array(self) -> pa.Array:
        return self.convert(self.values, 0)

    def convert(self, values: list[Any], first_record: int) -> pa.Array:
        values = _unboxed(values)
        for at, value in enumerate(values):
            if value is None or type(value) in self._known:
                continue
            found, shape = _type_of(self.name, first_record + at, value)
            if _merged(self.type, found) != self.type or shape != self.shape:
                raise self._mismatch(first_record + at, found, shape)
        if self.shape is not None:
            return self._stacked(values)
        try:
            return pa.array(values, type=self.type)
        except UnicodeError:
            raise no_text(self.name, values, first_record) from None
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise SchemaError(
                str(error), record=first_record + self._first_bad(values), field=self.name
            ) from None

    def _first_bad(self, values: list[Any]) -> int:
        for at, value in enumerate(values):
            try:
                pa.array([value], type=self.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                return at
        return 0

    def _stacked(self, values: list[Any]) -> pa.Array:
        assert self.shape is not None
        mask = [value is None for value in values]
        blank = np.zeros(self.shape, self.type.to_pandas_dtype())
        rows = [blank if value is None else value for value in values]
        stacked = np.stack(rows) if rows else np.zeros((0, *self.shape), blank.dtype)
        return tensors(stacked, mask if any(mask) else None)


def _unboxed(values: list[Any]) -> list[Any]:
    """Return the same values, with zero-dimensional arrays replaced by scalars."""
    if not any(type(value) is np.ndarray and not value.ndim for value in values):
        return values
    return [value[()] if isinstance(value, np.ndarray) else value for value in values]


def _described(kind: pa.DataType, shape: tuple[int, ...] | None) -> str:
    return str(kind) if shape is None else f"{kind} of shape {shape}"


def _type_of(name: str, record: int, value: Any) -> tuple[pa.DataType, tuple[int, ...] | None]:
    """Return the Arrow type of one value and None, or the element type and shape of a tensor."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        if array.ndim > 1:
            return pa.from_numpy_dtype(array.dtype), array.shape
    try:
        return pa.infer_type([value]), None
    except UnicodeError:
        raise no_text(name, [value], record) from None
    except (pa.ArrowException, OverflowError) as error:
        raise SchemaError(
            f"a {type_name(value)} cannot be written: {error}",
            record=record,
            field=name,
        ) from None


def _merged(known: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    """Return the common type, or None if there is none. Each type may complete unknown parts of the other."""
    types = pa.types
    if known == found or types.is_null(found):
        return known
    if types.is_null(known):
        return found
    if types.is_list(known) and types.is_list(found):
        inner = _merged(known.value_type, found.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(known) and types.is_struct(found):
        fields = {field.name: field.type for field in known}
        for field in found:
            inner = _merged(fields.get(field.name, pa.null()), field.type)
            if inner is None:
                return None
            fields[field.name] = inner
        return pa.struct(list(fields.items()))
    return None
