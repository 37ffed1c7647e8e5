"""Images for training: the rules of crops, which pixels are decoded, invalid arguments, and the description."""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pictures import RANDOM, jpeg, made, picture, recipe
from PIL import Image as Pillow

import penstock as ps
from penstock.columns.types import ImageType

# The rules of crops

GOLDEN = {
    0: (25.0, 32.0, 261.0, 343.0, True),
    5: (332.0, 68.0, 164.0, 196.0, False),
    12345: (152.0, 22.0, 201.0, 250.0, False),
    18446744073709551615: (174.0, 79.0, 316.0, 280.0, True),
}


def test_the_random_crops_of_keys_never_change() -> None:
    law = recipe()
    assert {key: law.view(500, 375, key) for key in GOLDEN} == GOLDEN


def written_out(width: int, height: int, key: int) -> tuple[float, float, float, float, bool]:
    """The rule as the docstring of `ps.Image` states it, in plain Python."""
    state = key

    def draw() -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        value = state
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    def between(low: float, high: float) -> float:
        return low + (high - low) * ((draw() >> 11) / 2**53)

    flip = draw() >> 63 == 1
    for _ in range(10):
        area = width * height * between(0.08, 1)
        ratio = math.exp(between(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top = draw() * (height - high + 1) >> 64
            left = draw() * (width - wide + 1) >> 64
            return left, top, wide, high, flip
    wide, high = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - wide) // 2, (height - high) // 2, wide, high, flip


def test_random_crops_follow_the_documented_rule() -> None:
    law = recipe()
    for width, height in ((500, 375), (64, 1000), (1000, 20), (3, 2)):
        for key in range(0, 2**64, 2**64 // 300):
            assert law.view(width, height, key) == written_out(width, height, key)


def test_areas_shapes_and_flips_have_the_right_distribution() -> None:
    law = recipe(scale=(0.1, 0.5))
    views = np.array([law.view(1000, 1000, key) for key in range(4000)])
    areas = views[:, 2] * views[:, 3] / 1e6
    shapes = np.log(views[:, 2] / views[:, 3]) / np.log(4 / 3)
    assert np.all((areas > 0.099) & (areas < 0.501))
    np.testing.assert_allclose(np.quantile(areas, [0.25, 0.5, 0.75]), [0.2, 0.3, 0.4], atol=0.02)
    np.testing.assert_allclose(np.quantile(shapes, [0.25, 0.5, 0.75]), [-0.5, 0, 0.5], atol=0.05)
    places = views[:, 0] / (1000 - views[:, 2])
    np.testing.assert_allclose(np.quantile(places, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)
    assert abs(views[:, 4].mean() - 0.5) < 0.03
    assert abs(np.corrcoef(places, views[:, 4])[0, 1]) < 0.05


def test_a_record_looks_the_same_in_any_batch_and_by_any_number_of_threads() -> None:
    images = [jpeg(picture(90 + n, 120 - n, n)) for n in range(12)]
    whole = made(images, RANDOM, *range(12), threads=1)
    np.testing.assert_array_equal(made(images, RANDOM, *range(12), threads=5), whole)
    for place in range(12):
        np.testing.assert_array_equal(made([images[place]], RANDOM, place)[0], whole[place])
    np.testing.assert_array_equal(made(images[::-1], RANDOM, *range(11, -1, -1)), whole[::-1])
    assert not np.array_equal(made([images[0]], RANDOM, 99)[0], whole[0])


# Compared with the exact path


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:2:0"},
        {"subsampling": "4:2:2"},
        {"subsampling": "4:4:4"},
        {"subsampling": "4:1:1"},
        {"subsampling": "4:2:0", "progressive": True},
        {"subsampling": "4:2:0", "restart_marker_blocks": 3},
    ],
    ids=str,
)
def test_a_crop_smaller_than_twice_its_target_is_bit_equal_to_one_of_all_pixels(
    options: Any,
) -> None:
    for seed, (height, width) in enumerate([(131, 97), (96, 160), (201, 223)]):
        data = jpeg(picture(height, width, seed), **options)
        spec = ps.Image((100, 112), crop="random", flip=True)
        whole = ps.decode_images([data])
        for key in range(60):
            found, expected = made([data], spec, key), made(whole, spec, key)
            np.testing.assert_array_equal(found, expected, err_msg=f"{height} {width} {key}")


def test_grey_and_cmyk_jpegs_are_cropped_to_rgb() -> None:
    grey = jpeg(picture(120, 90)[..., 0])
    file = io.BytesIO()
    Pillow.fromarray(picture(120, 90)).convert("CMYK").save(file, "JPEG", quality=95)
    for data in (grey, file.getvalue()):
        for key in range(20):
            spec = ps.Image(80, crop="random", flip=True)
            whole = ps.decode_images([data])
            np.testing.assert_array_equal(made([data], spec, key), made(whole, spec, key))
    assert np.ptp(made([grey], RANDOM, 3).astype(int), axis=-1).max() == 0


def test_a_jpeg_decoded_at_a_part_of_its_size_is_near_the_exact_image() -> None:
    data = jpeg(picture(900, 1200))
    for size in (40, 70, 150, 300):
        for crop in (None, "center", "random"):
            found = made([data], ps.Image(size, crop=crop), 5).astype(int)
            expected = made([data], ps.Image(size, crop=crop, exact=True), 5)
            loss = np.mean((found - expected) ** 2.0)
            assert loss < 40, (size, crop, loss)


def test_exact_decodes_the_whole_image_and_then_resizes_it() -> None:
    data = jpeg(picture(300, 400))
    whole = ps.decode_images([data])
    for size in (32, 224, (50, 300)):
        for crop in (None, "center", "random"):
            exact = ps.Image(size, crop=crop, flip=True, exact=True)
            for key in range(5):
                np.testing.assert_array_equal(made([data], exact, key), made(whole, exact, key))


def test_png_webp_and_ppm_are_cropped_alike() -> None:
    pixels = picture(150, 200)
    expected = made(pixels[None], RANDOM, 17)
    for codec, options in (("png", {}), ("webp", {"lossless": True}), ("ppm", {})):
        data = ps.encode_images(pixels[None], codec, **options)
        np.testing.assert_array_equal(made(data, RANDOM, 17), expected)


# Inputs


def test_images_may_come_in_any_array_of_bytes() -> None:
    data = [jpeg(picture(70, 80, n)) for n in range(3)]
    expected = made(data, RANDOM)
    array = pa.array([b"no image", *data], pa.binary())[1:]
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        np.testing.assert_array_equal(made(array.cast(type_), RANDOM), expected)
    typed = pa.ExtensionArray.from_storage(ImageType("jpeg"), array)
    np.testing.assert_array_equal(made(typed, RANDOM), expected)
    chunked = pa.chunked_array([array[:1], array[1:]])
    np.testing.assert_array_equal(made(chunked, RANDOM), expected)
    np.testing.assert_array_equal(ps.decode_images(array, RANDOM, threads=2), expected)


def test_pixels_may_come_as_tensors_of_one_shape() -> None:
    pixels = np.stack([picture(40, 60, n) for n in range(5)])
    same = ps.Image()
    np.testing.assert_array_equal(made(pixels, same), pixels)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)
    np.testing.assert_array_equal(made(tensors, same), pixels)
    np.testing.assert_array_equal(made(tensors[2:4], same), pixels[2:4])
    spec = ps.Image((40, 30), crop="random", scale=(0.5, 0.5), ratio=(0.75, 0.75))
    np.testing.assert_array_equal(made(tensors[3:], spec, 7, 8), made(pixels[3:], spec, 7, 8))
    np.testing.assert_array_equal(made(pixels[::-1, ::-1], same), pixels[::-1, ::-1])
    grey = pixels[..., :1]
    np.testing.assert_array_equal(made(grey, same), np.repeat(grey, 3, axis=-1))
    with pytest.raises(ps.SchemaError, match="uint8"):
        made(pa.FixedShapeTensorArray.from_numpy_ndarray(pixels.astype(np.int16)), same)


