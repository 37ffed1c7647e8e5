"""Images as a .beton stores them: JPEG files or rows of pixels, by what was chosen."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SchemaError, UnsupportedError
from penstock.formats.beton_columns import Stored, binary_from, edges_of
from penstock.formats.beton_layout import IMAGE, JPEG_MODE, RAW_MODE, field_of

if TYPE_CHECKING:
    from penstock.formats.beton_write import BetonOptions

_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ROW = field_of("", IMAGE).row


class Images:
    """Writes one column of encoded images."""

    def __init__(self, name: str, options: BetonOptions) -> None:
        self._name = name
        self._options = options
        self._chance = np.random.Generator(np.random.PCG64(options.seed))

    def __call__(self, array: Any, first: int) -> Stored:
        storage = array.storage.cast("binary")
        edges = edges_of(storage).tolist()
        data = storage.buffers()[2]
        view = memoryview(data if data is not None else b"").cast("B")
        row = np.zeros(len(storage), _ROW)
        parts: list[Any] = []
        for at, (start, end) in enumerate(pairwise(edges)):
            try:
                mode, width, height, part = self._stored(view[start:end])
            except SchemaError as error:
                raise error.at(record=first + at, field=self._name) from None
            row[at] = (mode, width, height, 0)
            parts.append(part)
        joined = np.frombuffer(b"".join(parts), np.uint8)
        return Stored(row, binary_from(np.array([len(p) for p in parts], np.int64), joined))

    def _stored(self, image: memoryview) -> tuple[int, int, int, Any]:
        if self._options.image_mode == "jpg":
            size = jpeg_size(image)
            if size is not None:
                return JPEG_MODE, *size, image
        if self._options.image_mode == "raw":
            found = ppm_pixels(image)
            if found is not None:
                return RAW_MODE, *found
        raise UnsupportedError("not yet")


def ppm_pixels(image: memoryview) -> tuple[int, int, memoryview] | None:
    """Width, height and pixels of a PPM file as penstock writes them; None of anything else."""
    head = bytes(image[:32]).split(b"\n", 3)
    if len(head) != 4 or head[0] != b"P6" or head[2] != b"255":
        return None
    width, _, height = head[1].partition(b" ")
    if not (width.isdigit() and height.isdigit()):
        return None
    size = (int(width), int(height))
    pixels = image[sum(len(line) + 1 for line in head[:3]) :]
    return (*size, pixels) if len(pixels) == size[0] * size[1] * 3 else None


def jpeg_size(image: memoryview) -> tuple[int, int] | None:
    """Width and height of a JPEG, by its frame header."""
    if image[:2] != b"\xff\xd8":
        return None
    at, end = 2, len(image)
    while at + 9 <= end and image[at] == 0xFF:
        marker = image[at + 1]
        if marker in _START_OF_FRAME:
            height, width = image[at + 5] << 8 | image[at + 6], image[at + 7] << 8 | image[at + 8]
            return (width, height) if width and height else None
        at += 1 if marker == 0xFF else 2 + (image[at + 2] << 8 | image[at + 3])
    return None
