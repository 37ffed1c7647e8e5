"""Random augmentation of images. `stateless_` operations draw exactly TensorFlow's numbers. Other operations draw from
the operation's seed or the program's (`tf.random.set_seed`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.image.colours import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_jpeg_quality,
    adjust_saturation,
)
from penstock.tf.image.cropping import sides
from penstock.tf.image.draws import integers, stateless, stateless_integers, uniform
from penstock.tf.tensor import Tensor, convert_to_tensor

_MOST = 2**31 - 1


def _flipped(image: Any, axis: int, numbers: Callable[[tuple[int, ...]], Any]) -> Tensor:
    """Flip an image if its random number is below a half, and an image of a batch if its number rounds to 1."""
    array = convert_to_tensor(image)
    sides(array)
    mirrored = np.flip(array, axis)
    if array.ndim == 3:
        return (mirrored if numbers(()) < 0.5 else array).view(Tensor)
    chosen = np.round(numbers((len(array),))) == 1
    return np.where(chosen.reshape(-1, 1, 1, 1), mirrored, array).view(Tensor)


def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """An image flipped with probability 1/2; in a batch, each independently.

    Args:
        image: [height, width, channels] or a batch of them.
        seed (int): the seed of the operation.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: images of another rank.
    """
    return _flipped(image, -2, lambda shape: uniform(0, 1, seed, shape))


def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """Like `random_flip_left_right`, but upside down."""
    return _flipped(image, -3, lambda shape: uniform(0, 1, seed, shape))


def stateless_random_flip_left_right(image: Any, seed: Any) -> Tensor:
    """Like `random_flip_left_right`, with a seed of two numbers.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import stateless_random_flip_left_right
        >>> image = np.array([[[1], [2]]])
        >>> [stateless_random_flip_left_right(image, (n, 0)).ravel().tolist() for n in (0, 1)]
        [[2, 1], [1, 2]]
    """
    return _flipped(image, -2, lambda shape: stateless(0, 1, seed, shape))


def stateless_random_flip_up_down(image: Any, seed: Any) -> Tensor:
    """Like `stateless_random_flip_left_right`, but upside down."""
    return _flipped(image, -3, lambda shape: stateless(0, 1, seed, shape))


def _cropped(value: Any, size: Any, numbers: Callable[[tuple[int, ...]], Any]) -> Tensor:
    array = convert_to_tensor(value)
    lengths = np.asarray(size, np.int64).reshape(-1)
    if len(lengths) != array.ndim or np.any(lengths > np.shape(array)):
        message = f"Need value.shape >= size, got {np.shape(array)} and {lengths.tolist()}"
        raise InvalidArgumentError(None, None, message)
    offsets = numbers((array.ndim,)) % (np.shape(array) - lengths + 1)
    spans = zip(offsets.tolist(), lengths.tolist(), strict=True)
    return array[tuple(slice(first, first + length) for first, length in spans)]


def _placeholder(value: Any, size: Any, *_: Any, **__: Any) -> Tensor:
    whole = zip(np.asarray(size).tolist(), np.shape(value), strict=True)
    return probing.array(
        [n if s == -1 else s for s, n in whole], convert_to_tensor(value).dtype
    ).view(Tensor)


@probing.instead(_placeholder)
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """A part of an array, of a given size, at a random position.

    Args:
        value: an array, such as an image.
        size: the size of the part, a number for each dimension.
        seed (int): the seed of the operation.
        name: ignored.

    Returns:
        Tensor of the size.

    Raises:
        InvalidArgumentError: a size that does not fit.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.image import random_crop
        >>> random_crop(np.zeros([8, 8, 3]), [3, 5, 3]).shape.as_list()
        [3, 5, 3]
    """
    return _cropped(value, size, lambda shape: integers(0, _MOST, seed, shape))


@probing.instead(_placeholder)
def stateless_random_crop(value: Any, size: Any, seed: Any, name: str | None = None) -> Tensor:
    """Like `random_crop`, with a seed of two numbers."""
    return _cropped(value, size, lambda shape: stateless_integers(0, _MOST, seed, shape))


def _at_most(max_delta: float) -> float:
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return max_delta


def _range(lower: float, upper: float) -> tuple[float, float]:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return lower, upper


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_brightness` by a number from -max_delta to max_delta.

    Raises:
        ValueError: max_delta is negative.
    """
    most = _at_most(max_delta)
    return adjust_brightness(image, uniform(-most, most, seed))


def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> Tensor:
    """`random_brightness` with a seed of two numbers."""
    most = _at_most(max_delta)
    return adjust_brightness(image, stateless(-most, most, seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_contrast` by a number from lower to upper.

    Raises:
        ValueError: upper is not above lower, or lower is negative.
    """
    return adjust_contrast(image, uniform(*_range(lower, upper), seed))


def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> Tensor:
    """`random_contrast` with a seed of two numbers."""
    return adjust_contrast(image, stateless(*_range(lower, upper), seed))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_saturation` by a number from lower to upper.

    Raises:
        ValueError: upper is not above lower, or lower is negative.
    """
    return adjust_saturation(image, uniform(*_range(lower, upper), seed))


def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Tensor:
    """`random_saturation` with a seed of two numbers."""
    return adjust_saturation(image, stateless(*_range(lower, upper), seed))


def _turn(max_delta: float) -> float:
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    return _at_most(max_delta)


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_hue` by a number from -max_delta to max_delta.

    Raises:
        ValueError: max_delta is negative, or more than half a turn.
    """
    most = _turn(max_delta)
    return adjust_hue(image, uniform(-most, most, seed))


def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> Tensor:
    """`random_hue` with a seed of two numbers."""
    most = _turn(max_delta)
    return adjust_hue(image, stateless(-most, most, seed))


def _qualities(least: int, most: int) -> tuple[int, int]:
    if least < 0 or most < 0 or least > 100 or most > 100:
        raise ValueError("jpeg encoding range must be between 0 and 100.")
    if least >= most:
        raise ValueError("`min_jpeg_quality` must be less than `max_jpeg_quality`.")
    return least, most


def random_jpeg_quality(
    image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None
) -> Tensor:
    """`adjust_jpeg_quality` by a random quality in [min_jpeg_quality, max_jpeg_quality).

    Raises:
        ValueError: an invalid range.
    """
    qualities = _qualities(min_jpeg_quality, max_jpeg_quality)
    return adjust_jpeg_quality(image, integers(*qualities, seed))


def stateless_random_jpeg_quality(
    image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: Any
) -> Tensor:
    """`random_jpeg_quality` with a seed of two numbers."""
    qualities = _qualities(min_jpeg_quality, max_jpeg_quality)
    return adjust_jpeg_quality(image, stateless_integers(*qualities, seed))
