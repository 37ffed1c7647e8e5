"""Colours of images: brightness, contrast, hue, saturation, colour spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import _core
from penstock.tf.codecs import decode_jpeg, encode_jpeg
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.image.cropping import sides
from penstock.tf.pixel_types import convert_image_dtype
from penstock.tf.tensor import Tensor, convert_to_tensor

_LEVELS = np.arange(256, dtype=np.float32) * np.float32(1 / 255)
_GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)
_TO_YUV: list[list[float]] = [
    [0.299, -0.14714119, 0.61497538],
    [0.587, -0.28886916, -0.51496512],
    [0.114, 0.43601035, -0.10001026],
]
_FROM_YUV: list[list[float]] = [
    [1, 1, 1],
    [0, -0.394642334, 2.03206185],
    [1.13988303, -0.58062185, 0],
]
_TO_YIQ: list[list[float]] = [
    [0.299, 0.59590059, 0.2115],
    [0.587, -0.27455667, -0.52273617],
    [0.114, -0.32134392, 0.31119955],
]
_FROM_YIQ: list[list[float]] = [
    [1, 1, 1],
    [0.95598634, -0.27201283, -1.10674021],
    [0.6208248, -0.64720424, 1.70423049],
]


def _floats(image: Any) -> tuple[Tensor, Any]:
    """Images as floats, and their original type."""
    array = convert_to_tensor(image)
    sides(array)
    kind = as_dtype(array.dtype)
    if kind.name in {"float16", "float32"}:
        return array, kind
    return convert_image_dtype(array, "float32"), kind


def _colours(array: Any, change: str, amount: float = 0.0) -> Tensor:
    """Change pixels of three values with a kernel."""
    if not np.shape(array) or np.shape(array)[-1] != 3:
        message = f"input must have 3 channels but instead has shape {np.shape(array)}"
        raise InvalidArgumentError(None, None, message)
    kind = array.dtype
    plain = np.ascontiguousarray(array.astype(np.float32) if kind == np.float16 else array)
    made = np.asarray(_core.change_colours(plain, change, amount))
    return made.astype(kind, copy=False).view(Tensor)


def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Images with `delta` added, on a scale of 0 to 1 for integers, too.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import adjust_brightness
        >>> adjust_brightness(np.array([[[10, 200, 250]]], np.uint8), 0.2).ravel().tolist()
        [61, 251, 255]
    """
    array = convert_to_tensor(image)
    if array.dtype == np.uint8 and np.ndim(delta) == 0:
        sides(array)
        return _by_level(array, _LEVELS + np.float32(delta))
    floats, kind = _floats(array)
    return convert_image_dtype(floats + floats.dtype.type(delta), kind, saturate=True)


def _by_level(array: Tensor, levels: np.ndarray[Any, Any]) -> Tensor:
    """Images of bytes, with each byte replaced by its entry of a table of 256 floats from 0 to 1."""
    table = convert_image_dtype(levels, "uint8", saturate=True).tobytes()
    made = bytearray(array.tobytes()).translate(table)
    return np.frombuffer(made, np.uint8).reshape(np.shape(array)).view(Tensor)


