"""Comparison of images before and after a container has encoded them again.

Lossless codecs keep the pixels. JPEG and WebP change pixels, most of all in fine patterns, but hardly the mean of an
area. So the means of squares of 16 x 16 pixels are compared: on average they may differ by at most `MOST_DIFFERENCE`.
A different picture exceeds this limit, unless the two look much alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.payloads.images import decode_images, image_sizes
from penstock.payloads.orientation import orientations, upright

MOST_DIFFERENCE = 16.0
"""The largest accepted difference, on a scale of 0 to 255. A JPEG of the lowest quality comes near this limit; quality
90 gives about 1."""
_SIDE = 16
_LOSSLESS = ("png", "ppm")
_GROUP_PIXELS = 16 << 20


def first_other_picture(wanted: pa.Array, found: pa.Array) -> int | None:
    """Return the first record at which two columns of images show different pictures, or None."""
    left, right = _bytes(wanted), _bytes(found)
    rows = [row for row in range(len(left)) if not left[row].equals(right[row])]
    lacking = next((row for row in rows if not (left[row].is_valid and right[row].is_valid)), None)
    for group in _groups([row for row in rows if lacking is None or row < lacking], right):
        other = _first_other(group, left, right)
        if other is not None:
            return other
    return lacking


def _first_other(rows: list[int], left: pa.Array, right: pa.Array) -> int | None:
    sides = [images.take(pa.array(rows, pa.int64())) for images in (left, right)]
    heads = [image_sizes(images).to_pylist() for images in sides]
    # A picture that was encoded again has no EXIF, and its pixels are turned instead.
    ways = [orientations(images).tolist() for images in sides]
    sizes = [
        [_shown_size(head, way) for head, way in zip(*side, strict=True)]
        for side in zip(heads, ways, strict=True)
    ]
    unlike = next((n for n, (a, b) in enumerate(zip(*sizes, strict=True)) if a != b), len(rows))
    pixels = [
        list(map(upright, decode_images(images[:unlike]), own[:unlike]))
        for images, own in zip(sides, ways, strict=True)
    ]
    for n, (a, b) in enumerate(zip(*pixels, strict=True)):
        if not _shows_same(a, b, heads[1][n]["codec"]):
            return rows[n]
    return rows[unlike] if unlike < len(rows) else None


def _shown_size(head: dict[str, Any], way: int) -> tuple[int, int]:
    size = head["width"], head["height"]
    return size[::-1] if way > 4 else size


def _shows_same(a: np.ndarray, b: np.ndarray, codec: str) -> bool:
    if codec in _LOSSLESS:
        return np.array_equal(a, b)
    return float(np.abs(_squares(a) - _squares(b)).mean()) <= MOST_DIFFERENCE


def _bytes(images: pa.Array) -> pa.Array:
    stored = images.storage if isinstance(images, pa.ExtensionArray) else images
    return stored.cast(pa.large_binary())


def _groups(rows: list[int], images: pa.Array) -> Iterator[list[int]]:
    """Yield groups of rows to decode together: at most `_GROUP_PIXELS`, or one larger image."""
    heads = image_sizes(images.take(pa.array(rows, pa.int64()))).to_pylist()
    group: list[int] = []
    pixels = 0
    for row, head in zip(rows, heads, strict=True):
        size = head["width"] * head["height"]
        if group and pixels + size > _GROUP_PIXELS:
            yield group
            group, pixels = [], 0
        group.append(row)
        pixels += size
    if group:
        yield group


def _squares(pixels: np.ndarray) -> np.ndarray:
    sums = pixels.astype(np.float32)
    for axis in (0, 1):
        edges = np.arange(0, sums.shape[axis], _SIDE)
        counts = np.diff(np.append(edges, sums.shape[axis])).astype(np.float32)
        sums = np.add.reduceat(sums, edges, axis) / np.expand_dims(
            counts, tuple(n for n in range(3) if n != axis)
        )
    return sums
