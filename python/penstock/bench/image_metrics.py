"""The difference of two images: PSNR, and SSIM after Wang et al., "Image quality assessment: from
error visibility to structural similarity", IEEE Transactions on Image Processing 13 (2004)."""

from __future__ import annotations

import math

import numpy as np

_WINDOW = 8
"""The side in pixels of the squares that SSIM compares. All squares have equal weight."""
_C1 = (0.01 * 255) ** 2
_C2 = (0.03 * 255) ** 2
_LUMA = np.array([0.299, 0.587, 0.114])


def mean_square_error(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mean square error of two uint8 arrays."""
    difference = a.astype(np.int16) - b.astype(np.int16)
    return float(np.mean(np.square(difference.astype(np.int32))))


def psnr(mean_square_error: float) -> float:
    """Return the PSNR in decibels for a mean square error of values up to 255; infinite for 0.

    Example:
        >>> from penstock.bench.image_metrics import psnr
        >>> round(psnr(1.0), 2), psnr(0.0)
        (48.13, inf)
    """
    if mean_square_error <= 0:
        return math.inf
    return 10 * math.log10(255 * 255 / mean_square_error)


def ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Return the SSIM of the brightness of two images uint8[height, width, channels]; 1 if they are equal.

    Example:
        >>> import numpy as np
        >>> from penstock.bench.image_metrics import ssim
        >>> flat = np.full((16, 16, 3), 80, np.uint8)
        >>> ssim(flat, flat)
        1.0
    """
    x, y = _brightness(a), _brightness(b)
    height, width = (min(_WINDOW, side) for side in x.shape)
    mean_x, mean_y, xx, yy, xy = (
        _means(part, height, width) for part in (x, y, x * x, y * y, x * y)
    )
    variance_x, variance_y = xx - mean_x * mean_x, yy - mean_y * mean_y
    covariance = xy - mean_x * mean_y
    above = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    below = (mean_x * mean_x + mean_y * mean_y + _C1) * (variance_x + variance_y + _C2)
    return float(np.mean(above / below))


def _brightness(pixels: np.ndarray) -> np.ndarray:
    if pixels.ndim == 2:
        return pixels.astype(np.float64)
    if pixels.shape[2] < 3:
        return pixels[:, :, 0].astype(np.float64)
    return pixels[:, :, :3] @ _LUMA


def _means(values: np.ndarray, height: int, width: int) -> np.ndarray:
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    np.cumsum(np.cumsum(values, axis=0), axis=1, out=sums[1:, 1:])
    windows = (
        sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width]
        + sums[:-height, :-width]
    )  # fmt: skip
    return windows / (height * width)
