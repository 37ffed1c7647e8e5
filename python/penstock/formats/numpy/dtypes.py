"""The mapping between NumPy's dtypes and Arrow's types, for the formats that hold arrays.

| dtype | Arrow type |
|---|---|
| bool, ints, float16/32/64 | the same; big-endian values are converted |
| S, U | binary, string, without the padding zeros |
| datetime64 s/ms/us/ns, D | timestamp, date32; NaT is null. W/M/Y become date32, h/m timestamp[s] |
| timedelta64 s/ms/us/ns | duration; W/D/h/m become duration[s] |
| void of n bytes | fixed_size_binary(n) |
| bfloat16, complex, long double | uint16 (its bits), a tensor of two floats, fixed_size_binary; the field's metadata has the dtype |
| structured | struct |
| further axes, sub-arrays | fixed_shape_tensor; fixed-size lists if the values are text or structs |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import (
    DTYPE_KEY,
    is_bytes,
    is_fixed_tensor,
    is_list,
    is_text,
    storage_of,
)
from penstock.errors import FormatError, SchemaError, UnsupportedError
from penstock.formats.numpy._dtypes_hdf5 import (
    marked_column,
    marked_type,
    offsets_of,
    text_column,
)

NOT_A_TIME = np.iinfo(np.int64).min
_SAME_IN_NUMPY = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_duration,
)
_DAYS = {"D": 1, "W": 7}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "D": 86400, "W": 7 * 86400}
_ARROW_UNITS = ("s", "ms", "us", "ns")
BFLOAT16 = "bfloat16"
"""The dtype that is the upper half of a float32. This is its name in ml_dtypes, torch and JAX."""


def bits(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return a dtype that holds the bits of another dtype, whose name is `name`."""
    metadata: Any = {"penstock": name}
    return np.dtype(dtype, metadata=metadata)


def name_of_bits(dtype: np.dtype[Any]) -> str | None:
    """If values of this dtype are the bits of another dtype, return the other dtype's name, else None."""
    return (dtype.metadata or {}).get("penstock")


def lacks_type(dtype: np.dtype[Any]) -> bool:
    """Whether Arrow has no type for these numbers, so their bits or parts are stored."""
    return dtype.kind == "c" or dtype.name == BFLOAT16


def with_bits(values: np.ndarray) -> np.ndarray:
    """View ml_dtypes' bfloat16 as the bits that penstock knows. Return other values unchanged."""
    is_other = values.dtype.name == BFLOAT16
    return values.view(bits(np.dtype(np.uint16), BFLOAT16)) if is_other else values


# -- dtype to type --------------------------------------------------------------------------------


