r"""The header of an npy file, read by a parser of its own: a file's text is never evaluated.

Specification: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

    bytes        what
    6            0x93 "NUMPY"
    2            version, major and minor: 1.0, 2.0 or 3.0
    2 or 4       length of the text, little-endian: uint16 in 1.0, uint32 in later versions
    length       the text of a dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
                 filled up with spaces and ended by "\n"; Latin-1, or UTF-8 in 3.0
    ...          the array's bytes

The text is a small language: a dictionary of three keys, strings, integers, True, False, tuples and
lists. Everything else is an error, and so is a list nested deeper than a dtype would be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import FormatError, LimitError, TruncatedError, UnsupportedError
from penstock.formats.numpy.dtypes import bits

MAGIC = b"\x93NUMPY"
ALIGNMENT = 64
MOST_TEXT = 1 << 20
"""Bytes of a header's text. NumPy itself reads 10,000 unless it is told otherwise."""
MOST_LEVELS = 40
MOST_DIMENSIONS = 64
MOST_RECORDS = (1 << 63) - 1
FIRST_BYTES = 4096
"""Enough for most headers: read at once."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>[uU]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))"""
    r"""|(?P<number>-?[0-9]{1,19})L?|(?P<word>True|False)|(?P<mark>[{}\[\](),:]))"""
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_DESCR = re.compile(r"([<>|=]?)([biufcSUVmMO])([0-9]{0,10})(?:\[([0-9]*)([a-zA-Z]{1,2})\])?")
_SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
}
_MOST_WIDTH = {"S": (1 << 31) - 1, "V": (1 << 31) - 1, "U": (1 << 29) - 1}


@dataclass(frozen=True, slots=True)
class Header:
    """What an npy header says. `start` is where the array begins, from the header's first byte."""

    dtype: np.dtype[Any]
    fortran_order: bool
    shape: tuple[int, ...]
    start: int

    @property
    def num_values(self) -> int:
        """Values in the array."""
        return math.prod(self.shape)


