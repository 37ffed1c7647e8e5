"""Fields of JSON texts: `a.b` is the field b of each object in a column a of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import FormatError, SchemaError


class BrokenValue(FormatError, SchemaError):
    """A text in a column of JSON is not JSON, or bytes are not an image. With `damage="skip"` the record is skipped."""


def json_field(texts: pa.Array, path: Sequence[str], name: str) -> pa.Array:
    """Return the values at a path of keys in JSON texts. They are null where an object lacks the key, and where there is
    no object.

    Raises:
        BrokenValue: a text is not JSON.
        SchemaError: the values have types that have no common type. `name` is the field that it names.
    """
    found = json_values(texts, path, name)
    try:
        return pa.array(found)
    except ERRORS as error:
        raise SchemaError(
            f"the values in the JSON have no common type: {error}",
            field=name,
            hint=f'cast({name}, "float64") or another type takes values of several kinds; with try_cast, those that do '
            "not fit are null",
        ) from None


ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError)
"""What Arrow raises for values without a common type."""


def json_values(
    texts: pa.Array, path: Sequence[str], name: str, *, broken_is_null: bool = False
) -> list[Any]:
    """Return the values at a path of keys in JSON texts, as Python has them."""
    storage = texts.storage if isinstance(texts, pa.ExtensionArray) else texts
    return [_value(text, path, name, broken_is_null) for text in storage.to_pylist()]


def _value(text: Any, path: Sequence[str], name: str, broken_is_null: bool) -> Any:
    try:
        return None if text is None else at_path(json.loads(text), path)
    except (ValueError, RecursionError) as error:
        if broken_is_null:
            return None
        raise BrokenValue(f"a text is not JSON: {error}", field=name) from None


def at_path(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys; None if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
