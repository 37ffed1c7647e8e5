"""The encodings of MDS: their names and sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.errors import UnsupportedError

SCALARS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in SCALARS} | {"int": np.dtype("<i8")}
DTYPE_CODES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
TEXTS = ("str", "str_decimal", "str_int", "str_float", "json")
_IMAGES = {"png": "png", "jpeg": "jpeg", "jpeg_array": "jpeg"}


def size_of(encoding: str) -> int | None:
    """Return the bytes of a value, or None if they vary. Raise UnsupportedError for an unknown encoding."""
    if encoding in DTYPES:
        return DTYPES[encoding].itemsize
    fixed = fixed_array(encoding)
    if fixed is not None:
        dtype, shape = fixed
        return dtype.itemsize * int(np.prod(shape, dtype=object))
    is_list = encoding.startswith("list[") and encoding.endswith("]")
    if not (_is_item(encoding[5:-1]) if is_list else _is_value(encoding)):
        raise UnsupportedError(f"unknown encoding {encoding[:60]!r}")
    return None


def _is_value(encoding: str) -> bool:
    is_array = encoding.startswith("ndarray:") and encoding[8:] in SCALARS
    return is_array or encoding in (*TEXTS, "ndarray") or _is_item(encoding)


def _is_item(encoding: str) -> bool:
    return encoding in ("bytes", "str", "pil", "pkl") or image_codec(encoding) is not None


def image_codec(encoding: str) -> str | None:
    """Return the codec of `png`, `jpeg_array` or `jpeg:90`, else None."""
    name, _, quality = encoding.partition(":")
    return _IMAGES.get(name) if not quality or quality.isdigit() else None


def fixed_array(encoding: str) -> tuple[np.dtype[Any], list[int]] | None:
    """Return the dtype and shape of an `ndarray:T:2,3`, else None."""
    match = re.fullmatch(r"ndarray:(\w+):([1-9]\d{0,9}(?:,[1-9]\d{0,9}){0,31})", encoding)
    if match is None or match[1] not in SCALARS:
        return None
    return DTYPES[match[1]], [int(size) for size in match[2].split(",")]


def needs_first_record(encoding: str) -> bool:
    """Whether the type of a column depends on its first record."""
    return encoding in ("pil", "list[pil]", "ndarray") or (
        encoding.startswith("ndarray:") and encoding.count(":") == 1
    )