def parse_header(read: Callable[[int, int], bytes]) -> Header:
    """Read and check the header that stands at byte 0 of what `read(start, length)` gives.

    Raises:
        FormatError, TruncatedError, LimitError: it is none, or is cut or too long.
        UnsupportedError: a version or dtype that penstock does not read; objects are such.
    """
    first = read(0, FIRST_BYTES)
    if first[:6] != MAGIC[: len(first)]:
        raise FormatError("no npy header", byte=0, expected=MAGIC, found=first[:6])
    if len(first) < 10:
        raise TruncatedError("the header is cut", byte=len(first))
    version = (first[6], first[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise UnsupportedError(f"npy version {version[0]}.{version[1]}", byte=6)
    prefix = 10 if version == (1, 0) else 12
    length = int.from_bytes(first[8:prefix], "little")
    if length > MOST_TEXT:
        raise LimitError(f"a header of {length} bytes; penstock reads {MOST_TEXT}", byte=8)
    whole = first if len(first) >= prefix + length else read(0, prefix + length)
    text = whole[prefix : prefix + length]
    if len(text) < length or len(whole) < prefix:
        raise TruncatedError("the header is cut", byte=len(whole), expected=f"{length} bytes")
    try:
        decoded = text.decode("utf-8" if version == (3, 0) else "latin-1")
    except UnicodeDecodeError as error:
        raise FormatError("the header is no UTF-8", byte=prefix + error.start) from None
    try:
        return _header(_Literal(decoded).value(), prefix + length)
    except (FormatError, UnsupportedError) as error:
        raise error.at(byte=prefix) from None


class _Literal:
    """Reads one dictionary literal, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._levels = 0

    def value(self) -> Any:
        """The one value that the text holds."""
        found = self._any()
        if self._text[self._at :].strip(" \n\t\r\0"):
            raise self._wrong("nothing more")
        return found

    def _wrong(self, wanted: str) -> FormatError:
        here = self._text[self._at : self._at + 20]
        return FormatError(
            "the header is no description of an array", expected=wanted, found=repr(here)
        )

    def _token(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise self._wrong("a value")
        self._at = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _next_is(self, mark: str) -> bool:
        """Pass over a mark if it comes next."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["mark"] != mark:
            return False
        self._at = match.end()
        return True

    def _any(self) -> Any:
        kind, text = self._token()
        if kind == "string":
            return _unquoted(text)
        if kind == "number":
            return int(text)
        if kind == "word":
            return text == "True"
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise LimitError(f"the header is nested more than {MOST_LEVELS} levels deep")
        found: Any
        if text == "{":
            found = self._dictionary()
        elif text in "([":
            found = self._sequence(")" if text == "(" else "]")
        else:
            raise self._wrong("a value")
        self._levels -= 1
        return found

    def _sequence(self, end: str) -> Any:
        items: list[Any] = []
        commas = 0
        while not self._next_is(end):
            items.append(self._any())
            if self._next_is(","):
                commas += 1
            elif not self._next_is(end):
                raise self._wrong(f"',' or {end!r}")
            else:
                break
        if end == "]":
            return items
        return tuple(items) if commas or not items else items[0]

    def _dictionary(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._next_is("}"):
            key = self._any()
            if not isinstance(key, str) or key in found or not self._next_is(":"):
                raise self._wrong("a key of its own and ':'")
            found[key] = self._any()
            if not self._next_is(","):
                if not self._next_is("}"):
                    raise self._wrong("',' or '}'")
                break
        return found


def _unquoted(text: str) -> str:
    """The string that a literal stands for."""
    text = text.lstrip("uU")[1:-1]

    def letter(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code is None:
            if match[4] not in _LETTERS:
                raise FormatError(f"an escape that penstock does not know: {match[0]!r}")
            return _LETTERS[match[4]]
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise FormatError(f"no character: {match[0]!r}")
        return chr(number)

    return _ESCAPE.sub(letter, text) if "\\" in text else text


def _header(found: Any, start: int) -> Header:
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise FormatError("the header has not the keys descr, fortran_order and shape")
    facts: dict[str, Any] = found
    if not isinstance(facts["fortran_order"], bool):
        raise FormatError("fortran_order is neither True nor False")
    shape = _shape(facts["shape"])
    dtype = _dtype(facts["descr"])
    total = max(dtype.itemsize, 1)
    for size in shape:
        total *= max(size, 1)
    if total > MOST_RECORDS:
        raise FormatError("an array larger than any file", found=f"shape {shape}")
    return Header(dtype, facts["fortran_order"], shape, start)


def _shape(found: Any) -> tuple[int, ...]:
    if not isinstance(found, tuple):
        raise FormatError("the shape is no tuple")
    sizes: list[Any] = list(found)
    if len(sizes) > MOST_DIMENSIONS:
        raise FormatError(f"{len(sizes)} dimensions; no array has more than {MOST_DIMENSIONS}")
    if not all(type(size) is int and 0 <= size <= MOST_RECORDS for size in sizes):
        raise FormatError("the shape is no tuple of sizes")
    return tuple(sizes)


def _dtype(descr: Any) -> np.dtype[Any]:
    """The dtype that a description means, made of parts that were each looked at."""
    if isinstance(descr, str):
        return _plain(descr)
    if isinstance(descr, tuple) and len(descr) == 2:
        return _sub_array(_dtype(descr[0]), descr[1])
    if not isinstance(descr, list):
        raise FormatError("descr is neither the name of a dtype nor a list of fields")
    names: list[str] = []
    formats: list[np.dtype[Any]] = []
    offsets: list[int] = []
    at = 0
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise FormatError("a field of descr is no (name, dtype) or (name, dtype, shape)")
        parts: tuple[Any, ...] = field
        name: Any = parts[0][1] if isinstance(parts[0], tuple) and len(parts[0]) == 2 else parts[0]
        dtype = _dtype(parts[1])
        if len(parts) == 3:
            dtype = _sub_array(dtype, parts[2])
        if not isinstance(name, str):
            raise FormatError("a field of descr has no name")
        if name or dtype.kind != "V" or dtype.names or dtype.subdtype:
            names.append(name or f"f{len(names)}")
            formats.append(dtype)
            offsets.append(at)
        at += dtype.itemsize  # what has no name and no meaning fills up
    if len(set(names)) < len(names):
        raise FormatError("two fields of descr have one name")
    if at > MOST_RECORDS >> 32:
        raise FormatError("a record of more bytes than a dtype can have")
    spec: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    return np.dtype(spec)


def _sub_array(base: np.dtype[Any], shape: Any) -> np.dtype[Any]:
    sizes = _shape((shape,) if isinstance(shape, int) else shape)
    total = base.itemsize
    for size in sizes:
        total *= size
    if total > MOST_RECORDS >> 32 or any(size > MOST_RECORDS >> 32 for size in sizes):
        raise FormatError("a sub-array of more bytes than a dtype can have")
    return np.dtype((base, sizes)) if sizes else base


def _plain(descr: str) -> np.dtype[Any]:
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise FormatError("no dtype that penstock knows", found=repr(descr[:40]))
    order, kind, size_text, multiple, unit = match.groups()
    if kind == "O":
        raise UnsupportedError(
            "an array of Python objects: its bytes are a pickle, which could run any code",
            hint="write it again as numbers or text; penstock unpickles nothing",
        )
    size = int(size_text or "0")
    if kind in _MOST_WIDTH:
        if size > _MOST_WIDTH[kind]:
            raise FormatError("a dtype wider than there is", found=repr(descr))
    elif size not in _SIZES[kind]:
        raise FormatError("no dtype that penstock knows", found=repr(descr))
    if kind in "mM":
        if unit is None or multiple not in ("", "1"):
            raise UnsupportedError(f"times of the unit {descr[3:]!r}", found=repr(descr))
        try:
            return np.dtype(f"{order}{kind}8[{unit}]")
        except TypeError:
            raise FormatError("no unit of time", found=repr(descr)) from None
    if unit is not None:
        raise FormatError("a unit where none belongs", found=repr(descr))
    if kind == "V" and size == 2 and order in ("<", ">"):
        return bits(np.dtype(f"{order}u2"), "bfloat16")
    if kind in "fc" and size not in (2, 4, 8, 16)[: 3 if kind == "f" else 4]:
        # Long doubles differ by machine, so NumPy may not have this one at all.
        return bits(np.dtype(f"V{size}"), f"{'float' if kind == 'f' else 'complex'}{size * 8}")
    return np.dtype(f"{order if order != '|' else ''}{kind}{size}")


def header_bytes(descr: Any, shape: tuple[int, ...], length: int | None = None) -> bytes:
    """The header of a C-ordered array, filled up so that data begin at a multiple of 64.

    Args:
        descr: the dtype as a string or a list of fields.
        shape: the array's shape.
        length: bytes that the header must have, where room was kept for it; None for the fewest.
    """
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
    assert len(filled) == total - prefix, "a header outgrew its room"
    size = len(filled).to_bytes(prefix - 8, "little")
    return MAGIC + bytes((version, 0)) + size + filled
