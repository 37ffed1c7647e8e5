"""Columns of MDS: from the bytes that a record has for each to Arrow arrays.

| encoding | bytes of a record | Arrow |
|---|---|---|
| int, int8 .. uint64, float16 .. float64 | fixed, little-endian (int has 8) | the same |
| bytes | as they are | binary |
| str, str_decimal | UTF-8 | string |
| str_int | digits | decimal128(38, 0), exact |
| str_float | digits | float64 |
| json | UTF-8 | arrow.json |
| png, jpeg[:quality], jpeg_array | an image file | penstock.image |
| pil | u32 width, height, size of mode; mode; pixels | penstock.image (PPM, PGM), see below |
| ndarray | u8 dtype code, then as the next | list where flat, else variable tensor |
| ndarray:T | u8 axes*4 + code of the shape's integers; shape; values | the same |
| ndarray:T:2,3 | values, fixed | fixed tensor, or list of fixed size |
| list[X] | u32 0, u32 count, u32 sizes, items | list of what X is |
| pkl | a pickle | refused: to read one is to run it |

What the encoding leaves open (the dtype and number of axes of an ndarray, whether pixels are RGB or
grey) the first record of a shard decides. A column that a schema asks for as binary gives the
stored bytes. The work is done on all records of a chunk at once, but for pil and list[X].
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import ImageType, VariableShapeTensorType, is_bytes, is_text
from penstock.errors import FormatError, SchemaError, UnsupportedError

_SCALARS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_FIXED = {name: np.dtype(name).newbyteorder("<") for name in _SCALARS} | {"int": np.dtype("<i8")}
_DTYPE_CODES = {
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
_TEXTS = ("str", "str_decimal", "str_int", "str_float", "json")
_IMAGES = {"png": "png", "jpeg": "jpeg", "jpeg_array": "jpeg"}
_PIL_HEAD = struct.Struct("<III")
_PIXELS = {b"RGB": (b"P6", 3), b"L": (b"P5", 1)}
_MOST_AXES = 32
_INLINE = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a column has of each record: places in one run of bytes. All lie within it."""

    data: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def windows(self, width: int, skip: int = 0) -> np.ndarray:
        """`width` bytes of each, `skip` behind its start, uint8[records, width]. They must exist."""
        if not len(self.starts) or not width:
            return np.zeros((len(self.starts), width), np.uint8)
        view = np.lib.stride_tricks.sliding_window_view(self.data, width)
        return view[self.starts + skip]

    def beyond(self, skip: Any) -> Ranges:
        """The same without so many bytes of each at the front."""
        return Ranges(self.data, self.starts + skip, self.sizes - skip)

    def only(self, rows: np.ndarray) -> Ranges:
        return Ranges(self.data, self.starts[rows], self.sizes[rows])

    def of(self, row: int) -> bytes:
        """The bytes of one."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()


class Unfit(Exception):
    """A record's value breaks a rule; which record the caller knows by its row."""

    def __init__(self, row: int, message: str, *, schema: bool = False) -> None:
        super().__init__(message)
        self.row = row
        self.message = message
        self.kind = SchemaError if schema else FormatError


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a shard as its config describes it. `size` is None where it varies."""

    name: str
    encoding: str
    size: int | None

    @property
    def is_refused(self) -> bool:
        """Whether reading a value would run what it says."""
        return self.encoding in ("pkl", "list[pkl]")

    def type_of(self, first: Ranges | None) -> pa.DataType:
        """The Arrow type, from the encoding and the first record of the shard, if there is one."""
        return _type_of(self.encoding, first)

    def decode(self, ranges: Ranges, wanted: pa.DataType, own: pa.DataType) -> pa.Array:
        """All values, as `own` or, if the caller wants bytes or text, as those."""
        if self.size is None and is_bytes(wanted):
            return binary(ranges)
        if self.encoding in _TEXTS and is_text(wanted):
            return _text(ranges)
        return _decoded(self.encoding, ranges, own)


def column(name: str, encoding: str, size: int | None) -> Column:
    """A column, if the encoding is known and has the size that the config says.

    Raises:
        UnsupportedError: no such encoding.
        FormatError: the size is not that of the encoding.
    """
    kind = encoding
    while kind.startswith("list[") and kind.endswith("]"):
        kind = kind[5:-1]
    expected: int | None = None
    if kind in _FIXED and kind == encoding:
        expected = _FIXED[kind].itemsize
    elif (fixed := _fixed_array(kind)) is not None and kind == encoding:
        dtype, shape = fixed
        expected = dtype.itemsize * int(np.prod(shape, dtype=object))
    elif kind not in (*_TEXTS, "bytes", "pil", "pkl", "ndarray") and not (
        _image_codec(kind) or (kind.startswith("ndarray:") and kind[8:] in _SCALARS)
    ):
        raise UnsupportedError(f"unknown encoding {encoding[:60]!r}", field=name)
    if kind != encoding and (encoding != f"list[{kind}]" or not _listable(kind)):
        raise UnsupportedError(f"unknown encoding {encoding[:60]!r}", field=name)
    if expected is not None and expected >= 1 << 32:
        raise FormatError("the config gives a column more bytes than a shard has", field=name)
    if size != expected:
        raise FormatError(
            f"the config gives a column of encoding {encoding[:60]!r} another size than it has",
            field=name,
            expected="a size that varies" if expected is None else f"{expected} bytes",
            found="a size that varies" if size is None else f"{size} bytes",
        )
    return Column(name, encoding, size)


def _listable(kind: str) -> bool:
    return kind in ("pil", "bytes", "str", "pkl") or _image_codec(kind) is not None


def _image_codec(encoding: str) -> str | None:
    name, _, quality = encoding.partition(":")
    return _IMAGES.get(name) if not quality or quality.isdigit() else None


def _fixed_array(encoding: str) -> tuple[np.dtype[Any], list[int]] | None:
    """The dtype and shape of an `ndarray:T:2,3`."""
    match = re.fullmatch(r"ndarray:(\w+):([1-9]\d{0,9}(?:,[1-9]\d{0,9}){0,31})", encoding)
    if match is None or match[1] not in _SCALARS:
        return None
    return _FIXED[match[1]], [int(size) for size in match[2].split(",")]


# -- types ----------------------------------------------------------------------------------------


def _type_of(encoding: str, first: Ranges | None) -> pa.DataType:
    plain: dict[str, Callable[[], pa.DataType]] = {
        "bytes": pa.binary,
        "str": pa.string,
        "str_decimal": pa.string,
        "str_int": lambda: pa.decimal128(38, 0),
        "str_float": pa.float64,
        "json": pa.json_,
        "pkl": pa.binary,
    }
    if encoding in plain:
        return plain[encoding]()
    if encoding in _FIXED:
        return pa.from_numpy_dtype(_FIXED[encoding])
    if encoding.startswith("list["):
        items = None if first is None else _items(first)
        some = items is not None and len(items.starts)
        return pa.list_(_type_of(encoding[5:-1], items if some else None))
    if encoding == "pil":
        is_other = first is not None and _pil_mode(first.of(0)) not in _PIXELS
        return pa.binary() if is_other else ImageType("ppm")
    codec = _image_codec(encoding)
    if codec is not None:
        return ImageType(codec)
    fixed = _fixed_array(encoding)
    if fixed is not None:
        dtype, shape = fixed
        value = pa.from_numpy_dtype(dtype)
        return pa.list_(value, shape[0]) if len(shape) == 1 else pa.fixed_shape_tensor(value, shape)
    return _array_type(encoding, first)


def _array_type(encoding: str, first: Ranges | None) -> pa.DataType:
    """The type of an ndarray whose shape varies: by its first record."""
    name = encoding.partition(":")[2]
    head = b"" if first is None else first.of(0)[:2]
    if not name:
        name = _DTYPE_CODES.get(head[0], "") if head else "float64"
        head = head[1:]
    axes = head[0] >> 2 if head else 1
    if not name or not 1 <= axes <= _MOST_AXES:
        raise Unfit(0, "an array's head has an unknown dtype or number of axes")
    value = pa.from_numpy_dtype(_FIXED[name])
    return pa.list_(value) if axes == 1 else VariableShapeTensorType(value, axes)


# -- values ---------------------------------------------------------------------------------------


def _decoded(encoding: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    if encoding in _FIXED or _fixed_array(encoding) is not None:
        return _fixed(encoding, ranges, own)
    if encoding == "bytes":
        return binary(ranges)
    if encoding in _TEXTS:
        text = _text(ranges)
        if encoding in ("str", "str_decimal"):
            return text
        if encoding == "json":
            return pa.ExtensionArray.from_storage(own, text)
        return _numbers(text, own)
    if encoding == "pil":
        return _pixels(ranges, own)
    if encoding.startswith("list["):
        items = _items(ranges)
        counts = np.frombuffer(ranges.windows(4, 4).tobytes(), "<u4").astype(np.int64)
        try:
            values = _decoded(encoding[5:-1], items, own.value_type)
        except Unfit as error:
            error.row = int(np.searchsorted(np.cumsum(counts), error.row, "right"))
            raise
        return pa.ListArray.from_arrays(_offsets(counts), values)
    if encoding.startswith("ndarray"):
        return _arrays(encoding, ranges, own)
    return pa.ExtensionArray.from_storage(own, binary(ranges))


def binary(ranges: Ranges) -> pa.Array:
    """Ranges as a binary array: views of them, which pyarrow copies into one run."""
    count = len(ranges.starts)
    ends = np.cumsum(ranges.sizes)
    if count and ends[-1] == len(ranges.data) and (ranges.starts == ends - ranges.sizes).all():
        return pa.Array.from_buffers(
            pa.binary(), count, [None, _offsets(ranges.sizes).buffers()[1], _whole(ranges)]
        )
    views = np.zeros(count, _VIEW)
    sizes = views["length"] = ranges.sizes
    views["offset"] = ranges.starts
    long = ranges.sizes > _INLINE
    if long.any():
        head = ranges.only(np.flatnonzero(long)).windows(4)
        views["prefix"][long] = np.frombuffer(head.tobytes(), "<u4")
    short = np.flatnonzero(~long)
    if len(short) and len(ranges.data):
        place = np.arange(_INLINE)
        inside = np.minimum(ranges.starts[short, None] + place, len(ranges.data) - 1)
        text = ranges.data[inside]
        text[place >= sizes[short, None]] = 0
        views.view(np.uint8).reshape(count, 16)[short, 4:] = text
    elif len(short):
        views["offset"][short] = 0
    data = [None, pa.py_buffer(views), pa.py_buffer(ranges.data)]
    return pa.Array.from_buffers(pa.binary_view(), count, data).cast(pa.binary())


def _whole(ranges: Ranges) -> pa.Buffer:
    if len(ranges.data) > np.iinfo(np.int32).max:
        raise Unfit(0, "the values of a column are more than a batch holds")
    return pa.py_buffer(ranges.data)


def _text(ranges: Ranges) -> pa.Array:
    values = binary(ranges)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        for row in range(len(values)):
            try:
                ranges.of(row).decode()
            except UnicodeDecodeError:
                raise Unfit(row, "the text is no UTF-8") from None
        raise


def _numbers(text: pa.Array, own: pa.DataType) -> pa.Array:
    """Digits as numbers."""
    try:
        return text.cast(own)
    except pa.ArrowInvalid:
        for row, value in enumerate(text.to_pylist()):
            try:
                pa.array([value]).cast(own)
            except pa.ArrowInvalid:
                message = f"{value[:40]!r} is no number that {own} holds; a schema with string does"
                raise Unfit(row, message, schema=True) from None
        raise


def _fixed(encoding: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    fixed = _fixed_array(encoding)
    dtype, shape = (_FIXED[encoding], None) if fixed is None else fixed
    size = 1 if shape is None else int(np.prod(shape))
    rows = ranges.windows(dtype.itemsize * size)
    value = pa.from_numpy_dtype(dtype)
    count = len(rows)
    flat = pa.Array.from_buffers(value, count * size, [None, pa.py_buffer(rows.reshape(-1))])
    if shape is None:
        return flat
    lists = pa.FixedSizeListArray.from_arrays(flat, size)
    return lists if len(shape) == 1 else pa.ExtensionArray.from_storage(own, lists)


def _offsets(counts: np.ndarray) -> pa.Array:
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends.astype(np.int32))])


def _arrays(encoding: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    """Arrays whose shape stands before their values."""
    is_tensor = isinstance(own, VariableShapeTensorType)
    axes = own.num_dimensions if is_tensor else 1
    value = own.value_type
    dtype = np.dtype(value.to_pandas_dtype())
    skip = 0
    if encoding == "ndarray":
        _demand(ranges.sizes >= 2, "an array is shorter than its head")
        codes = ranges.windows(1)[:, 0]
        known = next(code for code, name in _DTYPE_CODES.items() if name == dtype.name)
        _demand(codes == known, f"an array is not {dtype}, as in the first record", schema=True)
        skip = 1
    _demand(ranges.sizes >= skip + 1, "an array is shorter than its head")
    heads = ranges.windows(1, skip)[:, 0]
    message = f"an array has not {axes} axes, as in the first record"
    _demand(heads >> 2 == axes, message, schema=True)
    shapes = np.zeros((len(heads), axes), np.int64)
    front = skip + 1 + axes * (1 << (heads & 3).astype(np.int64))
    _demand(ranges.sizes >= front, "an array is shorter than its shape")
    for code in range(4):
        rows = np.flatnonzero(heads & 3 == code)
        if len(rows):
            text = ranges.only(rows).windows(axes << code, skip + 1)
            sizes = np.frombuffer(text.tobytes(), f"<u{1 << code}").reshape(-1, axes)
            fits = sizes < 1 << 31
            bad = rows[~fits.all(axis=1)]
            if len(bad):
                raise Unfit(int(bad[0]), "an array has an axis longer than any file")
            shapes[rows] = sizes
    values = ranges.beyond(front)
    # As floats they cannot wrap around; below 2**53 they are exact, and so is the comparison.
    claimed = np.prod(shapes.astype(np.float64), axis=1) * dtype.itemsize
    _demand(claimed == values.sizes, "an array's values are not as many as its shape says")
    flat = binary(values).buffers()[2]
    counts = values.sizes // dtype.itemsize
    numbers = pa.Array.from_buffers(
        value, int(counts.sum()), [None, flat if flat is not None else pa.py_buffer(b"")]
    )
    lists = pa.ListArray.from_arrays(_offsets(counts), numbers)
    if not is_tensor:
        return lists
    flat_shapes = pa.Array.from_buffers(
        pa.int32(), shapes.size, [None, pa.py_buffer(shapes.astype(np.int32).reshape(-1))]
    )
    sizes = pa.FixedSizeListArray.from_arrays(flat_shapes, axes)
    storage = pa.StructArray.from_arrays(
        [lists, sizes], fields=[own.storage_type.field("data"), own.storage_type.field("shape")]
    )
    return pa.ExtensionArray.from_storage(own, storage)


def _demand(good: np.ndarray, message: str, *, schema: bool = False) -> None:
    if not good.all():
        if schema:
            message += "; a schema with binary for this column gives the stored bytes"
        raise Unfit(int(np.argmin(good)), message, schema=schema)


def _pil_mode(data: bytes) -> bytes:
    if len(data) < _PIL_HEAD.size:
        raise Unfit(0, "an image is shorter than its head")
    size = _PIL_HEAD.unpack_from(data)[2]
    if size > len(data) - _PIL_HEAD.size:
        raise Unfit(0, "an image's mode is longer than the image")
    return data[_PIL_HEAD.size : _PIL_HEAD.size + size]


def _pixels(ranges: Ranges, own: pa.DataType) -> pa.Array:
    """Raw pixels as PPM and PGM files; other modes as they are stored, if the first one is so."""
    if is_bytes(own):
        return binary(ranges)
    files: list[bytes] = []
    for row in range(len(ranges.starts)):
        data = ranges.of(row)
        try:
            mode = _pil_mode(data)
        except Unfit as error:
            error.row = row
            raise
        if mode not in _PIXELS:
            message = (
                f"an image of mode {mode[:20]!r} is neither RGB nor L, as in the first record; "
                "a schema with binary for this column gives the stored bytes"
            )
            raise Unfit(row, message, schema=True)
        magic, channels = _PIXELS[mode]
        width, height, _ = _PIL_HEAD.unpack_from(data)
        pixels = data[_PIL_HEAD.size + len(mode) :]
        if len(pixels) != width * height * channels:
            raise Unfit(row, f"an image's pixels are not {width} times {height}")
        files.append(b"%s\n%d %d\n255\n%s" % (magic, width, height, pixels))
    return pa.ExtensionArray.from_storage(own, pa.array(files, pa.binary()))


def _items(ranges: Ranges) -> Ranges:
    """The items of all lists, one after another."""
    starts: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    for row in range(len(ranges.starts)):
        start, size = int(ranges.starts[row]), int(ranges.sizes[row])
        record = ranges.data[start : start + size]
        zero, count = np.frombuffer(record[:8].tobytes(), "<u4").tolist() if size >= 8 else (1, 0)
        if zero or size < 8 + 4 * count:
            raise Unfit(row, "a list's head is damaged")
        lengths = np.frombuffer(record[8 : 8 + 4 * count].tobytes(), "<u4").astype(np.int64)
        if int(lengths.sum()) != size - 8 - 4 * count:
            raise Unfit(row, "a list's items are not as long as its head says")
        sizes.append(lengths)
        starts.append(start + 8 + 4 * count + np.cumsum(lengths) - lengths)
    none = np.zeros(0, np.int64)
    return Ranges(ranges.data, np.concatenate([none, *starts]), np.concatenate([none, *sizes]))
