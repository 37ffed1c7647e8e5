"""Comparison of two columns by content. Lists, numbers and bytes may be of different types.

| types that can be equal | values are equal if |
|---|---|
| integers of any width and bool | the numbers are the same |
| floats of any width | the numbers are exactly the same; NaN equals NaN, 0.0 is not -0.0 |
| strings and binary, fixed-size, large and views | the bytes are the same |
| timestamps; durations; dates; times, of any unit | they are the same moment or time |
| any of the types in the row above and an integer | the integer is the stored number, as in TFRecord |
| lists, large, fixed-size, views, maps (pairs); tensors (lists of lists) | all their values are equal |
| structs | fields of the same name are equal; a field missing on one side counts as null |
| dictionaries, run-end encoded, extensions | their decoded values or their storage are equal |

Null equals only null. For any other two types, entries differ unless both are null.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from penstock.columns.numbers import as_arrow, as_booleans
from penstock.columns.types import is_bytes, is_list, is_text
from penstock.errors import UnsupportedError

_compute: Any = pyarrow.compute  # Any: its functions are created at import, so they have no types
_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_DAY = 86_400 * 1_000_000_000


def differing(a: pa.Array, b: pa.Array) -> np.ndarray:
    """Return a mask of the entries that differ. The arrays must have the same length."""
    a, b = stripped(a), stripped(b)
    valid_a, valid_b = _valid(a), _valid(b)
    found = valid_a != valid_b
    both = valid_a & valid_b
    if not both.any():
        return found
    if not both.all():
        found[both] = _values_differ(chosen(a, both), chosen(b, both))
        return found
    return _values_differ(a, b)


def alike(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether values of two types can be equal."""
    a, b = _stripped_type(a), _stripped_type(b)
    if pa.types.is_null(a) or pa.types.is_null(b):
        return True
    kinds = {_kind(a), _kind(b)}
    if len(kinds) > 1:
        return _are_numbers(kinds)
    if kinds == {"list"}:
        return alike(a.value_type, b.value_type)
    if kinds == {"struct"}:
        names = {child.name for child in a} & {child.name for child in b}
        return all(alike(a.field(name).type, b.field(name).type) for name in names)
    return True


# -- types ----------------------------------------------------------------------------------------

_MOMENTS = frozenset({"date", "time", "duration", "timestamp", "timestamp in a zone"})


def _kind(type_: pa.DataType) -> str:
    """Return the kind of a stripped type. Except for integers and times, only values of one kind can be equal."""
    types = pa.types
    if types.is_integer(type_) or types.is_boolean(type_):
        return "integer"
    if types.is_floating(type_):
        return "float"
    if types.is_large_binary(type_):
        return "bytes"
    if types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamp in a zone"
    for word in ("date", "time", "duration", "decimal", "struct"):
        if getattr(types, f"is_{word}")(type_):
            return word
    return "list" if is_list(type_) else str(type_)


def stripped(array: pa.Array) -> pa.Array:
    """Return the values without extension, dictionary or view types. Bytes become large_binary, tensors become nested
    fixed-size lists, and maps become lists of pairs."""
    type_ = array.type
    types = pa.types
    if isinstance(type_, pa.FixedShapeTensorType):
        return _nested(array)
    if isinstance(type_, pa.BaseExtensionType):
        return stripped(array.storage)
    if types.is_dictionary(type_):
        return stripped(array.dictionary_decode())
    if types.is_run_end_encoded(type_):
        return _decoded_runs(array)
    if types.is_list_view(type_) or types.is_large_list_view(type_):
        return _packed(array)
    if types.is_map(type_):
        return _pairs(array)
    if is_text(type_):
        return array.cast(pa.large_string()).cast(pa.large_binary())
    return array.cast(pa.large_binary()) if _is_other_bytes(type_) else array


def _is_other_bytes(type_: pa.DataType) -> bool:
    """Whether a type holds bytes that have to be cast to large_binary."""
    if pa.types.is_fixed_size_binary(type_):
        return not pa.types.is_decimal(type_)
    return is_bytes(type_) and not pa.types.is_large_binary(type_)


def _decoded_runs(array: Any) -> pa.Array:
    """Return the values of a run-end encoded array, one per row. pyarrow does this for few value types only."""
    rows = np.arange(array.offset, array.offset + len(array))
    places = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
    return stripped(array.values).take(as_arrow(places))


