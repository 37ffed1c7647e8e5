"""Decoding of images to NumPy arrays, encoding, and re-encoding, in Rust and on all cores.

| codec | read | written |
|---|---|---|
| `jpeg` | libjpeg-turbo: baseline, progressive, arithmetic; grey, colour, CMYK; 8 bits | quality 1 to 100, 4:2:0 |
| `png` | all variants; every checksum is verified | fast compression, slightly larger files |
| `webp` | lossy, lossless, with alpha; the first frame of an animation | quality 1 to 100, or `lossless` |
| `ppm` | `P6` and `P5` (grey), 8 and 16 bits | `P6` and `P5` |
| `bmp`, `gif` | by the Rust crate `image`; the first frame of a GIF | not written |
| `tiff` | by the same; the first page; grey, RGB, CMYK, of 8 or 16 bits | not written |

Palettes are resolved. 16-bit values keep their upper 8 bits. Mode `"rgb"` repeats grey, and drops alpha without
blending. Mode `"grey"` weighs colours as JPEG does. Mode `"stored"` keeps the channels of the image (1 grey, 2 with
alpha, 3 RGB, 4 with alpha). CMYK always becomes RGB, as in Pillow. An EXIF orientation is applied only when an image is
encoded again (`reencode`), because the new file does not have it.

A warning of the JPEG decoder (truncated or corrupt data) is an error, as is a wrong checksum in a PNG. Sizes are
compared with `Limits.image_pixels` before memory is allocated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.types import ImageType
from penstock.contract.faults import kind_of
from penstock.errors import PenstockError, SchemaError
from penstock.limits import Limits, limits_from
from penstock.payloads.image_bytes import bytes_of
from penstock.payloads.orientation import turned

T = TypeVar("T")


class Image(Protocol):
    """What `decode_images` needs of `penstock.Image`, which is a class in `loader/`."""

    def decode(
        self, array: Any, *, mode: str | None, keys: np.ndarray | None, **how: Any
    ) -> Any: ...


_CODECS = {"jpeg": "jpeg", "jpg": "jpeg", "png": "png", "webp": "webp", "ppm": "ppm", "raw": "ppm"}
USUAL_QUALITY = 90


def codec_of(name: str) -> str:
    """The codec of a name: "jpg" is "jpeg", "raw" is "ppm"."""
    if name not in _CODECS:
        raise ValueError(f"unknown codec {name!r}; known: {', '.join(_CODECS)}")
    return _CODECS[name]


def image_sizes(array: Any) -> pa.StructArray:
    """Read codec and size of encoded images from their first bytes.

    Args:
        array: a pyarrow array of images or bytes, or a list of bytes.

    Returns:
        A struct array of `codec` (string), `width` and `height` (uint32, pixels) and `channels` (uint8, in mode
        "stored"). A null stays null.

    Raises:
        FormatError: a record is not an image; the error names it.

    Example:
        >>> from penstock.payloads.images import image_sizes
        >>> image_sizes([b"P6 2 1 255 abcdef"]).to_pylist()
        [{'codec': 'ppm', 'width': 2, 'height': 1, 'channels': 3}]
    """
    images = bytes_of(array)
    return pa.array(_told(lambda: _core.probe_images(images)))


def decode_images(
    array: Any,
    image: Image | None = None,
    *,
    mode: str | None = None,
    keys: np.ndarray | None = None,
    allow_damaged: bool = False,
    limits: Limits | dict[str, int] | None = None,
    threads: int | None = None,
) -> Any:
    """Decode a column of images.

    Args:
        array: a pyarrow array (or chunked array) of images or bytes, or a list of bytes. With an `image` also pixels,
            as in `penstock.loader.images.decode_into`.
        image: how to crop, resize and flip the images, as in a `penstock.Loader`; see `penstock.Image`.
        mode: "rgb", "grey" or "stored"; None is "rgb", or the mode of the `image`, which cannot be "stored".
        keys: uint64, one for each record, from which its random crop and flip are drawn; None for the positions in the
            array. Only with an `image`.
        allow_damaged: return the decodable part of damaged JPEGs.
        limits: `image_pixels` limits each image, `batch_bytes` all pixels together.
        threads: None for one per core.

    Returns:
        If all images have the same size, an array uint8[records, height, width, channels] (without the last axis in
        mode "grey"). Otherwise a list with an array for each record, None for a null; its arrays share one block of
        memory. With an `image`, an array of its dtype and layout. All arrays are writable.

    Raises:
        FormatError: a record is not an image, or is damaged.
        LimitError: an image, or all images together, are too large.
        UnsupportedError: an image has unsupported features, such as more than 8 bits in a JPEG.

    Example:
        >>> import penstock as ps
        >>> ps.decode_images([b"P6 2 1 255 abcdef"]).shape
        (1, 1, 2, 3)
    """
    if image is not None:
        how = {"allow_damaged": allow_damaged, "limits": limits, "threads": _threads(threads)}
        return image.decode(array, mode=mode, keys=keys, **how)
    images = bytes_of(array)
    mode = mode or "rgb"
    bounds = limits_from(limits)

    def decoded() -> Any:
        return _core.decode_images(
            images,
            mode=mode,
            image_pixels=bounds.image_pixels,
            batch_bytes=bounds.batch_bytes,
            allow_damaged=allow_damaged,
            threads=_threads(threads),
        )

    pixels, sizes = _told(decoded, allow_damaged)
    return _as_images(np.asarray(pixels), pa.array(sizes), mode)


def _as_images(flat: np.ndarray, shapes: pa.StructArray, mode: str) -> Any:
    """The pixels as one array if all images have the same size, or else as a list of arrays."""
    sides = [shapes.field(name) for name in ("height", "width", "channels")]
    if len(shapes) and not shapes.null_count and all(len(side.unique()) == 1 for side in sides):
        shape = tuple(side[0].as_py() for side in sides)
        return flat.reshape(len(shapes), *(shape[:2] if mode == "grey" else shape))
    found: list[Any] = []
    at = 0
    for height, width, channels in zip(*(side.to_pylist() for side in sides), strict=True):
        if height is None:
            found.append(None)
            continue
        shape = (height, width) if mode == "grey" else (height, width, channels)
        end = at + height * width * channels
        found.append(flat[at:end].reshape(shape))
        at = end
    return found


def encode_images(
    images: Any,
    codec: str = "jpeg",
    *,
    quality: int | None = None,
    lossless: bool = False,
    threads: int | None = None,
) -> pa.Array:
    r"""Encode pixels as images.

    Args:
        images: uint8[records, height, width, channels] or uint8[records, height, width], or a sequence of uint8[height,
            width, channels] or uint8[height, width]. There may be 1 to 4 channels: grey, grey and alpha, RGB, RGBA.
            JPEG and PPM drop alpha, WebP has no grey.
        codec: "jpeg", "png", "webp" or "ppm" ("raw").
        quality: 1 to 100 for JPEG and lossy WebP; None is 90.
        lossless: write lossless WebP.
        threads: None for one per core.

    Returns:
        An array of `ImageType(codec)`; the same bytes for any number of threads.

    Raises:
        SchemaError: a record is not an image, or is too large for the codec.

    Example:
        >>> import numpy as np, penstock as ps
        >>> ps.encode_images(np.zeros((1, 1, 2, 3), np.uint8), "ppm")[0].as_py()
        b'P6\n2 1\n255\n\x00\x00\x00\x00\x00\x00'
    """
    name = codec_of(codec)
    pieces, sizes = _pixels_of(images)

    def encoded() -> Any:
        return _core.encode_images(
            pieces,
            sizes,
            name,
            quality=_quality(quality) or USUAL_QUALITY,
            lossless=lossless,
            threads=_threads(threads),
        )

    return pa.ExtensionArray.from_storage(ImageType(name), pa.array(_told(encoded)))


def reencode(
    array: Any,
    codec: str | None = None,
    *,
    quality: int | None = None,
    lossless: bool = False,
    max_side: int | None = None,
    mode: str = "stored",
    allow_damaged: bool = False,
    limits: Limits | dict[str, int] | None = None,
    threads: int | None = None,
) -> pa.Array:
    """Encode images again: smaller, with another codec, or with another quality.

    Without `quality`, an image keeps its bytes if it has the requested codec and its longer side is at most `max_side`.
    Images are scaled down by averaging areas, with the same aspect ratio except for rounding. Nulls stay null. An image
    that is encoded again is turned as its EXIF orientation says, because its new file has none.

    Args:
        array: a pyarrow array (or chunked array) of images or bytes, or a list of bytes.
        codec: "jpeg", "png", "webp" or "raw" ("ppm"); None keeps the codec of each image.
        quality: 1 to 100 for JPEG and lossy WebP; None is 90 for images that are encoded again.
        lossless: write lossless WebP.
        max_side: maximum pixels of the longer side.
        mode: the channels; "stored" keeps them if the codec can.
        allow_damaged: use the decodable part of damaged JPEGs.
        limits: `image_pixels` limits each image.
        threads: None for one per core.

    Returns:
        An array of `ImageType(codec)`, or with the codec of the array's type if `codec` is None. The bytes are the same
        for any number of threads.

    Raises:
        FormatError: a record is not an image, or is damaged.
        LimitError: an image is too large, or the column is larger than 2 GiB.
        SchemaError: an image is too large for the codec.

    Example:
        >>> from penstock.payloads.images import image_sizes, reencode
        >>> smaller = reencode([b"P6 4 1 255 abcdefghijkl"], "png", max_side=2)
        >>> image_sizes(smaller)[0].as_py()
        {'codec': 'png', 'width': 2, 'height': 1, 'channels': 3}
    """
    images = bytes_of(array)
    name = None if codec is None else codec_of(codec)
    if max_side is not None and max_side < 1:
        raise ValueError(f"max_side must be at least 1, not {max_side}")
    how: dict[str, Any] = {
        "lossless": lossless,
        "max_side": max_side,
        "mode": mode,
        "image_pixels": limits_from(limits).image_pixels,
        "allow_damaged": allow_damaged,
        "threads": _threads(threads),
    }

    def recoded(images: Any, codec: str | None) -> Any:
        given: dict[str, Any] = {"codec": codec, "quality": _quality(quality), **how}
        return pa.array(_told(lambda: _core.reencode_images(images, **given)))

    def decoded(images: Any) -> Any:
        return decode_images(recoded(images, "png"), mode="stored", limits=limits, threads=threads)

    def encoded(pixels: list[np.ndarray], before: Any) -> list[bytes]:
        codecs = image_sizes(before).field("codec").to_pylist()
        given: dict[str, Any] = {"quality": quality, "lossless": lossless, "threads": threads}
        made: dict[str, Any] = {}
        for one in set(codecs):
            mine = [image for image, own in zip(pixels, codecs, strict=True) if own == one]
            made[one] = iter(encode_images(mine, one, **given).storage.to_pylist())
        return [next(made[own]) for own in codecs]

    type_ = getattr(array, "type", None)
    kept = type_.codec if isinstance(type_, ImageType) else ""
    made = turned(images, recoded(images, name), decoded, encoded)
    return pa.ExtensionArray.from_storage(ImageType(name or kept), made)


def _pixels_of(images: Any) -> tuple[list[pa.Array], pa.RecordBatch]:
    """The pixels as pieces of memory, and the size of each image."""
    if isinstance(images, np.ndarray) and images.dtype != object:
        if images.ndim not in (3, 4):
            raise SchemaError(f"an array of images has three or four axes, not {images.ndim}")
        _check_uint8(images, 0 if len(images) else None)
        whole, shapes = [images], [images.shape[1:]] * len(images)
    else:
        whole = [np.asarray(image) for image in images]
        shapes = [image.shape for image in whole]
        for record, image in enumerate(whole):
            _check_uint8(image, record)
            if image.ndim not in (2, 3):
                message = f"an image has two or three axes, not {image.ndim}"
                raise SchemaError(message, record=record)
    sizes = np.array([(*shape, 1)[:3] for shape in shapes], np.int64).reshape(-1, 3)
    wrong = np.flatnonzero((sizes == 0).any(axis=1) | (sizes[:, 2] > 4))
    if len(wrong):
        shape = " x ".join(map(str, sizes[wrong[0]]))
        message = f"an image cannot have height, width and channels {shape}"
        raise SchemaError(message, record=int(wrong[0]))
    pieces = [pa.array(np.ascontiguousarray(array).reshape(-1)) for array in whole]
    height, width, channels = sizes.T
    columns = {
        "height": pa.array(height, pa.uint32()),
        "width": pa.array(width, pa.uint32()),
        "channels": pa.array(channels, pa.uint8()),
    }
    return pieces, pa.record_batch(columns)


def _check_uint8(array: np.ndarray, record: int | None) -> None:
    if array.dtype != np.uint8:
        raise SchemaError(f"pixels are uint8, not {array.dtype}", record=record)


def _quality(quality: int | None) -> int | None:
    if quality is not None and not 1 <= quality <= 100:
        raise ValueError(f"quality is from 1 to 100, not {quality}")
    return quality


def _threads(threads: int | None) -> int:
    return threads or os.cpu_count() or 1


def _told(kernel: Callable[[], T], allow_damaged: bool = False) -> T:
    """Run a kernel. A fault is raised as an error that names the record."""
    try:
        return kernel()
    except _core.KernelError as error:
        raise fault_error(error.args[0], allow_damaged=allow_damaged) from None


def fault_error(
    fault: Any, record: int | None = None, *, allow_damaged: bool = False
) -> PenstockError:
    """The error for a kernel's fault. `record` replaces the record number of the fault. The hint does not advise
    `allow_damaged` if it is given."""
    hints = {
        "image": "allow_damaged=True, to decode the intact part of a damaged JPEG",
        "truncated": "allow_damaged=True, to decode the intact part of a damaged JPEG",
    }
    is_none = any(words in fault.message for words in ("no JPEG", "not a JPEG"))
    jpeg = "JPEG" in fault.message and not is_none
    can_help = jpeg and not allow_damaged and "frame header" not in fault.message
    hint = hints.get(fault.kind) if can_help else None
    if fault.kind == "limit" and fault.found is not None:
        name = "image_pixels" if "image_pixels" in fault.message else "batch_bytes"
        hint = f"limits=penstock.Limits({name}={fault.found})"
    place = fault.record if record is None else record
    return kind_of(fault.kind)(fault.message, record=place, hint=hint)
