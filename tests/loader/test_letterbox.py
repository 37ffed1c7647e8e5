"""`Image(crop="letterbox")`: the whole image in its proportions with a filled margin, and what goes with it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, made, picture
from PIL import Image as Pillow
from PIL import ImageOps
from same_records import loaded, png

import penstock as ps

SHAPES = [(60, 80), (80, 60), (50, 50), (37, 101), (1, 90), (90, 1), (13, 200), (33, 44), (256, 64)]
SIZES = [(64, 64), (33, 47), (120, 90), (1, 7)]
FILL = (114, 20, 255)
Resampling = Pillow.Resampling


def padded(
    pixels: np.ndarray, size: tuple[int, int], fill: Any = FILL, method: Any = Resampling.BILINEAR
) -> np.ndarray:
    """What Pillow makes of it; size is height and width."""
    return np.asarray(ImageOps.pad(Pillow.fromarray(pixels), size[::-1], method, fill))


def inner(shape: tuple[int, int], size: tuple[int, int]) -> tuple[slice, slice]:
    """Where the image lies in the result."""
    found = padded(np.full(shape, 9, np.uint8), size, 0, Resampling.NEAREST) == 9
    rows, columns = np.flatnonzero(found.any(1)), np.flatnonzero(found.any(0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_letterbox_is_pillows_pad(size: tuple[int, int]) -> None:
    spec = ps.Image(size, crop="letterbox", fill=FILL, exact=True)
    for seed, shape in enumerate(SHAPES):
        pixels = picture(*shape, seed)
        if 0 in ImageOps.contain(Pillow.fromarray(pixels), size[::-1]).size:
            continue  # penstock gives it one row or column
        expected = padded(pixels, size)
        for images in (pixels[None], [png(pixels)]):
            found = made(images, spec)[0]
            assert np.abs(found.astype(int) - expected).max() <= 1, (shape, size)
            rows, columns = inner(shape, size)
            margin = np.ones(size, bool)
            margin[rows, columns] = False
            assert (found[margin] == FILL).all()


def test_an_image_too_thin_for_the_size_has_one_row() -> None:
    found = made(np.full((1, 1, 500, 3), 9, np.uint8), ps.Image(8, crop="letterbox", fill=1))[0]
    assert np.flatnonzero((found == 9).all((1, 2))).tolist() == [4]
    assert (np.delete(found, 4, 0) == 1).all()


def test_a_large_jpeg_is_the_one_of_its_size_without_a_margin() -> None:
    for height, width in ((700, 1000), (1000, 333)):
        images = [jpeg(picture(height, width))]
        found = made(images, ps.Image(96, crop="letterbox", fill=114))[0]
        rows, columns = inner((height, width), (96, 96))
        size = rows.stop - rows.start, columns.stop - columns.start
        np.testing.assert_array_equal(found[rows, columns], made(images, ps.Image(size))[0])
        assert (found[0] == 114).all() or (found[:, 0] == 114).all()


NORMAL = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize(
    ("dtype", "more"),
    [("uint16", {}), ("float32", {}), ("float32", NORMAL), ("float16", NORMAL), ("bfloat16", {})],
    ids=str,
)
def test_the_margin_is_converted_to_numbers_as_pixels_are(
    dtype: str, more: dict[str, Any], layout: Any
) -> None:
    how: dict[str, Any] = {"dtype": dtype, "layout": layout, **more}
    for shape in SHAPES:
        pixels = [png(picture(*shape))]
        stored = made(pixels, ps.Image((40, 56), crop="letterbox", fill=FILL, flip="both"))
        spec = ps.Image((40, 56), crop="letterbox", fill=FILL, flip="both", **how)
        np.testing.assert_array_equal(made(pixels, spec), made(stored, ps.Image(**how)))


def test_an_image_of_16_bits_keeps_them_in_a_letterbox() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (30, 40), np.uint16)
    images = [png(deep)]
    found = made(images, ps.Image((50, 40), crop="letterbox", dtype="uint16", fill=FILL))[0]
    np.testing.assert_array_equal(found[10:40], np.repeat(deep[..., None], 3, -1))
    assert (found[:10] == np.array(FILL) * 257).all() and (found[40:] == found[0, 0]).all()
    scaled = made(images, ps.Image((50, 40), crop="letterbox", dtype="float32", fill=FILL))[0]
    np.testing.assert_allclose(scaled, found / 65535, atol=1e-6)


# Columns that go with the image

HEIGHT, WIDTH = 60, 80
BOXES = [[[0.0, 0.0, WIDTH, HEIGHT], [20.0, 10.0, 50.0, 30.0]], [], [[-9.0, 50.0, 79.0, 70.0]]] * 4
COUNT = len(BOXES)
PIXELS = [picture(HEIGHT, WIDTH, n) for n in range(COUNT)]
FLIPS = {0: (1, 1), 1: (1, -1), 2: (-1, 1), 3: (-1, -1)}


def flips_of(image: np.ndarray, whole: np.ndarray) -> tuple[int, int]:
    """The steps in rows and columns that make the image of the one that is not flipped."""
    return next(
        steps for steps in FLIPS.values() if (whole[:: steps[0], :: steps[1]] == image).all()
    )


@pytest.mark.parametrize("flip", [False, True, "vertical", "both"])
@pytest.mark.parametrize("size", [(50, 41), (31, 100)], ids=str)
def test_masks_boxes_and_points_move_with_the_image(
    size: tuple[int, int], flip: Any, tmp_path: Path
) -> None:
    masks = [np.random.default_rng(n).integers(0, 99, (HEIGHT, WIDTH), np.uint8) for n in range(12)]
    columns = {
        "image": np.stack(PIXELS),
        "right": [png(pixels[::2, ::2]) for pixels in PIXELS],
        "mask": [png(mask) for mask in masks],
        "depth": [png(mask.astype(np.uint16) * 300) for mask in masks],
        "boxes": BOXES,
        "coco": [[[x, y, r - x, b - y] for x, y, r, b in of] for of in BOXES],
        "points": [[box[:2] for box in of] for of in BOXES],
    }
    kinds = {"right": "image", "mask": "nearest", "depth": "nearest"}
    kinds |= {"boxes": "xyxy", "coco": "xywh", "points": "xy"}
    image = {"size": size, "crop": "letterbox", "fill": FILL, "flip": flip, "exact": True}
    batch = loaded(tmp_path, columns, {**image, "mask_fill": 255, "same": kinds}, ragged="list")
    plain = ps.Image(size, crop="letterbox", fill=FILL, exact=True)
    rows, cols = inner((HEIGHT, WIDTH), size)
    seen = set()
    for n, pixels in enumerate(PIXELS):
        whole = made(pixels[None], plain)[0]
        steps = flips_of(batch["image"][n][rows, cols], whole[rows, cols])
        seen.add(steps)
        step = tuple(slice(None, None, each) for each in steps)
        half = made([png(pixels[::2, ::2])], plain)[0]
        for name, expected, fill in (
            ("image", whole, FILL),
            ("right", half, FILL),
            ("mask", padded(masks[n], size, 255, Resampling.NEAREST), 255),
            ("depth", padded(masks[n], size, 0, Resampling.NEAREST).astype(int) * 300, 255),
        ):
            full = np.full_like(expected, fill)
            full[rows, cols] = expected[rows, cols][step]
            np.testing.assert_array_equal(batch[name][n], full, err_msg=name)
        for k, box in enumerate(BOXES[n]):
            flat = np.clip(box, 0, [WIDTH, HEIGHT] * 2) / ([WIDTH, HEIGHT] * 2)
            for axis, one in enumerate(steps[::-1]):
                flat[axis::2] = flat[axis::2] if one > 0 else 1 - flat[axis::2]
            new = [cols.stop - cols.start, rows.stop - rows.start] * 2
            flat = flat * new + [cols.start, rows.start] * 2
            moved = [*np.minimum(flat[:2], flat[2:]), *np.maximum(flat[:2], flat[2:])]
            np.testing.assert_allclose(batch["boxes"][n][k], moved, atol=1e-4)
            np.testing.assert_allclose(batch["points"][n][k], flat[:2], atol=1e-4)
            sides = [*moved[:2], moved[2] - moved[0], moved[3] - moved[1]]
            np.testing.assert_allclose(batch["coco"][n][k], sides, atol=1e-4)
    assert len(seen) == {False: 1, True: 2, "vertical": 2, "both": 4}[flip]


def test_masks_have_zeros_around_them_unless_a_value_is_said(tmp_path: Path) -> None:
    columns = {
        "image": np.stack(PIXELS[:2]),
        "mask": [png(np.full((HEIGHT, WIDTH), 7, np.uint8))] * 2,
    }
    image = {"size": 40, "crop": "letterbox", "fill": 114, "same": {"mask": "nearest"}}
    batch = loaded(tmp_path, columns, image)
    assert (batch["mask"][:, :5] == 0).all() and (batch["mask"][:, 5:35] == 7).all()
    with pytest.raises(ps.SchemaError, match="mask_fill=256 does not fit into masks of 8 bits"):
        loaded(tmp_path, columns, {**image, "mask_fill": 256})


def test_a_damaged_image_is_zeros_without_a_margin() -> None:
    spec = ps.Image(16, crop="letterbox", fill=9)
    good = jpeg(picture(30, 60))
    batch = made([good, good[:300], b"no image"], spec, damage="skip")
    assert batch[0, 0, 0].tolist() == [9, 9, 9]
    assert not batch[1:].any()
    salvaged = made([good[: len(good) // 2]], spec, damage="salvage")[0]
    assert (salvaged[:4] == 9).all() and (salvaged[4:8] != 9).any()


# The description


def test_a_letterbox_is_described_and_pickled() -> None:
    spec = ps.Image(640, crop="letterbox", fill=[114, 114, 114], mask_fill=np.uint8(255))
    assert repr(spec) == "Image(size=640, crop='letterbox', fill=(114, 114, 114), mask_fill=255)"
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fill": 256}, "fill must be one number from 0 to 255, or three"),
        ({"fill": -1}, "fill must be"),
        ({"fill": (1, 2)}, "fill must be"),
        ({"mask_fill": 65536}, "mask_fill must be from 0 to 65535"),
        ({"size": None}, "crop='letterbox' needs a size"),
        ({"crop": "center", "fill": 114}, "fill and mask_fill need crop='letterbox'"),
        ({"crop": None, "mask_fill": 255}, "fill and mask_fill need crop='letterbox'"),
        ({"crop": "letter-box"}, "known: None, center, random, letterbox"),
    ],
    ids=str,
)
def test_a_letterbox_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ps.Image(**{"size": 32, "crop": "letterbox", **wrong})
