"""Crops and sizes for training, compared with Pillow and torchvision's steps: within 1 of 255, and with `exact=True` bit for bit."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image as Pillow

import penstock as ps
from penstock import _core
from penstock.loader.images import decode_into, recipe_of

SIZES = [(375, 500), (500, 333), (1200, 900), (60, 80), (225, 225), (2000, 31)]


def picture(height: int, width: int) -> Pillow.Image:
    """Noise of all wavelengths, as in photographs, with some hard edges."""
    rng = np.random.default_rng(height * width)
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    waves = np.hypot(rows, columns)
    waves[0, 0] = 1
    shape = (3, height, width // 2 + 1)
    noise = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    pixels = np.fft.irfft2(noise / waves**1.4, s=(height, width)).transpose(1, 2, 0)
    pixels = 128 + 60 * pixels / pixels.std()
    pixels[height // 3 : height // 2, width // 4 : width // 2] = (255, 0, 30)
    return Pillow.fromarray(pixels.clip(0, 255).astype(np.uint8))


def png(image: Pillow.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def made(data: bytes, key: int = 0, **spec: Any) -> np.ndarray:
    return decode_into([data], ps.Image(**spec), np.array([key], np.uint64))[0][0]


def furthest(found: np.ndarray, expected: Pillow.Image) -> int:
    return int(np.abs(found.astype(int) - np.asarray(expected, int)).max())


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_resize_is_that_of_pillow(height: int, width: int) -> None:
    image = picture(height, width)
    for size in ((224, 224), (100, 17), (333, 500), (1, 1)):
        expected = image.resize(size[::-1], Pillow.Resampling.BILINEAR)
        assert furthest(made(png(image), size=size), expected) <= 1


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_random_crop_is_a_crop_and_then_a_resize(height: int, width: int) -> None:
    image = picture(height, width)
    law = _core.ImageRecipe(
        size=(224, 160),
        crop="random",
        flip=True,
        exact=True,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        center_fraction=0.875,
    )
    for key in range(12):
        left, top, wide, high, flip = law.view(width, height, key)
        part = image.crop((int(left), int(top), int(left + wide), int(top + high)))
        expected = part.resize((160, 224), Pillow.Resampling.BILINEAR)
        if flip:
            expected = expected.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT)
        found = made(png(image), key, size=(224, 160), crop="random", flip=True)
        assert furthest(found, expected) <= 1


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("size", [224, 96])
def test_a_crop_of_the_middle_is_a_resize_and_then_a_crop(
    height: int, width: int, size: int
) -> None:
    image = picture(height, width)
    shorter = round(size / 0.875)
    if height < width:
        resized = (int(shorter * width / height), shorter)
    else:
        resized = (shorter, int(shorter * height / width))
    left, top = (round((side - size) / 2) for side in resized)
    whole = image.resize(resized, Pillow.Resampling.BILINEAR)
    expected = whole.crop((left, top, left + size, top + size))
    assert furthest(made(png(image), size=size, crop="center"), expected) <= 1
    np.testing.assert_array_equal(
        made(png(image), size=size, crop="center", exact=True), np.asarray(expected)
    )


FILTERS = {
    "bilinear": Pillow.Resampling.BILINEAR,
    "bicubic": Pillow.Resampling.BICUBIC,
    "lanczos": Pillow.Resampling.LANCZOS,
}


def resized(image: Pillow.Image, size: tuple[int, int], resample: Pillow.Resampling) -> np.ndarray:
    """The rows and then the columns resized, which is `resize` up to Pillow 12. Pillow 13 chooses the order by size."""
    across = image.resize((size[1], image.height), resample)
    return np.asarray(across.resize(size[::-1], resample))


@pytest.mark.parametrize("interpolation", FILTERS)
def test_exact_pixels_are_those_of_pillow_bit_for_bit(interpolation: str) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (150, 211, 3), np.uint8)
    resample = FILTERS[interpolation]
    for image in (picture(120, 90), Pillow.fromarray(noise)):
        for size in ((120, 160), (224, 224), (17, 40), (90, 300), (64, 64), (1, 1)):
            how: dict[str, Any] = {"size": size, "interpolation": interpolation}
            exact = made(png(image), exact=True, **how)
            np.testing.assert_array_equal(exact, resized(image, size, resample))
            if interpolation == "bilinear":
                assert furthest(exact, image.resize(size[::-1], resample)) <= 1
                assert furthest(made(png(image), **how), image.resize(size[::-1], resample)) <= 2


def test_nearest_pixels_are_those_of_pillow() -> None:
    image = picture(120, 90)
    for size in ((64, 64), (240, 180), (40, 30)):  # no centre lies between two pixels
        expected = image.resize(size[::-1], Pillow.Resampling.NEAREST)
        for exact in (False, True):
            found = made(png(image), size=size, interpolation="nearest", exact=exact)
            np.testing.assert_array_equal(found, expected)


def test_an_exact_random_crop_is_that_of_pillow_bit_for_bit() -> None:
    image = Pillow.fromarray(np.random.default_rng(4).integers(0, 256, (90, 131, 3), np.uint8))
    spec: dict[str, Any] = {"size": (64, 50), "crop": "random"}
    law = recipe_of(ps.Image(**spec))
    for interpolation, resample in FILTERS.items():
        for key in range(8):
            left, top, wide, high, _ = law.view(image.width, image.height, key)
            part = image.crop((int(left), int(top), int(left + wide), int(top + high)))
            found = made(png(image), key, exact=True, interpolation=interpolation, **spec)
            np.testing.assert_array_equal(found, resized(part, (64, 50), resample))


@pytest.mark.parametrize("crop", ["center", "random", None])
def test_exact_jpegs_equal_pillows(crop: Literal["center", "random"] | None) -> None:
    image = picture(900, 1200)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    decoded = Pillow.open(io.BytesIO(file.getvalue())).convert("RGB")
    for key in range(5):
        spec: dict[str, Any] = {"size": 100, "crop": crop, "flip": True, "exact": True}
        found = made(file.getvalue(), key, **spec)
        expected = made(png(decoded), key, **spec)
        np.testing.assert_array_equal(found, expected)
