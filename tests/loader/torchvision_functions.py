"""Functions of a batch that worker processes import: transforms of torchvision, seeded for each record."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms import v2

TRANSFORM = v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4), v2.RandomRotation(15), v2.RandomErasing()])


def transformed(batch: dict[str, Any], keys: np.ndarray) -> dict[str, Any]:
    images = torch.from_numpy(batch["image"])
    for image, key in zip(images, keys, strict=True):
        torch.manual_seed(int(key) >> 1)
        image.copy_(TRANSFORM(image))
    return batch