def field_of(name: str, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Any:
    """Return the Arrow field for values of `dtype`, or for arrays of `shape`. Raise UnsupportedError if there is
    none."""
    dtype, shape = without_sub_array(dtype, shape)
    metadata: dict[bytes, bytes] = {}
    kind = dtype.kind
    named = name_of_bits(dtype)
    if named is not None:
        metadata[DTYPE_KEY] = named.encode()
    if kind == "c":
        metadata[DTYPE_KEY] = dtype.name.encode()
        shape = (*shape, 2)
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    type_ = _value_type(name, dtype)
    return pa.field(name, _shaped(type_, shape), metadata=metadata or None)


def without_sub_array(
    dtype: np.dtype[Any], shape: tuple[int, ...] = ()
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return a dtype without its sub-array, whose shape is appended to `shape`."""
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape = (*shape, *inner)
    return dtype, shape


def _value_type(name: str, dtype: np.dtype[Any]) -> Any:
    kind, size = dtype.kind, dtype.itemsize
    try:
        marked = marked_type(dtype)
    except UnsupportedError as error:
        raise error.at(field=name) from None
    if marked is not None:
        return marked
    if dtype.names is not None:
        return pa.struct([field_of(field, dtype[field]) for field in dtype.names])
    if kind == "S":
        return pa.binary()
    if kind == "U":
        return pa.string()
    if kind == "V":
        return pa.binary(size)
    if kind in "mM":
        return _time_type(name, dtype)
    if kind == "O" or (kind == "f" and size > 8):
        raise UnsupportedError(f"Arrow has no type for {dtype}", field=name)
    return pa.from_numpy_dtype(dtype.newbyteorder("="))


def _time_type(name: str, dtype: np.dtype[Any]) -> Any:
    unit, multiple = np.datetime_data(dtype)
    of_unit = pa.timestamp if dtype.kind == "M" else pa.duration
    if multiple == 1 and unit in _ARROW_UNITS:
        return of_unit(unit)
    if multiple == 1 and dtype.kind == "M" and unit in ("D", "W", "M", "Y"):
        return pa.date32()
    if multiple == 1 and unit in _SECONDS:
        return of_unit("s")
    raise UnsupportedError(f"Arrow has no type for {dtype}", field=name)


def _shaped(type_: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return type_
    if max(shape) > 0x7FFFFFFF or math.prod(shape) > 0x7FFFFFFF:
        raise UnsupportedError(f"a record of shape {shape} is too large for a list in Arrow")
    if pa.types.is_primitive(type_):
        return pa.fixed_shape_tensor(type_, shape)
    for size in reversed(shape):
        type_ = pa.list_(type_, size)
    return type_


# -- values to columns ----------------------------------------------------------------------------


def stored_type(type_: Any, wanted: Any) -> Any:
    """Return the type in which values of `type_` are read, if a column of the type `wanted` is made of them: text is not
    decoded if bytes are wanted."""
    if pa.types.is_string(type_) and is_bytes(wanted):
        return pa.binary()
    if not (is_list(type_) and is_list(wanted)):
        return type_
    inner = stored_type(type_.value_type, wanted.value_type)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(inner, type_.list_size)
    return pa.list_(inner)


def column(values: np.ndarray, type_: Any) -> Any:
    """Convert an array, whose first axis counts records, to a column of the type that `field_of` gave, or of its
    `stored_type`. Share memory if
    Arrow has the same bytes. Raise FormatError if a text is invalid, or a time is beyond Arrow's range."""
    dtype, kind, num_records = values.dtype, values.dtype.kind, len(values)
    if values.ndim > 1 or kind == "c":
        return _shaped_column(values, type_)
    if dtype.names is not None:
        return _structs(values, type_)
    if kind == "b":
        set_ = np.ascontiguousarray(values).view(np.uint8) != 0
        return pa.Array.from_buffers(type_, num_records, [None, bitmap(set_)])
    if {"vlen", "enum"} & set(dtype.metadata or ()):
        return marked_column(values, type_)
    if kind == "S":
        return _bytes(values, type_)
    if kind == "U":
        return _text(values)
    if kind in "mM":
        return _times(values, type_)
    if kind == "V":
        values = np.ascontiguousarray(values).view(np.uint8)
    elif not dtype.isnative:
        values = values.astype(dtype.newbyteorder("="))
    values = np.require(values, requirements=["C", "A"])
    return pa.Array.from_buffers(type_, num_records, [None, pa.py_buffer(values)])


def _structs(values: np.ndarray, type_: Any) -> Any:
    fields = list(type_)
    if not fields:
        return pa.array([{}] * len(values), type_)
    names = values.dtype.names or ()
    children = [column(values[name], field.type) for name, field in zip(names, fields, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields)


def _shaped_column(values: np.ndarray, type_: Any) -> Any:
    num_records, shape = len(values), values.shape[1:]
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "c":
        values = values.view(
            f"{values.dtype.byteorder}f{values.dtype.itemsize // 2}".replace("|", "")
        )
        values = values.reshape(num_records, *shape, 2)
        shape = values.shape[1:]
    leaf = type_.value_type if is_fixed_tensor(type_) else type_
    while pa.types.is_fixed_size_list(leaf):
        leaf = leaf.value_type
    try:
        array = column(values.reshape(-1), leaf)
    except FormatError as error:
        if error.record is not None:
            error.record //= math.prod(shape)
        raise
    if is_fixed_tensor(type_):
        return pa.ExtensionArray.from_storage(type_, _lists(array, math.prod(shape), num_records))
    for axis in range(len(shape) - 1, -1, -1):
        array = _lists(array, shape[axis], num_records * math.prod(shape[:axis]))
    return array


def _lists(values: Any, size: int, count: int) -> Any:
    type_ = pa.list_(values.type, size)
    return pa.FixedSizeListArray.from_buffers(type_, count, [None], children=[values])


def _filled_lengths(matrix: np.ndarray) -> np.ndarray:
    """Return the length of each row without its trailing zeros."""
    width = matrix.shape[1]
    if not width:
        return np.zeros(len(matrix), np.int64)
    backwards = matrix[:, ::-1] != 0
    return np.where(backwards.any(axis=1), width - backwards.argmax(axis=1), 0)


def _cells(values: np.ndarray, unit: str) -> np.ndarray:
    """Return the characters of text of fixed length: [records, width]."""
    width = values.dtype.itemsize // np.dtype(unit).itemsize
    if not width:
        return np.zeros((len(values), 0), unit)
    return np.ascontiguousarray(values).view(unit).reshape(len(values), width)


def _bytes(values: np.ndarray, type_: Any) -> Any:
    matrix = _cells(values, "u1")
    lengths = _filled_lengths(matrix)
    data = matrix[np.arange(matrix.shape[1]) < lengths[:, None]]
    offsets = offsets_of(lengths).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    found = pa.Array.from_buffers(pa.binary(), len(values), buffers)
    return found if type_ == found.type else text_column(found)


def _text(values: np.ndarray) -> Any:
    """Encode all values, which are UCS-4, as UTF-8 in one call."""
    order = values.dtype.byteorder.replace("|", "=")
    matrix = _cells(values, f"{order}u4").astype("<u4", copy=False)
    lengths = _filled_lengths(matrix)
    codes = matrix[np.arange(matrix.shape[1]) < lengths[:, None]]
    try:
        data = codes.tobytes().decode("utf-32-le").encode()
    except UnicodeDecodeError as error:
        ends = np.cumsum(lengths)
        record = int(np.searchsorted(ends, error.start // 4, side="right"))
        raise FormatError("a character code is invalid", record=record) from None
    sizes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    offsets = offsets_of(sizes)[offsets_of(lengths)].astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _times(values: np.ndarray, type_: Any) -> Any:
    """Convert times, with NaT as null. Raise FormatError for a time that is too large in Arrow's unit."""
    unit, _ = np.datetime_data(values.dtype)
    numbers = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}i8".replace("|", "="))
    numbers = numbers.astype(np.int64, copy=False)
    missing = numbers == NOT_A_TIME
    if unit in ("M", "Y"):
        most = 5_000_000 if unit == "Y" else 60_000_000
        _within(numbers, missing, most)
        days = np.where(missing, 0, numbers).astype(f"M8[{unit}]").astype("M8[D]")
        numbers, factor = days.astype(np.int64), 1
    else:
        factor = 1 if unit in _ARROW_UNITS else (_DAYS if type_ == pa.date32() else _SECONDS)[unit]
    if type_ == pa.date32():
        _within(numbers, missing, 0x7FFFFFFF // factor)
        numbers = np.where(missing, 0, numbers * factor).astype(np.int32)
    elif factor > 1:
        _within(numbers, missing, (1 << 63) // factor - 1)
        numbers = np.where(missing, 0, numbers) * factor
    valid = bitmap(~missing) if missing.any() else None
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(numbers)])


def bitmap(set_: np.ndarray) -> Any:
    """Return booleans as an Arrow buffer, one bit each."""
    return pa.py_buffer(np.packbits(set_, bitorder="little"))


def _within(numbers: np.ndarray, missing: np.ndarray, most: int) -> None:
    wrong = ~missing & ((numbers > most) | (numbers < -most))
    if wrong.any():
        record = int(np.flatnonzero(wrong)[0])
        raise FormatError("the time is beyond Arrow's range", record=record)


# -- type to dtype --------------------------------------------------------------------------------


def dtype_of(field: Any, text_length: int | None = None) -> np.dtype[Any]:
    """Return the dtype that holds the values of an Arrow field, with a sub-array for tensors. Raise SchemaError if
    there is none.

    `text_length` is the maximum characters or bytes of a text: 0 if the caller gave none, None if the format has no
    such option.
    """
    dtype = _dtype_of(field.type, field.name, text_length)
    named = (field.metadata or {}).get(DTYPE_KEY, b"").decode("utf-8", "replace")
    if named == BFLOAT16 and dtype.base == np.dtype("u2"):
        marked = bits(np.dtype("<u2"), BFLOAT16)
        return np.dtype((marked, dtype.shape)) if dtype.shape else marked
    if named in ("complex64", "complex128") and dtype.shape[-1:] == (2,):
        whole = np.dtype(named)
        if dtype.base == np.dtype(f"f{whole.itemsize // 2}"):
            shape = dtype.shape[:-1]
            return np.dtype((whole, shape)) if shape else whole
    return dtype


def _dtype_of(type_: Any, name: str, text_length: int | None) -> np.dtype[Any]:
    if is_fixed_tensor(type_):
        axes = type_.permutation or ()
        if list(axes) != sorted(axes):
            raise SchemaError("the axes of the tensor are permuted", field=name, found=type_)
        shape = tuple(int(size) for size in type_.shape)
        return np.dtype((_dtype_of(type_.value_type, name, text_length), shape))
    if isinstance(type_, pa.BaseExtensionType):
        return _dtype_of(storage_of(type_), name, text_length)
    if pa.types.is_struct(type_):
        parts = [(f.name, dtype_of(f.with_name(f"{name}.{f.name}"), text_length)) for f in type_]
        if len(dict(parts)) < len(parts) or "" in dict(parts):
            raise SchemaError(
                "two fields of a struct have the same name, or a field has no name", field=name
            )
        return np.dtype(parts)
    if pa.types.is_fixed_size_list(type_):
        inner = _dtype_of(type_.value_type, name, text_length)
        return np.dtype((inner.base, (type_.list_size, *inner.shape)))
    dtype = _plain_dtype(type_, text_length)
    if dtype is None:
        hint = f"{_advice(type_, has_length=text_length is not None)}, or write Parquet or Arrow"
        raise SchemaError(f"an array cannot hold {type_}", field=name, hint=hint)
    return dtype


def _plain_dtype(type_: Any, text_length: int | None) -> np.dtype[Any] | None:
    """Return the dtype of values that have no parts, or None if there is none."""
    types = pa.types
    has_length = text_length and (is_text(type_) or is_bytes(type_))
    if any(test(type_) for test in _SAME_IN_NUMPY) or (types.is_timestamp(type_) and not type_.tz):
        return np.dtype(type_.to_pandas_dtype()).newbyteorder("<")
    if types.is_date32(type_):
        return np.dtype("<M8[D]")
    if types.is_fixed_size_binary(type_):
        return np.dtype(f"V{type_.byte_width}")
    if has_length:
        return np.dtype(f"<U{text_length}" if is_text(type_) else f"S{text_length}")
    return None


def _advice(type_: Any, *, has_length: bool) -> str:
    if pa.types.is_timestamp(type_):
        return "cast it to a timestamp without a time zone"
    if pa.types.is_dictionary(type_):
        return "cast it to its value type"
    if has_length and (is_text(type_) or is_bytes(type_)):
        return "set text_length=, the maximum characters or bytes of a value"
    return "cast it, leave it out (columns=)"