@cache
def _stripped_type(type_: pa.DataType) -> pa.DataType:
    return stripped(pa.nulls(0, type_)).type


def _nested(tensors: Any) -> pa.Array:
    """Return tensors as lists of lists. Axes are in the order of the logical shape."""
    shape, order = list(tensors.type.shape), tensors.type.permutation
    size = int(np.prod(shape))
    first = tensors.storage.offset * size
    values = tensors.storage.values.slice(first, len(tensors) * size)
    if order is not None and list(order) != sorted(order):
        places = np.arange(size).reshape(shape).transpose(order).ravel()
        shape = [shape[axis] for axis in order]
        values = values.take(
            pa.array((np.arange(len(tensors))[:, None] * size + places).ravel(), pa.int64())
        )
    if not size:
        return tensors.storage  # it has rows, but no values
    for width in reversed(shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, width)
    mask = tensors.is_null() if tensors.null_count else None
    return pa.FixedSizeListArray.from_arrays(values, shape[0] if shape else 1, mask=mask)


def _packed(views: pa.Array) -> pa.Array:
    lengths = _compute.fill_null(_compute.list_value_length(views), 0).to_numpy()
    return lists_of(views.flatten(), lengths, views)


def _pairs(maps: Any) -> pa.Array:
    whole = maps.drop_null() if maps.null_count else maps
    offsets = np.asarray(whole.offsets, np.int64)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = (x.slice(first, length) for x in (whole.keys, whole.items))
    lengths = np.zeros(len(maps), np.int64)
    lengths[_valid(maps)] = np.diff(offsets)
    return lists_of(pa.StructArray.from_arrays([keys, items], ["key", "value"]), lengths, maps)


