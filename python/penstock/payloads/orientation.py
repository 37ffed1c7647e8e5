"""The EXIF orientation of images: how a program that shows an image turns its stored pixels.

JPEG keeps it in a segment, PNG and WebP in a chunk, and TIFF in the file itself. An image that is encoded again loses
its EXIF, so `turned` turns its pixels instead, as Pillow's `ImageOps.exif_transpose` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.payloads.image_bytes import bytes_of

_AT_ONCE = 8
"""Images of full size in memory at a time."""


def orientations(images: Any) -> np.ndarray:
    """The orientation of each encoded image, 1 to 8. It is 1 if the image has no valid EXIF.

    Example:
        >>> from penstock.payloads.orientation import orientations
        >>> orientations([b"no image"]).tolist()
        [1]
    """
    return pa.array(_core.image_orientations(bytes_of(images))).to_numpy()


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn and mirror the pixels of an image, [height, width, ...], as its orientation says.

    Example:
        >>> import numpy as np
        >>> from penstock.payloads.orientation import upright
        >>> upright(np.array([[1, 2, 3]]), 6).tolist()
        [[1], [2], [3]]
    """
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, 0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def turned(
    images: Any,
    made: Any,
    decoded: Callable[[Any], Sequence[np.ndarray]],
    encoded: Callable[[list[np.ndarray], Any], list[bytes]],
) -> Any:
    """Return `made`, the images encoded again, with upright pixels wherever the bytes of an image changed.

    Args:
        images: the images before, an array of bytes.
        made: the images after, an array of bytes.
        decoded: decodes some of the images before to the pixels of the images after.
        encoded: encodes pixels to the codecs of some images after.
    """
    found = orientations(images)
    rows = [int(row) for row in np.flatnonzero(found > 1) if _differ(images[row], made[row])]
    if not rows:
        return made
    new: list[bytes] = []
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        places = pa.array(some, pa.int64())
        pixels = zip(decoded(images.take(places)), found[some].tolist(), strict=True)
        new += encoded([upright(one, way) for one, way in pixels], made.take(places))
    is_new = np.zeros(len(made), bool)
    is_new[rows] = True
    return pc.replace_with_mask(made, pa.array(is_new), pa.array(new, made.type))


def _differ(before: Any, after: Any) -> bool:
    return before.as_py() != after.as_py()
