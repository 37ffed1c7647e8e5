"""Images of 16 bits in full depth, and images converted to uint16 and bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from pictures import jpeg, made, picture
from PIL import Image as Pillow
from same_records import png

import penstock as ps
from penstock.formats.numpy.dtypes import name_of_bits
from penstock.loader.images import bfloat16_bits, value_table


def deep(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth 16-bit image whose lower bits matter."""
    rows, columns = np.mgrid[:height, :width]
    return ((rows * 701 + columns * 397 + seed * 13) % 65536).astype(np.uint16)


def colour_png(pixels: np.ndarray) -> bytes:
    """A PNG of 16 bits with three or four channels, which Pillow cannot write."""
    from penstock import _core

    return _core.png_bytes(pixels)


def test_a_png_of_16_bits_keeps_all_of_them_except_as_uint8() -> None:
    grey = deep(30, 40)
    colour = np.dstack([grey, grey[::-1], grey[:, ::-1]])
    for data, pixels in ((png(grey), np.dstack([grey] * 3)), (colour_png(colour), colour)):
        np.testing.assert_array_equal(made([data], ps.Image(dtype="uint16"))[0], pixels)
        scaled = pixels.astype(np.float32) / np.float32(65535)
        np.testing.assert_array_equal(made([data], ps.Image(dtype="float32"))[0], scaled)
        np.testing.assert_array_equal(made([data], ps.Image())[0], pixels >> 8)
        mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
        expected = (scaled - np.float32(mean)) / np.float32(std)
        for dtype in ("float32", "float16"):
            spec = ps.Image(dtype=dtype, mean=mean, std=std, layout="nchw")
            found = made([data], spec)[0].transpose(1, 2, 0)
            np.testing.assert_array_equal(found, expected.astype(dtype))


def test_alpha_of_16_bits_is_dropped() -> None:
    grey = deep(20, 10)
    for channels in (2, 4):
        data = colour_png(np.dstack([grey] * channels))
        found = made([data], ps.Image(dtype="uint16"))[0]
        np.testing.assert_array_equal(found, np.dstack([grey] * 3))


def test_a_ppm_of_16_bits_is_scaled_to_its_largest_value() -> None:
    for largest in (65535, 1000):
        values = np.array([[0, largest // 2, largest]], ">u2")
        data = b"P5 3 1 %d\n" % largest + values.tobytes()
        found = made([data], ps.Image(dtype="uint16"))[0, 0, :, 0]
        expected = [0, round(largest // 2 * 65535 / largest), 65535]
        np.testing.assert_allclose(found, expected, atol=1)


def test_a_deep_image_is_cropped_resized_and_flipped_as_a_shallow_one() -> None:
    grey = deep(90, 120)
    smooth = (grey >> 8).astype(np.uint8)
    for crop in (None, "center", "random"):
        spec: dict[str, Any] = {"size": (40, 56), "crop": crop, "flip": True}
        for key in range(12):
            fine = made([png(grey)], ps.Image(**spec, dtype="uint16"), key).astype(float)
            coarse = made([png(smooth)], ps.Image(**spec), key).astype(float)
            far = np.abs(fine / 256 - coarse)
            assert np.quantile(far, 0.9) < 1.6, (crop, key)


def test_a_resize_in_16_bits_is_that_of_pillow() -> None:
    grey = deep(61, 83)
    for size in ((40, 30), (122, 166), (61, 20)):
        floats = Pillow.fromarray(grey.astype(np.float32))
        expected = np.asarray(floats.resize(size[::-1], Pillow.Resampling.BILINEAR))
        found = made([png(grey)], ps.Image(size, dtype="uint16"))[0, ..., 1]
        assert np.abs(found - expected).max() <= 2


def test_8_bit_images_as_uint16_use_the_whole_range() -> None:
    data = [jpeg(picture(20, 30))]
    found = made(data, ps.Image(dtype="uint16"))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, made(data, ps.Image()).astype(np.uint16) * 257)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_bfloat16_comes_as_the_bits_of_the_nearest_values(layout: Any) -> None:
    data = [jpeg(picture(40, 50, n)) for n in range(3)]
    data.append(png(deep(40, 50)))
    how: dict[str, Any] = {"size": 24, "crop": "random", "layout": layout}
    how |= {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    found = made(data, ps.Image(**how, dtype="bfloat16"))
    assert (found.dtype, name_of_bits(found.dtype)) == (np.uint16, "bfloat16")
    expected = made(data, ps.Image(**how, dtype="float32")).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.view(ml_dtypes.bfloat16), expected)


def test_bfloat16_rounds_to_nearest_and_ties_to_even() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=10_000).astype(np.float32)
    ties = (np.arange(4000, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    for one in (values, ties, np.float32([0, -0.0, 1, -1])):
        expected = one.astype(ml_dtypes.bfloat16).view(np.uint16)
        np.testing.assert_array_equal(bfloat16_bits(one), expected)


def test_bfloat16_may_be_named_by_its_dtype() -> None:
    assert ps.Image(dtype=ml_dtypes.bfloat16) == ps.Image(dtype="bfloat16")
    assert repr(ps.Image(dtype="bfloat16")) == "Image(dtype='bfloat16')"
    assert value_table(ps.Image(dtype="bfloat16")).shape == (3, 256)


def test_torch_gets_its_own_bfloat16_from_a_loader(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    images = [jpeg(picture(30, 30, n)) for n in range(3)]
    ps.write({"image": [*images, b"no image"]}, tmp_path / "d.parquet")
    ds = ps.open(tmp_path / "d.parquet", damage="skip")
    loader = ps.Loader(ds, 4, decode={"image": ps.Image(16, dtype="bfloat16")})
    (batch,) = list(loader.torch())
    assert batch["image"].dtype == torch.bfloat16
    expected = made(images, ps.Image(16, dtype="float32")).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(batch["image"].float().numpy(), expected.astype(np.float32))


def test_uint16_takes_no_mean() -> None:
    with pytest.raises(ValueError, match="mean and std need"):
        ps.Image(dtype="uint16", mean=0.5)
