"""`tf.io.decode_jpeg` and similar functions, which decode one image to TensorFlow's pixels.

`docs/reference/tf-images.md` documents how closely the pixels agree with TensorFlow's, for each format.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import _core
from penstock.errors import PenstockError
from penstock.limits import Limits
from penstock.payloads.images import decode_images
from penstock.tf import probing
from penstock.tf.dtypes import as_dtype, float32, int32, int64, uint8, uint16
from penstock.tf.encoders import encode_jpeg, encode_png, refuse, scalar_bytes
from penstock.tf.errors import UnimplementedError
from penstock.tf.image_placeholders import of_crop, of_image, of_jpeg, of_pixels, of_sizes
from penstock.tf.pixel_types import convert_image_dtype
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "decode_and_crop_jpeg",
    "decode_bmp",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "encode_jpeg",
    "encode_png",
    "extract_jpeg_shape",
    "is_jpeg",
]

_PIXELS = Limits().image_pixels
_DCT = {"": True, "INTEGER_FAST": True, "INTEGER_ACCURATE": False}
_JXL = (b"\xff\x0a", b"\0\0\0\x0cJXL ")


def _as_tensor(call: Callable[[], Any], what: str) -> Any:
    """Convert the result of a kernel to a tensor, and its faults to TensorFlow's errors."""
    try:
        return np.asarray(call()).view(Tensor)
    except _core.KernelError as error:
        raise refuse(f"{what}: {error.args[0].message}") from None


def _codec_of(contents: bytes) -> str:
    if not contents:
        raise refuse("Input is empty.")
    if contents.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if contents.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if contents.startswith(b"GIF8"):
        return "GIF"
    if contents.startswith(b"BM"):
        return "BMP"
    if contents.startswith(b"RIFF") and contents[8:12] == b"WEBP":
        return "WebP"
    if contents.startswith(_JXL):
        raise UnimplementedError(None, None, "penstock does not decode JPEG XL")
    message = "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required."
    raise refuse(f"{message} These bytes begin with {contents[:8]!r}")


def _jpeg(
    contents: bytes,
    channels: int,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    window: tuple[int, ...] | None = None,
) -> Tensor:
    if channels == 4:
        raise refuse("JPEG does not support 4 channels")
    return _as_tensor(
        lambda: _core.jpeg_pixels(
            contents,
            channels=channels,
            ratio=ratio,
            fancy=fancy_upscaling,
            fast=_DCT[dct_method],
            recover=try_recover_truncated,
            fraction=acceptable_fraction,
            image_pixels=_PIXELS,
            window=window,
        ),
        "jpeg::Uncompress failed. Invalid JPEG data or crop window",
    )


def _gif(contents: bytes, channels: int, first_only: bool) -> Tensor:
    if channels not in {0, 3}:
        raise refuse(f"channels must be 0 or 3 for GIF, got {channels}")
    kernel = _core.gif_pixels
    return _as_tensor(
        lambda: kernel(contents, first_only=first_only, image_pixels=_PIXELS), "Invalid GIF data"
    )


def _webp(contents: bytes, channels: int, dtype: Any, first_only: bool) -> Tensor:
    """As in TensorFlow: a batch of frames, with the stored channels."""
    if dtype != uint8:
        raise refuse("WebP only supports uint8 for dtype")
    if contents[12:16] == b"VP8X" and contents[20:21] and contents[20] & 2 and not first_only:
        message = "penstock decodes the first frame of a WebP: tf.io.decode_image(expand_animations=False)"
        raise UnimplementedError(None, None, message)
    try:
        made = decode_images([contents], mode="stored", threads=1)[0]
    except PenstockError as error:
        raise refuse(f"Invalid WebP data: {error.message}") from None
    if channels not in {0, made.shape[2]}:
        message = f"{channels} of an image of {made.shape[2]}"
        raise refuse(f"Number of channels requested does not match input: {message}")
    return (made if first_only else made[np.newaxis]).view(Tensor)


def _check(channels: int, ratio: int = 1, dct_method: str = "") -> None:
    if channels not in {0, 1, 3, 4}:
        raise refuse(f"`channels` must be 0, 1, 3 or 4 but got {channels}")
    if ratio not in {1, 2, 4, 8}:
        raise refuse(f"ratio must be 1, 2, 4, or 8, got {ratio}")
    if dct_method not in _DCT:
        known = "{'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}"
        raise refuse(f"dct_method must be one of {known}, not {dct_method!r}")


