"""Crops, resizes and flips the columns that `Image(same=...)` names in the same way as the image of the record.

| kind | column | in a batch |
|---|---|---|
| `nearest` | encoded masks; or tensors, uint8 or uint16, [height, width] or [height, width, channels] | uint8 [n, height, width], or uint16 if a mask of the batch has 16 bits; [n, height, width, 3] for colour masks |
| `image` | encoded images, or pixels | like the image |
| `xyxy` | lists or tensors of boxes, four numbers each | lists or tensors of the same floats; integers become float32 |
| `xywh` | boxes of left, top, width and height | the same |
| `xy` | lists or tensors of points, two numbers each | the same |

Boxes and points may be fields of structs, and of structs in lists.
Whole coordinates are edges of pixels: pixel 3 reaches from 3.0 to 4.0, and an image of width 640 from 0.0 to 640.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.columns.types import innermost, is_fixed_tensor, is_list
from penstock.errors import SchemaError
from penstock.limits import Limits
from penstock.loader._columns import list_parts, of_record
from penstock.loader._image_batches import (
    ImageBatch,
    ImageFault,
    array_of,
    pixel_shape,
    sizes_of,
)
from penstock.loader._padding import has_offsets
from penstock.loader.images import Image, decode_into, recipe_of

COORDINATES = {"xyxy": 4, "xywh": 4, "xy": 2}
"""The count of numbers in a box and in a point."""
EXIF_HINT = "ps.Image(exif=True) turns the picture upright as its EXIF says; then the two fit"


def check_same(decode: Mapping[str, Any] | None, schema: pa.Schema) -> None:
    """Refuse columns in `same=` that do not exist, that are also decoded in another way, or that cannot hold boxes or
    points."""
    taken = set(decode or ())
    for spec in (decode or {}).values():
        for path, kind in ((spec.same if isinstance(spec, Image) else None) or {}).items():
            if path in taken:
                raise SchemaError(
                    "same= names a column that is already decoded in another way", field=path
                )
            taken.add(path)
            type_ = _type_at(schema, path)
            if kind not in COORDINATES and path not in schema.names:
                raise SchemaError(
                    "same= takes masks and images only from whole columns, not from fields of structs",
                    field=path,
                )
            if kind in COORDINATES and not _holds_groups(type_, COORDINATES[kind], is_list=False):
                count = COORDINATES[kind]
                message = f"same= with {kind!r} needs lists of {count} numbers, not {type_}"
                raise SchemaError(message, field=path)


def _type_at(schema: pa.Schema, path: str) -> Any:
    """The type of a column, or of a field of structs, which may be in lists."""
    if path in schema.names:
        return schema.field(path).type
    first, *names = path.split(".")
    type_: Any = schema.field(first).type if first in schema.names else None
    for name in names:
        if type_ is None:
            break
        type_ = innermost(type_) if is_list(type_) else type_
        index = type_.get_field_index(name) if pa.types.is_struct(type_) else -1
        type_ = type_.field(index).type if index >= 0 else None
    if type_ is None:
        known = ", ".join(schema.names)
        raise SchemaError(f"no such column for same=; there are: {known}", field=path)
    return type_


def _holds_groups(type_: Any, count: int, *, is_list: bool) -> bool:
    """Whether values are lists or tensors, and the innermost lists can hold groups of `count` numbers."""
    if is_fixed_tensor(type_):
        fits = type_.permutation is None and type_.shape[-1] % count == 0
        return fits and _holds_groups(type_.value_type, count, is_list=True)
    if isinstance(type_, pa.BaseExtensionType):
        return type_.extension_name == "arrow.variable_shape_tensor"
    if pa.types.is_fixed_size_list(type_):
        is_inner = not pa.types.is_nested(type_.value_type)
        fits = not is_inner or type_.list_size % count == 0
        return fits and _holds_groups(type_.value_type, count, is_list=True)
    if has_offsets(type_):
        return _holds_groups(type_.value_type, count, is_list=True)
    return is_list and (pa.types.is_integer(type_) or pa.types.is_floating(type_))


# -- masks and images -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Makes the columns that get the same crop and flip as an image.

    Attributes:
        spec: how the image is made.
        images: the images.
        keys: the keys of the records, uint64[n].
        how: the arguments threads, limits, damage and pool of `decode_into`.
    """

    spec: Image
    images: Any
    keys: np.ndarray
    how: dict[str, Any]

    @cached_property
    def sizes(self) -> pa.StructArray:
        """Width and height of each image (uint32), null if its header is not valid."""
        return sizes_of(self.images, self.how["limits"], exif=self.spec.exif)

    def decoded(self, column: Any, kind: str) -> tuple[Any, list[ImageFault]]:
        """Decode the images or masks of a column. Returns them and the faults."""
        if kind == "image":
            self._check_depth(column)
            made, faults = decode_into(column, self.spec, self.keys, main=self.sizes, **self.how)
        else:
            made, faults = self._masks(column)
        for fault in faults:
            if not self.spec.exif and "the proportions of the image" in fault.error.message:
                self._advise(fault, column, kind)
        return made, faults

    def _advise(self, fault: ImageFault, column: Any, kind: str) -> None:
        """Put `exif=True` into the hint, if this image or mask fits to the upright image."""
        row = slice(fault.place, fault.place + 1)
        spec = replace(self.spec, exif=True)
        pair = replace(self, spec=spec, images=self.images[row], keys=self.keys[row])
        if not pair.decoded(column[row], kind)[1]:
            fault.error.hint = EXIF_HINT

    def _check_depth(self, column: Any) -> None:
        """Refuse images of 16 bits if they would become 8 bits only because the main image has 8."""
        if self.spec.dtype != "uint8":
            return
        array, pixels = array_of(column)
        if pixels is None and _core.mask_kind(array, self.how["limits"].image_pixels)[1]:
            raise SchemaError(
                "same= would make this image of 16 bits an image of 8 bits, as its main image is;"
                " leave it out of same= and give it its own entry in decode=, an Image with the same settings and"
                " dtype='uint16', which gets the same crop and flip if both images have the same size"
            )

    def _masks(self, column: Any) -> tuple[Any, list[ImageFault]]:
        spec, limits = self.spec, self.how["limits"]
        array, pixels, is_deep = _masks_of(column)
        if pixels is None:
            channels, is_deep = _core.mask_kind(array, limits.image_pixels)
        else:
            channels = 1 if pixels[2] < 3 else 3
        tail = () if channels == 1 else (3,)
        size = spec.height_width or (pixels and pixels[:2])
        shapes: list[tuple[int, ...]] = [(*size, *tail)] if size else self._own(array, tail)
        if spec.mask_fill > 255 and not is_deep:
            raise SchemaError(f"mask_fill={spec.mask_fill} does not fit into masks of 8 bits")
        dtype = np.dtype(np.uint16 if is_deep else np.uint8)
        batch = ImageBatch(
            array,
            recipe_of(spec),
            self.keys,
            shapes,
            dtype,
            pixels,
            (channels, is_deep),
            is_deep and pixels is not None,
            self.sizes,
        )
        return batch.make(None, **self.how)

    def _own(self, array: pa.Array, tail: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shape of each mask if its size is not changed; (0,) if its size is unknown."""
        limits: Limits = self.how["limits"]
        sizes = pa.array(_core.image_view_sizes(array, limits.image_pixels, self.spec.exif))
        sides = (sizes.field(name).to_pylist() for name in ("height", "width"))
        pairs = zip(*sides, strict=True)
        return [(0,) if h is None else (h, w, *tail) for h, w in pairs] or [(0, 0, *tail)]

    def moved(self, batch: pa.RecordBatch, path: str, kind: str) -> pa.RecordBatch:
        """Return the batch with the coordinates of boxes or points changed to those in the resulting images."""
        views = pa.array(recipe_of(self.spec).views(self.sizes, as_arrow(self.keys)))
        move = _Move(kind, views)
        name, names = (path, []) if path in batch.schema.names else _split(path)
        place = batch.schema.get_field_index(name)
        try:
            column = _within(batch.column(place), np.arange(batch.num_rows), names, move)
        except SchemaError as error:
            raise error.at(field=path) from None
        field = batch.schema.field(place).with_type(column.type)
        return batch.set_column(place, field, column)


def _masks_of(column: Any) -> tuple[pa.Array, tuple[int, int, int] | None, bool]:
    """The masks as one array. For tensors also height, width and channels, and whether they have 16 bits."""
    type_ = column.type
    if not is_fixed_tensor(type_):
        return (*array_of(column), False)
    is_deep = type_.value_type == pa.uint16()
    if not (is_deep or type_.value_type == pa.uint8()) or type_.permutation is not None:
        raise SchemaError(f"masks must be uint8 or uint16 [height, width], not {type_}")
    shape = tuple(type_.shape)
    pixels = pixel_shape(shape if len(shape) == 3 else (*shape, 1))
    storage = column.storage
    if is_deep:
        values = storage.flatten().view(pa.uint16())
        data = pa.Array.from_buffers(
            pa.uint8(), 2 * len(values), [None, values.buffers()[1]], offset=2 * values.offset
        )
        storage = pa.FixedSizeListArray.from_arrays(data, 2 * storage.type.list_size)
    return storage, pixels, is_deep


# -- boxes and points -----------------------------------------------------------------------------


class _Move:
    """Converts coordinates in the original images to coordinates in the resulting images.

    A box outside the crop stays in the list, with a side of length 0, so that labels still belong to their boxes.
    """

    def __init__(self, kind: str, views: pa.StructArray) -> None:
        self.count = COORDINATES[kind]
        self._has_sizes = kind == "xywh"

        def numbers(name: str) -> np.ndarray:
            column = views.field(name).fill_null(1)
            return column.to_numpy(zero_copy_only=False).astype(np.float64)

        self._start = np.stack([numbers("left"), numbers("top")], -1)
        self._end = np.stack([numbers("new_width"), numbers("new_height")], -1)
        self._scale = self._end / np.stack([numbers("width"), numbers("height")], -1)
        self._margin = np.stack([numbers("margin_left"), numbers("margin_top")], -1)
        flips = [views.field(name).fill_null(False) for name in ("flip", "upside_down")]
        self._flip = np.stack([flip.to_numpy(zero_copy_only=False) for flip in flips], -1)

    def __call__(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Convert groups of numbers [n, 2 or 4]. `rows` has the row of the batch of each group."""
        if self._has_sizes:
            numbers = np.hstack([numbers[:, :2], numbers[:, :2] + numbers[:, 2:]])
        points = numbers.reshape(-1, 2)
        of = np.repeat(rows, self.count // 2)
        end, flip = self._end[of], self._flip[of]
        moved = (points - self._start[of]) * self._scale[of]
        moved = np.where(flip, end - moved, moved)
        moved = (np.clip(moved, 0, end) + self._margin[of]).reshape(-1, self.count)
        if self.count == 4:  # after a flip, the former right side is the left side
            flipped = np.tile(self._flip[rows], 2)
            moved = np.where(flipped, moved[:, [2, 3, 0, 1]], moved)
        if self._has_sizes:
            moved[:, 2:] -= moved[:, :2]
        return moved


def _split(path: str) -> tuple[str, list[str]]:
    first, *names = path.split(".")
    return first, names


def _within(array: Any, rows: np.ndarray, names: list[str], move: _Move) -> Any:
    """The array with converted coordinates at a path inside its structs. `rows` has the row of the batch of each
    value."""
    if not names:
        return _moved(array, rows, move)
    if is_list(array.type):
        starts, values = list_parts(array)
        try:
            inner = _within(values, np.repeat(rows, np.diff(starts)), names, move)
        except SchemaError as error:
            raise of_record(error, starts) from None
        return _listed(inner, starts, array.type)
    place = array.type.get_field_index(names[0])
    children = [array.field(n) for n in range(array.type.num_fields)]
    children[place] = _within(children[place], rows, names[1:], move)
    fields = [f.with_type(c.type) for f, c in zip(array.type, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _moved(array: Any, rows: np.ndarray, move: _Move) -> Any:
    """Lists or tensors with converted coordinates. `rows` has the row of the batch of each value."""
    type_ = array.type
    if is_fixed_tensor(type_):
        storage = _moved(array.storage, rows, move)
        made = pa.fixed_shape_tensor(storage.type.value_type, type_.shape, type_.dim_names)
        return pa.ExtensionArray.from_storage(made, storage)
    if isinstance(type_, pa.BaseExtensionType):
        return _moved_tensors(array, rows, move)
    if not (pa.types.is_fixed_size_list(type_) or has_offsets(type_)):
        return _moved_numbers(array, rows, move)
    starts, values = list_parts(array)
    counts = np.diff(starts)
    if not pa.types.is_nested(type_.value_type):
        _check_groups(counts, move.count)
    try:
        inner = _moved(values, np.repeat(rows, counts), move)
    except SchemaError as error:
        raise of_record(error, starts) from None
    return _listed(inner, starts, type_)


def _listed(values: Any, starts: np.ndarray, type_: Any) -> Any:
    """Put values back into lists of the same kind as `type_`."""
    if pa.types.is_fixed_size_list(type_):
        return pa.FixedSizeListArray.from_arrays(values, type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.LargeListArray.from_arrays(pa.array(starts), values)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)


def _check_groups(counts: np.ndarray, count: int) -> None:
    """Refuse lists of numbers that are not whole boxes or points."""
    wrong = np.flatnonzero(counts % count)
    if len(wrong):
        what = "boxes of four numbers" if count == 4 else "points of two numbers"
        message = f"a list of {counts[wrong[0]]} numbers cannot hold {what}, as same= requires"
        raise SchemaError(message, record=int(wrong[0]))


def _moved_tensors(array: Any, rows: np.ndarray, move: _Move) -> Any:
    """Convert the coordinates in tensors whose shape differs by record."""
    data, shape = array.storage.field("data"), array.storage.field("shape")
    made = _moved(data, rows, move)
    type_ = type(array.type)(made.type.value_type, array.type.num_dimensions)
    fields = [
        f.with_type(t) for f, t in zip(type_.storage_type, (made.type, shape.type), strict=True)
    ]
    storage = pa.StructArray.from_arrays([made, shape], fields=fields, mask=array.is_null())
    return pa.ExtensionArray.from_storage(type_, storage)


def _moved_numbers(array: Any, rows: np.ndarray, move: _Move) -> Any:
    type_ = array.type if pa.types.is_floating(array.type) else pa.float32()
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    moved = move(numbers.reshape(-1, move.count), rows[:: move.count]).reshape(-1)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(moved.astype(type_.to_pandas_dtype()), type_, mask=nulls)
