"""Images cropped, padded, flipped and rotated."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.tensor import Tensor, convert_to_tensor


def sides(array: Any) -> tuple[int, int]:
    """Height and width of an image or a batch of them.

    Raises:
        ValueError: neither three nor four dimensions.
    """
    shape = np.ndarray.shape.__get__(array) if isinstance(array, np.ndarray) else np.shape(array)  # type: ignore[attr-defined]
    if len(shape) not in {3, 4}:
        raise ValueError(f"'image' must have either 3 or 4 dimensions, not shape {shape}.")
    return shape[-3], shape[-2]


def _images(image: Any) -> Tensor:
    array = convert_to_tensor(image)
    sides(array)
    return array


def _placeholder(
    image: Any,
    offset_height: Any = 0,
    offset_width: Any = 0,
    target_height: Any = 0,
    target_width: Any = 0,
) -> Tensor:
    shape = np.shape(image)
    sizes = [*shape[:-3], int(target_height), int(target_width), shape[-1]]
    return probing.array([max(n, 0) for n in sizes], convert_to_tensor(image).dtype).view(Tensor)


@probing.instead(_placeholder)
def crop_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Tensor:
    """A part of an image, or of each of a batch.

    Args:
        image: [height, width, channels] or a batch of them.
        offset_height, offset_width (int): rows above the part, and columns to the left of it.
        target_height, target_width (int): the size of the part.

    Returns:
        Tensor[..., target_height, target_width, channels].

    Raises:
        ValueError: a part that is not inside the image.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import crop_to_bounding_box
        >>> crop_to_bounding_box(np.arange(12).reshape(3, 4, 1), 1, 2, 2, 1).ravel().tolist()
        [6, 10]
    """
    array = _images(image)
    height, width = sides(array)
    top, left = int(offset_height), int(offset_width)
    rows, columns = int(target_height), int(target_width)
    for side, first, length, whole in (
        ("width", left, columns, width),
        ("height", top, rows, height),
    ):
        if first < 0:
            raise ValueError(f"offset_{side} must be >= 0.")
        if length <= 0:
            raise ValueError(f"target_{side} must be > 0.")
        if whole < first + length:
            raise ValueError(f"{side} must be >= target + offset. {whole} < {length} + {first}")
    return array[..., top : top + rows, left : left + columns, :]


@probing.instead(_placeholder)
def pad_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Tensor:
    """Add zeros around an image, or around each image of a batch.

    Args:
        image: [height, width, channels] or a batch of them.
        offset_height, offset_width (int): rows added above the image, and columns added to the left of it.
        target_height, target_width (int): the new size.

    Returns:
        Tensor[..., target_height, target_width, channels].

    Raises:
        ValueError: the image does not fit.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import pad_to_bounding_box
        >>> pad_to_bounding_box(np.ones([1, 1, 1]), 0, 1, 2, 2)[..., 0].numpy().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    array = _images(image)
    height, width = sides(array)
    top, left = int(offset_height), int(offset_width)
    below, right = int(target_height) - top - height, int(target_width) - left - width
    for side, first, rest in (("height", top, below), ("width", left, right)):
        if first < 0:
            raise ValueError(f"offset_{side} must be >= 0")
        if rest < 0:
            raise ValueError(f"{side} must be <= target - offset; it is too large by {-rest}")
    if not (top or left or below or right):
        return array
    around = [(0, 0)] * (array.ndim - 3) + [(top, below), (left, right), (0, 0)]
    return np.pad(array.view(np.ndarray), around).view(Tensor)


def central_crop(image: Any, central_fraction: Any) -> Tensor:
    """The middle of an image, or of each of a batch.

    Args:
        image: [height, width, channels] or a batch of them.
        central_fraction (float): the fraction of each side that is kept, above 0, at most 1.

    Returns:
        Tensor[..., n - 2 * int((n - n * central_fraction) / 2) for both sides, channels].

    Raises:
        ValueError: an invalid fraction.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import central_crop
        >>> central_crop(np.zeros([7, 10, 3]), 0.5).shape.as_list()
        [5, 6, 3]
    """
    array = _images(image)
    fraction = float(central_fraction)
    if not 0 < fraction <= 1:
        raise ValueError(f"central_fraction must be within (0, 1], not {fraction}")
    height, width = sides(array)
    top, left = int((height - height * fraction) / 2), int((width - width * fraction) / 2)
    return array[..., top : height - top, left : width - left, :]


def resize_with_crop_or_pad(image: Any, target_height: int, target_width: int) -> Tensor:
    """An image, or each of a batch, cropped or padded with zeros around its middle.

    Args:
        image: [height, width, channels] or a batch of them.
        target_height, target_width (int): the new size.

    Returns:
        Tensor[..., target_height, target_width, channels].

    Raises:
        ValueError: a size of 0 or less.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import resize_with_crop_or_pad
        >>> resize_with_crop_or_pad(np.ones([1, 4, 1]), 3, 2)[..., 0].numpy().tolist()
        [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """
    array = _images(image)
    height, width = sides(array)
    rows, columns = int(target_height), int(target_width)
    for side, length in (("width", columns), ("height", rows)):
        if length <= 0:
            raise ValueError(f"target_{side} must be > 0.")
    cut = crop_to_bounding_box(
        array,
        max((height - rows) // 2, 0),
        max((width - columns) // 2, 0),
        min(rows, height),
        min(columns, width),
    )
    top, left = max((rows - height) // 2, 0), max((columns - width) // 2, 0)
    return pad_to_bounding_box(cut, top, left, rows, columns)


def flip_left_right(image: Any) -> Tensor:
    """An image, or each of a batch, flipped: left becomes right.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import flip_left_right
        >>> flip_left_right(np.array([[[1], [2]]])).ravel().tolist()
        [2, 1]
    """
    array = _images(image)
    plain = array.view(np.ndarray)
    if plain.dtype == object or not plain.size or not plain.flags.c_contiguous:
        return array[..., ::-1, :]
    # Move whole pixels, which is faster than moving single values. The result is contiguous, so later steps are faster.
    pixels = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[-1])))[..., 0]
    made = np.ascontiguousarray(pixels[..., ::-1])
    return made.view(plain.dtype).reshape(plain.shape).view(Tensor)


def flip_up_down(image: Any) -> Tensor:
    """An image, or each of a batch, flipped: its last row becomes its first."""
    return _images(image)[..., ::-1, :, :]


def transpose(image: Any, name: str | None = None) -> Tensor:
    """An image, or each of a batch, with rows and columns exchanged."""
    return np.swapaxes(_images(image), -3, -2).view(Tensor)


def rot90(image: Any, k: int = 1, name: str | None = None) -> Tensor:
    """An image, or each of a batch, rotated `k` times by 90 degrees counterclockwise.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import rot90
        >>> rot90(np.array([[[1], [2]]]))[..., 0].numpy().tolist()
        [[2], [1]]
    """
    return np.rot90(_images(image), int(k), axes=(-3, -2)).view(Tensor)
