"""Converts the bytes of MDS values to Arrow arrays, for all records of a chunk together, except for pil and list[X]."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.columns.types import VariableShapeTensorType, is_bytes
from penstock.errors import FormatError, SchemaError
from penstock.formats.mds._encodings import DTYPE_CODES, DTYPES, TEXTS, fixed_array

PIXELS = {b"RGB": (b"P6", 3), b"L": (b"P5", 1)}
"""Modes of pil images: the magic of their PPM or PGM file, and their channels."""
_PIL_HEAD = struct.Struct("<III")
_INLINE = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])


@dataclass(frozen=True, slots=True)
class Ranges:
    """The bytes of a column in each record: ranges inside `data`."""

    data: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def windows(self, width: int, skip: int = 0) -> np.ndarray:
        """Return `width` bytes of each range, `skip` bytes after its start: uint8 [records, width]. The bytes must
        exist."""
        if not len(self.starts) or not width:
            return np.zeros((len(self.starts), width), np.uint8)
        view = np.lib.stride_tricks.sliding_window_view(self.data, width)
        return view[self.starts + skip]

    def without_front(self, skip: np.ndarray) -> Ranges:
        """Return the ranges without the first `skip` bytes of each."""
        return Ranges(self.data, self.starts + skip, self.sizes - skip)

    def only(self, rows: np.ndarray) -> Ranges:
        return Ranges(self.data, self.starts[rows], self.sizes[rows])

    def of(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()


class BadValue(Exception):
    """Raised if a value breaks a rule of its encoding. The caller finds the record from the row."""

    def __init__(self, row: int, message: str, *, schema: bool = False) -> None:
        super().__init__(message)
        self.row = row
        self.message = message
        self.kind = SchemaError if schema else FormatError


def decoded(encoding: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    """Return the values of a column, of type `own`."""
    if encoding in DTYPES or fixed_array(encoding) is not None:
        return _fixed(encoding, ranges, own)
    if encoding in TEXTS:
        return _from_text(encoding, texts(ranges), own)
    if encoding == "pil":
        return _pixels(ranges, own)
    if encoding.startswith("list["):
        return _lists(encoding[5:-1], ranges, own)
    if encoding.startswith("ndarray"):
        return _arrays(encoding, ranges, own)
    values = binary(ranges)
    return values if encoding == "bytes" else pa.ExtensionArray.from_storage(own, values)


def binary(ranges: Ranges) -> pa.Array:
    """Return ranges as a binary array: as views, which pyarrow copies into one buffer."""
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
        places = np.arange(_INLINE)
        inside = np.minimum(ranges.starts[short, None] + places, len(ranges.data) - 1)
        front = ranges.data[inside]
        front[places >= sizes[short, None]] = 0
        views.view(np.uint8).reshape(count, 16)[short, 4:] = front
    elif len(short):
        views["offset"][short] = 0
    data = [None, pa.py_buffer(views), pa.py_buffer(ranges.data)]
    return pa.Array.from_buffers(pa.binary_view(), count, data).cast(pa.binary())


def _whole(ranges: Ranges) -> pa.Buffer:
    if len(ranges.data) > np.iinfo(np.int32).max:
        raise BadValue(0, "the values of a column are more than a batch can hold")
    return pa.py_buffer(ranges.data)


def texts(ranges: Ranges) -> pa.Array:
    values = binary(ranges)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        for row in range(len(values)):
            try:
                ranges.of(row).decode()
            except UnicodeDecodeError:
                raise BadValue(row, "the text is not UTF-8") from None
        raise


def _from_text(encoding: str, values: pa.Array, own: pa.DataType) -> pa.Array:
    if encoding == "json":
        return pa.ExtensionArray.from_storage(own, values)
    try:
        return values.cast(own)
    except pa.ArrowInvalid:
        for row, value in enumerate(values.to_pylist()):
            try:
                pa.array([value]).cast(own)
            except pa.ArrowInvalid:
                message = f"{own} cannot hold {value[:40]!r}; a schema with string for this column gives the text"
                raise BadValue(row, message, schema=True) from None
        raise


def _fixed(encoding: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    fixed = fixed_array(encoding)
    dtype, shape = (DTYPES[encoding], None) if fixed is None else fixed
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
    """Return arrays whose shape is stored before their values."""
    is_tensor = isinstance(own, VariableShapeTensorType)
    axes = own.num_dimensions if is_tensor else 1
    dtype = np.dtype(own.value_type.to_pandas_dtype())
    skip = 0
    if encoding == "ndarray":
        _check(ranges.sizes >= 2, "an array is shorter than its head")
        codes = ranges.windows(1)[:, 0]
        known = next(code for code, name in DTYPE_CODES.items() if name == dtype.name)
        _check(codes == known, f"the first array is of {dtype}, and this is not", schema=True)
        skip = 1
    shapes, front = _shapes(ranges, skip, axes)
    values = ranges.without_front(front)
    # Floats do not overflow. They are exact below 2**53, and so is the comparison.
    expected = np.prod(shapes.astype(np.float64), axis=1) * dtype.itemsize
    _check(expected == values.sizes, "the number of values in an array contradicts its shape")
    flat = binary(values).buffers()[2]
    counts = values.sizes // dtype.itemsize
    data = flat if flat is not None else pa.py_buffer(b"")
    numbers = pa.Array.from_buffers(own.value_type, int(counts.sum()), [None, data])
    lists = pa.ListArray.from_arrays(_offsets(counts), numbers)
    if not is_tensor:
        return lists
    flat_shapes = pa.array(shapes.reshape(-1).astype(np.int32))
    storage = pa.StructArray.from_arrays(
        [lists, pa.FixedSizeListArray.from_arrays(flat_shapes, axes)],
        fields=[own.storage_type.field("data"), own.storage_type.field("shape")],
    )
    return pa.ExtensionArray.from_storage(own, storage)


def _shapes(ranges: Ranges, skip: int, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shape of each array, int64 [records, axes], and the bytes before its values."""
    _check(ranges.sizes >= skip + 1, "an array is shorter than its head")
    heads = ranges.windows(1, skip)[:, 0]
    _check(heads >> 2 == axes, f"the first array has {axes} axes, and this has not", schema=True)
    front = skip + 1 + axes * (1 << (heads & 3).astype(np.int64))
    _check(ranges.sizes >= front, "an array is shorter than its shape")
    shapes = np.zeros((len(heads), axes), np.int64)
    for code in range(4):
        rows = np.flatnonzero(heads & 3 == code)
        if len(rows):
            stored = ranges.only(rows).windows(axes << code, skip + 1)
            sizes = np.frombuffer(stored.tobytes(), f"<u{1 << code}").reshape(-1, axes)
            bad = rows[(sizes >= 1 << 31).any(axis=1)]
            if len(bad):
                raise BadValue(int(bad[0]), "an array has an axis longer than any file")
            shapes[rows] = sizes
    return shapes, front


