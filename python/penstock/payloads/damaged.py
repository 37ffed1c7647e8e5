"""Finds damaged images by decoding them all."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.errors import FormatError, LimitError
from penstock.limits import Limits
from penstock.payloads.image_bytes import bytes_of
from penstock.payloads.images import fault_error


def first_damaged(
    images: Any, chosen: np.ndarray, threads: int | None = None
) -> FormatError | None:
    """Decode images, and return the error of the first that is damaged; None if there is none.

    Args:
        images: an array of encoded images, as `penstock.decode_images` takes it.
        chosen: the places of those to decode. Nulls are left out.
        threads: the number of threads.

    Returns:
        The error. Its `record` is the image's place in the array. Images that are too large or cannot be decoded for
        another reason are not damaged.

    Example:
        >>> import numpy as np
        >>> from penstock.payloads.damaged import first_damaged
        >>> first_damaged([b"P6 1 1 255 abc", b"P6 1 1 255 ab"], np.arange(2)).record
        1
    """
    stored = bytes_of(images)
    chosen = chosen[np.asarray(stored.is_valid())[chosen]]
    if not len(chosen):
        return None
    some = stored if len(chosen) == len(stored) else stored.take(pa.array(chosen))
    out = np.empty((len(chosen), 1, 1, 3), np.uint8)
    found = _core.make_images(
        some,
        as_arrow(np.zeros(len(chosen), np.uint64)),
        _pixel(),
        out,
        image_pixels=Limits().image_pixels,
        damage="skip",
        threads=threads or os.cpu_count() or 1,
    )
    for place, fault, _ in found:
        error = fault_error(fault, int(chosen[place]), allow_damaged=True)
        if isinstance(error, FormatError) and not isinstance(error, LimitError):
            return error
    return None


@lru_cache(maxsize=1)
def _pixel() -> _core.ImageRecipe:
    """The whole image, decoded in full and made one pixel."""
    return _core.ImageRecipe(
        size=(1, 1),
        crop="whole",
        flip=False,
        exact=True,
        scale=(1.0, 1.0),
        ratio=(1.0, 1.0),
        center_fraction=1.0,
    )
