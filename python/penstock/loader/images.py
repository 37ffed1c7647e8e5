"""Prepares images for a model: `ps.Image` describes how, and `decode_into` does it for a batch.

One Rust call decodes, on several threads, only the part of each JPEG that its crop needs, resizes and mirrors it,
converts it to numbers, and writes it into the batch. The random crop and flip of a record depend only on its 64-bit
key, not on threads, batches or the order of the records.

`docs/guide/loader-images.md` has measurements of how the fast path differs from `exact=True`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.columns.types import IN_PARTS, is_fixed_tensor, storage_of
from penstock.errors import PenstockError, SchemaError
from penstock.limits import Limits, limits_from
from penstock.payloads.images import bytes_of, fault_error

Damage = Literal["error", "skip", "salvage"]
_MOST_SIDE = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """How the images of a batch are cropped, resized, flipped and converted to numbers.

    A random crop is torchvision's `RandomResizedCrop`. An area (uniform within `scale`) and an aspect ratio (uniform
    in its logarithm within `ratio`) are drawn until such a rectangle fits into the image, at most ten times, and then
    its position is drawn. If no rectangle fits, the crop is the largest central one with a ratio within `ratio`. The
    random numbers come from splitmix64, seeded by the record's key: one for the flip, two for each try, one each for
    top and left.

    A center crop is torchvision's `Resize` of the shorter side to `size / center_fraction` and then `CenterCrop`, for
    example `Resize(256)` and `CenterCrop(224)`, in one step.

    Args:
        size: the side in pixels, or (height, width); None keeps the size of each image.
        crop: None takes the whole image, and its aspect ratio changes; "center" takes its middle, "random" a random
            part.
        flip: mirror left and right, with probability 1/2.
        dtype: "uint8"; or "float32" or "float16", scaled to 0..1 and then `(x - mean) / std`.
        mean, std: a number, or one for each of red, green and blue.
        layout: "nhwc", channels last, or "nchw", channels first.
        exact: decode whole images at full resolution, even if a part or a lower resolution would do.
        scale: the smallest and largest area of a random crop, as a fraction of the image's area.
        ratio: the smallest and largest width / height of a random crop.
        center_fraction: the fraction of the shorter side that a center crop keeps.

    Raises:
        ValueError: an argument is out of range, or has no effect with the others.

    Example:
        >>> import penstock as ps
        >>> ps.Image(224, crop="random", flip=True)
        Image(size=224, crop='random', flip=True)
        >>> ps.decode_images([b"P6 2 1 255 abcdef"], ps.Image((1, 1))).shape
        (1, 1, 1, 3)
    """

    size: int | tuple[int, int] | None = None
    crop: Literal["center", "random"] | None = None
    flip: bool = False
    dtype: str = "uint8"
    mean: float | tuple[float, float, float] | None = None
    std: float | tuple[float, float, float] | None = None
    layout: Literal["nhwc", "nchw"] = "nhwc"
    exact: bool = False
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    center_fraction: float = 0.875

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "dtype", np.dtype(self.dtype).name)
        if self.size is not None and not isinstance(self.size, int):
            put(self, "size", tuple(int(side) for side in self.size))
        for name in ("mean", "std"):
            put(self, name, _channels(name, getattr(self, name)))
        for name in ("scale", "ratio"):
            put(self, name, tuple(float(edge) for edge in getattr(self, name)))
        _check(self)

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = [f.name for f in fields(self) if values[f.name] != f.default]
        return f"Image({', '.join(f'{name}={values[name]!r}' for name in changed)})"

    @property
    def height_width(self) -> tuple[int, int] | None:
        """Height and width of the result in pixels; None if `size` is None."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of the result for an image of this size."""
        height, width = self.height_width or (height, width)
        return (height, width, 3) if self.layout == "nhwc" else (3, height, width)

    def decode(
        self,
        array: Any,
        *,
        keys: np.ndarray | None = None,
        allow_damaged: bool = False,
        limits: Limits | dict[str, int] | None = None,
        threads: int = 1,
    ) -> Any:
        """Decode a batch of images; `penstock.decode_images` calls it.

        Args:
            array, limits, threads: as in `decode_into`.
            keys: uint64[n]; None for the indices in the array.
            allow_damaged: return the decodable part of damaged JPEGs.

        Returns:
            An array of `dtype` [n, height, width, 3] or [n, 3, height, width]; a list of arrays if `size` is None
            and the images differ in size.

        Raises:
            FormatError: a record is not an image, or it is damaged.
            LimitError: an image is too large.

        Example:
            >>> import penstock as ps
            >>> ps.Image(layout="nchw").decode([b"P6 2 1 255 abcdef"]).shape
            (1, 3, 1, 2)
        """
        damage: Damage = "salvage" if allow_damaged else "error"
        if keys is None:
            keys = np.arange(len(array), dtype=np.uint64)
        batch, faults = decode_into(
            array, self, keys, damage=damage, limits=limits, threads=threads
        )
        for fault in faults:
            if not fault.salvaged:
                raise fault.error
        return batch