def _decode(contents: Any, channels: int, op: str, dtype: Any = uint8, **how: Any) -> Tensor:
    """An image of any format for the operation `op`. As in TensorFlow, operations accept each other's formats."""
    data = scalar_bytes(contents)
    codec = _codec_of(data)
    if codec == "PNG":
        return _png(data, channels, dtype)
    if codec == "WebP":
        return _webp(data, channels, dtype, first_only=op == "first frame")
    if codec == "JPEG":
        found = _jpeg(data, channels, **how)
    elif codec == "GIF":
        found = _gif_for(op, data, channels)
    else:
        if channels == 1:
            raise refuse("`channels` must be 0, 3 or 4 for BMP, but got 1")
        if op in {"DecodeJpeg", "DecodePng", "DecodeGif"}:
            use = "Use `decode_bmp` or `decode_image` instead."
            raise refuse(f"Trying to decode BMP format using a wrong op. {use} Op used: {op}")
        found = _bmp(data, channels)
    if dtype == uint8:
        return found
    if dtype == uint16:
        return (found.astype(np.uint16) * np.uint16(256)).view(Tensor)
    return (found.astype(np.float32) * np.float32(1 / 255)).view(Tensor)


def _png(data: bytes, channels: int, dtype: Any) -> Tensor:
    wide = dtype != uint8
    found = _as_tensor(
        lambda: _core.png_pixels(data, channels=channels, wide=wide, image_pixels=_PIXELS),
        f"Invalid PNG data, size {len(data)}",
    )
    # For float32, TensorFlow also reads 16 bits.
    return found if dtype != float32 else found.astype(np.float32) * np.float32(1 / 65535)


def _gif_for(op: str, data: bytes, channels: int) -> Tensor:
    """All frames of a GIF, or its only or first frame, depending on the operation."""
    found = _gif(data, channels, first_only=op == "first frame")
    if op in {"DecodeJpeg", "DecodePng"} and len(found) != 1:
        message = "but animated gifs can only be decoded by tf.io.decode_gif or tf.io.decode_image"
        raise refuse(f"Got {len(found)} frames, {message}")
    return found[0] if op in {"first frame", "DecodeJpeg", "DecodePng"} else found


