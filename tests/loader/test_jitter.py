"""`Image(jitter=..., grayscale=...)`: what is drawn for each record, and what it leaves unchanged. The pixels are compared
with torchvision's in torchvision_colours.py, which test_augmentations.py runs; and all formulas but that of the hue are written out here with NumPy."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, made, picture
from PIL import Image as Pillow
from same_records import png

import penstock as ps
from penstock.loader.images import recipe_of

ALL = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
SIMCLR: dict[str, Any] = {"jitter": ALL, "jitter_probability": 0.8, "grayscale": 0.2}
PIXELS = np.stack([picture(45, 60, n) for n in range(24)])
JPEGS = [jpeg(pixels) for pixels in PIXELS]
VIEW: dict[str, Any] = {"size": 32, "crop": "random", "flip": "both"}

GOLDEN = [
    ("hue", 0.07816),
    ("brightness", 1.17556),
    ("contrast", 1.27907),
    ("saturation", 0.89758),
    ("grayscale", 1.0),
]


def test_the_draws_of_a_key_never_change() -> None:
    steps = recipe_of(ps.Image(**SIMCLR)).jitter(3)
    assert [(name, round(factor, 5)) for name, factor in steps] == GOLDEN


def rounded_once(a: Any, b: float, c: np.ndarray) -> np.ndarray:
    """a * b + c in float32, rounded once, as torch computes it."""
    return (np.float64(a) * np.float64(np.float32(b)) + c).astype(np.float32)


def greys(values: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(values, -1, 0)[..., None]
    return np.floor(rounded_once(blue, 0.114, rounded_once(green, 0.587, red * np.float32(0.2989))))


def as_numpy(pixels: np.ndarray, steps: list[tuple[str, float]]) -> np.ndarray:
    """torchvision's formulas, except that of the hue."""
    for name, factor in steps:
        values = pixels.astype(np.float32)
        grey = greys(values)
        if name == "grayscale":
            made = np.broadcast_to(grey, values.shape)
        elif name == "contrast":
            made = values * np.float32(factor) + np.float32(grey.mean(dtype=float)) * np.float32(
                1 - factor
            )
        else:
            other = grey if name == "saturation" else 0
            made = rounded_once(other, 1 - factor, values * np.float32(factor))
        pixels = made.clip(0, 255).astype(np.uint8)
    return pixels


@pytest.mark.parametrize(
    "jitter", [{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}, {"contrast": 0.9}], ids=str
)
def test_colours_change_by_the_formulas_of_torchvision(jitter: dict[str, float]) -> None:
    spec = ps.Image(jitter=jitter, jitter_probability=0.8, grayscale=0.3)
    found, recipe = made(PIXELS, spec), recipe_of(spec)
    for key, pixels in enumerate(PIXELS):
        np.testing.assert_array_equal(found[key], as_numpy(pixels, recipe.jitter(key)))


def test_the_crop_and_the_flip_are_those_without_jitter() -> None:
    """Brightness alone, by one factor, is a table that can be compared pixel by pixel."""
    half = {"brightness": (0.5, 0.5)}
    for images in (JPEGS, PIXELS):
        plain, dark = made(images, ps.Image(**VIEW)), made(images, ps.Image(**VIEW, jitter=half))
        np.testing.assert_array_equal(dark, plain // 2)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16"])
def test_numbers_are_made_of_the_changed_pixels(dtype: str, layout: Any) -> None:
    normal: dict[str, Any] = {} if dtype == "uint8" else {"mean": 0.4, "std": 0.3}
    how: dict[str, Any] = {"dtype": dtype, "layout": layout, **normal}
    for image in ({}, VIEW, {"size": (20, 70), "flip": True}):
        stored = made(JPEGS, ps.Image(**image, **SIMCLR))
        expected = made(np.asarray(stored), ps.Image(**how))
        np.testing.assert_array_equal(made(JPEGS, ps.Image(**image, **SIMCLR, **how)), expected)


def test_a_probability_leaves_some_images_as_they_are() -> None:
    keys = range(400)
    recipe = recipe_of(ps.Image(**SIMCLR))
    drawn = [recipe.jitter(key) for key in keys]
    assert 290 < sum(len(steps) >= 4 for steps in drawn) < 350
    assert 55 < sum(("grayscale", 1.0) in steps for steps in drawn) < 105
    found = made(PIXELS, ps.Image(**SIMCLR))
    for key, pixels in enumerate(PIXELS):
        assert np.array_equal(found[key], pixels) == (not drawn[key])
        is_grey = (found[key] == found[key][..., :1]).all()
        assert is_grey == (("grayscale", 1.0) in drawn[key])


def test_grey_images_stay_grey() -> None:
    grey = [png(pixels[..., 0]) for pixels in PIXELS]
    found = made(grey, ps.Image(jitter=ALL)).astype(int)
    assert np.ptp(found, axis=-1).max() <= 1 or (np.ptp(found, axis=-1) == 0).all()
    for jitter in ({"hue": 0.5}, {"saturation": 1.0}):
        kept = made(grey, ps.Image(jitter=jitter)).astype(int)
        assert np.abs(kept[..., 0] - PIXELS[..., 0]).max() <= 1


def test_an_image_of_16_bits_is_used_with_8() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (30, 40), np.uint16)
    spec = ps.Image(grayscale=1.0, dtype="float32")
    eight = made([png((deep >> 8).astype(np.uint8))], spec)
    np.testing.assert_array_equal(made([png(deep)], spec), eight)