@dataclass(frozen=True, slots=True)
class ImageFault:
    """A damaged image of a batch.

    Attributes:
        place: its index in the batch.
        error: what is wrong with it.
        salvaged: whether its decodable part is in the batch; otherwise its pixels are zeros.
    """

    place: int
    error: PenstockError
    salvaged: bool


def decode_into(
    images: Any,
    spec: Image,
    keys: np.ndarray,
    out: np.ndarray | None = None,
    *,
    threads: int = 1,
    limits: Limits | dict[str, int] | None = None,
    damage: Damage = "error",
    pool: _core.BufferPool | None = None,
) -> tuple[Any, list[ImageFault]]:
    """Make a batch of images in one Rust call without the GIL.

    Args:
        images: a pyarrow array (or chunked array) of images or bytes, a list of bytes, or pixels:
            a pyarrow array of fixed-shape tensors uint8[height, width, 1 to 4], or such a NumPy array,
            uint8[n, height, width, channels].
        spec: what to do with each image.
        keys: uint64[n]; a record's random crop and flip depend only on its key.
        out: where to write: an array of `spec.dtype` and the batch's shape, contiguous in memory.
            None for a new one.
        threads: how many decode in parallel.
        limits: `image_pixels` bounds each image.
        damage: "error" raises at the first damaged image; "skip" fills damaged images with zeros; "salvage" keeps
            the decodable part of JPEGs. The last two return the faults.
        pool: where a new array gets its memory. The memory returns there when the last view of the array is gone.

    Returns:
        The batch, [n, height, width, 3] or [n, 3, height, width], and the faults. If there is no size and
        the images differ in size, the batch is a list of arrays, with None for an image of unknown size.

    Raises:
        FormatError: an image is damaged, and `damage` is "error"; `record` is its index.
        LimitError: an image is too large, and `damage` is "error".
        ValueError: `out` or `keys` has the wrong shape or dtype.

    Example:
        >>> import numpy as np, penstock as ps
        >>> from penstock.loader.images import decode_into
        >>> pixels = np.zeros((2, 4, 4, 3), np.uint8)
        >>> batch, faults = decode_into(pixels, ps.Image(2), np.arange(2, dtype=np.uint64))
        >>> batch.shape, faults
        ((2, 2, 2, 3), [])
    """
    array, shape = _array_of(images)
    if keys.dtype != np.uint64 or keys.shape != (len(array),):
        raise ValueError(f"keys are uint64[{len(array)}], not {keys.dtype}{list(keys.shape)}")
    bounds = limits_from(limits)
    shapes = _shapes(array, spec, shape, bounds)
    is_uniform = len(set(shapes)) <= 1 and (0,) not in shapes
    if is_uniform:
        full = (len(array), *(shapes[0] if shapes else spec.shape(0, 0)))
    else:
        full = (sum(map(prod, shapes)),)
    out = _room(full, np.dtype(spec.dtype), is_uniform, out, pool)
    try:
        found = _core.make_images(
            array,
            as_arrow(keys),
            _recipe(spec),
            out,
            shape=shape,
            image_pixels=bounds.image_pixels,
            damage=damage,
            threads=threads,
        )
    except _core.KernelError as error:
        raise fault_error(error.args[0]) from None
    faults = [ImageFault(place, fault_error(fault, place), had) for place, fault, had in found]
    return (out if is_uniform else _split(out, shapes)), faults


def _room(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    is_uniform: bool,
    out: np.ndarray | None,
    pool: _core.BufferPool | None,
) -> np.ndarray:
    """Check `out` and return it, or return a new array."""
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


def _shapes(
    array: pa.Array, spec: Image, pixels: tuple[int, int, int] | None, limits: Limits
) -> list[tuple[int, ...]]:
    """The shape of each result, (0,) for an image of unknown size; or one shape for all of them."""
    same = spec.height_width or (pixels and pixels[:2])
    if same:
        return [spec.shape(*same)]
    sizes = pa.array(_core.image_view_sizes(array, limits.image_pixels))
    sides = (sizes.field(name).to_pylist() for name in ("height", "width"))
    return [
        (0,) if height is None else spec.shape(height, width)
        for height, width in zip(*sides, strict=True)
    ]


