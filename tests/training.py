"""A small dataset of images in three formats, and helpers for the tests of training with other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

COUNT, CLASSES, SIZE = 240, 4, 16
CONTAINERS = ("shapes.tfrecord", "shapes.tar", "shapes.beton")


def shapes(folder: Path) -> list[Path]:
    """The same PNGs of coloured bars, with their labels, as a TFRecord, a tar and a .beton."""
    random = np.random.default_rng(7)
    labels = random.integers(0, CLASSES, COUNT)
    pixels = random.integers(0, 120, (COUNT, SIZE, SIZE, 3), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        bar = slice(label * 4, label * 4 + 4)
        (image if label % 2 else image.swapaxes(0, 1))[bar] += 100
    columns = {"image": ps.encode_images(pixels, "png"), "label": pa.array(labels, pa.int64())}
    for name in CONTAINERS:
        more: dict[str, Any] = {"image_mode": "raw"} if name.endswith("beton") else {}
        ps.write(columns, folder / name, **more)
    return [folder / name for name in CONTAINERS]


def loader(path: Path, **more: Any) -> ps.Loader:
    """A shuffled loader of them, with batches of uint8[40, 16, 16, 3] and int64[40]: six steps an epoch."""
    ds = ps.open(path, index="never")
    return ps.Loader(ds, 40, order=ps.Shuffled(seed=5), decode={"image": ps.Image()}, **more)
