"""Resizing of images. Bilinear, nearest and bicubic give exactly TensorFlow's floats; the other methods differ by
rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import _core
from penstock.limits import Limits
from penstock.tf.dtypes import float32
from penstock.tf.errors import InvalidArgumentError, ResourceExhaustedError
from penstock.tf.image.cropping import pad_to_bounding_box, sides
from penstock.tf.tensor import Tensor, convert_to_tensor


class ResizeMethod:
    """The names of the methods.

    Example:
        >>> import penstock.tf.image as image
        >>> image.ResizeMethod.BICUBIC
        'bicubic'
    """

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


_PIXELS = Limits().image_pixels
_METHODS = {value for name, value in vars(ResizeMethod).items() if name.isupper()}
_WIDENED = {"bilinear": "triangle", "bicubic": "keyscubic"}
_READ = frozenset("biuf")


def resize(
    images: Any,
    size: Any,
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Tensor:
    """Resize images.

    Args:
        images: [height, width, channels] or [batch, height, width, channels], of any numeric type.
        size: the new height and width.
        method: one of ResizeMethod.
        preserve_aspect_ratio (bool): keep the aspect ratio, with the largest size that fits.
        antialias (bool): average all covered pixels when the image shrinks.
        name: ignored.

    Returns:
        Tensor of the rank of `images`: float32, not rounded; for "nearest", of the dtype of the images.

    Raises:
        ValueError: images of another rank, a size that is not two numbers, an unknown method.
        InvalidArgumentError: a side of 0 pixels.
        ResourceExhaustedError: more pixels than `ps.Limits` allows for an image.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import resize
        >>> resize(np.array([[[0], [10]]], np.uint8), [1, 4]).numpy().ravel().tolist()
        [0.0, 2.5, 7.5, 10.0]
    """
    array = images if isinstance(images, np.ndarray) else convert_to_tensor(images)
    if array.ndim not in {3, 4}:
        raise ValueError(f"'images' must have either 3 or 4 dimensions, not {array.ndim}.")
    height, width = _height_and_width(size)
    if method not in _METHODS:
        known = ", ".join(sorted(_METHODS))
        raise ValueError(f"Resize method is not implemented: {method!r}; there are {known}")
    if preserve_aspect_ratio:
        height, width = in_proportion(array, height, width)
    _check_sides(np.shape(array), height, width)
    if array.size == 0:
        shape = (*np.shape(array)[:-3], height, width, np.shape(array)[-1])
        return np.zeros(shape, array.dtype if method == "nearest" else np.float32).view(Tensor)
    if array.dtype.kind not in _READ or (array.dtype == np.bool_ and method != "nearest"):
        raise InvalidArgumentError(None, None, f"images of {array.dtype} cannot be resized")
    return _resized(array, height, width, method, antialias)


def _height_and_width(size: Any) -> tuple[int, int]:
    new = np.asarray(size)
    if new.shape != (2,):
        message = "'size' must be a 1-D Tensor of 2 elements: new_height, new_width"
        raise ValueError(f"{message}; it is {size!r}")
    if new.dtype.kind not in "iu":
        raise ValueError(f"'size' must be a 1-D int32 Tensor, not of {new.dtype}")
    return int(new[0]), int(new[1])


def _check_sides(old: tuple[int, ...], height: int, width: int) -> None:
    if height <= 0 or width <= 0 or 0 in old[-3:-1]:
        message = "output dimensions must be positive, input image must be of non-zero size"
        raise InvalidArgumentError(None, None, f"{message}: {old} to {height} x {width}")
    if height * width > _PIXELS:
        message = f"{height} x {width} pixels, beyond the {_PIXELS} that an image may have"
        raise ResourceExhaustedError(None, None, message)


def _resized(array: Any, height: int, width: int, method: str, antialias: bool) -> Tensor:
    antialias = antialias and method not in {"nearest", "area"}
    kernel = _WIDENED.get(method, method) if antialias else method
    plain = np.ascontiguousarray(array)
    kind = plain.dtype
    if kind == np.bool_:
        plain = plain.view(np.uint8)
    elif kind == np.float16 and method != "nearest":
        plain = plain.astype(np.float32)
    made = np.asarray(_core.resize_images(plain, height, width, kernel, antialias))
    return (made.view(kind) if kind == np.bool_ else made).view(Tensor)


def in_proportion(array: Any, height: int, width: int) -> tuple[int, int]:
    """The largest size inside height and width with the proportions of an image."""
    old = [np.float32(side) for side in np.shape(array)[-3:-1]]
    scale = min(np.float32(height) / old[0], np.float32(width) / old[1])
    return int(np.round(scale * old[0])), int(np.round(scale * old[1]))


def resize_with_pad(
    image: Any,
    target_height: int,
    target_width: int,
    method: str = ResizeMethod.BILINEAR,
    antialias: bool = False,
) -> Tensor:
    """Images resized to the largest size that fits with the same aspect ratio, padded with zeros.

    Args:
        image: [height, width, channels] or a batch of them.
        target_height, target_width (int): the new size.
        method, antialias: as for `resize`.

    Returns:
        Tensor[..., target_height, target_width, channels], as from `resize`.

    Raises:
        ValueError: images of another rank, a size of 0 or less.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import resize_with_pad
        >>> resize_with_pad(np.ones([2, 4, 1]), 4, 4).numpy()[..., 0].sum(axis=1).tolist()
        [0.0, 4.0, 4.0, 0.0]
    """
    array = convert_to_tensor(image)
    height, width = sides(array)
    if target_height <= 0 or target_width <= 0:
        side = "target_width" if target_width <= 0 else "target_height"
        raise ValueError(f"{side} must be > 0.")
    # In float32 as in TensorFlow, because rounding can add or remove a row or column.
    old = np.array([height, width], np.float32)
    new = np.array([target_height, target_width], np.float32)
    new_height, new_width = old / (old / new).max()
    top, left = (new - [new_height, new_width]) / 2
    resized = resize(array, [int(new_height), int(new_width)], method, antialias=antialias)
    return pad_to_bounding_box(
        resized, max(0, int(top)), max(0, int(left)), target_height, target_width
    )


def crop_and_resize(
    image: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Parts of images, each resized to the same size; the corners of a box are the centers of the corner pixels.

    Args:
        image: [batch, height, width, channels].
        boxes: [n, 4] of top, left, bottom, right, where 0 and 1 are the first and last pixel.
        box_indices: [n]: the image of each box.
        crop_size: height and width.
        method: "bilinear" or "nearest".
        extrapolation_value (float): the value outside the image.
        name: ignored.

    Returns:
        Tensor float32[n, *crop_size, channels].

    Raises:
        ValueError: an unknown method, arguments of other shapes, the number of an image that does not exist.
    """
    images, edges = np.asarray(image), np.asarray(boxes, np.float32)
    numbers, (height, width) = (
        np.asarray(box_indices),
        (int(side) for side in np.asarray(crop_size)),
    )
    if method not in {"bilinear", "nearest"}:
        raise ValueError(f"method must be 'bilinear' or 'nearest', not {method!r}")
    if images.ndim != 4 or edges.shape != (len(numbers), 4):
        raise InvalidArgumentError(None, None, "expected 4-D images, boxes [n, 4] and n indices")
    if len(numbers) and not (0 <= numbers.min() and numbers.max() < len(images)):
        raise InvalidArgumentError(None, None, f"box_indices beyond the {len(images)} images")
    made = np.full((len(numbers), height, width, images.shape[3]), extrapolation_value, np.float32)
    for crop, (top, left, bottom, right), number in zip(made, edges, numbers, strict=True):
        one = images[number]
        down, across = (
            _places(top, bottom, height, one.shape[0]),
            _places(left, right, width, one.shape[1]),
        )
        rows = (down >= 0) & (down <= one.shape[0] - 1)
        columns = (across >= 0) & (across <= one.shape[1] - 1)
        crop[np.ix_(rows, columns)] = _sampled(one, down[rows], across[columns], method)
    return made.view(Tensor)


def _places(begin: np.float32, end: np.float32, new: int, old: int) -> np.ndarray:
    last = np.float32(old - 1)
    if new == 1:
        return np.array([np.float32(0.5) * (begin + end) * last], np.float32)
    step = (end - begin) * last / np.float32(new - 1)
    return begin * last + np.arange(new, dtype=np.float32) * step


def _sampled(image: np.ndarray, down: np.ndarray, across: np.ndarray, method: str) -> np.ndarray:
    if method == "nearest":
        rows, columns = (np.floor(at + np.float32(0.5)).astype(int) for at in (down, across))
        return image[np.ix_(rows, columns)]
    low_y, low_x = np.floor(down).astype(int), np.floor(across).astype(int)
    high_y, high_x = np.ceil(down).astype(int), np.ceil(across).astype(int)
    part_y = (down - low_y.astype(np.float32))[:, None, None]
    part_x = (across - low_x.astype(np.float32))[None, :, None]
    values = image.astype(float32.dtype)

    def row(y: np.ndarray) -> np.ndarray:
        low, high = values[np.ix_(y, low_x)], values[np.ix_(y, high_x)]
        return low + (high - low) * part_x

    top = row(low_y)
    return top + (row(high_y) - top) * part_y
