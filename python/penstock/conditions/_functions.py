"""The functions of the language: `len(x)`, `lower(x)`, `cast(x, "int64")`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from penstock import _core
from penstock.columns import nearest
from penstock.columns.numbers import as_arrow
from penstock.columns.types import is_bytes, is_embedded_image, is_text
from penstock.conditions._comparing import as_array, compared, plain
from penstock.conditions._grammar import Call, Literal, type_of
from penstock.conditions._json import ERRORS, BrokenValue, json_values
from penstock.conditions._numbers import as_floats, is_exact, rounded
from penstock.errors import SchemaError


def called(node: Call, values: pa.Array) -> Any:
    """The result of a function for each value. SchemaError: the function does not take values of this type."""
    function = node.function
    if function in CASTS:
        return CASTS[function](values, type_of(node.literals[0]))
    if pa.types.is_null(values.type):
        return Literal(None)
    if function in _OF_ANY:
        return _OF_ANY[function](values, *node.literals)
    if function in _OF_NUMBERS:
        if not (is_exact(values.type) or pa.types.is_floating(values.type)):
            raise SchemaError(f"{function} takes numbers, not {values.type}")
        return _OF_NUMBERS[function](values)
    if function in OF_TIMES:
        return _part_of_time(function, values)
    if function in _OF_TEXTS:
        if not (is_text(values.type) or is_bytes(values.type)):
            raise SchemaError(f"{function} takes texts, not {values.type}")
        texts = values if is_text(values.type) else values.cast(pa.string())
        return _OF_TEXTS[function](texts, *node.literals)
    return _searched(function, values, node.literals[0])


_OF_NUMBERS: dict[str, Callable[..., pa.Array]] = {
    "abs": lambda values: compute.abs_checked(_in_64_bits(values)),
    "round": rounded,
    "isnan": lambda values: compute.is_nan(as_floats(values)),
}


def _in_64_bits(values: Any) -> Any:
    """Integers as int64, so that abs(-128) has a value for int8, too."""
    return values.cast(pa.int64()) if pa.types.is_signed_integer(values.type) else values


OF_TIMES = ("year", "month", "day", "hour", "minute", "second")
_OF_TEXTS: dict[str, Callable[..., pa.Array]] = {
    "lower": compute.utf8_lower,
    "upper": compute.utf8_upper,
    "trim": compute.utf8_trim_whitespace,
    "replace": compute.replace_substring,
}


def _part_of_time(part: str, values: pa.Array) -> pa.Array:
    """A part of each time, in the zone of its column; UTC if the column has none."""
    is_day = pa.types.is_date(values.type)
    if not (pa.types.is_timestamp(values.type) or (is_day and part in ("year", "month", "day"))):
        wanted = "times or dates" if part in ("year", "month", "day") else "times"
        raise SchemaError(f"{part} takes {wanted}, not {values.type}")
    return getattr(compute, part)(values).cast(pa.int64())


def _like(values: pa.Array, pattern: str, *, ignore_case: bool = False) -> pa.Array:
    """SQL's LIKE. Unlike for Arrow, a backslash is a character like others."""
    pattern = pattern.replace("\\", "\\\\")
    return compute.match_like(values, pattern, ignore_case=ignore_case)


_SEARCHES: dict[str, Callable[..., pa.Array]] = {
    "like": _like,
    "ilike": partial(_like, ignore_case=True),
    "startswith": compute.starts_with,
    "endswith": compute.ends_with,
    "contains": compute.match_substring,
    "matches": compute.match_substring_regex,
}


def _searched(function: str, values: pa.Array, member: Any) -> pa.Array:
    if function == "contains" and _is_list(values.type):
        return _has(values, member)
    if not (is_text(values.type) or is_bytes(values.type)) or not isinstance(member, str):
        wanted = "a text, bytes or a list" if function == "contains" else "a text or bytes"
        raise SchemaError(f"{function} looks for {member!r} in {wanted}, not in {values.type}")
    is_bytewise = function in _BYTEWISE or (function == "like" and "_" not in member)
    if is_text(values.type) or is_bytewise:
        return _SEARCHES[function](values, member)
    return _searched_as_text(function, values, member)


_BYTEWISE = ("startswith", "endswith", "contains")
"""The searches that find the same in UTF-8 as in its bytes."""


def _searched_as_text(function: str, values: Any, member: str) -> pa.Array:
    """Search bytes as text if they are UTF-8, and otherwise byte by byte."""
    text = pa.large_string() if pa.types.is_large_binary(values.type) else pa.string()
    try:
        return _SEARCHES[function](values.cast(text), member)
    except pa.ArrowInvalid:
        are_text = pa.array([one is None or _is_utf_8(one) for one in values.to_pylist()])
    by_text = compute.if_else(are_text, values, None).cast(text)
    found = [_SEARCHES[function](either, member) for either in (by_text, values)]
    return compute.if_else(are_text, *found)


def _is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    return (
        kinds.is_list(type_)
        or kinds.is_large_list(type_)
        or kinds.is_fixed_size_list(type_)
        or isinstance(type_, pa.FixedShapeTensorType)
    )


