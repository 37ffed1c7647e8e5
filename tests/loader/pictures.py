"""Images for the tests of images for training, and batches made of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as Pillow

import penstock as ps
from penstock import _core
from penstock.loader.images import decode_into


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """An image with edges, gradients and a little noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    ramps = np.stack([rows * 2 + columns, columns * 3 - rows, rows + columns // 2], -1)
    boxes = np.where(((rows // 13 + columns // 17) % 2)[..., None], 60, 0)
    return (ramps + boxes + rng.integers(0, 8, (height, width, 3))).astype(np.uint8)


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "JPEG", **{"quality": 92, **options})
    return file.getvalue()


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def made(images: Any, spec: ps.Image, *of: int, **options: Any) -> Any:
    found = keys(*of) if of else np.arange(len(images), dtype=np.uint64)
    return decode_into(images, spec, found, **options)[0]


def recipe(**change: Any) -> _core.ImageRecipe:
    usual: dict[str, Any] = {
        "size": (224, 224),
        "crop": "random",
        "flip": True,
        "exact": False,
        "scale": (0.08, 1.0),
        "ratio": (3 / 4, 4 / 3),
        "center_fraction": 0.875,
    }
    return _core.ImageRecipe(**{**usual, **change})


RANDOM = ps.Image(64, crop="random", flip=True)
