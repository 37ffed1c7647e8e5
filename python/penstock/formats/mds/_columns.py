"""Columns of MDS: their encodings, and the matching Arrow types.

| encoding | bytes of a record | Arrow |
|---|---|---|
| int, int8 .. uint64, float16 .. float64 | fixed, little-endian (int has 8) | the same |
| bytes | any | binary |
| str, str_decimal | UTF-8 | string |
| str_int | digits | decimal128(38, 0), exact |
| str_float | digits | float64 |
| json | UTF-8 | arrow.json |
| png, jpeg[:quality], jpeg_array | an image file | penstock.image |
| pil | u32 width, height, size of mode; mode; pixels | penstock.image (PPM, PGM), see below |
| ndarray | u8 dtype code, then as in the next row | list if it has one axis, else variable tensor |
| ndarray:T | u8 axes*4 + code of the shape's integers; shape; values | the same |
| ndarray:T:2,3 | values, fixed | fixed tensor; list of fixed size if it has one axis |
| list[X] | u32 0, u32 count, u32 sizes, items | list of X |
| pkl | a pickle | an error, as reading a pickle runs code |

The first record of a shard determines what the encoding leaves open: the dtype and number of axes of an ndarray, and
whether pixels are RGB or grey. If a schema asks for a column of varying size as binary, it gets the stored bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.columns import types
from penstock.columns.facts import is_text
from penstock.columns.types import ImageType, VariableShapeTensorType, is_bytes
from penstock.errors import FormatError, UnsupportedError
from penstock.formats.mds._encodings import (
    DTYPE_CODES,
    DTYPES,
    TEXTS,
    fixed_array,
    image_codec,
    size_of,
)
from penstock.formats.mds._values import (
    PIXELS,
    BadValue,
    Ranges,
    binary,
    decoded,
    items,
    pil_mode,
    texts,
)

_MOST_AXES = 32
_TYPES: dict[str, pa.DataType] = {
    "bytes": pa.binary(),
    "str": pa.string(),
    "str_decimal": pa.string(),
    "str_int": pa.decimal128(38, 0),
    "str_float": pa.float64(),
    "json": pa.json_(),
    "pkl": pa.binary(),
    **{name: pa.from_numpy_dtype(dtype) for name, dtype in DTYPES.items()},
}


@dataclass(frozen=True, slots=True)
class MdsColumn:
    """One column of a shard, from its config. `size` is None if it varies."""

    name: str
    encoding: str
    size: int | None

    @property
    def is_pickle(self) -> bool:
        return self.encoding in ("pkl", "list[pkl]")

    def type_of(self, first: Ranges | None) -> pa.DataType:
        """The Arrow type, from the encoding and the first record of the shard, if there is one."""
        return _type_of(self.encoding, first)

    def decode(self, ranges: Ranges, wanted: pa.DataType, own: pa.DataType) -> pa.Array:
        """All values, of the type `own`, or as bytes or text if `wanted` is that."""
        if self.size is None and is_bytes(wanted):
            return binary(ranges)
        if self.encoding in TEXTS and types.is_text(wanted):
            return texts(ranges)
        return decoded(self.encoding, ranges, own)


def columns_of(config: dict[str, Any]) -> list[MdsColumn]:
    """Return the columns that a config describes. Raise UnsupportedError for an unknown encoding, and FormatError if
    the config is invalid."""
    lists = [config.get(f"column_{key}") for key in ("names", "encodings", "sizes")]
    if not all(isinstance(one, list) for one in lists) or len({len(one) for one in lists}) != 1:  # type: ignore[arg-type]
        raise FormatError("the config lacks lists of names, encodings and sizes of the same length")
    columns = [_column(*one) for one in zip(*lists, strict=True)]  # type: ignore[arg-type]
    if len({one.name for one in columns}) < len(columns):
        raise FormatError("the config names a column twice")
    return columns


def _column(name: Any, encoding: Any, size: Any) -> MdsColumn:
    if not is_text(name) or not is_text(encoding):
        raise FormatError("the config has a name or an encoding that is not text")
    if size is not None and (type(size) is not int or size < 0):
        raise FormatError("the config has a size that is not a valid number", field=name)
    try:
        expected = size_of(encoding)
    except UnsupportedError as error:
        raise error.at(field=name) from None
    if expected is not None and expected >= 1 << 32:
        raise FormatError("the config gives a column more bytes than a shard can have", field=name)
    if size != expected:
        raise FormatError(
            f"the config gives a wrong size for a column of encoding {encoding[:60]!r}",
            field=name,
            expected="a size that varies" if expected is None else f"{expected} bytes",
            found="a size that varies" if size is None else f"{size} bytes",
        )
    return MdsColumn(name, encoding, size)


def _type_of(encoding: str, first: Ranges | None) -> pa.DataType:
    if encoding in _TYPES:
        return _TYPES[encoding]
    codec = image_codec(encoding)
    if codec is not None:
        return ImageType(codec)
    if encoding.startswith("list["):
        found = None if first is None else items(first)
        is_empty = found is None or not len(found.starts)
        return pa.list_(_type_of(encoding[5:-1], None if is_empty else found))
    if encoding == "pil":
        is_other = first is not None and pil_mode(first.of(0)) not in PIXELS
        return pa.binary() if is_other else ImageType("ppm")
    fixed = fixed_array(encoding)
    if fixed is not None:
        dtype, shape = fixed
        value = pa.from_numpy_dtype(dtype)
        return pa.list_(value, shape[0]) if len(shape) == 1 else pa.fixed_shape_tensor(value, shape)
    return _array_type(encoding, first)


def _array_type(encoding: str, first: Ranges | None) -> pa.DataType:
    """Return the type of an ndarray of varying shape, from its first record."""
    name = encoding.partition(":")[2]
    head = b"" if first is None else first.of(0)[:2]
    if not name:
        name = DTYPE_CODES.get(head[0], "") if head else "float64"
        head = head[1:]
    axes = head[0] >> 2 if head else 1
    if not name or not 1 <= axes <= _MOST_AXES:
        raise BadValue(0, "the head of an array has an unknown dtype or number of axes")
    value = pa.from_numpy_dtype(DTYPES[name])
    return pa.list_(value) if axes == 1 else VariableShapeTensorType(value, axes)
