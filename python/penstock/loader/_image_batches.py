"""A batch of images or masks, which one Rust call makes: its input, its output, and the damaged images."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.columns.types import IN_PARTS, is_fixed_tensor, storage_of
from penstock.errors import PenstockError, SchemaError
from penstock.limits import Limits
from penstock.payloads.image_bytes import bytes_of, embedded, only_paths
from penstock.payloads.images import fault_error

Damage = Literal["error", "skip", "salvage"]


@dataclass(frozen=True, slots=True)
class ImageFault:
    """A damaged image of a batch.

    Attributes:
        place: its index in the batch.
        error: what is wrong with it.
        salvaged: whether the decodable part is in the batch; otherwise the batch has zeros.
    """

    place: int
    error: PenstockError
    salvaged: bool


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """The input of one call: images or masks, with the shapes and dtype of the results.

    Attributes:
        array: image files, or pixels.
        recipe: how images are cropped, resized and flipped.
        keys: the keys of the records, uint64[n], which determine random crops and flips.
        shapes: the shape of each result, or one shape if all are equal or there are none.
        dtype: the dtype of the results.
        pixels: height, width and channels, if `array` has pixels; None for files.
        mask: the number of channels, and whether masks have 16 bits; None if the images are not masks.
        is_deep: whether the pixels in `array` have 16 bits.
        main: width and height of other images, whose crop and flip these get; None for a crop and flip of their own.
    """

    array: pa.Array
    recipe: _core.ImageRecipe
    keys: np.ndarray
    shapes: list[tuple[int, ...]]
    dtype: np.dtype[Any]
    pixels: tuple[int, int, int] | None = None
    mask: tuple[int, bool] | None = None
    is_deep: bool = False
    main: pa.StructArray | None = None

    def make(
        self,
        out: np.ndarray | None,
        *,
        threads: int,
        limits: Limits,
        damage: Damage,
        pool: _core.BufferPool | None,
    ) -> tuple[Any, list[ImageFault]]:
        """Make the batch, and return the results and the faults, as `decode_into` does."""
        count, keys, shapes = len(self.array), self.keys, self.shapes
        if keys.dtype != np.uint64 or keys.shape != (count,):
            raise ValueError(f"keys must be uint64[{count}], not {keys.dtype}{list(keys.shape)}")
        is_uniform = len(set(shapes)) <= 1 and (0,) not in shapes
        full = (count, *shapes[0]) if is_uniform else (sum(map(prod, shapes)),)
        out = _room(full, self.dtype, is_uniform, out, pool)
        try:
            found = _core.make_images(
                self.array,
                as_arrow(keys),
                self.recipe,
                out,
                main=self.main,
                mask=self.mask,
                shape=self.pixels,
                deep=self.is_deep,
                image_pixels=limits.image_pixels,
                damage=damage,
                threads=threads,
            )
        except _core.KernelError as error:
            raise fault_error(error.args[0], allow_damaged=damage == "salvage") from None
        allowed = damage == "salvage"
        faults = [
            ImageFault(place, fault_error(fault, place, allow_damaged=allowed), had)
            for place, fault, had in found
        ]
        return (out if is_uniform else _split(out, shapes)), faults


def sizes_of(images: Any, limits: Limits, *, exif: bool) -> pa.StructArray:
    """Width and height (uint32) of each image, read from its header; null if the header is not valid. With `exif`, they
    are those of the upright image."""
    array, pixels = array_of(embedded(images) if only_paths(images) else images)
    if pixels is None:
        return pa.array(_core.image_view_sizes(array, limits.image_pixels, exif))
    height, width = (np.full(len(array), side, np.uint32) for side in pixels[:2])
    return pa.StructArray.from_arrays([pa.array(width), pa.array(height)], ["width", "height"])


def _room(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    is_uniform: bool,
    out: np.ndarray | None,
    pool: _core.BufferPool | None,
) -> np.ndarray:
    """Return `out` after checking it, or a new array."""
    if out is not None:
        if not is_uniform:
            raise ValueError("out cannot hold images of different sizes; set the size of Image")
        if out.shape != shape or out.dtype != dtype:
            raise ValueError(f"out must be {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
        return out
    num_bytes = prod(shape) * dtype.itemsize
    if pool is None or not num_bytes:
        return np.empty(shape, dtype)
    return np.asarray(pool.take(num_bytes)).view(dtype).reshape(shape)


def _split(flat: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray | None]:
    parts = np.split(flat, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return [
        None if shape == (0,) else part.reshape(shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def array_of(images: Any) -> tuple[pa.Array, tuple[int, int, int] | None]:
    """The images as one array, and the shape of each image if they are pixels and not files."""
    if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 4:
        shape = images.shape[1:]
        flat = pa.array(np.ascontiguousarray(images).reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, max(prod(shape), 1))
        return lists, pixel_shape(shape)
    array: Any = images
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    type_: Any = getattr(array, "type", None)
    if type_ is None or not is_fixed_tensor(type_) or len(type_.shape) == 1:
        return (array.storage if storage_of(type_) == IN_PARTS else bytes_of(array)), None
    if type_.value_type != pa.uint8() or type_.permutation not in (None, [0, 1, 2]):
        raise SchemaError(f"pixels must be uint8[height, width, channels], not {type_}")
    return array.storage, pixel_shape(tuple(type_.shape))


def pixel_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Check the shape of pixels, and return it as height, width and channels."""
    if len(shape) == 3:
        height, width, channels = shape
        if height and width and 1 <= channels <= 4:
            return height, width, channels
    raise SchemaError(f"pixels must be uint8[height, width, 1 to 4 channels], not {list(shape)}")
