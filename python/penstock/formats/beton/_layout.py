"""The layout of a .beton: the header, the field descriptors, and the rows. No values are read here. All numbers in the
header and the descriptors are compared with the size of the file and with each other before memory is allocated."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import ImageType
from penstock.errors import FormatError, TruncatedError, UnsupportedError
from penstock.storage.base import Source

HEADER = struct.Struct("<HHIQQ")
"""Version, number of fields, bytes per page, number of records, place of the allocation table."""
VERSION = 2
DESCRIPTOR_BYTES = 1041
NAME_BYTES = 16
MIN_PAGE_BYTES = 1 << 21
MAX_PAGE_BYTES = 1 << 31
"""The largest power of two that fits the header."""
ENTRY = np.dtype([("record", "<u8"), ("ptr", "<u8"), ("size", "<u8")])
"""An entry of the allocation table, for one stored value."""
MAX_DIMENSIONS = 32

FLOAT, INT, IMAGE, BYTES, NDARRAY, JSON, TENSOR, CUSTOM = 0, 1, 2, 3, 4, 5, 6, 255
JPEG_MODE, RAW_MODE = 0, 1

_SPAN = [("ptr", "<u8"), ("size", "<u8")]
_ROWS: dict[int, tuple[np.dtype, int]] = {
    FLOAT: (np.dtype("<f8"), 8),
    INT: (np.dtype("<i8"), 8),
    IMAGE: (np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")]), 1),
    BYTES: (np.dtype(_SPAN), 1),
    NDARRAY: (np.dtype("<u8"), 8),
    JSON: (np.dtype(_SPAN), 1),
    TENSOR: (np.dtype("<u8"), 8),
}
"""For each kind of field, its dtype in a row and its alignment there."""

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_SHAPE = struct.Struct(f"<{MAX_DIMENSIONS}QQ")


@dataclass(frozen=True, slots=True)
class Field:
    """One field, from its descriptor."""

    name: str
    kind: int
    row: np.dtype
    """The field's dtype in a row."""
    align: int
    shape: tuple[int, ...] = ()
    dtype: np.dtype | None = None
    """The dtype of a tensor's values; None if Arrow has no type for them."""
    described: str = ""
    """The dtype as the file describes it."""

    @property
    def is_stored(self) -> bool:
        """Whether the field's values are in pages, with entries in the allocation table."""
        return self.kind not in (FLOAT, INT, CUSTOM)

    @property
    def value_bytes(self) -> int:
        """The bytes of one tensor."""
        return math.prod(self.shape) * (1 if self.dtype is None else self.dtype.itemsize)

    @property
    def type(self) -> Any:
        """The Arrow type of the column, or None if there is none."""
        if self.kind in (NDARRAY, TENSOR):
            if self.dtype is None:
                return None
            value = pa.from_numpy_dtype(self.dtype.newbyteorder("="))
            return pa.fixed_shape_tensor(value, self.shape)
        plain: dict[int, Any] = {
            FLOAT: pa.float64(),
            INT: pa.int64(),
            IMAGE: ImageType(),
            BYTES: pa.binary(),
            JSON: pa.json_(),
            CUSTOM: pa.binary(self.row.itemsize),
        }
        return plain[self.kind]


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of one file."""

    fields: tuple[Field, ...]
    row: np.dtype
    page_bytes: int
    num_records: int
    table_start: int
    """Where the pages end and the allocation table begins."""

    @property
    def rows_start(self) -> int:
        return HEADER.size + DESCRIPTOR_BYTES * len(self.fields)

    @property
    def first_page(self) -> int:
        """Where pages may begin: at the first multiple of the page size after the rows."""
        end = self.rows_start + self.num_records * self.row.itemsize
        return -(-end // self.page_bytes) * self.page_bytes

    @property
    def stored(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.is_stored)


def row_dtype(fields: tuple[Field, ...]) -> np.dtype:
    """Return the dtype of a row. Each field is at the next multiple of its alignment, and the size of the row is a
    multiple of the largest alignment."""
    offsets: list[int] = []
    at = 0
    for field in fields:
        at = -(-at // field.align) * field.align
        offsets.append(at)
        at += field.row.itemsize
    widest = max((field.align for field in fields), default=1)
    return np.dtype(
        {
            "names": [field.name for field in fields],
            "formats": [field.row for field in fields],
            "offsets": offsets,
            "itemsize": -(-at // widest) * widest,
        }
    )


def field_of(name: str, kind: int, shape: tuple[int, ...] = (), dtype: Any = None) -> Field:
    """Return a field of a kind that the format defines."""
    row, align = _ROWS[kind]
    described = json.dumps(np.dtype(dtype).descr) if dtype is not None else ""
    return Field(name, kind, row, align, shape, dtype and np.dtype(dtype), described)


def descriptor(field: Field) -> bytes:
    """Return the descriptor of a field."""
    arguments = b""
    if field.kind in (NDARRAY, TENSOR):
        sizes = (*field.shape, *(0 for _ in range(MAX_DIMENSIONS - len(field.shape))))
        text = field.described.encode("ascii")
        arguments = _SHAPE.pack(*sizes, len(text)) + text
    whole = bytes([field.kind]) + field.name.encode("ascii").ljust(NAME_BYTES, b"\0") + arguments
    return whole.ljust(DESCRIPTOR_BYTES, b"\0")


# -- reading --------------------------------------------------------------------------------------


def read_layout(source: Source, custom: Mapping[str, str]) -> Layout:
    """Read and check the header and the descriptors. For each user-defined field, `custom` has the name of its NumPy
    dtype in a row, such as "<u8,<u8".

    Raises:
        TruncatedError: the file is shorter than its header says, or was never finished.
        FormatError: a number breaks the rules of the format, or contradicts another number.
        UnsupportedError: a user-defined field is not in `custom`.
    """
    try:
        return _read_layout(source, custom)
    except (FormatError, UnsupportedError) as error:
        raise error.at(file=source.path) from None


def _read_layout(source: Source, custom: Mapping[str, str]) -> Layout:
    head = source.read(0, HEADER.size).to_bytes()
    if len(head) < HEADER.size:
        message = "the header is truncated"
        raise TruncatedError(message, byte=len(head), expected="24 bytes", found=len(head))
    version, num_fields, page_bytes, num_records, table_start = HEADER.unpack(head)
    if version != VERSION:
        raise FormatError("unknown version of .beton", byte=0, expected=VERSION, found=version)
    if page_bytes < MIN_PAGE_BYTES or page_bytes & (page_bytes - 1):
        message = "the page size is not a power of two of at least 2 MiB"
        raise FormatError(message, byte=4, found=page_bytes)
    if not num_fields:
        raise FormatError("the file has no fields", byte=2, found=0)
    length = num_fields * DESCRIPTOR_BYTES
    data = source.read(HEADER.size, length).to_bytes()
    if len(data) < length:
        message = f"the descriptors of {num_fields} fields are truncated"
        raise TruncatedError(message, byte=source.size)
    fields = _fields(data, page_bytes, custom)
    layout = Layout(fields, row_dtype(fields), page_bytes, num_records, table_start)
    _check_sizes(layout, source.size)
    return layout


def _check_sizes(layout: Layout, size: int) -> None:
    """Compare the counts in the header with the size of the file."""
    if layout.table_start == 0:
        raise TruncatedError(
            "the file was never finished: its header has no allocation table",
            byte=16,
            hint="write the file again; its records cannot be recovered",
        )
    if layout.table_start > size:
        raise TruncatedError(
            "the file ends before its allocation table",
            byte=size,
            expected=f"a table at byte {layout.table_start}",
            found=f"{size} bytes",
        )
    rows_end = layout.rows_start + layout.num_records * layout.row.itemsize
    if rows_end > layout.table_start:
        raise FormatError(
            f"{layout.num_records} rows do not fit before the allocation table",
            byte=8,
            expected=f"{rows_end} bytes",
            found=layout.table_start,
        )
    found, rest = divmod(size - layout.table_start, ENTRY.itemsize)
    wanted = layout.num_records * len(layout.stored)
    is_cut = rest or found < wanted
    is_longer = found > wanted and all(field.kind != CUSTOM for field in layout.fields)
    if is_cut or is_longer:
        kind = TruncatedError if is_cut else FormatError
        raise kind(
            "the length of the allocation table contradicts the counts in the header",
            byte=layout.table_start,
            expected=f"{wanted} entries of {ENTRY.itemsize} bytes",
            found=f"{size - layout.table_start} bytes",
        )


def _fields(data: bytes, page_bytes: int, custom: Mapping[str, str]) -> tuple[Field, ...]:
    fields: dict[str, Field] = {}
    for number in range(len(data) // DESCRIPTOR_BYTES):
        start = number * DESCRIPTOR_BYTES
        byte = HEADER.size + start
        field = _field(data[start : start + DESCRIPTOR_BYTES], byte, custom)
        if field.name in fields:
            raise FormatError("two fields have this name", field=field.name, byte=byte)
        # Zeros count as ones, so that a zero in a shape cannot hide other sizes that are too large.
        num_values = math.prod(size or 1 for size in field.shape)
        if max(num_values, field.value_bytes) > page_bytes:
            raise FormatError(
                "a tensor is larger than a page",
                field=field.name,
                byte=byte,
                expected=f"at most {page_bytes} bytes",
                found=field.value_bytes,
            )
        fields[field.name] = field
    unknown = [name for name in custom if name not in fields]
    if unknown:
        message = f"custom_fields names a field that the file lacks; it has: {', '.join(fields)}"
        raise UnsupportedError(message, field=unknown[0])
    return tuple(fields.values())


def _field(data: bytes, byte: int, custom: Mapping[str, str]) -> Field:
    kind = data[0]
    name_bytes = data[1 : 1 + NAME_BYTES].split(b"\0", 1)[0]
    try:
        name = name_bytes.decode("ascii")
    except UnicodeDecodeError:
        raise FormatError("a field's name is not ASCII", byte=byte + 1, found=name_bytes) from None
    if not name:
        raise FormatError("a field has no name", byte=byte + 1)
    if kind == CUSTOM:
        return _custom_field(name, byte, custom)
    if kind not in _ROWS:
        raise FormatError("no type of field has this number", field=name, byte=byte, found=kind)
    row, align = _ROWS[kind]
    if kind not in (NDARRAY, TENSOR):
        return Field(name, kind, row, align)
    shape, dtype, described = _tensor(data[1 + NAME_BYTES :], name, byte + 1 + NAME_BYTES)
    return Field(name, kind, row, align, shape, dtype, described)


def _custom_field(name: str, byte: int, custom: Mapping[str, str]) -> Field:
    if name not in custom:
        raise UnsupportedError(
            "the field is user-defined: only the class that wrote it knows the size of its rows",
            field=name,
            byte=byte,
            hint=f'open(..., custom_fields={{"{name}": "<u8,<u8"}}), with the dtype of its metadata',
        )
    row = np.dtype(custom[name], align=False)
    if not row.itemsize or row.hasobject:
        raise ValueError(f"custom_fields: {custom[name]!r} is not a dtype of plain bytes")
    return Field(name, CUSTOM, row, row.alignment)


def _tensor(arguments: bytes, name: str, byte: int) -> tuple[tuple[int, ...], Any, str]:
    """Return the shape and dtype of a tensor, and the text that describes the dtype in the file."""
    *sizes, length = _SHAPE.unpack_from(arguments)
    while sizes and not sizes[-1]:
        sizes.pop()
    if not sizes:
        raise FormatError("the tensor has no dimensions", field=name, byte=byte)
    text = arguments[_SHAPE.size : _SHAPE.size + length]
    try:
        # A dtype's description: a list of one (name, dtype).
        ((_, described),) = json.loads(text)
        if len(text) < length or not isinstance(described, str):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise FormatError(
            "there is no description of a dtype here",
            field=name,
            byte=byte + _SHAPE.size,
            found=text[:40],
        ) from None
    if _DTYPE.fullmatch(described) is None:
        return tuple(sizes), None, described
    return tuple(sizes), np.dtype(described), text.decode("ascii")