def _check(is_good: np.ndarray, message: str, *, schema: bool = False) -> None:
    if not is_good.all():
        if schema:
            message += "; a schema with binary for this column gives the stored bytes"
        raise BadValue(int(np.argmin(is_good)), message, schema=schema)


def pil_mode(data: bytes) -> bytes:
    if len(data) < _PIL_HEAD.size:
        raise BadValue(0, "an image is shorter than its head")
    size = _PIL_HEAD.unpack_from(data)[2]
    if size > len(data) - _PIL_HEAD.size:
        raise BadValue(0, "an image's mode is longer than the image")
    return data[_PIL_HEAD.size : _PIL_HEAD.size + size]


def _pixels(ranges: Ranges, own: pa.DataType) -> pa.Array:
    """Return raw pixels as PPM and PGM files, or as stored bytes if the first record has another mode."""
    if is_bytes(own):
        return binary(ranges)
    files: list[bytes] = []
    for row in range(len(ranges.starts)):
        data = ranges.of(row)
        try:
            mode = pil_mode(data)
        except BadValue as error:
            error.row = row
            raise
        if mode not in PIXELS:
            message = (
                f"an image has the mode {mode[:20]!r}, and the first image has RGB or L; "
                "a schema with binary for this column gives the stored bytes"
            )
            raise BadValue(row, message, schema=True)
        magic, channels = PIXELS[mode]
        width, height, _ = _PIL_HEAD.unpack_from(data)
        pixels = data[_PIL_HEAD.size + len(mode) :]
        if len(pixels) != width * height * channels:
            raise BadValue(row, f"an image does not have {width} times {height} pixels")
        files.append(b"%s\n%d %d\n255\n%s" % (magic, width, height, pixels))
    return pa.ExtensionArray.from_storage(own, pa.array(files, pa.binary()))


def _lists(kind: str, ranges: Ranges, own: pa.DataType) -> pa.Array:
    found = items(ranges)
    counts = np.frombuffer(ranges.windows(4, 4).tobytes(), "<u4").astype(np.int64)
    try:
        values = decoded(kind, found, own.value_type)
    except BadValue as error:
        error.row = int(np.searchsorted(np.cumsum(counts), error.row, "right"))
        raise
    return pa.ListArray.from_arrays(_offsets(counts), values)


def items(ranges: Ranges) -> Ranges:
    """Return the items of all lists, concatenated."""
    starts: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    for row in range(len(ranges.starts)):
        start, size = int(ranges.starts[row]), int(ranges.sizes[row])
        record = ranges.data[start : start + size]
        zero, count = np.frombuffer(record[:8].tobytes(), "<u4").tolist() if size >= 8 else (1, 0)
        if zero or size < 8 + 4 * count:
            raise BadValue(row, "the head of a list is damaged")
        lengths = np.frombuffer(record[8 : 8 + 4 * count].tobytes(), "<u4").astype(np.int64)
        if int(lengths.sum()) != size - 8 - 4 * count:
            raise BadValue(row, "the items of a list do not have the length that its head states")
        sizes.append(lengths)
        starts.append(start + 8 + 4 * count + np.cumsum(lengths) - lengths)
    none = np.zeros(0, np.int64)
    return Ranges(ranges.data, np.concatenate([none, *starts]), np.concatenate([none, *sizes]))