def test_a_crop_of_its_target_size_is_a_copy_of_the_pixels() -> None:
    pixels = picture(64, 64)[None]
    spec = ps.Image(32, crop="center", center_fraction=0.5)
    np.testing.assert_array_equal(made(pixels, spec), pixels[:, 16:48, 16:48])


# The description


def test_a_description_is_frozen_pickled_and_shown() -> None:
    spec = ps.Image([32, 48], crop="random", flip=True, dtype=np.float16, mean=[0.1, 0.2, 0.3])
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert eval(repr(spec), {"Image": ps.Image}) == spec
    assert repr(ps.Image(224, crop="center")) == "Image(size=224, crop='center')"
    with pytest.raises(AttributeError):
        spec.size = 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": (1, 2, 3)},
        {"size": 8, "crop": "middle"},
        {"crop": "random"},
        {"dtype": "float64"},
        {"mean": 0.5},
        {"dtype": "float32", "std": 0},
        {"dtype": "float32", "mean": (1, 2)},
        {"layout": "hwc"},
        {"size": 8, "scale": (0, 1)},
        {"size": 8, "scale": (0.5, 1.5)},
        {"size": 8, "ratio": (2, 1)},
        {"size": 8, "center_fraction": 1.5},
    ],
    ids=str,
)
def test_arguments_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"size|crop|dtype|mean|std|layout|scale|ratio|center"):
        ps.Image(**wrong)


def test_a_view_has_crops_of_its_own_which_a_resumed_run_repeats(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 64, 3), np.uint8)
    ps.write({"image": ps.encode_images(pixels, "png")}, tmp_path / "x.parquet")
    ds = ps.open(tmp_path / "x.parquet").with_columns({"b": "image", "c": "image"})
    random = {"size": 16, "crop": "random", "flip": True}
    decode = {"image": ps.Image(**random), "b": ps.Image(**random, view=1), "c": ps.Image(**random)}

    def loader() -> ps.Loader:
        return ps.Loader(ds, 10, order=ps.Shuffled(seed=0), decode=decode)

    batches = list(loader())
    for batch in batches:
        assert (batch["image"] != batch["b"]).any(axis=(1, 2, 3)).all()
        assert np.array_equal(batch["image"], batch["c"])
    first, again = loader(), loader()
    next(iter(first))
    again.load_state_dict(first.state_dict())
    assert np.array_equal(next(iter(again))["b"], batches[1]["b"])
