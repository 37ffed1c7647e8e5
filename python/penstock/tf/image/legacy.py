"""`tf.compat.v1.image.resize`: TensorFlow 1's resizing, in which the position of a pixel is its corner."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arithmetic import cast
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.image.resizing import in_proportion
from penstock.tf.image.resizing import resize as newer
from penstock.tf.missing import Space, missing
from penstock.tf.tensor import Tensor, convert_to_tensor

ResizeMethod = Space(
    "tf.compat.v1.image.ResizeMethod", BILINEAR=0, NEAREST_NEIGHBOR=1, BICUBIC=2, AREA=3
)
_NAMES: dict[Any, str] = {0: "bilinear", 1: "nearest", 2: "bicubic", 3: "area"}


# Complexity: TensorFlow's order of checks, one after another.
def resize(
    images: Any,
    size: Any,
    method: Any = 0,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """Images resized by TensorFlow 1's rules.

    Args:
        images: [height, width, channels] or [batch, height, width, channels].
        size: the new height and width.
        method: a number or name of ResizeMethod; AREA only without align_corners.
        align_corners (bool): corner pixels keep their positions.
        preserve_aspect_ratio (bool): keep the proportions, with the largest size that fits.
        name: ignored.

    Returns:
        Tensor of the rank of `images`: float32; for nearest, and if the size does not change, of the dtype of the images.

    Raises:
        ValueError: images of another rank.
        InvalidArgumentError: a side of 0 pixels.
        UnimplementedError: another method.

    Example:
        >>> import penstock.tf as tf
        >>> row = tf.constant([[[0.0], [10.0]]])
        >>> tf.compat.v1.image.resize(row, [1, 4]).numpy().ravel().tolist()
        [0.0, 5.0, 10.0, 10.0]
    """
    kind = _NAMES.get(method, method)
    given = convert_to_tensor(images)
    if given.ndim not in {3, 4}:
        raise ValueError(f"'images' must have either 3 or 4 dimensions, not {given.ndim}.")
    height, width = (int(side) for side in np.asarray(size))
    if height <= 0 or width <= 0 or 0 in given.shape[-3:-1]:
        message = "output dimensions must be positive, input image must be of non-zero size"
        raise InvalidArgumentError(None, None, f"{message}: {given.shape} to {height} x {width}")
    if kind not in {"bilinear", "nearest", "area", "bicubic"} or (kind == "area" and align_corners):
        raise missing(f"tf.compat.v1.image.resize of {kind}")
    if preserve_aspect_ratio:
        height, width = in_proportion(given, height, width)
    if given.shape[-3:-1] == (height, width):
        return given
    if kind == "area" and not align_corners:
        return newer(given, [height, width], "area")
    plain = given.view(np.ndarray)
    rows = _places(plain.shape[-3], height, align_corners=align_corners)
    columns = _places(plain.shape[-2], width, align_corners=align_corners)
    if kind == "bicubic":
        return _bicubic(plain.astype(np.float32), rows, columns).view(Tensor)
    if kind != "nearest":
        return _bilinear(plain.astype(np.float32), rows, columns).view(Tensor)
    half = np.float32(0.5 if align_corners else 0)
    across = np.floor(columns + half).astype(int).clip(max=plain.shape[-2] - 1)
    down = np.floor(rows + half).astype(int).clip(max=plain.shape[-3] - 1)
    return plain[..., down, :, :][..., across, :].view(Tensor)


def _bilinear(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    left, right, share = _between(columns, values.shape[-2])
    share = share[:, None]
    upper, lower, part = _between(rows, values.shape[-3])
    top, bottom = values[..., upper, :, :], values[..., lower, :, :]
    top = top[..., left, :] + (top[..., right, :] - top[..., left, :]) * share
    bottom = bottom[..., left, :] + (bottom[..., right, :] - bottom[..., left, :]) * share
    return np.asarray(top + (bottom - top) * part[:, None, None])


_STEPS = 1024
"""Fractions of a pixel for which TensorFlow keeps the weights of bicubic resizing."""
_A = -0.75


def _bicubic(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    for axis, places in ((-3, rows), (-2, columns)):
        first = np.floor(places)
        step = np.rint((places - first) * np.float32(_STEPS)).astype(int)
        near, far = _cubic(step / _STEPS), _cubic(step / _STEPS + 1)
        weights = far, near, _cubic(1 - step / _STEPS), _cubic(2 - step / _STEPS)
        shape = (-1, 1, 1) if axis == -3 else (-1, 1)
        parts = [
            np.take(values, (first.astype(int) + at).clip(0, values.shape[axis] - 1), axis)
            * weight.reshape(shape)
            for at, weight in zip(range(-1, 3), weights, strict=True)
        ]
        values = np.asarray(parts[0] + parts[1] + parts[2] + parts[3])
    return values


def _cubic(x: np.ndarray) -> np.ndarray:
    """The weight of a pixel at this distance."""
    near = ((_A + 2) * x - (_A + 3)) * x * x + 1
    far = ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
    return np.where(x <= 1, near, far).astype(np.float32)


def _places(old: int, new: int, *, align_corners: bool) -> np.ndarray:
    """The positions of the new pixels among the old ones."""
    by_corners = align_corners and new > 1
    scale = np.float32((old - 1) / (new - 1) if by_corners else old / new)
    return np.arange(new, dtype=np.float32) * scale


def _between(places: np.ndarray, old: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pixels on both sides of each position, and its distance from the first of them."""
    first = np.floor(places).astype(int)
    return first, np.minimum(first + 1, old - 1), (places - first).astype(np.float32)


def resize_bilinear(
    images: Any, size: Any, align_corners: bool = False, name: str | None = None
) -> Tensor:
    """`resize` by ResizeMethod.BILINEAR, always float32."""
    return cast(resize(images, size, 0, align_corners), "float32")


def resize_nearest_neighbor(
    images: Any, size: Any, align_corners: bool = False, name: str | None = None
) -> Tensor:
    """`resize` by ResizeMethod.NEAREST_NEIGHBOR."""
    return resize(images, size, 1, align_corners)


def resize_bicubic(
    images: Any, size: Any, align_corners: bool = False, name: str | None = None
) -> Tensor:
    """`resize` by ResizeMethod.BICUBIC, always float32."""
    return cast(resize(images, size, 2, align_corners), "float32")


def resize_area(
    images: Any, size: Any, align_corners: bool = False, name: str | None = None
) -> Tensor:
    """`resize` by ResizeMethod.AREA, always float32."""
    return cast(resize(images, size, 3, align_corners), "float32")