def test_only_images_of_a_record_change(tmp_path: Path) -> None:
    columns = {
        "image": JPEGS,
        "right": JPEGS,
        "mask": [png(pixels[..., 0]) for pixels in PIXELS],
        "boxes": [[[3.0, 4.0, 30.0, 40.0]]] * 24,
    }
    ps.write(columns, tmp_path / "scenes.parquet")
    same = {"right": "image", "mask": "nearest", "boxes": "xyxy"}

    def batch(**image: Any) -> Any:
        decode = {"image": ps.Image(**VIEW, same=same, **image)}
        return next(iter(ps.Loader(ps.open(tmp_path / "scenes.parquet"), 24, decode=decode)))

    plain, changed = batch(), batch(**SIMCLR)
    assert (plain["image"] != changed["image"]).mean() > 0.5
    np.testing.assert_array_equal(changed["image"], changed["right"])
    np.testing.assert_array_equal(plain["mask"], changed["mask"])
    np.testing.assert_array_equal(plain["boxes"][0], changed["boxes"][0])


def test_threads_ranks_views_and_resuming_repeat_the_changes(tmp_path: Path) -> None:
    ps.write({"image": JPEGS, "id": np.arange(24)}, tmp_path / "d.parquet")
    twice = ps.open(tmp_path / "d.parquet").with_columns({"other": "image"})
    decode = {
        "image": ps.Image(**VIEW, **SIMCLR),
        "other": ps.Image(**VIEW, **SIMCLR, view=1),
    }

    def loader(batch_size: int, **options: Any) -> ps.Loader:
        return ps.Loader(twice, batch_size, order=ps.Shuffled(seed=3), decode=decode, **options)

    def by_id(batches: Any) -> dict[int, bytes]:
        rows = [row for b in batches for row in zip(b["id"], b["image"], b["other"], strict=True)]
        assert all((image != other).any() for _, image, other in rows)
        return {int(n): image.tobytes() + other.tobytes() for n, image, other in rows}

    first = loader(4, threads=0)
    batches = iter(first)
    head = by_id([next(batches), next(batches)])
    state = first.state_dict()
    expected = head | by_id(batches)
    assert len(expected) == 24
    for threads, size in ((1, 4), (3, 5)):
        assert by_id(loader(size, threads=threads)) == expected
    ranks = [by_id(loader(3, rank=rank, world_size=2)) for rank in range(2)]
    assert ranks[0] | ranks[1] == expected
    resumed = loader(4, threads=2)
    resumed.load_state_dict(state)
    assert by_id(resumed) == {n: row for n, row in expected.items() if n not in head}
    again = loader(24, threads=1, epoch=1)
    assert by_id(again) != expected


# The description


def test_jitter_is_described_and_pickled() -> None:
    spec = ps.Image(8, jitter={"hue": (0, 0.25), "brightness": np.float64(0.5)}, grayscale=1)
    said = "jitter={'brightness': (0.5, 1.5), 'hue': (0.0, 0.25)}, grayscale=1.0"
    assert repr(spec) == f"Image(size=8, {said})"
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert spec != ps.Image(8, jitter={"hue": 0.25, "brightness": 0.5}, grayscale=1)
    assert ps.Image(jitter={}) == ps.Image()
    recipe = recipe_of(ps.Image(jitter={"brightness": 3}))
    factors = [recipe.jitter(key)[0][1] for key in range(200)]
    assert 0 <= min(factors) < 0.2 and 3.8 < max(factors) <= 4


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"jitter": {"gamma": 1}}, "unknown jitter 'gamma'; known: brightness, contrast, satur"),
        ({"jitter": {"contrast": -1}}, "contrast must be a number from 0, or .* not -1"),
        ({"jitter": {"hue": 0.6}}, "hue must be a number from 0 to 0.5, or .* not 0.6"),
        ({"jitter": {"hue": (-0.6, 0)}}, "each from -0.5 to 0.5"),
        ({"jitter": {"saturation": (2, 1)}}, "saturation must be"),
        ({"jitter": {"saturation": (1, 2, 3)}}, "saturation must be"),
        ({"jitter": {"saturation": "much"}}, "saturation must be"),
        ({"jitter": {"brightness": float("inf")}}, "brightness must be"),
        ({"jitter": {"brightness": float("nan")}}, "brightness must be"),
        ({"jitter_probability": 0.5}, "jitter_probability needs jitter="),
        ({"jitter": ALL, "jitter_probability": 1.5}, "jitter_probability must be a probability"),
        ({"grayscale": -0.1}, "grayscale must be a probability from 0 to 1, not -0.1"),
        ({"grayscale": 0.1, "dtype": "uint16"}, "use dtype='uint8' or a float"),
    ],
    ids=str,
)
def test_a_jitter_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ps.Image(**wrong)


def test_a_picture_of_one_colour_keeps_its_contrast() -> None:
    white = Pillow.new("RGB", (5, 4), (255, 255, 255))
    found = made([png(np.asarray(white))], ps.Image(jitter={"contrast": (0, 0)}))
    assert (found == 254).all()  # torchvision's grey of white is 254.97, rounded down
