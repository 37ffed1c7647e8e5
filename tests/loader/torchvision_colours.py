"""Changes of colours compared with torchvision's. torchvision_program.py runs it in a separate process."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as F

import penstock as ps
from penstock.loader.images import recipe_of

KINDS: dict[str, Any] = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
    "grayscale": lambda image, _: F.rgb_to_grayscale(image, 3),
}


def pictures() -> np.ndarray:
    """Noise, smooth colours, and greys with a little colour."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (4, 48, 64, 3))
    rows, columns = np.mgrid[:48, :64]
    smooth = np.stack([rows * 5, columns * 4, (rows + columns) * 2], -1) + rng.integers(
        0, 40, (4, 1, 1, 3)
    )
    greys = rng.integers(0, 256, (4, 48, 64, 1)) + rng.integers(-3, 4, (4, 48, 64, 3))
    return np.concatenate([noise, smooth, greys]).clip(0, 255).astype(np.uint8)


def differences(pixels: np.ndarray, spec: ps.Image) -> np.ndarray:
    recipe, found = recipe_of(spec), spec.decode(pixels)
    made: list[np.ndarray] = []
    for key, image in enumerate(pixels):
        tensor = torch.from_numpy(image).permute(2, 0, 1)
        for name, factor in recipe.jitter(key):
            tensor = KINDS[name](tensor, factor)
        made.append(tensor.permute(1, 2, 0).numpy())
    return np.abs(np.stack(made).astype(int) - found)


def agree() -> None:
    """Check that penstock's changes are torchvision's, given the same factors."""
    torch.set_num_threads(1)
    pixels = pictures()
    everything = {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.5}
    for name, amount in everything.items():
        apart = differences(pixels, ps.Image(jitter={name: amount}))
        assert apart.max() <= 1 and (apart > 0).mean() < 1e-3
    assert differences(pixels, ps.Image(grayscale=1.0)).max() <= 1
    for grayscale in (0.0, 0.5):
        spec = ps.Image(jitter=everything, grayscale=grayscale)
        apart = differences(pixels, spec)
        # A difference of 1 becomes larger if a later step multiplies it.
        assert (apart > 0).mean() < 2e-3 and (apart > 2).mean() < 1e-4
