"""Images of one channel: `ps.Image(mode="grey")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, made, picture
from PIL import Image as Pillow
from same_records import png

import penstock as ps

GREY = ps.Image(mode="grey")


@pytest.mark.parametrize("encode", [jpeg, png], ids=["jpeg", "png"])
def test_a_grey_image_is_that_of_decode_images(encode: Any) -> None:
    data = [encode(picture(99, 179))]
    expected = ps.decode_images(data, mode="grey")
    assert expected.shape == (1, 99, 179)
    for found in (
        ps.decode_images(data, GREY),
        ps.decode_images(data, ps.Image(), mode="grey"),
        ps.decode_images(data, ps.Image(exact=True), mode="grey"),
    ):
        np.testing.assert_array_equal(found, expected)
    assert ps.decode_images(data, GREY, mode="rgb").shape == (1, 99, 179, 3)
    resized = Pillow.fromarray(expected[0]).resize((40, 28), Pillow.Resampling.BILINEAR)
    exact = ps.Image((28, 40), mode="grey", exact=True)
    for images in (data, [encode(expected[0])] if encode is png else data):
        np.testing.assert_array_equal(ps.decode_images(images, exact)[0], resized)


def test_pixels_become_grey_as_files_do() -> None:
    pixels = picture(40, 30)[None]
    expected = ps.decode_images([png(pixels[0])], ps.Image(20, mode="grey", flip="both"))
    np.testing.assert_array_equal(
        ps.decode_images(pixels, ps.Image(20, mode="grey", flip="both")), expected
    )
    once = made(pixels[..., :1], ps.Image(20, mode="grey"))
    np.testing.assert_array_equal(once, made(pixels[..., :1], ps.Image(20))[..., 0])


def test_the_channel_has_the_values_layout_and_margin_of_images_of_three() -> None:
    grey = picture(60, 45)[..., 0]
    for how in (
        {"dtype": "float32", "mean": 0.4, "std": 0.2},
        {"dtype": "uint16", "flip": True},
        {"crop": "random", "flip": "both"},
        {"crop": "letterbox", "fill": 77, "dtype": "float16"},
        {"interpolation": "bicubic", "jitter": {"brightness": 0.4, "contrast": 0.4}},
    ):
        for layout, channel in (("nhwc", np.s_[:, :, :, 0]), ("nchw", np.s_[:, :1])):
            spec: dict[str, Any] = {"size": (32, 50), "layout": layout, **how}
            for key in range(4):
                found = made([png(grey)], ps.Image(mode="grey", **spec), key)
                expected = made([png(grey)], ps.Image(**spec), key)[channel]
                np.testing.assert_array_equal(found, expected, err_msg=str(spec))


def test_a_grey_png_of_16_bits_keeps_its_values() -> None:
    deep = (np.arange(28 * 28).reshape(28, 28) * 83).astype(np.uint16)
    found = ps.decode_images([png(deep)] * 2, ps.Image(dtype="uint16"), mode="grey")
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, [deep] * 2)
    nearest = ps.Image(14, dtype="uint16", mode="grey", interpolation="nearest")
    np.testing.assert_array_equal(made([png(deep)], nearest)[0], deep[1::2, 1::2])


def test_a_large_jpeg_decoded_at_a_part_is_near_the_exact_one() -> None:
    data = [jpeg(picture(900, 1200))]
    for interpolation in ("bilinear", "bicubic", "lanczos"):
        spec: dict[str, Any] = {"size": 150, "mode": "grey", "interpolation": interpolation}
        found = made(data, ps.Image(**spec)).astype(int)
        expected = made(data, ps.Image(exact=True, **spec))
        assert np.mean((found - expected) ** 2.0) < 40


def test_images_of_several_sizes_and_upright_ones() -> None:
    found = ps.decode_images([png(picture(4, 5)), png(picture(6, 3))], GREY)
    assert [one.shape for one in found] == [(4, 5), (6, 3)]
    turned = Pillow.fromarray(picture(20, 31))
    exif = turned.getexif()
    exif[0x0112] = 6
    data = jpeg(np.asarray(turned), exif=exif)
    upright = made([data], ps.Image(exif=True, mode="grey"))
    stored = ps.decode_images([data], mode="grey")
    np.testing.assert_array_equal(upright[0], np.rot90(stored[0], -1))


def test_a_loader_gives_batches_without_an_axis_of_channels(tmp_path: Path) -> None:
    pixels = np.stack([picture(40, 30, seed)[..., :1] for seed in range(6)])
    columns = {"image": ps.encode_images(pixels, "png"), "mask": ps.encode_images(pixels, "png")}
    ps.write(columns, tmp_path / "x.parquet")
    spec = ps.Image(28, mode="grey", same={"mask": "nearest"})
    for batch in ps.Loader(ps.open(tmp_path / "x.parquet"), 3, decode={"image": spec}):
        assert batch["image"].shape == batch["mask"].shape == (3, 28, 28)


def test_what_grey_cannot_have_is_refused() -> None:
    for how in ({"mean": (0.1, 0.2, 0.3)}, {"std": (1, 2, 3)}):
        with pytest.raises(ValueError, match="one number with mode='grey'"):
            ps.Image(dtype="float32", mode="grey", **how)
    with pytest.raises(ValueError, match="one number with mode='grey'"):
        ps.Image(8, crop="letterbox", fill=(1, 2, 3), mode="grey")
    with pytest.raises(ValueError, match="unknown mode='stored'"):
        ps.decode_images([png(picture(4, 4))], ps.Image(), mode="stored")
    with pytest.raises(ValueError, match="unknown interpolation='cubic'"):
        ps.Image(8, interpolation="cubic")  # pyright: ignore[reportArgumentType]


def test_dtypes_of_torch_stand_for_their_names() -> None:
    torch = pytest.importorskip("torch")
    for name in ("uint8", "float32", "float16", "bfloat16"):
        assert ps.Image(dtype=getattr(torch, name)) == ps.Image(dtype=name)
    with pytest.raises(ValueError, match="unknown dtype='float64'"):
        ps.Image(dtype="torch.float64")


def test_masks_stay_nearest_whatever_the_interpolation(tmp_path: Path) -> None:
    masks = np.zeros((2, 40, 30, 1), np.uint8)
    masks[:, 7:23, 5:19] = 9
    columns = {"image": ps.encode_images(masks, "png"), "mask": ps.encode_images(masks, "png")}
    ps.write(columns, tmp_path / "x.parquet")
    spec = ps.Image(17, interpolation="bicubic", same={"mask": "nearest"})
    batch = next(iter(ps.Loader(ps.open(tmp_path / "x.parquet"), 2, decode={"image": spec})))
    assert set(np.unique(batch["mask"])) == {0, 9}
