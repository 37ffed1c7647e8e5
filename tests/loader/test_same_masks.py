"""Masks and other images that go with an image: they get the same crop and flip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, picture
from PIL import Image as Pillow
from same_records import HEIGHT, SPECS, WIDTH, drawn, keys_of, loaded, nearest, png, views

import penstock as ps

# Masks


@pytest.mark.parametrize("image", SPECS, ids=str)
def test_masks_are_the_nearest_pixels_of_the_crop_of_their_image(
    image: dict[str, Any], tmp_path: Path
) -> None:
    count = 6
    pixels = [picture(HEIGHT, WIDTH, n) for n in range(count)]
    grey = drawn(count)
    deep = drawn(count, high=65536)
    colour = [picture(HEIGHT, WIDTH, 50 + n) for n in range(count)]
    columns = {
        "image": [jpeg(one) for one in pixels],
        "grey": [png(one.astype(np.uint8)) for one in grey],
        "palette": [png(one.astype(np.uint8), "P") for one in grey],
        "deep": [png(one) for one in deep],
        "colour": [png(one) for one in colour],
    }
    same = dict.fromkeys(["grey", "palette", "deep", "colour"], "nearest")
    batch = loaded(tmp_path, columns, {**image, "same": same})
    size = batch["image"].shape[1:3]
    for n, view in enumerate(views(count, image, keys_of(tmp_path, count))):
        for name, masks in (("grey", grey), ("palette", grey), ("deep", deep), ("colour", colour)):
            np.testing.assert_array_equal(batch[name][n], nearest(masks[n], view, size), name)
    assert [batch[name].dtype for name in same] == [np.uint8, np.uint8, np.uint16, np.uint8]
    assert batch["colour"].shape == (count, *size, 3)


def test_masks_equal_pillows_nearest_if_sizes_divide(tmp_path: Path) -> None:
    mask = drawn(1)[0].astype(np.uint8)
    for size in ((20, 16), (120, 240), (30, 40)):
        columns = {"image": [jpeg(picture(HEIGHT, WIDTH))], "mask": [png(mask)]}
        batch = loaded(tmp_path, columns, {"size": size, "same": {"mask": "nearest"}})
        expected = Pillow.fromarray(mask).resize(size[::-1], Pillow.Resampling.NEAREST)
        np.testing.assert_array_equal(batch["mask"][0], np.asarray(expected))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palettes_of_any_depth_keep_their_indices(bits: int, tmp_path: Path) -> None:
    mask = (drawn(1, 13, 11)[0] % 2**bits).astype(np.uint8)
    data = png(mask, "P", bits=bits)
    assert data[24] == bits
    columns = {"image": [jpeg(picture(13, 11))], "mask": [data]}
    batch = loaded(tmp_path, columns, {"same": {"mask": "nearest"}})
    np.testing.assert_array_equal(batch["mask"][0], mask)


def test_masks_may_be_tensors_of_8_and_of_16_bits(tmp_path: Path) -> None:
    images = [jpeg(picture(HEIGHT, WIDTH, n)) for n in range(3)]
    small, deep = np.stack(drawn(3)).astype(np.uint8), np.stack(drawn(3, high=65536))
    files = {"small": [png(one) for one in small], "deep": [png(one) for one in deep]}
    same = {"small": "nearest", "deep": "nearest"}
    image: dict[str, Any] = {"size": 32, "crop": "random", "flip": True, "same": same}
    expected = loaded(tmp_path, {"image": images, **files}, image)
    for tensors in ({"small": small, "deep": deep}, {"small": small[..., None], "deep": deep}):
        found = loaded(tmp_path, {"image": images, **tensors}, image)
        for name in same:
            np.testing.assert_array_equal(found[name], expected[name])
            assert found[name].dtype == expected[name].dtype


def test_alpha_is_left_out_and_one_mask_of_16_bits_widens_the_batch(tmp_path: Path) -> None:
    grey = drawn(2)[0].astype(np.uint8)
    both = np.dstack([grey, 255 - grey])
    deep = drawn(1, high=65536)[0]
    columns = {
        "image": [jpeg(picture(HEIGHT, WIDTH))] * 3,
        "mask": [png(grey), png(both), png(deep)],
    }
    masks = loaded(tmp_path, columns, {"same": {"mask": "nearest"}})["mask"]
    assert masks.dtype == np.uint16
    for found, expected in zip(masks, (grey, grey, deep), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_mask_in_colour_among_grey_ones_is_an_error_with_its_record(tmp_path: Path) -> None:
    columns = {
        "image": [jpeg(picture(20, 20))] * 3,
        "mask": [png(picture(20, 20)[..., 0]), png(picture(20, 20)[..., 0]), png(picture(20, 20))],
    }
    with pytest.raises(ps.SchemaError, match="three channels in a batch of masks of one") as caught:
        loaded(tmp_path, columns, {"size": 8, "same": {"mask": "nearest"}})
    assert (caught.value.record, caught.value.field) == (2, "mask")


def test_values_of_a_pgm_are_not_scaled(tmp_path: Path) -> None:
    columns = {
        "image": [b"P6 2 1 255\n" + bytes(6)] * 2,
        "mask": [b"P5 2 1 15\n\x03\x07", b"P5 2 1 900\n\x01\x03\x00\x07"],
    }
    masks = loaded(tmp_path, columns, {"same": {"mask": "nearest"}})["mask"]
    assert masks.tolist() == [[[3, 7]], [[259, 7]]]


# Images of different sizes


def test_a_smaller_mask_of_the_same_scene_is_cropped_in_proportion(tmp_path: Path) -> None:
    image: dict[str, Any] = {"size": (24, 32), "crop": "random", "flip": True}
    blocks = drawn(4, HEIGHT // 4, WIDTH // 4)
    columns = {
        "image": [jpeg(picture(HEIGHT, WIDTH, n)) for n in range(4)],
        "small": [png(one.astype(np.uint8)) for one in blocks],
        "large": [png(one.astype(np.uint8).repeat(4, 0).repeat(4, 1)) for one in blocks],
    }
    same = {"small": "nearest", "large": "nearest"}
    batch = loaded(tmp_path, columns, {**image, "same": same})
    np.testing.assert_array_equal(batch["small"], batch["large"])


def test_sizes_may_differ_by_the_rounding_of_a_smaller_side(tmp_path: Path) -> None:
    same = {"mask": "nearest", "right": "image"}
    columns = {
        "image": [jpeg(picture(375, 500))],
        "mask": [png(np.zeros((188, 250), np.uint8))],
        "right": [jpeg(picture(94, 125))],
    }
    image: dict[str, Any] = {"size": 32, "crop": "random", "same": same}
    assert loaded(tmp_path, columns, image)["mask"].shape == (1, 32, 32)


@pytest.mark.parametrize("kind", ["nearest", "image"])
def test_a_mask_of_another_shape_is_an_error_with_its_record(kind: str, tmp_path: Path) -> None:
    masks = [np.zeros((60, 80), np.uint8), np.zeros((80, 60), np.uint8)]
    columns = {"image": [jpeg(picture(60, 80))] * 2, "mask": [png(one) for one in masks]}
    with pytest.raises(ps.SchemaError, match=r"60 x 80 pixels.* 80 x 60") as caught:
        loaded(tmp_path, columns, {"size": 8, "same": {"mask": kind}})
    assert (caught.value.record, caught.value.field) == (1, "mask")


# Other pictures


@pytest.mark.parametrize("image", SPECS, ids=str)
def test_another_picture_is_made_exactly_like_the_first(
    image: dict[str, Any], tmp_path: Path
) -> None:
    images = [jpeg(picture(HEIGHT, WIDTH, n)) for n in range(5)]
    spec = {**image, "dtype": "float32", "layout": "nchw", "same": {"right": "image"}}
    batch = loaded(tmp_path, {"image": images, "right": images}, spec)
    np.testing.assert_array_equal(batch["image"], batch["right"])
