"""Boxes of objects: drawn in images, and chosen by their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.tf.arrays import tensor
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor

_COLOURS = (
    (1, 1, 0, 1),
    (0, 0, 1, 1),
    (1, 0, 0, 1),
    (0, 1, 0, 1),
    (0.5, 0, 0.5, 1),
    (0.5, 0.5, 0, 1),
    (0.5, 0, 0, 1),
    (0, 0, 0.5, 1),
    (0, 1, 1, 1),
    (1, 0, 1, 1),
)
_GREY = 1


def draw_bounding_boxes(images: Any, boxes: Any, colors: Any, name: str | None = None) -> Tensor:
    """Images with the outlines of boxes, one pixel wide.

    Args:
        images: float [batch, height, width, channels], with 1, 3 or 4 channels.
        boxes: [batch, boxes, 4], each with y and x of its least and greatest corner, from 0 to 1.
        colors: [colours, channels], used in turn; None: ten colours of TensorFlow.
        name: ignored.

    Returns:
        Tensor of the shape of images.

    Raises:
        InvalidArgumentError: arguments of other ranks.

    Example:
        >>> import penstock.tf as tf
        >>> drawn = tf.image.draw_bounding_boxes(tf.zeros([1, 3, 3, 1]), [[[0, 0, 1, 1]]], [[1.0]])
        >>> drawn[0, :, :, 0].numpy().astype(int).tolist()
        [[1, 1, 1], [1, 0, 1], [1, 1, 1]]
    """
    given = convert_to_tensor(images).view(np.ndarray)
    found = convert_to_tensor(boxes, "float32").view(np.ndarray)
    if given.ndim != 4 or found.ndim != 3 or len(found) != len(given) or found.shape[2] != 4:
        raise InvalidArgumentError(
            None,
            None,
            "The rank of the images should be 4, and boxes must be [batch, num_boxes, 4]",
            found=f"{given.shape} and {found.shape}",
        )
    palette = _palette(colors, given.shape[3])
    drawn = given.copy()
    for picture, outlines in zip(drawn, found, strict=True):
        for number, box in enumerate(outlines):
            _draw(picture, box, palette[number % len(palette)])
    return tensor(drawn)


def _palette(colors: Any, channels: int) -> np.ndarray[Any, Any]:
    made = np.array(_COLOURS if colors is None else colors, np.float32)
    if colors is None and channels == _GREY:
        made[:, 0] = 1
    return made[:, :channels]


def _draw(picture: np.ndarray[Any, Any], box: np.ndarray[Any, Any], colour: Any) -> None:
    height, width = picture.shape[:2]
    sides = np.array([height - 1, width - 1] * 2, np.float32)
    top, left, bottom, right = (box * sides).astype(np.int64).tolist()
    if top > bottom or left > right or top >= height or left >= width or bottom < 0 or right < 0:
        return
    rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
    for row in (top, bottom):
        if 0 <= row < height:
            picture[row, columns] = colour
    for column in (left, right):
        if 0 <= column < width:
            picture[rows, column] = colour


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """The numbers of the boxes with the highest scores that do not overlap a better one too much.

    Args:
        boxes: [boxes, 4], each with y and x of two opposite corners.
        scores: [boxes].
        max_output_size: the most boxes to choose.
        iou_threshold: from 0 to 1; boxes whose common part is a larger part of both together are left out.
        score_threshold: boxes with this score or less are left out.
        name: ignored.

    Returns:
        Tensor int32, in the order of the scores.

    Raises:
        InvalidArgumentError: shapes that do not fit each other, or a threshold that is not from 0 to 1.

    Example:
        >>> import penstock.tf as tf
        >>> boxes = [[0.0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]
        >>> tf.image.non_max_suppression(boxes, [0.5, 0.9, 0.1], 3).numpy().tolist()
        [1, 2]
    """
    corners = convert_to_tensor(boxes, "float32").view(np.ndarray)
    points = convert_to_tensor(scores, "float32").view(np.ndarray)
    if corners.ndim != 2 or corners.shape[1] != 4 or points.shape != corners.shape[:1]:
        message = f"boxes must be [n, 4] and scores [n], not {corners.shape} and {points.shape}"
        raise InvalidArgumentError(None, None, message)
    most_common = float(iou_threshold)
    if not 0 <= most_common <= 1:
        raise InvalidArgumentError(None, None, "iou_threshold must be in [0, 1]", found=most_common)
    low = np.minimum(corners[:, :2], corners[:, 2:])
    high = np.maximum(corners[:, :2], corners[:, 2:])
    chosen: list[int] = []
    for number in np.argsort(-points, kind="stable").tolist():
        if len(chosen) >= int(max_output_size) or not points[number] > float(score_threshold):
            break
        if not chosen or _overlaps(low, high, number, chosen).max() <= most_common:
            chosen.append(number)
    return tensor(np.array(chosen, np.int32))


class CombinedNonMaxSuppression(NamedTuple):
    """The boxes that `combined_non_max_suppression` chose in each image, filled up with zeros."""

    nmsed_boxes: Tensor
    nmsed_scores: Tensor
    nmsed_classes: Tensor
    valid_detections: Tensor


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> CombinedNonMaxSuppression:
    """The boxes with the highest scores of each image, after `non_max_suppression` in each class.

    Args:
        boxes: [batch, boxes, classes, 4], or [batch, boxes, 1, 4] for boxes that all classes share.
        scores: [batch, boxes, classes].
        max_output_size_per_class: the most boxes of a class.
        max_total_size: the most boxes of an image, and the size of the results.
        iou_threshold, score_threshold: as for `non_max_suppression`.
        pad_per_class: reduce the size of the results to `max_output_size_per_class` times the classes, if that is less.
        clip_boxes: limit corners to 0 to 1.
        name: ignored.

    Returns:
        nmsed_boxes float32 [batch, size, 4], nmsed_scores and nmsed_classes float32 [batch, size], and
        valid_detections int32 [batch], the numbers of boxes that were chosen.

    Raises:
        InvalidArgumentError: shapes that do not fit each other, or a threshold that is not from 0 to 1.

    Example:
        >>> import penstock.tf as tf
        >>> boxes = tf.reshape(tf.constant([0.0, 0, 1, 1, 0, 0, 1, 0.9]), [1, 2, 1, 4])
        >>> tf.image.combined_non_max_suppression(boxes, [[[0.5], [0.9]]], 2, 2)[1].numpy().tolist()
        [[0.8999999761581421, 0.0]]
    """
    corners = convert_to_tensor(boxes, "float32").view(np.ndarray)
    points = convert_to_tensor(scores, "float32").view(np.ndarray)
    fits = corners.ndim == 4 and points.ndim == 3 and corners.shape[:2] == points.shape[:2]
    if not fits or corners.shape[3] != 4 or corners.shape[2] not in (1, points.shape[2]):
        message = "boxes must be [batch, n, 1 or classes, 4] and scores [batch, n, classes]"
        raise InvalidArgumentError(None, None, message, found=f"{corners.shape} and {points.shape}")
    batch, classes = len(points), points.shape[2]
    size, most = int(max_total_size), int(max_output_size_per_class)
    size = min(size, most * classes) if pad_per_class else size
    chosen_boxes = np.zeros((batch, size, 4), np.float32)
    chosen = np.zeros((2, batch, size), np.float32)
    counts = np.zeros(batch, np.int32)
    for number in range(batch):
        found: list[Any] = []
        for kind in range(classes):
            own = corners[number, :, kind if corners.shape[2] > 1 else 0]
            marks = points[number, :, kind]
            kept = non_max_suppression(own, marks, most, iou_threshold, score_threshold)
            found += [(marks[place], kind, own[place]) for place in kept.tolist()]
        found = sorted(found, key=lambda one: -one[0])[:size]
        for place, (score, kind, box) in enumerate(found):
            chosen_boxes[number, place] = np.clip(box, 0, 1) if clip_boxes else box
            chosen[:, number, place] = score, kind
        counts[number] = len(found)
    results = chosen_boxes, chosen[0], chosen[1], counts
    return CombinedNonMaxSuppression(*(tensor(result) for result in results))


def _overlaps(low: Any, high: Any, number: int, others: list[int]) -> np.ndarray[Any, Any]:
    """The common part of a box and each of others, as a part of both together; 0 for empty boxes."""
    common = np.minimum(high[number], high[others]) - np.maximum(low[number], low[others])
    shared = np.prod(np.maximum(common, 0), axis=1)
    own, their = np.prod(high[number] - low[number]), np.prod(high[others] - low[others], axis=1)
    both = own + their - shared
    return np.where((own > 0) & (their > 0), shared / np.where(both > 0, both, 1), 0)
