"""Names of folders that hold a value of a column, as Hive and Spark write them: `year=2024/month=01`.

Names and values are encoded as in a URL, as far as Hive does, and `__HIVE_DEFAULT_PARTITION__` is null.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]+")
_INT64 = np.iinfo(np.int64)
# The characters that Hive encodes; also a point at the beginning, because such names are hidden or lead upwards.
_ENCODED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}[\]^]|^\.""")


def values_in(path: str) -> dict[str, str | None]:
    """The keys and values of the folders of a path, from the outermost inwards."""
    parts = [folder.partition("=") for folder in path.replace(os.sep, "/").split("/")[:-1]]
    return {
        unquote(key): None if value == _NULL else unquote(value)
        for key, sign, value in parts
        if key and sign
    }


def encoded(value: str | None) -> str:
    """The text that stands for a value in the name of a folder or file."""
    if value is None:
        return _NULL
    if value == _NULL:
        return f"%5F{value[1:]}"  # a text, not null
    return _ENCODED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def type_of(values: Iterable[str | None]) -> pa.DataType:
    """The type of a column with these values: int64 if all are integers, else string."""
    known = [value for value in values if value is not None]
    return pa.int64() if known and all(map(_is_integer, known)) else pa.string()


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and _INT64.min <= int(text) <= _INT64.max
