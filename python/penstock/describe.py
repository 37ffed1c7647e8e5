r"""Formats values as text that is readable and safe to print on a terminal.

Control characters, marks that change the writing direction, and other characters that do not print become escapes such
as `\x1b` and `\u202e`.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import in_microseconds
from penstock.columns.types import is_list

ELLIPSIS = "…"
_TEXT_BYTES = 4096
"""How many bytes of a value are examined to decide whether it is text."""
_LIST_ITEMS = 64
_BLOCKS = " ▁▂▃▄▅▆▇█"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def count(number: int) -> str:
    """A number with thousands separators.

    Example:
        >>> from penstock import describe
        >>> describe.count(1234567)
        '1,234,567'
    """
    return f"{number:,}"


def records(number: int) -> str:
    """A number of records, with the word.

    Example:
        >>> from penstock import describe
        >>> describe.records(1), describe.records(1234)
        ('1 record', '1,234 records')
    """
    return "1 record" if number == 1 else f"{count(number)} records"


def size(num_bytes: float) -> str:
    """A number of bytes in decimal units, to three digits.

    Example:
        >>> from penstock import describe
        >>> describe.size(999), describe.size(12_345), describe.size(5_100_000_000)
        ('999 B', '12.3 kB', '5.10 GB')
    """
    scaled = float(num_bytes)
    step = 0
    while abs(scaled) >= 999.5 and step < len(_UNITS) - 1:
        scaled /= 1000
        step += 1
    unit = _UNITS[step]
    if unit == "B":
        return f"{scaled:.0f} B" if scaled == int(scaled) else f"{scaled:.1f} B"
    digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
    return f"{scaled:.{digits}f} {unit}"


def number(value: float, type_: pa.DataType | None = None) -> str:
    """A number in the fewest digits that distinguish it from its neighbours of the same type.

    Example:
        >>> import pyarrow as pa
        >>> from penstock import describe
        >>> describe.number(0.10000000149011612, pa.float32())
        '0.1'
    """
    if isinstance(value, (bool, int)):
        return str(value)
    if type_ is not None and pa.types.is_float32(type_):
        return str(np.float32(value))
    if type_ is not None and pa.types.is_float16(type_):
        return str(np.float16(value))
    return repr(float(value))


def bars(counts: Sequence[int], width: int = 32) -> str:
    """A histogram on one line of at most `width` characters. The largest bin is a full block, other bins are eighths of
    a block, rounded up, and an empty bin is blank. Neighbouring bins are added if there are too many.

    Example:
        >>> from penstock import describe
        >>> describe.bars([1, 0, 5, 10])
        '▁ ▄█'
    """
    shown = [int(c) for c in counts]
    while len(shown) > width:
        shown = [sum(shown[at : at + 2]) for at in range(0, len(shown), 2)]
    most = max(shown, default=0)
    return "".join(_BLOCKS[-(-8 * c // most)] if c else " " for c in shown)


def escape(text: str) -> str:
    r"""Return the text with every character that does not print replaced by an escape.

    Example:
        >>> from penstock import describe
        >>> describe.escape("a\x1b[31mb")
        'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


# Complexity: one branch for each kind of type.
def kind(type_: pa.DataType, dtype: bytes | None = None) -> str:
    """Describe the values of a type in a few words. `dtype` is the NumPy type that they represent, if Arrow has no such
    type (`penstock.types.DTYPE_KEY`).

    Example:
        >>> import pyarrow as pa
        >>> from penstock import describe, types
        >>> describe.kind(types.ImageType("jpeg")), describe.kind(pa.list_(types.ImageType()))
        ('image (jpeg)', 'list<image>')
        >>> describe.kind(pa.fixed_shape_tensor(pa.uint8(), [32, 32, 3]))
        'tensor uint8 [32, 32, 3]'
    """
    if dtype:
        return f"{dtype.decode('utf-8', 'replace')} (kept as {kind(type_)})"
    name = getattr(type_, "extension_name", "")
    if name == "penstock.image":
        codec = getattr(type_, "codec", "")
        return f"image ({codec})" if codec else "image"
    if name == "arrow.json":
        return "json"
    if (shape := getattr(type_, "shape", None)) is not None:
        return f"tensor {type_.value_type} {[int(length) for length in shape]}"
    if (axes := getattr(type_, "num_dimensions", None)) is not None:
        return f"tensor {type_.value_type} [{', '.join('?' * axes)}]"
    if pa.types.is_dictionary(type_):
        return f"label ({kind(type_.value_type)})"
    if isinstance(type_, pa.BaseExtensionType):
        return f"{name or 'extension'} ({kind(type_.storage_type)})"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {kind(field.type)}' for field in type_)}>"
    if pa.types.is_fixed_size_list(type_):
        return f"list<{kind(type_.value_type)}>[{type_.list_size}]"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{kind(type_.value_type)}>"
    return str(type_)


