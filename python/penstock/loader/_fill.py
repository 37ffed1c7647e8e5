"""The values of `fill=`, which replace missing ones: each has to fit the type of its column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_text
from penstock.errors import SchemaError
from penstock.loader._padding import is_tensor, places
from penstock.loader.images import Image

UNFIT = " of fill= does not fit the column's type"


def of_columns(
    fill: Mapping[str, Any] | None, schema: pa.Schema, others: Collection[str]
) -> dict[str, Any]:
    """The values without those of columns that the data has (`others`), but the loader does not read.

    Raises:
        TypeError: `fill` is not a dict.
    """
    if fill is None:
        return {}
    if not isinstance(fill, Mapping):
        name = next(iter(schema.names), "column")
        raise TypeError(f"fill is a dict, such as {{{name!r}: {fill!r}}}, not {fill!r}")
    return {
        path: value
        for path, value in fill.items()
        if path.split(".")[0] in schema.names
        or path in schema.names
        or not {path, path.split(".")[0]} & set(others)
    }


def check_values(
    fill: Mapping[str, Any],
    schema: pa.Schema,
    decode: Mapping[str, Any],
    labels: Collection[str],
) -> None:
    """Refuse a value that does not fit the type of the column or field that it is given for. `labels`: the paths of class
    labels. What `decode` makes of a column is not of its type.

    Raises:
        SchemaError: with the column and its type.
    """
    decoded = set(_decoded(decode))
    for path, value in fill.items():
        type_ = type_at(schema, path)
        if value is None or path in decoded or type_ is None:
            continue
        if path in labels:
            type_ = pa.int64()
        elif pa.types.is_dictionary(type_):
            type_ = type_.value_type
        try:
            fitted(value, type_)
        except SchemaError as error:
            error.hint = f"fill={{{path!r}: {-1 if path in labels else usual(type_)!r}}}"
            raise error.at(field=path) from None


def _decoded(decode: Mapping[str, Any]) -> Iterator[str]:
    for name, spec in decode.items():
        yield name
        if isinstance(spec, Image):
            yield from spec.same or ()


def type_at(schema: pa.Schema, path: str) -> Any:
    """The type of the single values of a column or field; None if it is unknown, or has fields of its own."""
    for place in places(schema):
        if place.paths[-1] == path and not place.is_struct:
            return _single(place.type)
    return None


def _single(type_: Any) -> Any:
    while pa.types.is_fixed_size_list(type_) or is_tensor(type_):
        type_ = type_.value_type
    return type_


def usual(type_: Any) -> Any:
    """A value that replaces missing values of a type."""
    if pa.types.is_dictionary(type_):
        return -1
    if pa.types.is_boolean(type_):
        return False
    return "" if is_text(type_) else b"" if is_bytes(type_) else 0


def fitted(value: Any, type_: Any) -> Any:
    """The value as an Arrow scalar of a type, exactly. It is returned as it is for types that take none."""
    if is_text(type_) or is_bytes(type_):
        if not isinstance(value, str if is_text(type_) else bytes):
            raise _unfit(value, type_)
        return value
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if not (is_number or pa.types.is_boolean(type_) or pa.types.is_temporal(type_)):
        return value
    try:
        scalar: Any = pa.scalar(value, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _unfit(value, type_) from None
    is_part = isinstance(value, (float, np.floating)) and not float(value).is_integer()
    if is_part and not pa.types.is_floating(type_):
        raise _unfit(value, type_)
    return scalar


def _unfit(value: Any, type_: Any) -> SchemaError:
    return SchemaError(f"the value {value!r}{UNFIT}", expected=str(type_))
