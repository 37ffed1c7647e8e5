"""Masks: images whose pixels are numbers of classes or instances, so that mixtures of pixels have no meaning.

They are resized by taking the nearest pixel, as a `penstock.Loader` does with `same={"mask": "nearest"}`, and written as
PNGs of the same depth, with the same palette. So a mask gets no value that it did not have.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.columns.types import ImageType
from penstock.limits import Limits, limits_from
from penstock.payloads.image_bytes import bytes_of
from penstock.payloads.images import fault_error, image_sizes
from penstock.payloads.orientation import orientations, upright

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _RGB, _PALETTE = 0, 2, 3
FEW_VALUES = 64
"""An image of one channel with at most this many values is taken for a mask."""


def resize_masks(
    array: Any,
    max_side: int | None = None,
    *,
    limits: Limits | dict[str, int] | None = None,
    threads: int | None = None,
) -> pa.Array:
    """Return masks as PNGs whose longer side is at most `max_side` pixels, by taking the nearest pixels.

    A PNG that is small enough keeps its bytes. Depth and palette stay, alpha is dropped. Nulls stay null.

    Args:
        array: a pyarrow array of images or bytes, or a list of bytes.
        max_side: maximum pixels of the longer side; None keeps the sizes.
        limits: `image_pixels` limits each image.
        threads: None for one per core.

    Returns:
        An array of `ImageType("png")`.

    Raises:
        FormatError: a record is not an image, or is damaged.
        LimitError: an image is too large.

    Example:
        >>> from penstock.payloads.masks import mask_values, resize_masks
        >>> smaller = resize_masks([b"P5 4 1 255 " + bytes([0, 0, 5, 5])], 2)
        >>> mask_values(smaller[0].as_py()).tolist()
        [0, 5]
    """
    images = bytes_of(array)
    heads = image_sizes(images).to_pylist()
    most = limits_from(limits).image_pixels
    ways = orientations(images)

    def resized(record: int) -> bytes | None:
        data, head = images[record].as_py(), heads[record]
        if head is None:
            return None
        height, width = within(head["height"], head["width"], max_side)
        if head["codec"] == "png" and (height, width) == (head["height"], head["width"]):
            return data
        values = upright(_values(data, (height, width), most, record), int(ways[record]))
        return _png(values, data if head["codec"] == "png" else b"")

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        made = list(pool.map(resized, range(len(images))))
    return pa.ExtensionArray.from_storage(ImageType("png"), pa.array(made, pa.binary()))


def within(height: int, width: int, max_side: int | None) -> tuple[int, int]:
    """The size whose longer side is at most `max_side`, with the same aspect ratio, rounded as in `reencode`.

    Example:
        >>> from penstock.payloads.masks import within
        >>> within(480, 640, 320)
        (240, 320)
    """
    longer = max(height, width)
    if max_side is None or longer <= max_side:
        return height, width
    shrunk = (max(1, (side * max_side * 2 + longer) // (longer * 2)) for side in (height, width))
    return next(shrunk), next(shrunk)


def mask_values(data: bytes, limits: Limits | dict[str, int] | None = None) -> np.ndarray:
    """The different values of a mask, ascending: numbers of classes, indices of a palette, or rows of RGB.

    Example:
        >>> from penstock.payloads.masks import mask_values
        >>> mask_values(b"P5 3 1 255 " + bytes([9, 2, 9])).tolist()
        [2, 9]
    """
    (head,) = image_sizes([data]).to_pylist()
    most = limits_from(limits).image_pixels
    values = _values(data, (head["height"], head["width"]), most, 0)
    return np.unique(values) if values.ndim == 2 else np.unique(values.reshape(-1, 3), axis=0)


def is_one_channel_png(data: memoryview | bytes) -> bool:
    """Whether an image is a PNG of grey or with a palette, without alpha, as masks are.

    Example:
        >>> from penstock.payloads.masks import is_one_channel_png
        >>> is_one_channel_png(b"P5 1 1 255 a")
        False
    """
    return bytes(data[:8]) == _SIGNATURE and len(data) > 25 and data[25] in (_GREY, _PALETTE)


def _values(data: bytes, size: tuple[int, int], image_pixels: int, record: int) -> np.ndarray:
    """The values of a mask, uint8 or uint16 [height, width] or [height, width, 3]."""
    image = pa.array([data], pa.binary())
    try:
        channels, is_deep = _core.mask_kind(image, image_pixels)
        tail = () if channels == 1 else (3,)
        out = np.empty((1, *size, *tail), np.uint16 if is_deep else np.uint8)
        key = as_arrow(np.zeros(1, np.uint64))
        mask = channels, is_deep
        _core.make_images(image, key, _whole(size), out, mask=mask, image_pixels=image_pixels)
    except _core.KernelError as error:
        raise fault_error(error.args[0], record) from None
    return out[0]


@lru_cache(maxsize=256)
def _whole(size: tuple[int, int]) -> _core.ImageRecipe:
    """The whole image in another size."""
    return _core.ImageRecipe(
        size=size,
        crop="whole",
        flip=False,
        exact=True,
        scale=(1.0, 1.0),
        ratio=(1.0, 1.0),
        center_fraction=1.0,
    )


def _png(values: np.ndarray, before: bytes) -> bytes:
    """Return a PNG of values, with depth and palette of the PNG `before`, if there is one."""
    height, width = values.shape[:2]
    colour, depth = _RGB if values.ndim == 3 else _GREY, 8 * values.dtype.itemsize
    kept: list[bytes] = []
    if before and values.ndim == 2:
        depth = before[24]
        colour = _PALETTE if before[25] == _PALETTE else _GREY
    if before and before[25] == colour:
        kept = list(_chunks_of(before, (b"PLTE", b"tRNS")))
    if depth < 8:
        # Grey of fewer than 8 bits was scaled to 8 bits, indices were not.
        values = values if colour == _PALETTE else values >> (8 - depth)
        bits = np.unpackbits(values[..., None], axis=2)[..., 8 - depth :]
        rows = np.packbits(bits.reshape(height, -1), axis=1)
    else:
        rows = values.astype(f">u{depth // 8}").reshape(height, -1).view(np.uint8)
    lines = np.zeros((height, 1 + rows.shape[1]), np.uint8)  # a line begins with its filter, none
    lines[:, 1:] = rows
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pixels = _chunk(b"IDAT", zlib.compress(lines.tobytes()))
    return b"".join([_SIGNATURE, _chunk(b"IHDR", head), *kept, pixels, _chunk(b"IEND", b"")])


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _chunks_of(png: bytes, names: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the chunks with these names. The PNG was decoded before, so it is not damaged."""
    at = len(_SIGNATURE)
    while at + 12 <= len(png):
        length, name = struct.unpack_from(">I4s", png, at)
        if name in names:
            yield png[at : at + 12 + length]
        at += 12 + length