def text(data: bytes | memoryview) -> str | None:
    r"""The start of some bytes (up to 4096) as text, not escaped. None if they are not text, which must be valid UTF-8
    without zero characters and with few control characters.

    Example:
        >>> from penstock import describe
        >>> describe.text("grün".encode()), describe.text(b"\x89PNG")
        ('grün', None)
    """
    head = bytes(data[:_TEXT_BYTES])
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoded = decoder.decode(head, final=len(data) <= _TEXT_BYTES)
    except UnicodeDecodeError:
        return None
    if decoded.isprintable():
        return decoded
    controls = sum((c < " " and c not in "\t\n\r") or c == "\x7f" for c in decoded)
    return None if "\0" in decoded or 3 * controls > len(decoded) else decoded


# -- images ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The kind of an encoded image ("JPEG", "PNG", "GIF" or "WebP") and its stored size in pixels, without applying an
    EXIF orientation."""

    kind: str
    width: int
    height: int


def image_header(data: bytes | memoryview) -> ImageHeader | None:
    """Read the kind and size of an encoded image from its header; None if the bytes are not an image. The image itself
    may be damaged.

    Example:
        >>> from penstock import describe
        >>> describe.image_header(b"GIF89a" + bytes([64, 1, 240, 0]))
        ImageHeader(kind='GIF', width=320, height=240)
    """
    magic = bytes(data[:4])
    try:
        if magic[:2] == b"\xff\xd8":
            return _jpeg(data)
        if magic == b"\x89PNG" and bytes(data[12:16]) == b"IHDR":
            return ImageHeader("PNG", *struct.unpack(">II", data[16:24]))
        if magic == b"GIF8":
            return ImageHeader("GIF", *struct.unpack("<HH", data[6:10]))
        if magic == b"RIFF" and bytes(data[8:12]) == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError):
        pass  # the bytes end before the header's size fields
    return None


# Markers of segments with the size: SOF0 to SOF15, except DHT, JPG and DAC.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(data: bytes | memoryview) -> ImageHeader | None:
    at = 2
    # At most this many segments, because a file may have very many tiny ones.
    for _ in range(1000):
        at = _next_marker(data, at)
        marker = data[at]
        if marker in _SOF:
            height, width = struct.unpack(">HH", data[at + 4 : at + 8])
            return ImageHeader("JPEG", width, height)
        if marker in (0xD9, 0xDA):
            return None  # the header ended without a size
        if marker != 0x01 and not 0xD0 <= marker <= 0xD8:  # these markers have no length
            (length,) = struct.unpack(">H", data[at + 1 : at + 3])
            at += max(length, 2)
        at += 1
    return None


def _next_marker(data: bytes | memoryview, at: int) -> int:
    """The position of the next marker's code. Fill bytes and a few invalid bytes are skipped, as decoders do. Raises
    IndexError if there is no further marker."""
    window = bytes(data[at : at + 4096])
    marker = re.search(rb"\xff+([^\x00\xff])", window, re.DOTALL)
    if marker is None:
        raise IndexError("no marker")
    return at + marker.start(1)


def _webp(data: bytes | memoryview) -> ImageHeader | None:
    chunk = bytes(data[12:16])
    if chunk == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return ImageHeader("WebP", width & 0x3FFF, height & 0x3FFF)
    if chunk == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack("<I", data[21:25])
        return ImageHeader("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        if len(data) >= 30:
            return ImageHeader("WebP", width, height)
    return None


# -- values ---------------------------------------------------------------------------------------


def value(scalar: pa.Scalar, width: int = 60) -> str:
    """One value of a record on one line of at most `width` characters.

    Images are shown by kind and size, text as text, and other bytes in hexadecimal. Long values are truncated and show
    their length. Floats in lists are rounded to four digits.

    Example:
        >>> import pyarrow as pa
        >>> from penstock import describe
        >>> describe.value(pa.scalar(list(range(100))), width=24)
        '[0, 1, 2, 3, … of 100]'
        >>> describe.value(pa.scalar([1, 2]), width=8)
        '[1, 2]'
        >>> describe.value(pa.scalar(b"a cat"))
        'a cat'
    """
    width = max(width, 8)
    if not scalar.is_valid:
        return "null"
    type_ = scalar.type
    if isinstance(type_, pa.BaseExtensionType):
        return _extension(scalar, width)
    if pa.types.is_dictionary(type_):
        return value(scalar.value, width)
    if hasattr(scalar, "as_buffer"):
        return _bytes(data_of(scalar), width)
    if is_list(type_):
        return _list(scalar.values, width)
    if pa.types.is_struct(type_):
        return _struct(scalar, width)
    if pa.types.is_floating(type_):
        return number(scalar.as_py(), type_)
    return cut(escape(text_of(scalar)), width)


def text_of(scalar: pa.Scalar) -> str:
    """`str` of a value, or Arrow's text if Python cannot represent the value.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.describe import text_of
        >>> text_of(pa.scalar(10**12, pa.timestamp("s")))
        '<value out of range: 1000000000000>'
    """
    try:
        return str(without_pandas(scalar))
    except (ValueError, OverflowError, LookupError):
        # For example, a year after 9999 or an unknown time zone.
        return pa.repeat(scalar, 1).to_string(skip_new_lines=True).removeprefix("[")[:-1]


def without_pandas(scalar: pa.Scalar) -> pa.Scalar:
    """Convert nanosecond times to microseconds if that loses nothing, because pyarrow returns pandas values for them.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.describe import without_pandas
        >>> without_pandas(pa.scalar(1000, pa.duration("ns"))).as_py()
        datetime.timedelta(microseconds=1)
    """
    if not (pa.types.is_temporal(scalar.type) or is_list(scalar.type)):
        return scalar
    return in_microseconds(pa.repeat(scalar, 1))[0]


def data_of(scalar: Any) -> memoryview:
    """The bytes of a binary or text value, without copying."""
    buffer = scalar.as_buffer()
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _extension(scalar: pa.Scalar, width: int) -> str:
    shape = getattr(scalar.type, "shape", None)
    if shape is None:
        return value(scalar.value, width)
    head = f"{scalar.type.value_type}{list(shape)} "
    return head + _list(scalar.value.values, max(width - len(head), 8))


def cut(line: str, width: int) -> str:
    """A line, shortened to at most `width` characters."""
    return line if len(line) <= width else line[: width - 1] + ELLIPSIS


def _bytes(data: memoryview, width: int) -> str:
    header = image_header(data)
    if header is not None:
        return f"{header.kind} {header.width}x{header.height}, {size(len(data))}"
    decoded = text(data)
    if decoded is not None:
        shown = escape(decoded)
        if len(shown) <= width and len(data) <= _TEXT_BYTES:
            return shown
        tail = f"{ELLIPSIS} {size(len(data))}"
        return shown[: max(width - len(tail), 1)] + tail
    tail = f"{ELLIPSIS} {size(len(data))}"
    if 2 + 2 * len(data) <= width:
        return "0x" + bytes(data).hex()
    room = max((width - 2 - len(tail)) // 2, 1)
    return "0x" + bytes(data[:room]).hex() + tail


def _list(values: pa.Array, width: int) -> str:
    tail = f"{ELLIPSIS} of {count(len(values))}]"
    items = [_item(part, max(width - 2, 8)) for part in values[:_LIST_ITEMS]]
    whole = f"[{', '.join(items)}]"
    if len(whole) <= width and len(values) <= _LIST_ITEMS:
        return whole
    shown = "["
    for place, item in enumerate(items):
        is_last = place == len(values) - 1
        left = width - len(shown) - len(item) - (1 if is_last else 2 + len(tail))
        if left < 0 and not (is_last and place == 0):
            return shown + tail
        shown += item + ("" if is_last else ", ")
    return cut(shown + "]", width) if len(values) <= _LIST_ITEMS else shown + tail


def _struct(scalar: Any, width: int) -> str:
    parts = [
        f"{escape(child.name)}: {_item(scalar[place], width)}"
        for place, child in enumerate(scalar.type)
    ]
    return cut("{" + ", ".join(parts) + "}", width)


def _item(scalar: pa.Scalar, width: int) -> str:
    """Format a value inside a list or struct. Text is quoted, as it may contain commas. Floats have four digits."""
    if scalar.is_valid and pa.types.is_floating(scalar.type):
        return f"{scalar.as_py():.4g}"
    shown = value(scalar, width - 2)
    is_quoted = scalar.is_valid and hasattr(scalar, "as_buffer") and _reads_as_text(scalar)
    return f"'{shown}'" if is_quoted else shown


def _reads_as_text(scalar: Any) -> bool:
    data = data_of(scalar)
    return image_header(data) is None and text(data) is not None
