"""Placeholders for the results of operations on encoded images."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype, uint8
from penstock.tf.tensor import Tensor


def of_pixels(contents: Any, channels: int = 0, dtype: Any = uint8, **_: Any) -> Tensor:
    """The placeholder of a decoded image."""
    return probing.array([None, None, channels or None], dtype).view(Tensor)


def of_jpeg(contents: Any, channels: int = 0, *_: Any, **__: Any) -> Tensor:
    """The placeholder of a decoded JPEG."""
    return of_pixels(contents, channels)


def of_crop(contents: Any, window: Any = None, channels: int = 0, *_: Any, **k: Any) -> Tensor:
    """The placeholder of a part of a JPEG."""
    height, width = np.asarray(k.get("crop_window", window)).tolist()[-2:]
    return probing.array([height, width, channels or None], uint8).view(Tensor)


def of_image(
    contents: Any,
    channels: Any = None,
    dtype: Any = uint8,
    name: Any = None,
    expand_animations: bool = True,
) -> Tensor:
    """The placeholder of an image of any format, whose rank is unknown if it may be an animation."""
    shape = None if expand_animations else [None, None, channels or None]
    return probing.array(shape, dtype).view(Tensor)


def of_sizes(dtype: Any) -> Tensor:
    """The placeholder of the sizes of a JPEG."""
    return np.array([probing.size(0), probing.size(1), 3], as_dtype(dtype).dtype).view(Tensor)
