"""Patches of images, and how similar two images are."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arrays import tensor
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.pixel_types import convert_image_dtype
from penstock.tf.tensor import Tensor, convert_to_tensor

Array = np.ndarray[Any, Any]


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    """The structural similarity of two images or batches of images.

    Args:
        img1, img2: [..., height, width, channels], at least filter_size high and wide.
        max_val: the difference of the greatest and the least possible value.
        filter_size, filter_sigma: the Gaussian window.
        k1, k2: constants of the formula.
        return_index_map: return the similarity of each window instead of their mean.

    Returns:
        Tensor float32 [...], or [..., rows, columns] with return_index_map.

    Raises:
        InvalidArgumentError: images that are too small.
        ValueError: images of other shapes than each other's.

    Example:
        >>> import penstock.tf as tf
        >>> picture = tf.ones([16, 16, 3])
        >>> float(tf.image.ssim(picture, picture, max_val=1.0))
        1.0
    """
    one, other = convert_to_tensor(img1), convert_to_tensor(img2)
    if one.shape[-3:] != other.shape[-3:]:
        raise ValueError(f"Shapes {one.shape} and {other.shape} are incompatible")
    if min(one.shape[-3:-1]) < filter_size:
        message = f"images must be at least {filter_size} high and wide, not {one.shape}"
        raise InvalidArgumentError(None, None, message)
    most = convert_to_tensor(max_val, one.dtype)
    whole = float(convert_image_dtype(most, "float32"))
    x, y = (convert_image_dtype(image, "float32").view(np.ndarray) for image in (one, other))
    window = _gaussian(filter_size, filter_sigma)
    c1, c2 = np.float32((k1 * whole) ** 2), np.float32((k2 * whole) ** 2)
    means = _blurred(x, window) * _blurred(y, window) * 2
    squares = _blurred(x, window) ** 2 + _blurred(y, window) ** 2
    luminance = (means + c1) / (squares + c1)
    products, both = _blurred(x * y, window) * 2, _blurred(x * x + y * y, window)
    contrast = (products - means + c2) / (both - squares + c2)
    return tensor((luminance * contrast).mean(-1 if return_index_map else (-3, -2, -1)))


def _gaussian(size: int, sigma: float) -> Array:
    places = np.arange(size, dtype=np.float32) - np.float32(size - 1) / 2
    weights = np.exp(places**2 * np.float32(-0.5 / sigma**2))
    return weights / weights.sum()


def _blurred(images: Array, window: Array) -> Array:
    """The means of windows, weighted by a Gaussian."""
    for axis in (-3, -2):
        views = np.lib.stride_tricks.sliding_window_view(images, len(window), axis)
        images = views @ window
    return images


def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: Any, name: str | None = None
) -> Tensor:
    """Patches of images, each as a row of values.

    Args:
        images: [batch, height, width, channels].
        sizes: [1, height, width, 1] of a patch.
        strides: [1, down, right, 1] from a patch to the next.
        rates: [1, down, right, 1] from a pixel of a patch to the next.
        padding: VALID: only patches inside; SAME: zeros around the images.
        name: ignored.

    Returns:
        Tensor [batch, rows, columns, height * width * channels].

    Raises:
        InvalidArgumentError: images of another rank; another padding.

    Example:
        >>> import penstock.tf as tf
        >>> pictures = tf.zeros([1, 8, 8, 3])
        >>> tf.image.extract_patches(
        ...     pictures, [1, 4, 4, 1], [1, 4, 4, 1], [1, 1, 1, 1], "VALID"
        ... ).shape
        TensorShape([1, 2, 2, 48])
    """
    given = convert_to_tensor(images).view(np.ndarray)
    if given.ndim != 4 or padding not in ("VALID", "SAME"):
        message = f"images must have rank 4 and padding be VALID or SAME, not {given.ndim} and {padding!r}"
        raise InvalidArgumentError(None, None, message)
    steps, gaps = list(strides)[1:3], list(rates)[1:3]
    spans = [(size - 1) * gap + 1 for size, gap in zip(list(sizes)[1:3], gaps, strict=True)]
    if padding == "SAME":
        more = [
            max((-(-n // step) - 1) * step + span - n, 0)
            for n, step, span in zip(given.shape[1:3], steps, spans, strict=True)
        ]
        given = np.pad(given, [(0, 0), *((m // 2, m - m // 2) for m in more), (0, 0)])
    found = np.lib.stride_tricks.sliding_window_view(given, spans, (1, 2))
    found = found[:, :: steps[0], :: steps[1], :, :: gaps[0], :: gaps[1]]
    rows = found.transpose(0, 1, 2, 4, 5, 3)
    return tensor(rows.reshape(*rows.shape[:3], -1))
