"""Images for training: the law of crops, what is decoded, numbers and layouts, damage, memory."""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Pillow

import penstock as ps
from penstock import _core
from penstock.loader.images import decode_into, value_table
from penstock.types import ImageType


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Something with edges, ramps and a little noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    ramps = np.stack([rows * 2 + columns, columns * 3 - rows, rows + columns // 2], -1)
    boxes = np.where(((rows // 13 + columns // 17) % 2)[..., None], 60, 0)
    return (ramps + boxes + rng.integers(0, 8, (height, width, 3))).astype(np.uint8)


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "JPEG", **{"quality": 92, **options})
    return file.getvalue()


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def made(images: Any, spec: ps.Image, *of: int, **options: Any) -> Any:
    found = keys(*of) if of else np.arange(len(images), dtype=np.uint64)
    return decode_into(images, spec, found, **options)[0]


def recipe(**change: Any) -> _core.ImageRecipe:
    usual: dict[str, Any] = {
        "size": (224, 224),
        "crop": "random",
        "flip": True,
        "exact": False,
        "scale": (0.08, 1.0),
        "ratio": (3 / 4, 4 / 3),
        "center_fraction": 0.875,
    }
    return _core.ImageRecipe(**{**usual, **change})


RANDOM = ps.Image(64, crop="random", flip=True)


# The law of crops

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
    """The law as the docstring of `ps.Image` has it, by Python's own mathematics."""
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


def test_random_crops_follow_the_law_as_it_is_written() -> None:
    law = recipe()
    for width, height in ((500, 375), (64, 1000), (1000, 20), (3, 2)):
        for key in range(0, 2**64, 2**64 // 300):
            assert law.view(width, height, key) == written_out(width, height, key)


def test_areas_shapes_and_flips_are_spread_as_they_should_be() -> None:
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


# Against the exact path


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
def test_a_crop_smaller_than_twice_its_target_is_bit_equal_to_the_exact_path(options: Any) -> None:
    for seed, (height, width) in enumerate([(131, 97), (96, 160), (201, 223)]):
        data = jpeg(picture(height, width, seed), **options)
        spec = ps.Image((100, 112), crop="random", flip=True)
        exact = ps.Image((100, 112), crop="random", flip=True, exact=True)
        for key in range(60):
            found, expected = made([data], spec, key), made([data], exact, key)
            np.testing.assert_array_equal(found, expected, err_msg=f"{height} {width} {key}")


def test_grey_and_cmyk_jpegs_are_cropped_to_rgb() -> None:
    grey = jpeg(picture(120, 90)[..., 0])
    file = io.BytesIO()
    Pillow.fromarray(picture(120, 90)).convert("CMYK").save(file, "JPEG", quality=95)
    for data in (grey, file.getvalue()):
        for key in range(20):
            exact = ps.Image(80, crop="random", flip=True, exact=True)
            spec = ps.Image(80, crop="random", flip=True)
            np.testing.assert_array_equal(made([data], spec, key), made([data], exact, key))
    assert np.ptp(made([grey], RANDOM, 3).astype(int), axis=-1).max() == 0


def test_a_jpeg_decoded_at_a_part_of_its_size_is_near_the_exact_one() -> None:
    data = jpeg(picture(900, 1200))
    for size in (40, 70, 150, 300):
        for crop in (None, "center", "random"):
            found = made([data], ps.Image(size, crop=crop), 5).astype(int)
            expected = made([data], ps.Image(size, crop=crop, exact=True), 5)
            loss = np.mean((found - expected) ** 2.0)
            assert loss < 40, (size, crop, loss)


def test_exact_is_decoding_whole_and_then_the_same_resize() -> None:
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


# What goes in


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


# What comes out


def test_numbers_are_those_of_numpy() -> None:
    data = [jpeg(picture(70, 90, n)) for n in range(4)]
    options: dict[str, Any] = {"size": 48, "crop": "random", "flip": True}
    pixels = made(data, ps.Image(**options))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    scaled = pixels.astype(np.float32) / np.float32(255)
    expected = (scaled - np.float32(mean)) / np.float32(std)
    for dtype in ("float32", "float16"):
        spec = ps.Image(**options, dtype=dtype, mean=mean, std=std)
        found = made(data, spec)
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found, expected.astype(dtype))
        planes = made(data, ps.Image(**options, dtype=dtype, mean=mean, std=std, layout="nchw"))
        np.testing.assert_array_equal(planes, found.transpose(0, 3, 1, 2))
        assert planes.flags.c_contiguous
    plain = made(data, ps.Image(**options, dtype="float32"))
    np.testing.assert_array_equal(plain, scaled)
    planes = made(data, ps.Image(**options, layout="nchw"))
    np.testing.assert_array_equal(planes, pixels.transpose(0, 3, 1, 2))
    assert value_table(ps.Image(dtype="float16", mean=0.5)).shape == (3, 256)


def test_flip_mirrors_left_and_right() -> None:
    pixels = picture(20, 31)[None]
    law = recipe(size=None, crop="whole")
    flips = [law.view(31, 20, key)[4] for key in range(20)]
    assert 3 < sum(flips) < 17
    for key, flipped in enumerate(flips):
        expected = pixels[:, :, ::-1] if flipped else pixels
        np.testing.assert_array_equal(made(pixels, ps.Image(flip=True), key), expected)
        planes = made(pixels, ps.Image(flip=True, layout="nchw"), key)
        np.testing.assert_array_equal(planes, expected.transpose(0, 3, 1, 2))


def test_images_of_several_sizes_are_a_list_where_no_size_is_asked() -> None:
    pixels = [picture(20, 30, 1), picture(25, 10, 2)]
    data = ps.encode_images(pixels, "png")
    found = made(data, ps.Image())
    for one, expected in zip(found, pixels, strict=True):
        np.testing.assert_array_equal(one, expected)
    planes = made(data, ps.Image(dtype="float32", layout="nchw"))
    assert [one.shape for one in planes] == [(3, 20, 30), (3, 25, 10)]
    assert made(data[:1], ps.Image()).shape == (1, 20, 30, 3)
    with pytest.raises(ValueError, match="several sizes"):
        made(data, ps.Image(), out=np.empty((2, 20, 30, 3), np.uint8))


def test_a_batch_is_written_where_it_is_asked() -> None:
    data = [jpeg(picture(70, 80, n)) for n in range(3)]
    room = np.full((3, 64, 64, 3), 7, np.uint8)
    assert made(data, RANDOM, out=room) is room
    np.testing.assert_array_equal(room, made(data, RANDOM))
    larger = np.zeros((5, 64, 64, 3), np.uint8)
    made(data, RANDOM, out=larger[1:4])
    np.testing.assert_array_equal(larger[1:4], room)
    assert not larger[[0, 4]].any()


def test_room_that_does_not_fit_is_refused() -> None:
    data = [jpeg(picture(70, 80))]
    for wrong in (np.empty((1, 64, 64, 3), np.int8), np.empty((2, 64, 64, 3), np.uint8)):
        with pytest.raises(ValueError, match="out is uint8"):
            made(data, RANDOM, out=wrong)
    strided = np.empty((1, 64, 64, 6), np.uint8)[..., ::2]
    frozen = np.empty((1, 64, 64, 3), np.uint8)
    frozen.flags.writeable = False
    for wrong in (strided, frozen):
        with pytest.raises(ValueError, match="writable, and contiguous"):
            made(data, RANDOM, out=wrong)
    pixels = np.zeros((1, 64, 64, 3), np.uint8)
    with pytest.raises(ValueError, match="memory of the images"):
        made(pixels, ps.Image(64), out=pixels)
    with pytest.raises(ValueError, match="keys are uint64"):
        decode_into(data, RANDOM, np.arange(1))
    with pytest.raises(ValueError, match="keys are uint64"):
        decode_into(data, RANDOM, keys(1, 2))


def test_an_empty_batch_is_an_array_without_records() -> None:
    assert made([], RANDOM).shape == (0, 64, 64, 3)
    assert len(made([], ps.Image())) == 0


# Damage


def damaged_batch() -> list[bytes | None]:
    whole = jpeg(picture(120, 100))
    return [whole, b"no image", whole[:-900], None, whole]


def test_the_first_damaged_image_is_an_error_with_its_place() -> None:
    for threads in (1, 4):
        with pytest.raises(ps.FormatError, match="no JPEG") as caught:
            made(damaged_batch(), RANDOM, threads=threads)
        assert caught.value.record == 1
    with pytest.raises(ps.TruncatedError) as caught:
        made([jpeg(picture(80, 80)), jpeg(picture(80, 80))[:-300]], RANDOM)
    assert caught.value.record == 1


def test_damaged_images_are_skipped_and_told() -> None:
    whole = jpeg(picture(120, 100))
    room = np.full((5, 64, 64, 3), 9, np.uint8)
    _, faults = decode_into(
        damaged_batch(), RANDOM, keys(0, 1, 2, 3, 4), room, damage="skip", threads=3
    )
    assert [(fault.place, fault.salvaged) for fault in faults] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    assert [fault.error.record for fault in faults] == [1, 2, 3]
    assert isinstance(faults[1].error, ps.TruncatedError)
    assert not room[1:4].any()
    np.testing.assert_array_equal(room[[0, 4]], made([whole, whole], RANDOM, 0, 4))


def test_what_can_be_had_is_salvaged_and_told() -> None:
    batch, faults = decode_into(
        damaged_batch(), ps.Image(64), keys(0, 1, 2, 3, 4), damage="salvage"
    )
    assert [(fault.place, fault.salvaged) for fault in faults] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    np.testing.assert_array_equal(batch[2, :16], batch[0, :16])
    assert not batch[[1, 3]].any()
    cut = damaged_batch()[2:3]
    found = ps.decode_images(cut, ps.Image(64), allow_damaged=True)
    np.testing.assert_array_equal(found[0], batch[2])
    with pytest.raises(ps.FormatError):
        ps.decode_images(damaged_batch(), ps.Image(64), allow_damaged=True)


def test_a_jpeg_cut_anywhere_is_damaged_whatever_its_crop() -> None:
    data = jpeg(picture(60, 60), subsampling="4:2:0")
    spec = ps.Image(8, crop="random", scale=(0.1, 0.1))
    cuts = [data[:length] for length in range(0, len(data), 7)] + [data[:-1], data[:-2]]
    _, faults = decode_into(cuts, spec, np.zeros(len(cuts), np.uint64), damage="skip", threads=2)
    assert [fault.place for fault in faults] == list(range(len(cuts)))


def test_bytes_behind_the_end_of_a_jpeg_do_not_matter() -> None:
    data = jpeg(picture(60, 90))
    np.testing.assert_array_equal(made([data + b"\0\0\0"], RANDOM, 3), made([data], RANDOM, 3))


def test_an_image_that_says_it_is_huge_is_refused_before_it_is_decoded() -> None:
    data = jpeg(picture(60, 60))
    with pytest.raises(ps.LimitError, match="image_pixels=100"):
        made([data], RANDOM, limits={"image_pixels": 100})
    huge = b"P6 65000 65000 255\n"
    with pytest.raises(ps.LimitError):
        made([huge], RANDOM)
    with pytest.raises(ps.TruncatedError):
        made([b"P6 6000 6000 255\n"], RANDOM)


def test_damaged_images_without_a_size_have_no_array() -> None:
    data = [jpeg(picture(20, 30)), b"no image", jpeg(picture(20, 30))[:400]]
    batch, faults = decode_into(data, ps.Image(), keys(0, 1, 2), damage="skip")
    assert batch[1] is None
    assert not batch[2].any()
    assert [fault.place for fault in faults] == [1, 2]


# The pool


def test_memory_of_a_pool_is_used_again_when_the_last_view_is_gone() -> None:
    pool = _core.BufferPool(1 << 20)
    first = np.asarray(pool.take(100_000))
    view = first[10:20]
    address = first.ctypes.data
    del first
    assert pool.free_bytes == 0
    del view
    assert pool.free_bytes == 100_000
    again = np.asarray(pool.take(99_000))
    assert again.ctypes.data == address
    assert (len(again), pool.free_bytes) == (99_000, 0)


def test_a_pool_keeps_no_more_than_it_may() -> None:
    pool = _core.BufferPool(250_000)
    held = [pool.take(100_000) for _ in range(4)]
    held.clear()
    assert pool.free_bytes == 200_000
    assert len(pool.take(1000)) == 1000
    assert pool.free_bytes == 201_000


def test_memory_outlives_its_pool() -> None:
    pool = _core.BufferPool(1 << 20)
    array = np.asarray(pool.take(100_000))
    array[:] = 3
    del pool
    assert array.sum() == 300_000


def test_batches_lie_in_the_memory_of_a_pool() -> None:
    pool = _core.BufferPool(1 << 24)
    data = [jpeg(picture(70, 80, n)) for n in range(2)]
    for dtype in ("uint8", "float32"):
        spec = ps.Image(64, dtype=dtype)
        expected = made(data, spec)
        for _ in range(3):
            found = made(data, spec, pool=pool)
            np.testing.assert_array_equal(found, expected)
            assert pool.free_bytes in (0, 2 * 64 * 64 * 3)
            del found
    assert pool.free_bytes == 2 * 64 * 64 * 3 * 5


# The description


def test_a_description_is_frozen_pickled_and_told() -> None:
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


@pytest.mark.parametrize("views", [False, True])
def test_memory_of_batches_is_used_again_in_the_next_epoch(tmp_path: Path, views: bool) -> None:
    path = tmp_path / "x.tfrecord"
    images = [jpeg(picture(300, 400, n), quality=95) for n in range(40)]
    ps.write({"image": images, "n": list(range(40))}, path)
    spec = ps.Image(64, crop="random")
    decode = spec if views else lambda column: spec.decode(column, keys=keys(*range(8)))
    loader = ps.Loader(ps.open(path), 8, order=ps.Shuffled(2), decode={"image": decode})
    first = [batch["image"].copy() for batch in loader]
    pool = loader._pool()  # pyright: ignore[reportPrivateUsage]
    assert (pool.free_bytes > 0) == views
    for _ in range(5):
        for _ in loader:
            pass
    # No more than the batches of one epoch, however many there were.
    assert pool.free_bytes <= sum(batch.nbytes for batch in first)
    if views:
        again = pickle.loads(pickle.dumps(loader))
        again.set_epoch(0)
        assert all((a == b["image"]).all() for a, b in zip(first, again, strict=True))
