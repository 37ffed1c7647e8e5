"""Prepares images for a model: `ps.Image` describes how, and `decode_into` does it for a batch.

One Rust call decodes, on several threads, only the part of each JPEG that its crop needs, resizes and mirrors it,
converts it to numbers, and writes it into the batch. The random crop and flip of a record depend only on its 64-bit
key, not on threads, batches or the order of the records.

`docs/reference/loader-images.md` has measurements of how the fast path differs from `exact=True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import index
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.formats.numpy.dtypes import BFLOAT16, bits
from penstock.limits import Limits, limits_from
from penstock.loader._image_arguments import (
    DTYPES,
    channels,
    check_crop,
    check_mode,
    check_size,
    check_word,
    dtype_name,
    edges_of,
    flips,
    whole_channels,
)
from penstock.loader._image_batches import Damage, ImageBatch, ImageFault, array_of
from penstock.loader._jitter import check_colours, checked_jitter, ranges_of
from penstock.orders.keys import checked_seed, record_keys
from penstock.payloads.image_bytes import embedded, only_paths

SAME = ("image", "nearest", "xyxy", "xywh", "xy")
"""The kinds of columns that `Image(same=...)` crops, resizes and flips with the image."""


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """How the images of a batch are cropped, resized, flipped and converted to numbers.

    A random crop is torchvision's `RandomResizedCrop`. An area (uniform within `scale`) and an aspect ratio (uniform
    in its logarithm within `ratio`) are drawn until such a rectangle fits into the image, at most ten times, and then
    its position is drawn. If no rectangle fits, the crop is the largest central one with a ratio within `ratio`. The
    random numbers come from splitmix64, seeded by the record's key: one for each kind of flip, two for each try, one
    each for top and left.

    A center crop is torchvision's `Resize` of the shorter side to `size / center_fraction` and then `CenterCrop`, for
    example `Resize(256)` and `CenterCrop(224)`, in one step.

    With `resize=False`, a random crop is torchvision's `RandomCrop`, and a center crop its `CenterCrop`: `size` pixels of
    the image and the `pad` pixels around it. Its top and then its left are drawn.

    A letterbox is Pillow's `ImageOps.pad`: the whole image keeps its proportions, is made as large as fits into `size`,
    and lies in the middle of it.

    Args:
        size: the side in pixels, or (height, width); None keeps the size of each image.
        crop: None takes the whole image, and may change its aspect ratio; "letterbox" takes the whole image, and keeps
            it; "center" takes the center, and "random" a random part.
        flip: True or "horizontal" mirrors left and right, "vertical" turns upside down, each with probability 1/2.
            "both" does each of them with probability 1/2.
        dtype: "uint8"; "uint16", where 8-bit values are multiplied by 257; or "float32", "float16" or "bfloat16", where
            values are scaled to 0..1 and then become `(x - mean) / std`. For all but "uint8", 16-bit PNG and PPM files
            are used in full depth. Arrays of bfloat16 have its bits as uint16; `Loader.torch` and `Loader.jax` convert
            them to bfloat16. A dtype of NumPy or torch stands for its name.
        mean: a number, or one for each of red, green and blue.
        std: the same.
        layout: "nhwc", channels last, or "nchw", channels first. With mode "grey", "nhwc" has no axis of channels, and
            "nchw" an axis of length 1.
        exact: give Pillow's pixels: decode whole images at full resolution, even if the result needs less, and resize
            them with Pillow's arithmetic.
        scale: the smallest and largest area of a random crop, as a fraction of the image's area.
        ratio: the smallest and largest width over height of a random crop.
        center_fraction: the fraction of the shorter side that a center crop keeps.
        same: {name: kind}: other columns of the record that a `penstock.Loader` crops, resizes and flips in the same
            way as the image. A field of structs, also of structs in lists, is named by its path, such as
            "objects.bbox". The kinds are "nearest" for masks (resized by taking the nearest pixel, never a mixture of
            pixels); "image" for other images, which are made like this one; "xyxy" for boxes in pixels (left, top,
            right, bottom); "xywh" for boxes as in COCO (left, top, width, height); and "xy" for points in pixels. Boxes
            and points are clipped to the result (in a letterbox, to the image), and none is dropped. See
            docs/reference/loader-images.md.
        fill: what surrounds an image in a letterbox, or with `pad`: a whole number from 0 to 255, or one for each of red, green and
            blue. It is converted to numbers as pixels are.
        mask_fill: what surrounds the masks of `same`, such as 255 for a class that does not count.
        view: another number gives the same picture another random crop and flip, for columns that hold two or more views
            of it (docs/guide/loader-images.md).
        exif: turn each picture upright first, as its EXIF orientation says and Pillow's `ImageOps.exif_transpose` does.
            Then it is cropped, resized and flipped. Boxes and points are those of the upright picture, and each other
            image or mask of `same` is turned by its own EXIF. False takes the pixels as stored, as torchvision,
            TensorFlow and FFCV do. A picture that has to be turned is decoded whole; others are as fast as without
            this.
        resize: False takes a center or random crop of `size` pixels as they are. An image that is too small, with its
            `pad`, raises a SchemaError.
        pad: pixels of `fill` that are added on each side of the image before a crop with `resize=False`; less than
            `size`.
        jitter: changes colours at random, as torchvision's `ColorJitter`: {"brightness": 0.4, "contrast": 0.4,
            "saturation": 0.4, "hue": 0.1}, or some of them. A number x stands for factors from `max(0, 1 - x)` to
            `1 + x`, or for turns of the hue from -x to x; (smallest, largest) gives them directly. Factors and the
            order of the changes are drawn for each record. Other images of `same` get the same changes; masks and what
            `fill` adds do not change. Images of 16 bits are used with 8.
        jitter_probability: the probability that an image is changed by `jitter`.
        grayscale: the probability that an image becomes grey (three equal channels), after `jitter`.
        allow_damaged: use the decodable part of damaged JPEGs, also of those that others decode with a warning, instead
            of an error (or, with damage="skip", instead of leaving the record out).
        interpolation: the filter of a resize: "bilinear", "bicubic", "lanczos" or "nearest", as Pillow has them, with
            antialiasing (torchvision's `antialias=True`) except in "nearest". Masks of `same` are always "nearest".
        mode: "rgb" gives three channels, and repeats grey. "grey" gives one, the brightness, as Pillow's "L"; `mean`,
            `std` and `fill` are then single numbers.

    Raises:
        ValueError: an argument is out of range, or would have no effect.
        TypeError: `scale` or `ratio` is not two numbers.

    Example:
        >>> import penstock as ps
        >>> ps.Image(224, crop="random", flip=True)
        Image(size=224, crop='random', flip=True)
        >>> ps.Image(640, crop="letterbox", fill=114).shape(427, 600)
        (640, 640, 3)
        >>> ps.Image(32, crop="random", resize=False, pad=4, flip=True, jitter={"hue": 0.1}).shape(
        ...     32, 32
        ... )
        (32, 32, 3)
        >>> ps.Image(28, mode="grey", interpolation="bicubic").shape(60, 80)
        (28, 28)
        >>> ps.decode_images([b"P6 2 1 255 abcdef"], ps.Image((1, 1))).shape
        (1, 1, 1, 3)
    """

    size: int | tuple[int, int] | None = None
    crop: Literal["center", "random", "letterbox"] | None = None
    flip: bool | Literal["horizontal", "vertical", "both"] = False
    dtype: str = "uint8"
    mean: float | tuple[float, float, float] | None = None
    std: float | tuple[float, float, float] | None = None
    layout: Literal["nhwc", "nchw"] = "nhwc"
    exact: bool = False
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    center_fraction: float = 0.875
    same: Mapping[str, str] | None = field(default=None, hash=False)
    fill: int | tuple[int, int, int] = 0
    mask_fill: int = 0
    view: int = 0
    exif: bool = False
    resize: bool = True
    pad: int = 0
    jitter: Mapping[str, float | tuple[float, float]] | None = field(default=None, hash=False)
    jitter_probability: float = 1.0
    grayscale: float = 0.0
    allow_damaged: bool = False
    interpolation: Literal["bilinear", "bicubic", "lanczos", "nearest"] = "bilinear"
    mode: Literal["rgb", "grey"] = "rgb"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "dtype", dtype_name(self.dtype))
        if self.size is not None and not isinstance(self.size, int):
            put(self, "size", tuple(int(side) for side in self.size))
        for name in ("mean", "std"):
            put(self, name, channels(name, getattr(self, name)))
        for name in ("scale", "ratio"):
            put(self, name, edges_of(name, getattr(self, name)))
        put(self, "flip", flips(self.flip))
        put(self, "fill", whole_channels(self.fill))
        put(self, "mask_fill", index(self.mask_fill))
        put(self, "view", checked_seed(self.view))
        put(self, "exif", bool(self.exif))
        put(self, "resize", bool(self.resize))
        put(self, "pad", index(self.pad))
        put(self, "jitter", checked_jitter(self.jitter))
        for name in ("jitter_probability", "grayscale"):
            put(self, name, float(getattr(self, name)))
        put(self, "allow_damaged", bool(self.allow_damaged))
        put(self, "same", dict(self.same) if self.same else None)
        _check(self)

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = [f.name for f in fields(self) if values[f.name] != f.default]
        return f"Image({', '.join(f'{name}={values[name]!r}' for name in changed)})"

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """The dtype of the arrays: `dtype`, or uint16 marked as the bits of bfloat16."""
        is_bits = self.dtype == BFLOAT16
        return bits(np.dtype(np.uint16), BFLOAT16) if is_bits else np.dtype(self.dtype)

    @property
    def height_width(self) -> tuple[int, int] | None:
        """Height and width of the result in pixels; None if `size` is None."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """The shape of the result for an image of this size, which is upright if `exif` is set."""
        height, width = self.height_width or (height, width)
        if self.mode == "grey":
            return (height, width) if self.layout == "nhwc" else (1, height, width)
        return (height, width, 3) if self.layout == "nhwc" else (3, height, width)

    def drawn_from(self, keys: np.ndarray) -> np.ndarray:
        """The keys that the crops and flips of this view are drawn from, given those of the records, uint64[n]."""
        return record_keys(self.view, 0, keys) if self.view else keys

    def decode(
        self,
        array: Any,
        *,
        mode: str | None = None,
        keys: np.ndarray | None = None,
        allow_damaged: bool = False,
        limits: Limits | dict[str, int] | None = None,
        threads: int = 1,
    ) -> Any:
        """Decode a batch of images; `penstock.decode_images` calls it.

        Args:
            array, limits, threads: as in `decode_into`.
            mode: another mode than the Image's own; None for its own.
            keys: uint64[n]; None for the indices in the array.
            allow_damaged: return the decodable part of damaged JPEGs; True for an Image with `allow_damaged` in any
                case.

        Returns:
            An array of `dtype` [n, height, width, 3] or [n, 3, height, width] (in mode "grey", [n, height, width] or
            [n, 1, height, width]); a list of arrays if `size` is None and the images differ in size.

        Raises:
            FormatError: a record is not an image, or it is damaged.
            LimitError: an image is too large.

        Example:
            >>> import penstock as ps
            >>> ps.Image(layout="nchw").decode([b"P6 2 1 255 abcdef"]).shape
            (1, 3, 1, 2)
        """
        spec = self if mode is None else replace(self, mode=mode)
        damage: Damage = "salvage" if allow_damaged or self.allow_damaged else "error"
        if keys is None:
            keys = np.arange(len(array), dtype=np.uint64)
        keys = self.drawn_from(keys)
        batch, faults = decode_into(
            array, spec, keys, damage=damage, limits=limits, threads=threads
        )
        for fault in faults:
            if not fault.salvaged:
                raise fault.error
        return batch


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
    main: pa.StructArray | None = None,
) -> tuple[Any, list[ImageFault]]:
    """Make a batch of images in one Rust call without the GIL.

    Args:
        images: a pyarrow array (or chunked array) of images or bytes, a list of bytes, or pixels:
            a pyarrow array of fixed-shape tensors uint8[height, width, 1 to 4], or such a NumPy array,
            uint8[n, height, width, channels].
        spec: how the images are made.
        keys: uint64[n]; a record's random crop and flip are drawn from its key alone.
        out: the array to write into, with dtype `spec.array_dtype` and the shape of the batch, contiguous in memory.
            None makes a new array.
        threads: the number of threads that decode in parallel.
        limits: `image_pixels` bounds each image.
        damage: "error" raises an error at the first damaged image; "skip" replaces damaged images with zeros;
            "salvage" keeps the decodable part of damaged JPEGs. The last two return the faults.
        pool: the memory for a new array comes from this pool, and returns to it when the last view of the array is
            gone.
        main: width and height (uint32) of another image for each image, whose crop and flip it gets. If they are null,
            the result is zeros. None: each image has a crop and flip of its own.

    Returns:
        The batch, n times `spec.shape`, and the faults. If there is no size and
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
    elsewhere = only_paths(images) if isinstance(images, (pa.Array, pa.ChunkedArray)) else {}
    if elsewhere and damage != "error":
        # They become nulls, whose faults are replaced below.
        images = embedded(images)
    array, shape = array_of(images)
    bounds = limits_from(limits)
    shapes = _shapes(array, spec, shape, bounds)
    batch = ImageBatch(array, recipe_of(spec), keys, shapes, spec.array_dtype, shape, main=main)
    made, faults = batch.make(out, threads=threads, limits=bounds, damage=damage, pool=pool)
    return made, [replace(fault, error=elsewhere.get(fault.place, fault.error)) for fault in faults]


def _shapes(
    array: pa.Array, spec: Image, pixels: tuple[int, int, int] | None, limits: Limits
) -> list[tuple[int, ...]]:
    """The shape of each result, or one shape for all of them; (0,) for an image of unknown size."""
    same = spec.height_width or (pixels and pixels[:2])
    if same:
        return [spec.shape(*same)]
    sizes = pa.array(_core.image_view_sizes(array, limits.image_pixels, spec.exif))
    sides = (sizes.field(name).to_pylist() for name in ("height", "width"))
    shapes: list[tuple[int, ...]] = [
        (0,) if height is None else spec.shape(height, width)
        for height, width in zip(*sides, strict=True)
    ]
    return shapes or [spec.shape(0, 0)]


@lru_cache(maxsize=16)  # up to 0.8 MB each
def recipe_of(spec: Image) -> _core.ImageRecipe:
    """The description of the images in the form that Rust needs."""
    is_bytes = spec.dtype == "uint8"
    changes_colours = spec.jitter is not None or spec.grayscale > 0
    return _core.ImageRecipe(
        size=spec.height_width,
        crop=spec.crop or "whole",
        flip=spec.flip in (True, "both"),
        upside_down=spec.flip in ("vertical", "both"),
        exact=spec.exact,
        scale=spec.scale,
        ratio=spec.ratio,
        center_fraction=float(spec.center_fraction),
        table=None if is_bytes else value_table(spec).tobytes(),
        deep=None if is_bytes or changes_colours else value_table(spec, 65535).tobytes(),
        planes=spec.layout == "nchw",
        fill=_filled(spec),
        mask_fill=spec.mask_fill,
        exif=spec.exif,
        pad=None if spec.resize else spec.pad,
        jitter=ranges_of(spec.jitter),
        jitter_probability=spec.jitter_probability,
        grayscale=spec.grayscale,
        interpolation=spec.interpolation,
        grey=spec.mode == "grey",
    )


def _filled(spec: Image) -> bytes:
    """The result for the red, green and blue of `fill`, or for its brightness."""
    fill = np.broadcast_to(np.asarray(spec.fill, np.uint8), 3)
    return value_table(spec)[np.arange(3), fill][: 1 if spec.mode == "grey" else 3].tobytes()


def value_table(spec: Image, largest: int = 255) -> np.ndarray:
    """The result for each possible value of red, green and blue: `spec.dtype`[3, largest + 1].

    NumPy computes the results once in float32, as `(x / largest - mean) / std`. Each pixel then needs only a lookup.
    `largest` is 255, or 65535 for images of 16 bits.

    Example:
        >>> import penstock as ps
        >>> from penstock.loader.images import value_table
        >>> value_table(ps.Image(dtype="float32", mean=0.5, std=0.5))[0, [0, 255]].tolist()
        [-1.0, 1.0]
    """
    stored = np.arange(largest + 1)
    if spec.dtype in ("uint8", "uint16"):
        scale = np.iinfo(spec.dtype).max / largest
        return np.broadcast_to((stored * scale).astype(spec.dtype), (3, largest + 1))
    scaled = stored.astype(np.float32) / np.float32(largest)

    def ofchannels(value: float | Sequence[float] | None, usual: float) -> np.ndarray:
        values = np.asarray(usual if value is None else value, np.float32)
        return np.broadcast_to(values, 3).reshape(3, 1)

    values = (scaled - ofchannels(spec.mean, 0)) / ofchannels(spec.std, 1)
    return bfloat16_bits(values) if spec.dtype == BFLOAT16 else values.astype(spec.dtype)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 of finite float32 values, ties to even, as its bits.

    Example:
        >>> import numpy as np
        >>> from penstock.loader.images import bfloat16_bits
        >>> hex(bfloat16_bits(np.float32([1.0]))[0])
        '0x3f80'
    """
    exact = values.astype(np.float32).view(np.uint32)
    rounded = (exact + 0x7FFF + (exact >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(bits(np.dtype(np.uint16), BFLOAT16))


def _check(spec: Image) -> None:
    check_size(spec.size, spec.height_width)
    check_word("crop", spec.crop, (None, "center", "random", "letterbox"))
    check_word("dtype", spec.dtype, DTYPES)
    check_word("layout", spec.layout, ("nhwc", "nchw"))
    check_word("interpolation", spec.interpolation, ("bilinear", "bicubic", "lanczos", "nearest"))
    check_mode(spec.mode, {"mean": spec.mean, "std": spec.std, "fill": spec.fill})
    if spec.crop is not None and spec.size is None:
        raise ValueError(f"crop={spec.crop!r} needs a size")
    if spec.dtype.startswith("uint") and (spec.mean is not None or spec.std is not None):
        raise ValueError("mean and std need dtype='float32', 'float16' or 'bfloat16'")
    if spec.std is not None and not np.all(np.asarray(spec.std) > 0):
        raise ValueError(f"std must be above 0, not {spec.std}")
    for name, kind in (spec.same or {}).items():
        check_word(f"same: {name}", kind, SAME)
    check_crop(spec.scale, spec.ratio, spec.center_fraction)
    _check_fill(spec)
    _check_pad(spec)
    check_colours(spec.jitter, spec.jitter_probability, spec.grayscale, spec.dtype)


def _check_fill(spec: Image) -> None:
    fills = spec.fill if isinstance(spec.fill, tuple) else (spec.fill,)
    if len(fills) not in (1, 3) or not all(0 <= fill <= 255 for fill in fills):
        raise ValueError(f"fill must be one number from 0 to 255, or three, not {spec.fill}")
    if not 0 <= spec.mask_fill <= 65535:
        raise ValueError(f"mask_fill must be from 0 to 65535, not {spec.mask_fill}")
    if (any(fills) or spec.mask_fill) and spec.crop != "letterbox" and not spec.pad:
        raise ValueError("fill and mask_fill need crop='letterbox' or pad=")


def _check_pad(spec: Image) -> None:
    if not spec.resize and spec.crop not in ("center", "random"):
        raise ValueError("resize=False needs crop='random' or crop='center'")
    if spec.pad and spec.resize:
        raise ValueError("pad needs resize=False, for a crop whose pixels are not resized")
    if not 0 <= spec.pad < min(spec.height_width or (1,)):
        raise ValueError(f"pad must be from 0 to less than size={spec.size}, not {spec.pad}")
