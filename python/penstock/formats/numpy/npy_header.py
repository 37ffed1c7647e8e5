r"""The header of an npy file: a Python literal, which is parsed but never evaluated.

Specification: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

    bytes        what
    6            0x93 "NUMPY"
    2            version, major and minor: 1.0, 2.0 or 3.0
    2 or 4       length of the text, little-endian: uint16 in 1.0, uint32 in later versions
    length       the text of a dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
                 padded with spaces and ended by "\n"; Latin-1, or UTF-8 in 3.0
    ...          the array's bytes

Dtypes are NumPy's, except two that NumPy does not know: bfloat16, which is saved as `<V2`, and the long doubles of
other machines. Both are read as their bits.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.engine.syntax import parsed_expression
from penstock.errors import (
    FormatError,
    LimitError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
)
from penstock.formats.numpy.dtypes import BFLOAT16, bits

MAGIC = b"\x93NUMPY"
ALIGNMENT = 64
MOST_RECORDS = (1 << 63) - 1
FIRST_BYTES = 4096
"""How many bytes are read first. This suffices for most headers."""
_MOST_TEXT = 1 << 20
"""The maximum bytes of a header's text. NumPy's default limit is 10,000."""
_MOST_ITEMS = 1 << 18
"""The maximum commas and brackets in a header's text. Python's parser takes up to a kilobyte for each."""
_MOST_LEVELS = 32
_MOST_DIMENSIONS = 64

_ESCAPE = r"""\\(?:[ntr\\'"]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_STRING = re.compile(
    rf"""[uU]?(?:'[^'\\\n\0]*(?:{_ESCAPE}[^'\\\n\0]*)*'|"[^"\\\n\0]*(?:{_ESCAPE}[^"\\\n\0]*)*")"""
)
_BESIDE_STRINGS = "{}[](),:0123456789L \t\r\n"
_PYTHON_2_LONG = re.compile(r"(?<=[0-9])L(?=\s*[,)])")
_DTYPE = re.compile(r"[<>|=]?[biufcSUVmMO?][0-9]*(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
"""Matches the dtypes that headers name. NumPy accepts many other texts, and `<M8[s/0]` crashes the process."""
_OF_PARSER = (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, RecursionError)
_LONG_DOUBLE = re.compile(r"[<>|=]?(?:(f)(12|16)|(c)(24|32))")


@dataclass(frozen=True, slots=True)
class Header:
    """The content of an npy header. `start` is the offset of the array from the header's first byte."""

    dtype: np.dtype[Any]
    fortran_order: bool
    shape: tuple[int, ...]
    start: int

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)


def parse_header(read: Callable[[int, int], bytes]) -> Header:
    """Read and check the header at byte 0 of a file. `read(start, length)` reads the file.

    Raises:
        FormatError, TruncatedError, LimitError: there is no valid header, or it is truncated or too long.
        UnsupportedError: penstock does not read this version or dtype, such as objects.
    """
    first = read(0, FIRST_BYTES)
    if first[:6] != MAGIC[: len(first)]:
        raise FormatError("there is no npy header", byte=0, expected=MAGIC, found=first[:6])
    if len(first) < 10:
        raise TruncatedError("the header is truncated", byte=len(first))
    version = (first[6], first[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise UnsupportedError(f"npy version {version[0]}.{version[1]} is not supported", byte=6)
    prefix = 10 if version == (1, 0) else 12
    length = int.from_bytes(first[8:prefix], "little")
    if length > _MOST_TEXT:
        raise LimitError(
            f"the header has {length} bytes; penstock reads at most {_MOST_TEXT}", byte=8
        )
    whole = first if len(first) >= prefix + length else read(0, prefix + length)
    text = whole[prefix : prefix + length]
    if len(text) < length or len(whole) < prefix:
        raise TruncatedError("the header is truncated", byte=len(whole), expected=f"{length} bytes")
    try:
        found = _literal(text.decode("utf-8" if version == (3, 0) else "latin-1"))
        return _header(found, prefix + length)
    except PenstockError as error:
        raise error.at(byte=prefix) from None
    except _OF_PARSER as error:
        message = f"the header does not describe an array: {str(error)[:200]}"
        raise FormatError(message, byte=prefix) from None


def _literal(text: str) -> dict[str, Any]:
    """Parse a header's text. Text with characters that no header needs never reaches Python's parser."""
    text = text.strip(" \n\t\r\0")
    rest = _STRING.sub("", text)
    if rest.replace("True", "").replace("False", "").strip(_BESIDE_STRINGS):
        raise FormatError("the header is not a literal", found=repr(text[:80]))
    if sum(map(rest.count, ",([{")) > _MOST_ITEMS:
        raise LimitError(f"the header has more than {_MOST_ITEMS} commas and brackets")
    if "L" in rest:
        text = _PYTHON_2_LONG.sub("", text)
    tree = parsed_expression(text)
    found = ast.literal_eval(tree)
    keys = {"descr", "fortran_order", "shape"}
    if not isinstance(tree, ast.Dict) or len(tree.keys) != len(keys) or set(found) != keys:
        raise FormatError("the header does not have the keys descr, fortran_order and shape")
    return found


def _header(found: dict[str, Any], start: int) -> Header:
    if not isinstance(found["fortran_order"], bool):
        raise FormatError("fortran_order is neither True nor False")
    shape = _shape(found["shape"])
    dtype = _dtype(found["descr"])
    if math.prod(max(size, 1) for size in (dtype.itemsize, *shape)) > MOST_RECORDS:
        raise FormatError("the array is larger than any file", found=f"shape {shape}")
    return Header(dtype, found["fortran_order"], shape, start)


def _shape(found: Any) -> tuple[int, ...]:
    if not isinstance(found, tuple) or not all(type(size) is int and size >= 0 for size in found):
        raise FormatError("the shape is not a tuple of sizes")
    if len(found) > _MOST_DIMENSIONS:
        raise FormatError(
            f"the shape has {len(found)} dimensions; an array has at most {_MOST_DIMENSIONS}"
        )
    return found


def _dtype(descr: Any, level: int = 0) -> np.dtype[Any]:
    """Like `numpy.lib.format.descr_to_dtype`, but also accepts the dtypes that are read as bits."""
    if level > _MOST_LEVELS:
        raise LimitError(f"the dtype is nested more than {_MOST_LEVELS} levels deep")
    if isinstance(descr, str):
        return _plain(descr)
    if isinstance(descr, tuple):
        base, shape = descr
        sizes = _shape((shape,) if isinstance(shape, int) else shape)
        return np.dtype((_dtype(base, level + 1), sizes))
    return _structure(descr, level)


def _structure(descr: Any, level: int) -> np.dtype[Any]:
    names: list[str] = []
    formats: list[np.dtype[Any]] = []
    offsets: list[int] = []
    at = 0
    for name, *what in descr:
        dtype = _dtype(what[0] if len(what) == 1 else tuple(what), level + 1)
        if isinstance(name, tuple):
            _, name = name  # (title, name)
        str.encode(name)  # raises an error if it is not text, or has half of a surrogate pair
        if name or dtype.kind != "V" or dtype.names or dtype.subdtype:
            names.append(name or f"f{len(names)}")
            formats.append(dtype)
            offsets.append(at)
        at += dtype.itemsize  # a void without a name is padding
    spec: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    return np.dtype(spec)


def _plain(descr: str) -> np.dtype[Any]:
    if descr in ("<V2", ">V2"):
        return bits(np.dtype(f"{descr[0]}u2"), BFLOAT16)
    if match := _LONG_DOUBLE.fullmatch(descr):
        size = int(match[2] or match[4])
        return bits(np.dtype(f"V{size}"), f"{'float' if match[1] else 'complex'}{size * 8}")
    if not _DTYPE.fullmatch(descr):
        raise FormatError("the header names no known dtype", found=repr(descr[:40]))
    dtype = np.dtype(descr)
    if dtype.hasobject:
        raise UnsupportedError(
            "the array holds Python objects: its bytes are a pickle, which could run any code",
            hint="write it again as numbers or text; penstock unpickles nothing",
        )
    if dtype.kind in "mM" and (np.datetime_data(dtype)[1] != 1 or "[" not in descr):
        raise UnsupportedError("the times have no unit, or a multiple of a unit", found=descr)
    return dtype


def header_bytes(descr: Any, shape: tuple[int, ...], length: int | None = None) -> bytes:
    """Return the header of a C-ordered array, padded to a multiple of 64. `descr` is the dtype as a string or a list of
    fields. `length` is the size of the header if space was reserved for it; None for the minimum."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    try:
        encoded, version = text.encode("latin-1"), 1
    except UnicodeEncodeError:
        encoded, version = text.encode(), 3
    if version == 1 and len(encoded) + 10 + ALIGNMENT > 0xFFFF:
        version = 2
    prefix = 10 if version == 1 else 12
    total = length or -(-(prefix + len(encoded) + 1) // ALIGNMENT) * ALIGNMENT
    filled = encoded.ljust(total - prefix - 1) + b"\n"
    assert len(filled) == total - prefix, "the header outgrew the reserved space"
    size = len(filled).to_bytes(prefix - 8, "little")
    return MAGIC + bytes((version, 0)) + size + filled
