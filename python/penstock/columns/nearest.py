"""Casts decimals to the nearest floats. pyarrow's own cast computes in floats, so it makes 7077.400000000001 of 7077.40:
it is wrong for every eighth price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.numbers import as_arrow

_POWERS = 23
"""float64 holds the powers of ten below this one."""
_WHOLE = 1 << 53
"""float64 holds the whole numbers up to this one."""


def cast(array: Any, wanted: pa.DataType) -> Any:
    """Like `array.cast(wanted)`, but a decimal becomes the nearest float, also in lists and structs.

    Example:
        >>> from decimal import Decimal
        >>> import pyarrow as pa
        >>> from penstock.columns.nearest import cast
        >>> cast(pa.array([Decimal("7077.40")]), pa.float64())[0].as_py()
        7077.4
    """
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, wanted) for chunk in array.chunks], wanted)
    return _with_floats(array, wanted).cast(wanted)


def _with_floats(array: Any, wanted: Any) -> Any:
    """The array with floats where it has decimals and `wanted` has floats."""
    given = array.type
    if pa.types.is_dictionary(given) and pa.types.is_decimal(given.value_type):
        array, given = array.dictionary_decode(), given.value_type
    if pa.types.is_decimal(given):
        return _floats(array, wanted) if pa.types.is_floating(wanted) else array
    if _is_list(given) and _is_list(wanted):
        values = _with_floats(array.values, wanted.value_type)
        return array if values is array.values else _list_of(array, values)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return _with_floats_in_struct(array, wanted)
    return array


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    return kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_)


def _list_of(array: Any, values: Any) -> Any:
    """The lists of an array, with other values."""
    given = array.type
    field = given.value_field.with_type(values.type)
    if pa.types.is_fixed_size_list(given):
        type_ = pa.list_(field, given.list_size)
    else:
        type_ = pa.large_list(field) if pa.types.is_large_list(given) else pa.list_(field)
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(given) else 2]
    return pa.Array.from_buffers(type_, len(array), own, -1, array.offset, [values])


def _with_floats_in_struct(array: Any, wanted: Any) -> Any:
    fields = [array.type.field(place) for place in range(array.type.num_fields)]
    if [field.name for field in fields] != [field.name for field in wanted]:
        return array  # the cast will say so, or choose fields
    parts = [_with_floats(array.field(n), field.type) for n, field in enumerate(wanted)]
    if all(part.type == field.type for part, field in zip(parts, fields, strict=True)):
        return array
    fields = [field.with_type(part.type) for field, part in zip(fields, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())


def _floats(array: Any, wanted: pa.DataType) -> Any:
    scale = array.type.scale
    if pa.types.is_float64(wanted) and 0 <= scale < _POWERS:
        whole = whole_numbers(array)
        # Both numbers are exact, and a division of floats gives the nearest one.
        if whole is not None and (not len(whole) or np.abs(whole).max() <= _WHOLE):
            found = as_arrow(whole / 10.0**scale)
            return _compute().if_else(array.is_valid(), found, None) if array.null_count else found
    # The text is exact, and is parsed to the nearest float.
    return array.cast(pa.string()).cast(wanted)


def whole_numbers(array: Any) -> np.ndarray | None:
    """Decimals as whole numbers of their last place (7.40 as 740), int64, with 0 for nulls. None if one does not fit.

    Example:
        >>> from decimal import Decimal
        >>> import pyarrow as pa
        >>> from penstock.columns.nearest import whole_numbers
        >>> whole_numbers(pa.array([Decimal("7.40"), None])).tolist()
        [740, 0]
    """
    type_ = array.type
    if pa.types.is_decimal256(type_):
        return None
    if not pa.types.is_decimal128(type_):
        array = array.cast(pa.decimal128(type_.precision, type_.scale))
    data = array.buffers()[1]
    if data is None:
        return np.zeros(0, np.int64)
    words = np.frombuffer(data, np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    low, high = words[:, 0].copy(), words[:, 1]
    missing = _nulls(array)
    if missing is not None:
        low[missing], high = 0, np.where(missing, 0, high)
    least = np.iinfo(np.int64).min  # its absolute value does not fit
    return low if ((low >> 63) == high).all() and not (low == least).any() else None


def _compute() -> Any:
    import pyarrow.compute  # the import costs 20 ms

    return pyarrow.compute


def _nulls(array: Any) -> np.ndarray | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
