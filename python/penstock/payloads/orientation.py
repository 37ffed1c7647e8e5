"""The EXIF orientation of images: how a program that shows an image turns its stored pixels.

JPEG keeps it in a segment, PNG and WebP in a chunk, and TIFF in the file itself. An image that is encoded again loses
its EXIF, so `turned` turns its pixels instead, as Pillow's `ImageOps.exif_transpose` does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.numbers import memoryviews
from penstock.payloads.image_bytes import bytes_of

_TAG = 0x0112
_AT_ONCE = 8
"""Images of full size in memory at a time."""
_MARK = b"Exif\0\0"
_ENDS = (0xD9, 0xDA)
"""The markers of a JPEG after which no EXIF follows: the end of the image, and the start of its pixels."""


def orientations(images: Any) -> np.ndarray:
    """The orientation of each encoded image, 1 to 8. It is 1 if the image has no valid EXIF.

    Example:
        >>> from penstock.payloads.orientation import orientations
        >>> orientations([b"no image"]).tolist()
        [1]
    """
    array = bytes_of(images)
    return np.fromiter(map(_orientation, memoryviews(array)), np.uint8, len(array))


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


def _orientation(image: memoryview) -> int:
    try:
        exif = _exif_of(image)
        return 1 if exif is None else _tag_of(exif)
    except struct.error:
        return 1


def _exif_of(image: memoryview) -> memoryview | None:
    begin = bytes(image[:12])
    if begin[:2] == b"\xff\xd8":
        return _of_jpeg(image)
    if begin[:4] == b"\x89PNG":
        return _of_chunks(image, 8, ">I4s", b"eXIf")
    if begin[:4] == b"RIFF" and begin[8:] == b"WEBP":
        return _of_chunks(image, 12, "<4sI", b"EXIF")
    return image if begin[:4] in (b"II*\0", b"MM\0*") else None


def _of_jpeg(image: memoryview) -> memoryview | None:
    at = 2
    while at + 4 <= len(image) and image[at] == 0xFF and image[at + 1] not in _ENDS:
        if image[at + 1] == 0xFF:
            at += 1  # a filling byte
            continue
        (length,) = struct.unpack_from(">H", image, at + 2)
        if image[at + 1] == 0xE1 and bytes(image[at + 4 : at + 10]) == _MARK:
            return image[at + 10 : at + 2 + length]
        at += 2 + length
    return None


def _of_chunks(image: memoryview, at: int, head: str, wanted: bytes) -> memoryview | None:
    """Return the contents of a chunk of a PNG or WebP, whose first chunk is at `at`."""
    while at + 8 <= len(image):
        found = struct.unpack_from(head, image, at)
        name, length = found if isinstance(found[0], bytes) else found[::-1]
        if name == wanted:
            exif = image[at + 8 : at + 8 + length]
            return exif[6:] if bytes(exif[:6]) == _MARK else exif
        # A PNG has a checksum behind each chunk, a WebP an even number of bytes.
        at += 12 + length if head[0] == ">" else 8 + length + length % 2
    return None


def _tag_of(exif: memoryview) -> int:
    order = {b"II": "<", b"MM": ">"}.get(bytes(exif[:2]))
    if order is None:
        return 1
    (start,) = struct.unpack_from(f"{order}I", exif, 4)
    (count,) = struct.unpack_from(f"{order}H", exif, start)
    for place in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(f"{order}HH", exif, place)
        if tag == _TAG:
            (value,) = struct.unpack_from(f"{order}{'I' if kind == 4 else 'H'}", exif, place + 8)
            return value if 1 <= value <= 8 else 1
    return 1
