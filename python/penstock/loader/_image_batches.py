"""A batch of images or masks, made by one call of Rust: what goes in, where the results go, the damaged ones."""

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
from penstock.payloads.images import bytes_of, fault_error

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
    """Images or masks to be made, and the shapes of what they become.

    Attributes:
        array: files, or pixels.
        recipe: how they are looked at.
        keys: uint64[n].
        shapes: of each result; one for all if they are equal, and for none.
        dtype: of the results.
        pixels: height, width and channels of the pixels, if they are not files.
        mask: channels of masks, and whether they have 16 bits; None for images.
        is_deep: whether the pixels have 16 bits.
        main: width and height of the images whose crop and flip they share.
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
        """The results and the faults, as `decode_into` returns them."""
        count, keys, shapes = len(self.array), self.keys, self.shapes
        if keys.dtype != np.uint64 or keys.shape != (count,):
            raise ValueError(f"keys are uint64[{count}], not {keys.dtype}{list(keys.shape)}")
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
            raise fault_error(error.args[0]) from None
        faults = [ImageFault(place, fault_error(fault, place), had) for place, fault, had in found]
        return (out if is_uniform else _split(out, shapes)), faults


def sizes_of(images: Any, limits: Limits) -> pa.StructArray:
    """Width and height (uint32) of each image, from its head; null where the head is not valid."""
    array, pixels = array_of(images)
    if pixels is None:
        return pa.array(_core.image_view_sizes(array, limits.image_pixels))
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
            raise ValueError("out cannot hold images of several sizes; give Image a size")
        if out.shape != shape or out.dtype != dtype:
            raise ValueError(f"out is {dtype}{list(shape)}, not {out.dtype}{list(out.shape)}")
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
    """The images as one array, and the shape of their pixels if they are not encoded."""
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
        raise SchemaError(f"pixels are uint8[height, width, channels], not {type_}")
    return array.storage, pixel_shape(tuple(type_.shape))


def pixel_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels of pixels of this shape."""
    if len(shape) == 3:
        height, width, channels = shape
        if height and width and 1 <= channels <= 4:
            return height, width, channels
    raise SchemaError(f"pixels are uint8[height, width, 1 to 4 channels], not {list(shape)}")
