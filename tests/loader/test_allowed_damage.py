"""Damaged pictures in a loader: `ps.Image(allow_damaged=True)`, and epochs of which nothing is left."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, picture
from PIL import Image

import penstock as ps
from reading import SHARED

CORPUS = SHARED / "corpus" / "jpeg"
WARNED = [
    "pillow-tests/photoshop-200dpi-broken.jpg",
    "pillow-tests/jpeg_ff00_header.jpg",
    "jpeg-decoder/reftest/extraneous-data.jpg",
]
"""Pillow reads them without an error, and libjpeg-turbo with a warning."""
SUFFIXES = ["tfrecord", "tar", "parquet", "msgpack", "rec"]
WHOLE = jpeg(picture(60, 60))


def opened(folder: Path, images: list[bytes], suffix: str = "tfrecord", **how: Any) -> ps.Dataset:
    label = np.arange(len(images))
    ps.write({"image": images, "label": label}, folder / f"x.{suffix}", overwrite=True)
    found = ps.open(folder / f"x.{suffix}", **how)
    return found if "image" in found.schema.names else found.rename({"image.bin": "image"})


def loader(data: ps.Dataset, image: ps.Image, **how: Any) -> ps.Loader:
    return ps.Loader(data, 4, decode={"image": image}, **how)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", ["error", "skip"])
def test_pictures_that_pillow_reads(tmp_path: Path, suffix: str, damage: str) -> None:
    files = [(CORPUS / name).read_bytes() for name in WARNED]
    data = opened(tmp_path, files, suffix, damage=damage)
    (batch,) = loader(data, ps.Image(exact=True, allow_damaged=True))
    for found, file in zip(batch["image"], files, strict=True):
        with Image.open(io.BytesIO(file)) as right:
            np.testing.assert_array_equal(found, np.asarray(right.convert("RGB")))
    assert not data.damage


def test_what_cannot_be_decoded_is_still_damage(tmp_path: Path) -> None:
    cut = WHOLE[: len(WHOLE) // 2]
    files = [WHOLE, cut, b"no picture", WHOLE]
    image = ps.Image(16, allow_damaged=True)
    with pytest.raises(ps.FormatError) as caught:
        list(loader(opened(tmp_path, files), image))
    assert caught.value.record == 2
    assert "allow_damaged" not in str(caught.value.hint)
    data = opened(tmp_path, files, damage="skip")
    (batch,) = loader(data, image)
    assert batch["label"].tolist() == [0, 1, 3]
    np.testing.assert_array_equal(batch["image"], ps.decode_images([WHOLE, cut, WHOLE], image))
    assert len(data.damage) == 1
    strict = opened(tmp_path, files, damage="skip")
    (batch,) = loader(strict, ps.Image(16))
    assert batch["label"].tolist() == [0, 3]


def test_other_columns_that_move_with_a_damaged_picture(tmp_path: Path) -> None:
    masks = ps.encode_images([np.full((60, 60, 1), n, np.uint8) for n in range(3)], "png")
    files = [WHOLE, WHOLE[: len(WHOLE) // 2], WHOLE]
    table = {"image": files, "other": files[::-1], "mask.png": masks}
    ps.write(table, tmp_path / "x.tfrecord")
    same = {"other": "image", "mask.png": "nearest"}
    image = ps.Image(16, crop="random", flip=True, same=same, allow_damaged=True)
    (batch,) = loader(ps.open(tmp_path / "x.tfrecord"), image)
    assert [np.unique(mask).tolist() for mask in batch["mask.png"]] == [[0], [1], [2]]
    np.testing.assert_array_equal(batch["other"][1], batch["image"][1])
    strict = loader(ps.open(tmp_path / "x.tfrecord", damage="skip"), ps.Image(16, same=same))
    (batch,) = strict
    assert [np.unique(mask).tolist() for mask in batch["mask.png"]] == [[0], [2]]
    assert len(strict.damage) == 1


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    data = opened(tmp_path, [WHOLE, WHOLE[:900]])
    with pytest.raises(ps.FormatError) as caught:
        list(loader(data, ps.Image(16)))
    hint = str(caught.value.hint)
    assert hint.startswith("ps.Image(allow_damaged=True), to use the intact part")
    assert 'open(..., damage="skip")' in hint
    assert ps.decode_images([WHOLE[:900]], ps.Image(16, allow_damaged=True)).shape == (1, 16, 16, 3)
    assert repr(ps.Image(16, allow_damaged=True)) == "Image(size=16, allow_damaged=True)"


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_an_epoch_of_which_nothing_is_left_warns(
    tmp_path: Path, threads: int, world_size: int
) -> None:
    data = opened(tmp_path, [WHOLE[:900]] * 8, damage="skip")
    ranks = {"rank": 0, "world_size": world_size}
    made = loader(data, ps.Image(16), threads=threads, **ranks)
    for epoch in (0, 1):
        count = 8 // world_size
        with pytest.warns(UserWarning, match=rf"all {count} records of epoch {epoch} were damaged"):
            assert sum(len(batch["label"]) for batch in made) == 0


def test_an_epoch_of_which_something_is_left_does_not(tmp_path: Path) -> None:
    data = opened(tmp_path, [*[WHOLE[:900]] * 8, WHOLE], damage="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(batch["label"]) for batch in loader(data, ps.Image(16))] == [1]
        assert not list(loader(data.filter("label > 20"), ps.Image(16)))
        next(iter(loader(data, ps.Image(16, allow_damaged=True))))


@pytest.mark.parametrize("name", ["scale", "ratio"])
@pytest.mark.parametrize("value", [0.2, None])
def test_a_range_is_two_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name} is two numbers, \(smallest, largest\), not"):
        ps.Image(96, crop="random", **{name: value})
