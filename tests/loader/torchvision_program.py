"""Transforms of torchvision in worker processes, seeded for each record, and its changes of colours beside penstock's. test_augmentations.py runs it in a separate
process, because torchvision's libraries abort a process that has loaded TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.transforms import v2
from torchvision_colours import agree

import penstock as ps

TRANSFORM = v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4), v2.RandomRotation(15), v2.RandomErasing()])
PATH = Path("d.parquet")


def transformed(batch: dict[str, Any], keys: np.ndarray) -> dict[str, Any]:
    images = torch.from_numpy(batch["image"])
    for image, key in zip(images, keys, strict=True):
        torch.manual_seed(int(key) >> 1)
        image.copy_(TRANSFORM(image))
    return batch


def loader(batch_size: int, **options: Any) -> ps.Loader:
    decode = {"image": ps.Image(32, crop="random", layout="nchw")}
    order = ps.Shuffled(seed=2)
    return ps.Loader(ps.open(PATH), batch_size, order=order, decode=decode, **options)


def repeats() -> None:
    """Check that processes, resuming and other batch sizes give the same results."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), np.uint8)
    ps.write({"image": ps.encode_images(pixels, "jpeg")}, PATH)
    plain = np.concatenate([batch["image"] for batch in loader(3)])
    by_processes = loader(3, map=transformed, processes=2)
    batches = iter(by_processes)
    first = next(batches)["image"]
    state = by_processes.state_dict()
    whole = np.concatenate([first, *(batch["image"] for batch in batches)])
    assert not np.array_equal(whole, plain)
    resumed = loader(3, map=transformed, processes=1)
    resumed.load_state_dict(state)
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in resumed]), whole[3:])
    others = [batch["image"] for batch in loader(5, map=transformed, threads=0)]
    np.testing.assert_array_equal(np.concatenate(others), whole)


if __name__ == "__main__":
    repeats()
    agree()
