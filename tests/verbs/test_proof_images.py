"""Comparing images that were re-encoded: the same image passes, a different one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType
from penstock.payloads import images
from penstock.verbs.convert._proof_images import first_other_picture

RNG = np.random.default_rng(5)
GRID = np.add.outer(np.arange(61), np.arange(83))
PICTURES = [
    RNG.integers(0, 256, (61, 83, 3), dtype=np.uint8),  # noise, which JPEG preserves worst
    np.stack([(GRID * 2) % 256, GRID % 256, 255 - GRID], -1).astype(np.uint8),
    np.stack([(GRID % 2) * 255] * 3, -1).astype(np.uint8),
    RNG.integers(0, 90, (61, 83, 3), dtype=np.uint8),
    np.full((61, 83, 3), 200, np.uint8),
]
PNGS = ps.encode_images(PICTURES, "png")


@pytest.mark.parametrize(
    ("codec", "quality"),
    [("jpeg", 1), ("jpeg", 50), ("jpeg", 90), ("webp", 1), ("webp", 90), ("ppm", None)],
)
def test_the_same_images_pass_and_swapped_images_do_not(codec: str, quality: int | None) -> None:
    found = images.reencode(PNGS, codec, quality=quality)
    assert first_other_picture(PNGS, found) is None
    for one in range(len(PNGS)):
        for other in range(one + 1, len(PNGS)):
            order = list(range(len(PNGS)))
            order[one], order[other] = other, one
            if {one, other} != {0, 2}:  # noise and a fine grid both look grey when scaled down
                assert first_other_picture(PNGS, found.take(pa.array(order))) == one


def test_one_pixel_of_a_lossless_image_is_noticed() -> None:
    changed = PICTURES[1].copy()
    changed[7, 9, 2] ^= 1
    found = ps.encode_images([PICTURES[0], changed], "ppm")
    assert first_other_picture(PNGS[:2], found) == 1


def test_another_size_and_a_null_are_noticed() -> None:
    turned = ps.encode_images([PICTURES[0], PICTURES[1].transpose(1, 0, 2)], "ppm")
    assert first_other_picture(PNGS[:2], turned) == 1
    stored = pa.array([turned[0].as_py(), None], pa.binary())
    lacking = pa.ExtensionArray.from_storage(ImageType("ppm"), stored)
    assert first_other_picture(PNGS[:2], lacking) == 1
    assert first_other_picture(lacking, PNGS[:2]) == 1
    assert first_other_picture(lacking, lacking) is None


@pytest.mark.parametrize("mode", ["raw", "jpg"])
def test_a_conversion_that_swaps_pictures_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    source = tmp_path / "a.parquet"
    ps.write({"image": PNGS}, source)
    ps.convert(str(source), str(tmp_path / "a.beton"), image_mode=mode, prove=True)

    name = {"raw": "decode_images", "jpg": "reencode"}[mode]
    whole = getattr(images, name)

    def swapped(*args: Any, **options: Any) -> Any:
        made = whole(*args, **options)
        order = [1, 0, *range(2, len(made))]
        return made[order] if isinstance(made, np.ndarray) else made.take(pa.array(order))

    monkeypatch.setattr(images, name, swapped)
    with pytest.raises(ps.FormatError, match="differs from the value read") as caught:
        ps.convert(str(source), str(tmp_path / "b.beton"), image_mode=mode, prove=True)
    assert (caught.value.record, caught.value.field) == (0, "image")