def _array_of(images: Any) -> tuple[pa.Array, tuple[int, int, int] | None]:
    """The images as one array; if they are pixels and not encoded, also the shape of an image."""
    if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 4:
        shape = images.shape[1:]
        flat = pa.array(np.ascontiguousarray(images).reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, max(prod(shape), 1))
        return lists, _pixel_shape(shape)
    array: Any = images
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    type_: Any = getattr(array, "type", None)
    if type_ is None or not is_fixed_tensor(type_):
        return (array.storage if storage_of(type_) == IN_PARTS else bytes_of(array)), None
    if type_.value_type != pa.uint8() or type_.permutation not in (None, [0, 1, 2]):
        raise SchemaError(f"pixels are uint8[height, width, channels], not {type_}")
    return array.storage, _pixel_shape(tuple(type_.shape))


def _pixel_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 3:
        height, width, channels = shape
        if height and width and 1 <= channels <= 4:
            return height, width, channels
    raise SchemaError(f"pixels are uint8[height, width, 1 to 4 channels], not {list(shape)}")


@lru_cache(maxsize=64)
def _recipe(spec: Image) -> _core.ImageRecipe:
    return _core.ImageRecipe(
        size=spec.height_width,
        crop=spec.crop or "whole",
        flip=spec.flip,
        exact=spec.exact,
        scale=spec.scale,
        ratio=spec.ratio,
        center_fraction=float(spec.center_fraction),
        table=None if spec.dtype == "uint8" else value_table(spec).tobytes(),
        planes=spec.layout == "nchw",
    )


def value_table(spec: Image) -> np.ndarray:
    """The value of each possible byte of red, green and blue: `spec.dtype`[3, 256].

    The 256 values are computed once, by NumPy in float32, as `(byte / 255 - mean) / std`, and looked up for each pixel.

    Example:
        >>> import penstock as ps
        >>> from penstock.loader.images import value_table
        >>> value_table(ps.Image(dtype="float32", mean=0.5, std=0.5))[0, [0, 255]].tolist()
        [-1.0, 1.0]
    """
    scaled = np.arange(256, dtype=np.float32) / np.float32(255)

    def of_channels(value: float | Sequence[float] | None, usual: float) -> np.ndarray:
        values = np.asarray(usual if value is None else value, np.float32)
        return np.broadcast_to(values, 3).reshape(3, 1)

    values = (scaled - of_channels(spec.mean, 0)) / of_channels(spec.std, 1)
    return values.astype(spec.dtype)


def _channels(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    values = tuple(float(one) for one in value)
    if len(values) != 3:
        raise ValueError(f"{name} is a number or three of them, not {len(values)}")
    return values


def _check(spec: Image) -> None:
    _check_size(spec.size, spec.height_width)
    _check_word("crop", spec.crop, (None, "center", "random"))
    _check_word("dtype", spec.dtype, ("uint8", "float32", "float16"))
    _check_word("layout", spec.layout, ("nhwc", "nchw"))
    if spec.crop is not None and spec.size is None:
        raise ValueError(f"crop={spec.crop!r} needs a size")
    if spec.dtype == "uint8" and (spec.mean is not None or spec.std is not None):
        raise ValueError("mean and std need dtype='float32' or 'float16'")
    if spec.std is not None and not np.all(np.asarray(spec.std) > 0):
        raise ValueError(f"std must be above 0, not {spec.std}")
    for name, most in (("scale", 1.0), ("ratio", 1e6)):
        edges = getattr(spec, name)
        if len(edges) != 2 or not 0 < edges[0] <= edges[1] <= most:
            raise ValueError(f"{name} is (least, largest), each above 0 and at most {most}")
    if not 0 < spec.center_fraction <= 1:
        raise ValueError(
            f"center_fraction must be above 0 and at most 1, not {spec.center_fraction}"
        )


def _check_word(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name}={value!r}; known: {', '.join(map(str, known))}")


def _check_size(size: Any, sides: tuple[int, ...] | None) -> None:
    if sides is not None and (len(sides) != 2 or not all(0 < side <= _MOST_SIDE for side in sides)):
        raise ValueError(f"size is pixels, or (height, width), not {size!r}")
