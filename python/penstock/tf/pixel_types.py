"""Converts images between numeric types, and scales their values accordingly."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype
from penstock.tf.tensor import Tensor, convert_to_tensor


def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> Tensor:
    """Images converted to another type and scaled: floats are from 0 to 1, integers use their range.

    Args:
        image: an image of integers or floats.
        dtype: a dtype of integers or floats.
        saturate (bool): clip values that do not fit; otherwise they wrap around.
        name: ignored.

    Returns:
        Tensor of the dtype.

    Raises:
        AttributeError: another type.

    Example:
        >>> import numpy as np
        >>> import penstock.tf as tf
        >>> from penstock.tf.image import convert_image_dtype
        >>> convert_image_dtype(np.array([0, 51, 255], np.uint8), tf.float32).numpy().tolist()
        [0.0, 0.20000001788139343, 1.0]
    """
    array, kind = convert_to_tensor(image), as_dtype(dtype)
    old = array.dtype
    if not (kind.is_floating or kind.is_integer):
        raise AttributeError("dtype must be either floating point or integer")
    if not (old.is_floating or old.is_integer):
        raise AttributeError("image dtype must be either floating point or integer")
    if kind == old:
        return array
    array = array.view(np.ndarray)
    if kind.is_floating:
        floats = array.astype(kind.dtype)
        if not old.is_floating:
            floats *= kind.dtype.type(1.0 / old.max)
        return floats.view(Tensor)
    if old.is_floating:
        with np.errstate(over="ignore", invalid="ignore"):  # the range may be beyond float16
            scaled = array * array.dtype.type(kind.max + 0.5)
        return _whole(scaled, kind, saturate)
    if old.max > kind.max:
        return _whole(array // array.dtype.type((old.max + 1) // (kind.max + 1)), kind, saturate)
    return _whole(array, kind, saturate) * kind.dtype.type((kind.max + 1) // (old.max + 1))


def _whole(array: Any, kind: Any, saturate: bool) -> Tensor:
    """Numbers truncated to an integer type."""
    if saturate and array.dtype == np.float32 and kind.name in {"uint8", "uint16"}:
        # The same as below in fewer steps; the greater of NaN and 0 is 0.
        held = np.fmax(array, np.float32(0))
        np.minimum(held, np.float32(kind.max), out=held)
        return held.astype(kind.dtype).view(Tensor)
    if saturate and array.dtype.kind == "f":
        float_ = array.dtype.type
        most = float_(min(kind.max, float(np.finfo(float_).max)))
        if float(most) > kind.max:  # the float next to the range is outside it
            most = np.nextafter(most, float_(0))
        array = np.nan_to_num(np.clip(array, float_(kind.min), most))
    elif saturate:
        known = np.iinfo(array.dtype)
        array = np.clip(array, max(kind.min, known.min), min(kind.max, known.max))
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            array = array.astype(np.int64)
    return array.astype(kind.dtype).view(Tensor)
