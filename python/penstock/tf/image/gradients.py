"""Differences between neighbouring pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor


def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """The differences between each pixel and the next one, down and to the right; 0 in the last row and column.

    Args:
        image: images [batch, height, width, channels].

    Returns:
        Two tensors of the images' shape and dtype.

    Raises:
        ValueError: not four dimensions.

    Example:
        >>> import penstock.tf as tf
        >>> down, right = tf.image.image_gradients(tf.reshape(tf.range(4.0), [1, 2, 2, 1]))
        >>> down.numpy().ravel().tolist(), right.numpy().ravel().tolist()
        ([2.0, 2.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0])
    """
    given = convert_to_tensor(image).view(np.ndarray)
    if given.ndim != 4:
        raise ValueError(
            f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {given.shape}."
        )
    down, right = np.zeros_like(given), np.zeros_like(given)
    down[:, :-1] = given[:, 1:] - given[:, :-1]
    right[:, :, :-1] = given[:, :, 1:] - given[:, :, :-1]
    return down.view(Tensor), right.view(Tensor)


def sobel_edges(image: Any) -> Tensor:
    """Sobel's edges, down and to the right, of images whose border is mirrored.

    Args:
        image: floats [batch, height, width, channels].

    Returns:
        Tensor[batch, height, width, channels, 2].

    Raises:
        InvalidArgumentError: images that are not floats.

    Example:
        >>> import penstock.tf as tf
        >>> tf.image.sobel_edges(tf.reshape(tf.range(9.0), [1, 3, 3, 1]))[
        ...     0, 1, 1, 0
        ... ].numpy().tolist()
        [24.0, 8.0]
    """
    given = convert_to_tensor(image).view(np.ndarray)
    if given.dtype.kind != "f":
        raise InvalidArgumentError(
            None, None, f"sobel_edges takes floats, not {given.dtype}: use tf.cast"
        )
    wide = np.pad(given, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    across = wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]
    along = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
    edges = [across[:, 2:] - across[:, :-2], along[:, :, 2:] - along[:, :, :-2]]
    return np.stack(edges, -1).view(Tensor)
