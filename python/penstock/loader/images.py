"""Prepares images for a model: `ps.Image` describes how, `decode_into` does it, a batch at a time.

Only the part of a JPEG that its crop needs is decoded. The crop is resized, mirrored, converted to numbers and
written into its place in the batch, by one Rust call on several threads. The result for a record
depends only on its 64-bit key, not on threads, batches, or the order of the records.

`docs/guide/loader-images.md` reports measurements of what the fast path loses compared with `exact=True`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
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
    """How the images of a batch are cropped, resized, mirrored and turned into numbers.

    A random crop is torchvision's `RandomResizedCrop`: up to ten times an area (a part of the
    image's within `scale`, evenly) and a shape (width over height within `ratio`, evenly in its
    logarithm) are drawn, until such a rectangle fits into the image, and then its place; if none
    fits, it is the largest one in the middle whose shape is within `ratio`. Random numbers are those
    of splitmix64 that starts from the record's key: one for the flip, two for each try, one each
    for top and left.

    A crop of the middle is that of an image which was resized until its shorter side is `size /
    center_fraction`, as torchvision's `Resize(256)` and `CenterCrop(224)` are; both happen at once.

    Args:
        size: pixels of a side, or (height, width); None keeps the size of each image.
        crop: None takes the whole image (its proportions change), "center" its middle, "random" a
            part of random area, shape and place.
        flip: mirror every second image, by chance.
        dtype: "uint8", or "float32" or "float16": from 0 to 1, then `(x - mean) / std`.
        mean: what is subtracted; a number, or one for each of red, green and blue.
        std: what is divided by; likewise.
        layout: "nhwc", channels last, or "nchw", channels first.
        exact: decode whole images, also where less would do.
        scale: the least and the largest part of the area that a random crop takes.
        ratio: the least and the largest width over height of a random crop.
        center_fraction: the part of the shorter side that a crop of the middle takes.

    Raises:
        ValueError: an argument that is out of its bounds, or that another one makes void.

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
        told = [
            f"{field.name}={value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"Image({', '.join(told)})"

    @property
    def height_width(self) -> tuple[int, int] | None:
        """Pixels from top to bottom and from left to right of what is made; None without a size."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of what an image of this size becomes."""
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
        """A batch of images; `penstock.decode_images` calls it.

        Args:
            array: images, as `decode_into` takes them.
            keys: uint64[n]; None for the places in the array.
            allow_damaged: give what can be had of JPEGs that are damaged.
            limits: `image_pixels` bounds each image.
            threads: how many decode side by side.

        Returns:
            An array of `dtype` [n, height, width, 3] or [n, 3, height, width]; without a `size`,
            where images are of several, a list of arrays.

        Raises:
            FormatError: a record is no image, or damaged.
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
        place: its place in the batch, from 0.
        error: what is wrong with it.
        salvaged: whether the decodable part is in the batch; otherwise the batch has zeros.
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
    """Make a batch of images, in one call of Rust without the GIL.

    Args:
        images: a pyarrow array (or chunked array) of images or bytes, a list of bytes, or pixels:
            a pyarrow array of fixed-shape tensors uint8[height, width, 1 to 4], or such an array
            of NumPy, uint8[n, height, width, channels].
        spec: how they are made.
        keys: uint64[n]; a record's random crop and flip are drawn from its key alone.
        out: where to write: an array of `spec.dtype` and the batch's shape, contiguous in memory.
            None for a new one.
        threads: how many decode side by side.
        limits: `image_pixels` bounds each image.
        damage: "error" raises at the first damaged image; "skip" makes them zeros; "salvage" gives
            what can be had of JPEGs. Both of these tell which they were.
        pool: where a new array takes its memory, which goes back there when the last view of the
            array is gone.

    Returns:
        The batch, [n, height, width, 3] or [n, 3, height, width], and the damaged ones. Without a
        `size`, where images are of several, the batch is a list of arrays; one whose size cannot be
        told is None there.

    Raises:
        FormatError: an image is damaged, and `damage` is "error"; its place is the error's `record`.
        LimitError: an image is too large, and `damage` is "error".
        ValueError: `out` or `keys` are of another shape or dtype.

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
    same = spec.height_width or (shape and shape[:2])
    sizes = [same] if same else _sizes(array, bounds)
    uniform = len(set(sizes)) <= 1 and None not in sizes
    shapes = [(0,) if size is None else spec.shape(*size) for size in sizes]
    full = (len(array), *(shapes[0] if shapes else spec.shape(0, 0)))
    if not uniform:
        full = (sum(int(np.prod(one)) for one in shapes),)
    dtype = np.dtype(spec.dtype)
    if out is None:
        out = _room(full, dtype, pool)
    elif not uniform:
        raise ValueError("out cannot hold images of several sizes; give Image a size")
    elif out.shape != full or out.dtype != dtype:
        raise ValueError(f"out is {dtype}{list(full)}, not {out.dtype}{list(out.shape)}")
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
    return (out if uniform else _apart(out, shapes)), faults


def _room(
    shape: tuple[int, ...], dtype: np.dtype[Any], pool: _core.BufferPool | None
) -> np.ndarray:
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    if pool is None or not num_bytes:
        return np.empty(shape, dtype)
    return np.asarray(pool.take(num_bytes)).view(dtype).reshape(shape)


def _apart(flat: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray | None]:
    edges = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    parts = np.split(flat, edges)
    return [
        None if shape == (0,) else part.reshape(shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _sizes(array: pa.Array, limits: Limits) -> list[tuple[int, int] | None]:
    """Height and width of each image, None if they cannot be determined."""
    told = pa.array(_core.image_view_sizes(array, limits.image_pixels))
    sides = (told.field(name).to_pylist() for name in ("height", "width"))
    return [None if high is None else (high, wide) for high, wide in zip(*sides, strict=True)]


def _array_of(images: Any) -> tuple[pa.Array, tuple[int, int, int] | None]:
    """The images as one array, and the shape of their pixels if they are not encoded."""
    if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 4:
        shape = images.shape[1:]
        flat = pa.array(np.ascontiguousarray(images).reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, max(int(np.prod(shape)), 1))
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
    """What each byte of red, green and blue becomes: `spec.dtype`[3, 256].

    There are only 256 bytes, so they are computed here, once, in float32, and looked up for each
    pixel: what is written is exactly what NumPy makes of `(byte / 255 - mean) / std`.

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
    sides = spec.height_width
    if sides is not None and (len(sides) != 2 or not all(0 < side <= _MOST_SIDE for side in sides)):
        raise ValueError(f"size is pixels, or (height, width), not {spec.size!r}")
    if spec.crop not in (None, "center", "random"):
        raise ValueError(f"unknown crop={spec.crop!r}; known: None, 'center', 'random'")
    if spec.crop is not None and sides is None:
        raise ValueError(f"crop={spec.crop!r} needs a size")
    if spec.dtype not in ("uint8", "float32", "float16"):
        raise ValueError(f"unknown dtype={spec.dtype!r}; known: uint8, float32, float16")
    if spec.dtype == "uint8" and (spec.mean is not None or spec.std is not None):
        raise ValueError("mean and std need dtype='float32' or 'float16'")
    if spec.std is not None and not np.all(np.asarray(spec.std) > 0):
        raise ValueError(f"std is above 0, not {spec.std}")
    if spec.layout not in ("nhwc", "nchw"):
        raise ValueError(f"unknown layout={spec.layout!r}; known: nhwc, nchw")
    for name, most in (("scale", 1.0), ("ratio", 1e6)):
        edges = getattr(spec, name)
        if len(edges) != 2 or not 0 < edges[0] <= edges[1] <= most:
            raise ValueError(f"{name} is (least, largest), each above 0 and at most {most}")
    if not 0 < spec.center_fraction <= 1:
        raise ValueError(f"center_fraction is above 0 and at most 1, not {spec.center_fraction}")