def _bmp(data: bytes, channels: int) -> Tensor:
    if len(data) >= 32:
        (start,), (width, height), (bits,) = (
            struct.unpack_from(form, data, at) for form, at in (("<i", 10), ("<ii", 18), ("<h", 28))
        )
        needed = start + (bits // 8 * width + 3) // 4 * 4 * abs(height)
        if len(data) != needed:
            message = "Input size should match (header_size + row_size * abs_height)"
            raise refuse(f"{message} but they differ by {abs(len(data) - needed)}")
    kernel = _core.bmp_pixels
    return _as_tensor(
        lambda: kernel(data, channels=channels, image_pixels=_PIXELS), "Invalid BMP data"
    )


@probing.instead(of_jpeg)
def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """The pixels of a JPEG; also of a PNG, a WebP or a GIF of one frame, as in TensorFlow.

    Args:
        contents: the encoded bytes.
        channels (int): 0 as stored (3 for CMYK), 1 grey, 3 RGB.
        ratio (int): 1, 2, 4 or 8: divides the length of each side.
        fancy_upscaling (bool): interpolate subsampled colours.
        try_recover_truncated (bool): decode truncated data as far as possible.
        acceptable_fraction (float): the fraction of the rows that must be readable; the rest is black.
        dct_method (str): "INTEGER_FAST" (also ""), or "INTEGER_ACCURATE".
        name: ignored.

    Returns:
        Tensor uint8[height, width, channels].

    Raises:
        InvalidArgumentError: not a complete image, or an unknown option.

    Example:
        >>> import numpy as np
        >>> import penstock.tf as tf
        >>> from penstock.tf import codecs
        >>> image = np.full([4, 6, 3], 200, np.uint8)
        >>> codecs.decode_jpeg(codecs.encode_jpeg(image), channels=1).shape.as_list()
        [4, 6, 1]
    """
    _check(channels, ratio, dct_method)
    return _decode(
        contents,
        channels,
        "DecodeJpeg",
        ratio=ratio,
        fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated,
        acceptable_fraction=acceptable_fraction,
        dct_method=dct_method,
    )


@probing.instead(of_crop)
def decode_and_crop_jpeg(
    contents: Any,
    crop_window: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """A part of a JPEG, decoded without the rest.

    Args:
        crop_window: top, left, height and width, in pixels of the image scaled by `ratio`.
        contents, channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction,
            dct_method, name: as for `decode_jpeg`.

    Returns:
        Tensor uint8[height, width, channels].

    Raises:
        InvalidArgumentError: the errors of `decode_jpeg`; or the window reaches beyond the image, or it is not a JPEG.
    """
    _check(channels, ratio, dct_method)
    data = scalar_bytes(contents)
    codec = _codec_of(data)
    if codec != "JPEG":
        raise refuse(f"DecodeAndCropJpeg operation can run on JPEG only, but detected {codec}.")
    window = tuple(int(side) for side in np.asarray(crop_window).reshape(-1))
    if len(window) != 4:
        raise refuse(f"crop_size must have four elements, not {len(window)}")
    if any(abs(side) > 1 << 30 for side in window):
        raise refuse(f"jpeg::Uncompress failed. Invalid JPEG data or crop window {window}")
    return _jpeg(
        data,
        channels,
        ratio,
        fancy_upscaling,
        try_recover_truncated,
        acceptable_fraction,
        dct_method,
        window,
    )


@probing.instead(of_pixels)
def decode_png(
    contents: Any, channels: int = 0, dtype: Any = uint8, name: str | None = None
) -> Tensor:
    """The pixels of a PNG; also of a JPEG, a WebP or a GIF of one frame.

    Args:
        contents: the encoded bytes.
        channels (int): 0 as stored, 1 grey, 3 RGB, 4 RGBA.
        dtype: uint8 or uint16.
        name: ignored.

    Returns:
        Tensor[height, width, channels] of the dtype.

    Raises:
        InvalidArgumentError: not a complete image, or an unknown option.

    Example:
        >>> import numpy as np
        >>> from penstock.tf import codecs
        >>> codecs.decode_png(codecs.encode_png(np.array([[[7]]], np.uint8)), channels=3).tolist()
        [[[7, 7, 7]]]
    """
    kind = as_dtype(dtype)
    if kind not in {uint8, uint16}:
        raise refuse(f"Value for attr 'dtype' of {kind.name} is not in uint8, uint16")
    _check(channels)
    return _decode(contents, channels, "DecodePng", kind)


@probing.instead(lambda *_, **__: probing.array([None, None, None, 3], uint8).view(Tensor))
def decode_gif(contents: Any, name: str | None = None) -> Tensor:
    """All frames of a GIF, each as displayed; other images as one frame.

    Returns:
        Tensor uint8[frames, height, width, 3].

    Raises:
        InvalidArgumentError: not an image.
    """
    found = _decode(contents, 0, "DecodeGif")
    return found if found.ndim == 4 else found[np.newaxis]


@probing.instead(of_pixels)
def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> Tensor:
    """The pixels of a BMP with 8, 24 or 32 bits.

    Args:
        contents: the encoded bytes.
        channels (int): 0 as stored, 3 RGB, 4 RGBA.
        name: ignored.

    Returns:
        Tensor uint8[height, width, channels].

    Raises:
        InvalidArgumentError: not a complete BMP.
    """
    _check(channels)
    data = scalar_bytes(contents)
    codec = _codec_of(data)
    if codec != "BMP":
        use = f"Use `decode_{codec.lower()}` or `decode_image` instead."
        raise refuse(f"Trying to decode {codec} format using DecodeBmp op. {use}")
    if channels == 1:
        raise refuse("`channels` must be 0, 3 or 4 for BMP, but got 1")
    return _bmp(data, channels)


@probing.instead(of_image)
def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """The pixels of a JPEG, PNG, GIF, BMP or WebP, whichever it is.

    Args:
        contents: the encoded bytes.
        channels (int): None or 0 as stored, 1, 3 or 4.
        dtype: uint8, uint16, or float32 from 0 to 1; others are converted from uint16 by
            `tf.image.convert_image_dtype`.
        name: ignored.
        expand_animations (bool): return all frames of a GIF, else the first.

    Returns:
        Tensor[height, width, channels], or [frames, height, width, 3] for a GIF.

    Raises:
        InvalidArgumentError: not a complete image.
    """
    kind = as_dtype(dtype)
    channels = channels or 0
    _check(channels)
    op = "DecodeImage" if expand_animations else "first frame"
    if kind in {uint8, uint16, float32}:
        return _decode(contents, channels, op, kind)
    # TensorFlow reads 16 bits for every other type.
    return convert_image_dtype(_decode(contents, channels, op, uint16), kind)


@probing.instead(lambda contents, name=None: probing.array(np.shape(contents), "bool").view(Tensor))
def is_jpeg(contents: Any, name: str | None = None) -> Tensor:
    """Whether bytes begin like a JPEG; elementwise for an array.

    Returns:
        Tensor bool of the shape of `contents`.
    """
    tensor = convert_to_tensor(contents)
    made = np.empty(np.shape(tensor), bool)
    for place, value in zip(np.ndindex(made.shape), tensor.flat, strict=True):
        made[place] = bytes(value).startswith(b"\xff\xd8\xff")
    return made.view(Tensor)


@probing.instead(lambda contents, output_type=int32, name=None: of_sizes(output_type))
def extract_jpeg_shape(contents: Any, output_type: Any = int32, name: str | None = None) -> Tensor:
    """Height, width and channels of a JPEG, read from its header.

    Args:
        contents: the encoded bytes.
        output_type: int32 or int64.
        name: ignored.

    Returns:
        Tensor[3].

    Raises:
        InvalidArgumentError: not a JPEG.
    """
    kind = as_dtype(output_type)
    if kind not in {int32, int64}:
        raise refuse(f"Value for attr 'output_type' of {kind.name} is not in int32, int64")
    data = scalar_bytes(contents)
    what = f"Invalid JPEG data, size {len(data)}"
    return _as_tensor(lambda: np.array(_core.jpeg_shape(data), kind.dtype), what)
