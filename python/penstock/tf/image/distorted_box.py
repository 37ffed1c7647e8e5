"""A part of an image with random size, aspect ratio and position that covers enough of a box."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.tf.errors import InvalidArgumentError
from penstock.tf.image.draws import stateless_words
from penstock.tf.seeds import next_words
from penstock.tf.tensor import Tensor, convert_to_tensor

_F = np.float32
_MOST_ATTEMPTS = 100


class DistortedBox(NamedTuple):
    """The begin and size of the part, for `tf.slice`; and the part as a box."""

    begin: Tensor
    size: Tensor
    bboxes: Tensor


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int = 0,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> DistortedBox:
    """A random part of an image.

    Args:
        image_size: height, width and channels.
        bounding_boxes: [1, n, 4] of top, left, bottom, right, from 0 to 1.
        seed (int): the seed of the operation; 0 for none.
        min_object_covered (float): the fraction of at least one box that the part must contain.
        aspect_ratio_range: least and greatest width / height; (0.75, 1.33) by default.
        area_range: least and greatest fraction of the image's area; (0.05, 1) by default.
        max_attempts (int): the number of attempts, after which the whole image is returned; 100 by default.
        use_image_if_no_bounding_boxes (bool): without boxes, the image is the box.
        name: ignored.

    Returns:
        DistortedBox of begin [3], size [3] and bboxes [1, 1, 4].

    Raises:
        InvalidArgumentError: invalid sizes, boxes or ranges.
    """
    attempts = _MOST_ATTEMPTS if max_attempts is None else max_attempts
    words = next_words("boxes", 4 * max(attempts, 1), seed or None, attempts)
    return _sampled(
        words, image_size, bounding_boxes, min_object_covered, aspect_ratio_range, area_range,
        attempts, use_image_if_no_bounding_boxes,
    )  # fmt: skip


def stateless_sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: Any,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> DistortedBox:
    """Like `sample_distorted_bounding_box`, with a seed of two numbers."""
    attempts = _MOST_ATTEMPTS if max_attempts is None else max_attempts
    words = stateless_words(4 * max(attempts, 1), seed)
    return _sampled(
        words, image_size, bounding_boxes, min_object_covered, aspect_ratio_range, area_range,
        attempts, use_image_if_no_bounding_boxes,
    )  # fmt: skip


def _sampled(
    words: np.ndarray,
    image_size: Any,
    bounding_boxes: Any,
    covered: Any,
    aspect_ratio_range: Any,
    area_range: Any,
    attempts: int,
    image_is_box: bool | None,
) -> DistortedBox:
    numbers = iter(words.tolist())
    ratios, areas = aspect_ratio_range or (0.75, 1.33), area_range or (0.05, 1)
    size = convert_to_tensor(image_size)
    boxes = np.asarray(bounding_boxes, np.float32)
    _check(size, boxes, covered, ratios, areas, attempts)
    height, width = int(size[0]), int(size[1])
    rects = _rectangles(boxes.reshape(-1, 4), height, width)
    if not rects:
        if not image_is_box:
            message = "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not provide any bounding boxes."
            raise InvalidArgumentError(None, None, message)
        rects = [(0, 0, width, height)]
    low, high = _F(ratios[0]), _F(ratios[1])
    found = (0, 0, width, height)
    for _ in range(attempts):
        ratio = _unit(next(numbers)) * (high - low) + low
        crop = _crop(numbers, width, height, areas, ratio)
        if crop is not None and _covers(crop, rects, _F(covered)):
            found = crop
            break
    left, top, right, bottom = found
    kind = size.dtype
    edges = [
        _F(top) / _F(height),
        _F(left) / _F(width),
        _F(bottom) / _F(height),
        _F(right) / _F(width),
    ]
    return DistortedBox(
        np.array([top, left, 0], kind).view(Tensor),
        np.array([bottom - top, right - left, -1], kind).view(Tensor),
        np.array(edges, np.float32).reshape(1, 1, 4).view(Tensor),
    )


# Complexity: one check after another, each with its message.
def _check(
    size: Tensor, boxes: np.ndarray, covered: Any, ratios: Any, areas: Any, attempts: int
) -> None:
    def refuse(message: str) -> InvalidArgumentError:
        return InvalidArgumentError(None, None, message)

    if size.size != 3:
        raise refuse(f"image_size must contain 3 elements, not {size.size}")
    if boxes.ndim != 3 or boxes.shape[-1] != 4:
        raise refuse(
            f"bounding_boxes must have shape [4] at its end and 3 dimensions, not {boxes.shape}"
        )
    if not 0 <= covered <= 1:
        raise refuse(f"min_object_covered must be in [0, 1], not {covered}")
    if len(ratios) != 2 or ratios[0] <= 0 or ratios[1] <= 0:
        raise refuse(f"aspect_ratio_range must be two positive numbers, not {ratios}")
    if len(areas) != 2 or not (0 < areas[0] <= 1 and 0 < areas[1] <= 1):
        raise refuse(f"area_range must be two numbers of more than 0 to 1, not {areas}")
    if attempts < 1:
        raise refuse(f"max_attempts must be positive, not {attempts}")
    if np.any(boxes < 0) or np.any(boxes > 1):
        raise refuse("All bounding box coordinates must be in [0.0, 1.0]")


def _rectangles(boxes: np.ndarray, height: int, width: int) -> list[tuple[int, int, int, int]]:
    whole = boxes * np.array([height, width, height, width], np.float32)
    return [(int(left), int(top), int(right), int(low)) for top, left, low, right in whole]


def _unit(number: int) -> np.float32:
    return np.uint32((number & 0x7FFFFF) | 0x3F800000).view(np.float32) - _F(1)


def _rounded(value: Any) -> int:
    return int(np.rint(_F(value)))


def _crop(
    numbers: Iterator[int], width: int, height: int, areas: tuple[float, float], ratio: Any
) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom of a part with this aspect ratio, or None if rounding makes it impossible."""
    least, most = (_F(area) * _F(width) * _F(height) for area in areas)
    rows, most_rows = _rounded(np.sqrt(least / ratio)), _rounded(np.sqrt(most / ratio))
    if _rounded(_F(most_rows) * ratio) > width:
        most_rows = int((width + 0.5 - 1e-7) / float(ratio))
        if _rounded(_F(most_rows) * ratio) > width:
            most_rows -= 1
    most_rows = min(most_rows, height)
    rows = min(rows, most_rows)
    if rows < most_rows:
        rows += next(numbers) % (most_rows - rows + 1)
    columns = _rounded(_F(rows) * ratio)
    # One row more or less corrects the rounding of the area.
    for misses, change in ((lambda a: a < least, 1), (lambda a: a > most, -1)):
        if misses(_F(columns * rows)):
            rows += change
            columns = _rounded(_F(rows) * ratio)
    if not least <= _F(columns * rows) <= most or not (0 < columns <= width) or not rows <= height:
        return None
    top = next(numbers) % (height - rows) if rows < height else 0
    left = next(numbers) % (width - columns) if columns < width else 0
    return left, top, left + columns, top + rows


def _covers(crop: tuple[int, ...], boxes: list[tuple[int, int, int, int]], covered: Any) -> bool:
    """Whether the part covers enough of some box of at least one pixel."""

    def area(left: int, top: int, right: int, bottom: int) -> np.float32:
        return _F(max(right - left, 0)) * _F(max(bottom - top, 0))

    if area(*crop) < 1:
        return False
    for box in boxes:
        if (own := area(*box)) >= 1:
            first, last = np.maximum(crop[:2], box[:2]), np.minimum(crop[2:], box[2:])
            if area(*first.tolist(), *last.tolist()) / own >= covered:
                return True
    return False
