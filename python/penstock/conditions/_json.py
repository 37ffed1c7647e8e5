"""Fields of JSON texts: `a.b` is the field b of each object in a column a of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaError


def json_field(texts: pa.Array, path: Sequence[str], name: str) -> pa.Array:
    """Return the values at a path of keys in JSON texts. They are null where an object lacks the key, and where there is
    no object.

    Raises:
        SchemaError: a text is not JSON, or the values have types that have no common type. `name` is the field that it
            names.
    """
    storage = texts.storage if isinstance(texts, pa.ExtensionArray) else texts
    try:
        found = [
            None if text is None else at_path(json.loads(text), path)
            for text in storage.to_pylist()
        ]
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"a text is not JSON: {error}", field=name) from None
    try:
        return pa.array(found)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError) as error:
        message = f"the values in the JSON have no common type: {error}"
        raise SchemaError(message, field=name) from None


def at_path(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys; None if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
