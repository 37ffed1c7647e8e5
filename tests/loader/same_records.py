"""Records of an image and of columns that go with it, for the tests of `Image(same=...)`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from pictures import jpeg, picture, recipe
from PIL import Image as Pillow

import penstock as ps

HEIGHT, WIDTH = 60, 80
SPECS = [
    {"size": (33, 47)},
    {"size": 24, "crop": "center", "flip": True},
    {"size": (40, 31), "crop": "random", "flip": True},
    {"size": 150, "crop": "random", "flip": True},
    {"flip": True},
]


def png(pixels: np.ndarray, mode: str | None = None, **options: Any) -> bytes:
    """A PNG; with mode "P", it has a palette whose colours differ from the indices."""
    image = Pillow.fromarray(pixels)
    if mode == "P":
        image = Pillow.fromarray(pixels, "L")
        image = image.convert("P")
        image.putdata(pixels.ravel().tolist())
        image.putpalette([255 - n // 3 for n in range(768)])
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def drawn(
    count: int, height: int = HEIGHT, width: int = WIDTH, high: int = 256
) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, high, (height, width)).astype(np.uint16) for _ in range(count)]


def loaded(folder: Path, columns: dict[str, Any], image: dict[str, Any], **options: Any) -> Any:
    """One batch of all records, which are written to a file and loaded from it."""
    path = folder / f"d{len(list(folder.iterdir()))}.parquet"
    ps.write(columns, path)
    loader = ps.Loader(
        ps.open(path), len(columns["image"]), decode={"image": ps.Image(**image)}, **options
    )
    return next(iter(loader))


def views(count: int, image: dict[str, Any], keys: np.ndarray, size: Any = (WIDTH, HEIGHT)) -> Any:
    law = recipe(
        size=ps.Image(**image).height_width,
        crop=image.get("crop") or "whole",
        flip=image.get("flip", False),
    )
    return [law.view(*size, int(keys[n])) for n in range(count)]


def keys_of(folder: Path, count: int) -> np.ndarray:
    """The keys that a loader gives to the first records of an epoch."""
    found: list[np.ndarray] = []

    def keep(batch: Any, keys: np.ndarray) -> Any:
        found.append(keys)
        return batch

    path = folder / "keys.npz"
    ps.write({"id": np.arange(count)}, path, overwrite=True)
    next(iter(ps.Loader(ps.open(path), count, map=keep, threads=0)))
    return found[0]


def nearest(mask: np.ndarray, view: Any, size: tuple[int, int]) -> np.ndarray:
    """The slow way: each new pixel is the old pixel that contains its centre."""
    left, top, width, height, flip = view
    made = np.zeros((*size, *mask.shape[2:]), mask.dtype)
    for y in range(size[0]):
        for x in range(size[1]):
            across = size[1] - 1 - x if flip else x
            row = int(np.floor(top + (y + 0.5) * height / size[0]))
            made[y, x] = mask[row, int(np.floor(left + (across + 0.5) * width / size[1]))]
    return made


BOXES: list[list[list[float]]] = [
    [[0.0, 0.0, WIDTH, HEIGHT], [20.0, 10.0, 50.0, 30.0]],
    [],
    [[70.0, 50.0, 79.0, 59.0]],
    [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 70.0, 50.0], [40.0, 30.0, 41.0, 31.0]],
]
IMAGES = [jpeg(picture(HEIGHT, WIDTH, n)) for n in range(4)]