def _length(values: pa.Array) -> pa.Array:
    """The number of characters of text, bytes of binary or values of a list, or a tensor's first dimension."""
    type_: Any = values.type
    if isinstance(type_, pa.FixedShapeTensorType):
        return compute.if_else(values.is_valid(), pa.scalar(type_.shape[0], pa.int64()), None)
    if is_text(type_):
        return compute.utf8_length(values)
    if is_bytes(type_):
        return compute.binary_length(values)
    if pa.types.is_map(type_):
        values = values.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
    elif not _is_list(type_):
        raise SchemaError(f"values of type {type_} have no length")
    return compute.list_value_length(values)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_bytes(values.type) and not is_bytes(type_):
        values = values.cast(pa.string())
    return nearest.cast(values, type_)


_NUMBER = r"(?i)^[+-]?(0x[0-9a-f]+|[0-9.]+(e[+-]?[0-9]+)?|inf|infinity|nan)$"
"""Matches all texts that Arrow takes as numbers, and few others."""


def _try_cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Null where `_cast` fails. Each different value is tried at most once."""
    try:
        return _cast(values, type_)
    except pa.ArrowInvalid:
        found = values.dictionary_encode()
    different = found.dictionary
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if is_number and (is_text(different.type) or is_bytes(different.type)):
        matches = compute.match_substring_regex(different, _NUMBER)
        different = compute.if_else(matches, different, None)
    return _halves_cast(different, type_).take(found.indices)


def json_cast(node: Call, texts: pa.Array, path: Sequence[str], name: str) -> pa.Array:
    """`cast` and `try_cast` of values in JSON, which may be of several kinds. Each kind is cast alone."""
    is_try, type_ = node.function == "try_cast", type_of(node.literals[0])
    found = json_values(texts, path, name, broken_is_null=is_try)
    places: dict[type, list[int]] = {}
    for place, value in enumerate(found):
        places.setdefault(type(value), []).append(place)
    parts = [
        _kind_cast([found[place] for place in one], type_, is_try=is_try) for one in places.values()
    ]
    order = np.argsort(np.concatenate([*places.values(), np.zeros(0, np.int64)]))
    return pa.concat_arrays([*parts, pa.nulls(0, type_)]).take(as_arrow(order))


def _kind_cast(values: list[Any], type_: pa.DataType, *, is_try: bool) -> pa.Array:
    """Cast values of one kind."""
    try:
        array = pa.array(values)
        return (_try_cast if is_try else _cast)(array, type_)
    except (*ERRORS, pa.ArrowNotImplementedError):
        if not is_try:
            raise
    if len(values) == 1:
        return pa.nulls(1, type_)
    return pa.concat_arrays([_kind_cast([value], type_, is_try=True) for value in values])


def _halves_cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return _cast(values, type_)
    except pa.ArrowInvalid:
        half = len(values) // 2
        if not half:
            return pa.nulls(1, type_)
    return pa.concat_arrays([_halves_cast(one, type_) for one in (values[:half], values[half:])])


def _looked_up(values: pa.Array, table: list[Any] | dict[str, Any]) -> pa.Array:
    """The entry of a table for each value: of a list, the entry with this number; of a dict, the one with this key. A
    value without an entry is an error, because a null or another entry would be a wrong one."""
    if isinstance(table, list):
        if not pa.types.is_integer(values.type):
            raise SchemaError(f"lookup in a list needs whole numbers, not {values.type}")
        keys, entries = pa.array(range(len(table))), table
        values = values.cast(keys.type)
    else:
        if not (is_text(values.type) or is_bytes(values.type)):
            raise SchemaError(f"lookup by name needs texts or bytes, not {values.type}")
        keys, entries = pa.array(list(table)), list(table.values())
        keys = keys.cast(values.type)
    places = compute.index_in(values, keys)
    if places.null_count > values.null_count:
        lost = values.filter(compute.and_(values.is_valid(), places.is_null()))[0].as_py()
        known = f"0 to {len(table) - 1}" if isinstance(table, list) else f"{len(table)} names"
        raise SchemaError(f"lookup has no entry for {lost!r}, only for {known}")
    return pa.array(entries).take(places)


def _has(values: pa.Array, member: Any) -> pa.Array:
    """Whether each list contains a value."""
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    flat = plain(compute.list_flatten(values))
    if _is_list(flat.type):
        raise SchemaError("contains searches lists of values, not lists of lists")
    if member is None:
        raise SchemaError("contains cannot look for null")
    equal = as_array(compared("==", flat, Literal(member)), len(flat))
    parents = compute.list_parent_indices(values).to_numpy()
    found = np.zeros(len(values), bool)
    found[parents[compute.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
    return pa.array(found, mask=values.is_null().to_numpy(zero_copy_only=False))


def _size(side: str, values: pa.Array) -> pa.Array:
    """The width or the height of each encoded image, from its first bytes."""
    if is_embedded_image(values.type):
        values = values.flatten()[values.type.get_field_index("bytes")]
    if not is_bytes(values.type):
        raise SchemaError(f"{side} takes images, not {values.type}")
    try:
        sizes = pa.array(_core.probe_images(values))
    except _core.KernelError as error:
        raise BrokenValue(f"{side} takes images, but {error.args[0].message}") from None
    return sizes.field(side).cast(pa.int64())


CASTS: dict[str, Callable[..., pa.Array]] = {"cast": _cast, "try_cast": _try_cast}
_OF_ANY: dict[str, Callable[..., pa.Array]] = {"len": _length, "lookup": _looked_up} | {
    side: partial(_size, side) for side in ("width", "height")
}