def chosen(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """Return the entries for which the mask is true."""
    try:
        return array.filter(as_booleans(mask))
    except pa.ArrowNotImplementedError:
        # pyarrow cannot filter views inside lists yet. A slice for each entry copies no bytes.
        parts = [array.slice(int(at), 1) for at in np.flatnonzero(mask)]
        return pa.concat_arrays(parts) if parts else array.slice(0, 0)


def lists_of(values: pa.Array, lengths: np.ndarray, nulls_of: pa.Array) -> pa.Array:
    """Return lists of these lengths. An entry is null if it is null in `nulls_of`."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    mask = nulls_of.is_null() if nulls_of.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, mask=mask)


def _valid(array: pa.Array) -> np.ndarray:
    if not array.null_count and not pa.types.is_union(array.type):
        return np.ones(len(array), bool)
    return array.is_valid().to_numpy(zero_copy_only=False)


# -- values, without nulls ------------------------------------------------------------------------


def _values_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    kinds = {_kind(a.type), _kind(b.type)}
    if kinds == {"integer"} or _are_numbers(kinds):
        return _integers_differ(_integers(a), _integers(b))
    if len(kinds) > 1:
        return np.ones(len(a), bool)
    kind = kinds.pop()
    if kind in _MOMENTS:
        return _moments_differ(a, b)
    return _DIFFERING.get(kind, _objects_differ)(a, b)


def _are_numbers(kinds: set[str]) -> bool:
    """Whether one kind is integers, and the other is times that can be stored as integers."""
    return "integer" in kinds and not kinds.isdisjoint(_MOMENTS)


def _bytes_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    if a.equals(b):
        return np.zeros(len(a), bool)
    return _compute.not_equal(a, b).to_numpy(zero_copy_only=False)


def _decimals_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    return _bytes_differ(a, b) if a.type == b.type else _objects_differ(a, b)


def _objects_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    """Compare values of rare types (intervals, unions, decimals of different scales) as Python objects."""
    try:
        return np.array([x != y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], bool)
    except ValueError as error:
        raise UnsupportedError(f"values of {a.type} cannot be compared: {error}") from None


def _integers(array: pa.Array) -> np.ndarray:
    type_ = array.type
    if _kind(type_) in _MOMENTS:
        array = array.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    return array.to_numpy(zero_copy_only=False)


def _integers_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == b.dtype:
        return a != b
    if np.uint64 not in (a.dtype, b.dtype):
        return a.astype(np.int64) != b.astype(np.int64)
    # No integer type holds both ranges, but a negative number never equals an unsigned number.
    signed, unsigned = (b, a) if a.dtype == np.uint64 else (a, b)
    if signed.dtype == np.uint64:
        return signed != unsigned
    return (signed < 0) | (signed.astype(np.uint64) != unsigned.astype(np.uint64))


def _floats_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    x, y = (side.to_numpy(zero_copy_only=False) for side in (a, b))
    if x.dtype != y.dtype:
        x, y = x.astype(np.float64), y.astype(np.float64)
    bits = f"i{x.dtype.itemsize}"
    found = x.view(bits) != y.view(bits)
    if found.any():
        found &= ~(np.isnan(x) & np.isnan(y))
    return found


def _moments_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    x, y = _integers(a).astype(np.int64), _integers(b).astype(np.int64)
    unit_x, unit_y = _nanoseconds(a.type), _nanoseconds(b.type)
    if unit_x < unit_y:
        x, y, unit_x, unit_y = y, x, unit_y, unit_x
    ratio = unit_x // unit_y
    # Divide the value in the finer unit, because multiplying the other may overflow.
    return (y // ratio != x) | (y % ratio != 0)


def _nanoseconds(type_: Any) -> int:
    if pa.types.is_date32(type_):
        return _DAY
    return _UNITS["ms"] if pa.types.is_date64(type_) else _UNITS[type_.unit]


def _lists_differ(a: pa.Array, b: pa.Array) -> np.ndarray:
    lengths = [_compute.list_value_length(x).to_numpy().astype(np.int64) for x in (a, b)]
    found = lengths[0] != lengths[1]
    if found.all():
        return found
    if found.any():
        a, b = chosen(a, ~found), chosen(b, ~found)
    rows = np.flatnonzero(~found)
    wrong = differing(a.flatten(), b.flatten())
    if wrong.any():
        found[np.repeat(rows, lengths[0][rows])[wrong]] = True
    return found


def _has_plain_names(type_: Any) -> bool:
    names = [child.name for child in type_]
    return len(set(names)) == len(names)


def _structs_differ(a: Any, b: Any) -> np.ndarray:
    if not (_has_plain_names(a.type) and _has_plain_names(b.type)):
        return _objects_differ(a, b)
    sides = [dict(zip((c.name for c in x.type), x.flatten(), strict=True)) for x in (a, b)]
    found = np.zeros(len(a), bool)
    for name in {**sides[0], **sides[1]}:
        pair = [side.get(name) for side in sides]
        x, y = (pa.nulls(len(a)) if child is None else child for child in pair)
        found |= differing(x, y)
    return found


_DIFFERING = {
    "float": _floats_differ,
    "list": _lists_differ,
    "struct": _structs_differ,
    "bytes": _bytes_differ,
    "decimal": _decimals_differ,
}

# -- values in the form of Examples ---------------------------------------------------------------


def as_feature(array: pa.Array) -> pa.Array:
    """Return values as a feature of an Example stores them: one flat list each, whatever their shape. A scalar becomes
    a list of one value. Nested lists of variable size stay unchanged."""
    array = stripped(array)
    if pa.types.is_null(array.type):
        return array
    if not is_list(array.type):
        return lists_of(array.drop_null(), _valid(array).astype(np.int64), array)
    whole, lengths = _without_nulls(array)
    values = stripped(whole.flatten())
    while pa.types.is_fixed_size_list(values.type) and not values.null_count:
        lengths *= values.type.list_size
        values = stripped(values.flatten())
    return lists_of(values, lengths, array)


def as_feature_list(array: pa.Array) -> pa.Array:
    """Return lists as a feature list of a SequenceExample stores them: each entry is a flat list."""
    array = stripped(array)
    if not is_list(array.type):
        return array
    whole, lengths = _without_nulls(array)
    return lists_of(as_feature(whole.flatten()), lengths, array)


def _without_nulls(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the lists that are not null, and the lengths of all lists, with 0 for null."""
    lengths = np.zeros(len(lists), np.int64)
    whole = lists.drop_null() if lists.null_count else lists
    lengths[_valid(lists)] = _compute.list_value_length(whole).to_numpy()
    return whole, lengths