def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Images in which the distance of each value from the mean of its channel is multiplied by a factor.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import adjust_contrast
        >>> adjust_contrast(np.array([[[10.0], [30.0]]], np.float32), 2).ravel().tolist()
        [0.0, 40.0]
    """
    floats, kind = _floats(images)
    plain = floats.view(np.ndarray).astype(np.float32, copy=False)
    *before, height, width, channels = plain.shape
    # Width and channels become one dimension, because NumPy is slow if the last dimension is short.
    rows = plain.reshape(*before, height, width * channels)
    total = rows.sum(-2).reshape(*before, width, channels).sum(-2)
    mean = np.tile(total / np.float32(max(height * width, 1)), width)[..., None, :]
    made = rows - mean
    made *= np.float32(contrast_factor)
    made += mean
    made = made.reshape(plain.shape).astype(np.dtype(floats.dtype), copy=False)
    return convert_image_dtype(made.view(Tensor), kind, saturate=True)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """Images to the power of `gamma`, multiplied by `gain`.

    Raises:
        ValueError: gamma is negative.
    """
    if np.any(np.asarray(gamma) < 0):
        raise ValueError("Gamma should be a non-negative real number.")
    floats, kind = _floats(image)
    made = floats.dtype.type(gain) * floats ** floats.dtype.type(gamma)
    return convert_image_dtype(made, kind, saturate=True)


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """RGB images with hues rotated by `delta` turns, -1 to 1.

    Raises:
        ValueError: more than one turn.
        InvalidArgumentError: not three channels.
    """
    if not -1 <= delta <= 1:
        raise ValueError("delta must be in the interval [-1, 1]")
    floats, kind = _floats(image)
    return convert_image_dtype(_colours(floats, "hue", float(delta)), kind)


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """RGB images with saturation multiplied.

    Raises:
        InvalidArgumentError: not three channels.
    """
    floats, kind = _floats(image)
    return convert_image_dtype(_colours(floats, "saturation", float(saturation_factor)), kind)


def adjust_jpeg_quality(
    image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None
) -> Tensor:
    """An image encoded as a JPEG of this quality and decoded.

    Args:
        image: [height, width, 1 or 3].
        jpeg_quality (int): 0 to 100.
        dct_method: as for `tf.io.decode_jpeg`.
        name: ignored.
    """
    array = convert_to_tensor(image)
    bytes_ = convert_image_dtype(array, "uint8", saturate=True)
    coded = encode_jpeg(bytes_, quality=int(jpeg_quality))
    found = decode_jpeg(coded, channels=np.shape(array)[-1], dct_method=dct_method)
    return convert_image_dtype(found, array.dtype, saturate=True)


def rgb_to_hsv(images: Any, name: str | None = None) -> Tensor:
    """Hue, saturation and value of RGB images, which are floats.

    Raises:
        InvalidArgumentError: not three channels.
    """
    return _colours(_real(images), "to_hsv")


def hsv_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """RGB images from hue, saturation and value.

    Raises:
        InvalidArgumentError: not three channels.
    """
    return _colours(_real(images), "from_hsv")


def rgb_to_yuv(images: Any) -> Tensor:
    """Brightness and two colour differences (YUV) of RGB images, which are floats."""
    return _mixed(images, _TO_YUV)


def yuv_to_rgb(images: Any) -> Tensor:
    """RGB images from YUV."""
    return _mixed(images, _FROM_YUV)


def rgb_to_yiq(images: Any) -> Tensor:
    """Brightness and two colour differences (YIQ) of RGB images, which are floats."""
    return _mixed(images, _TO_YIQ)


def yiq_to_rgb(images: Any) -> Tensor:
    """RGB images from YIQ."""
    return _mixed(images, _FROM_YIQ)


def _mixed(images: Any, matrix: list[list[float]]) -> Tensor:
    array = _real(images).view(np.ndarray)
    return (array @ np.array(matrix, array.dtype)).view(Tensor)


def _real(images: Any) -> Tensor:
    array = convert_to_tensor(images)
    if array.dtype.kind != "f":
        message = f"Value for attr 'T' of {array.dtype} is not in the list of floats"
        raise InvalidArgumentError(None, None, message)
    return array


def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """RGB images as grey images with one channel.

    Raises:
        ValueError: not three channels.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import rgb_to_grayscale
        >>> rgb_to_grayscale(np.array([[[10, 200, 250]]], np.uint8)).ravel().tolist()
        [149]
    """
    array = convert_to_tensor(images)
    if not array.ndim or np.shape(array)[-1] != 3:
        raise ValueError(f"An image of 3 channels is needed, not shape {np.shape(array)}")
    floats = convert_image_dtype(array, "float32").view(np.ndarray)
    grey = floats @ _GREY
    return convert_image_dtype(grey[..., np.newaxis].view(Tensor), array.dtype)


def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """Images of one channel, repeated three times.

    Raises:
        ValueError: not one channel.
    """
    array = convert_to_tensor(images)
    if not array.ndim or np.shape(array)[-1] != 1:
        raise ValueError(f"An image of 1 channel is needed, not shape {np.shape(array)}")
    return np.repeat(array, 3, axis=-1).view(Tensor)


def per_image_standardization(image: Any) -> Tensor:
    """Images scaled to mean 0 and variance 1, each separately. Images of a single colour become 0.

    Returns:
        Tensor of float32, or of float16 if the images are.
    """
    array = convert_to_tensor(image)
    sides(array)
    small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    floats = array if small else array.astype(np.float32)
    plain = floats.view(np.ndarray)
    axes = (-3, -2, -1)
    mean = plain.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.square(plain - mean).mean(axis=axes, keepdims=True))
    least = plain.dtype.type(1 / np.sqrt(np.prod(np.shape(plain)[-3:])))
    return ((plain - mean) / np.maximum(deviation, least)).view(Tensor)


def total_variation(images: Any, name: str | None = None) -> Tensor:
    """The sum of the differences between neighbouring pixels, of each image of a batch."""
    array = convert_to_tensor(images)
    sides(array)
    down = np.abs(np.diff(array, axis=-3)).sum(axis=(-3, -2, -1))
    across = np.abs(np.diff(array, axis=-2)).sum(axis=(-3, -2, -1))
    return np.asarray(down + across, array.dtype).view(Tensor)


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio of two images, in decibels.

    Args:
        a, b: [..., height, width, channels] of the same type.
        max_val: the largest possible value.
        name: ignored.
    """
    first, second = (convert_image_dtype(one, "float32").view(np.ndarray) for one in (a, b))
    kind = as_dtype(convert_to_tensor(a).dtype)
    most = np.float32(max_val) * np.float32(1.0 / kind.max if kind.is_integer else 1.0)
    error = np.square(first - second).mean(axis=(-3, -2, -1))
    with np.errstate(divide="ignore"):
        made = 20 * np.log(most) / np.log(np.float32(10)) - np.float32(10 / np.log(10)) * np.log(
            error
        )
    return np.asarray(made, np.float32).view(Tensor)
