"""tf.image compared with TensorFlow's: the same arguments, the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.tf as ps
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.seeds import set_seed

tf: Any = pytest.importorskip("tensorflow")

EXACT = ("bilinear", "nearest", "bicubic")
DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64")


def picture(
    rng: np.random.Generator, dtype: str = "uint8", *batch: int, sides: int = 40
) -> np.ndarray:
    shape = (*batch, *(int(n) for n in rng.integers(1, sides, 2)), int(rng.choice([1, 3, 3, 4])))
    if np.dtype(dtype).kind == "f":
        return (rng.random(shape) * 300 - 30).astype(dtype)
    low, high = max(np.iinfo(dtype).min, -1000), min(np.iinfo(dtype).max, 40000)
    return rng.integers(low, high, shape, dtype, endpoint=True)


def same(ours: Any, theirs: Any, **close: float) -> None:
    expected = theirs.numpy()
    assert isinstance(ours, ps.Tensor)
    assert ours.dtype == expected.dtype
    assert tuple(ours.shape) == expected.shape
    if close:
        np.testing.assert_allclose(ours.astype(float), expected.astype(float), **close)
    else:
        np.testing.assert_array_equal(ours, expected)


def bound(method: str, image: np.ndarray) -> dict[str, float]:
    """How much a resized image may differ from TensorFlow's: 0.002 of 255, if any difference is allowed."""
    largest = float(np.abs(image.astype(float)).max(initial=255))
    return {} if method in EXACT else {"atol": 0.002 * largest / 255}


def fails_alike(ours: Any, theirs: Any) -> None:
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as expected:
        theirs()
    with pytest.raises(ValueError) as found:
        ours()
    told = isinstance(expected.value, tf.errors.InvalidArgumentError)
    assert isinstance(found.value, InvalidArgumentError) == told


METHODS = [*EXACT, "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]


@pytest.mark.parametrize("method", METHODS)
def test_resize_gives_tensorflows_numbers(method: str) -> None:
    rng = np.random.default_rng(len(method))
    for number in range(90):
        antialias = bool(number % 2)
        dtype = DTYPES[number % len(DTYPES)]
        image = picture(rng, dtype, *((2,) if number % 5 == 0 else ()))
        size = [int(n) for n in rng.integers(1, 50, 2)]
        how: dict[str, Any] = {"antialias": antialias, "preserve_aspect_ratio": number % 7 == 0}
        try:
            ours = ps.image.resize(image, size, method, **how)
        except InvalidArgumentError:  # scaled in proportion, a side may become 0
            fails_alike(
                lambda a=(image, size, method), h=how: ps.image.resize(*a, **h),
                lambda a=(image, size, method), h=how: tf.image.resize(*a, **h),
            )
            continue
        same(ours, tf.image.resize(image, size, method, **how), **bound(method, image))


@pytest.mark.stress
def test_resize_gives_tensorflows_numbers_thousands_of_times() -> None:
    rng = np.random.default_rng(7)
    for number in range(4000):
        method = ("bilinear", "nearest", "bicubic", "area", "gaussian")[number % 5]
        image = picture(rng, DTYPES[number % len(DTYPES)], sides=120)
        size, antialias = [int(n) for n in rng.integers(1, 150, 2)], bool(rng.integers(2))
        ours = ps.image.resize(image, size, method, antialias=antialias)
        theirs = tf.image.resize(image, size, method, antialias=antialias)
        same(ours, theirs, **bound(method, image))


def test_resize_gives_the_golden_answers(golden: Path) -> None:
    expected = json.loads((golden / "tf_data" / "resize.expected.json").read_text())
    image = np.array(expected["input_uint8"], np.uint8)
    for case in expected["cases"]:
        ours = ps.image.resize(image, case["size"], case["method"], antialias=case["antialias"])
        assert ours.dtype == case["dtype"]
        bound = 0.2 if case["method"] == "gaussian" else 0.002
        np.testing.assert_allclose(ours, np.array(case["output"]), atol=bound)


def test_images_of_no_channels_or_no_images_keep_their_shape() -> None:
    for shape in ((0, 5, 4, 3), (5, 4, 0)):
        found = ps.image.resize(np.zeros(shape, np.uint8), [2, 3])
        assert tuple(found.shape) == (*shape[:-3], 2, 3, shape[-1])


def test_wrong_sizes_and_ranks_fail_as_in_tensorflow() -> None:
    image = np.zeros([4, 5, 3], np.uint8)
    for arguments in (
        (image[0], [2, 2]),
        (image, [2]),
        (image, [2, 2, 2]),
        (image, [2.0, 3.0]),
        (image, [0, 3]),
        (image, [-1, 3]),
        (image[:0], [2, 2]),
        (image, [2, 2], "cubic"),
    ):
        fails_alike(
            lambda a=arguments: ps.image.resize(*a), lambda a=arguments: tf.image.resize(*a)
        )
    for name, arguments in {
        "crop_to_bounding_box": [(0, 0, 5, 5), (-1, 0, 1, 1), (0, 0, 0, 1), (0, 3, 1, 3)],
        "pad_to_bounding_box": [(-1, 0, 9, 9), (0, 0, 3, 9), (3, 0, 5, 9)],
        "resize_with_crop_or_pad": [(0, 1), (1, -1)],
        "resize_with_pad": [(0, 1)],
        "central_crop": [(0.0,), (1.5,)],
        "random_brightness": [(-1,)],
        "random_contrast": [(0.5, 0.5), (-1, 1)],
        "random_hue": [(0.6,)],
        "random_jpeg_quality": [(80, 70), (-1, 70)],
        "adjust_hue": [(2.0,)],
        "adjust_gamma": [(-1.0,)],
        "random_crop": [((9, 1, 1),)],
    }.items():
        for some in arguments:
            fails_alike(
                lambda n=name, a=some: getattr(ps.image, n)(image, *a),
                lambda n=name, a=some: getattr(tf.image, n)(image, *a),
            )


def test_cutting_padding_and_turning_give_tensorflows_arrays() -> None:
    rng = np.random.default_rng(1)
    for number in range(60):
        image = picture(rng, DTYPES[number % len(DTYPES)], *((3,) if number % 3 == 0 else ()))
        height, width = image.shape[-3:-1]
        top, left = int(rng.integers(height)), int(rng.integers(width))
        rows = int(rng.integers(1, height - top + 1))
        columns = int(rng.integers(1, width - left + 1))
        size = [int(n) for n in rng.integers(1, 60, 2)]
        fraction = float(rng.uniform(0.05, 1))
        for name, arguments in (
            ("crop_to_bounding_box", (top, left, rows, columns)),
            ("pad_to_bounding_box", (top, left, top + height + rows, left + width + columns)),
            ("resize_with_crop_or_pad", size),
            ("central_crop", (fraction,)),
            ("flip_left_right", ()),
            ("flip_up_down", ()),
            ("transpose", ()),
            ("rot90", (int(rng.integers(-3, 6)),)),
        ):
            ours = getattr(ps.image, name)(image, *arguments)
            same(ours, getattr(tf.image, name)(image, *arguments))
        if max(height, width) / min(height, width) < min(size):  # otherwise, a side may become 0
            same(ps.image.resize_with_pad(image, *size), tf.image.resize_with_pad(image, *size))


def test_crop_and_resize_gives_tensorflows_numbers() -> None:
    rng = np.random.default_rng(2)
    for method in ("bilinear", "nearest"):
        for _ in range(20):
            image = picture(rng, "float32", 2)
            boxes = rng.uniform(-0.2, 1.2, (3, 4)).astype(np.float32)
            size = [int(n) for n in rng.integers(1, 9, 2)]
            arguments = (image, boxes, [0, 1, 1], size, method, -1.0)
            same(
                ps.image.crop_and_resize(*arguments),
                tf.image.crop_and_resize(*arguments),
                atol=0.02,
                rtol=1e-4,
            )


def test_types_of_images_are_converted_as_in_tensorflow() -> None:
    rng = np.random.default_rng(3)
    names = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "float64")
    for old in names:
        image = picture(rng, old)
        if np.dtype(old).kind == "f":
            image = rng.uniform(-0.5, 1.5, image.shape).astype(old)
        for new in names:
            for saturate in (False, True):
                if old[0] == "f" and not saturate:
                    image = image.clip(0, 0.99)
                if (old, new) == ("float16", "int32"):
                    continue  # the largest int32 is beyond float16
                ours = ps.image.convert_image_dtype(image, new, saturate=saturate)
                theirs = tf.image.convert_image_dtype(image, new, saturate=saturate)
                same(ours, theirs, **({"rtol": 1e-6} if new[0] == "f" else {"atol": 1}))


def test_colours_are_changed_as_in_tensorflow() -> None:
    rng = np.random.default_rng(4)
    for number in range(30):
        shape = (*((2,) if number % 2 else ()), 9, 7, 3)
        for image in (rng.integers(0, 256, shape, np.uint8), rng.random(shape, np.float32)):
            by, close = float(rng.uniform(-1, 1)), {"atol": 2e-6 if image.dtype != np.uint8 else 1}
            for name, arguments in (
                ("adjust_brightness", (by,)),
                ("adjust_contrast", (by + 1.5,)),
                ("adjust_hue", (by,)),
                ("adjust_saturation", (by + 1,)),
                ("adjust_gamma", (by + 1, 1.1)),
                ("rgb_to_grayscale", ()),
                ("per_image_standardization", ()),
            ):
                ours = getattr(ps.image, name)(image, *arguments)
                same(ours, getattr(tf.image, name)(image, *arguments), **{"atol": 5e-6, **close})
            grey = image[..., :1]
            same(ps.image.grayscale_to_rgb(grey), tf.image.grayscale_to_rgb(tf.constant(grey)))
            if image.dtype == np.float32:
                same(ps.image.rgb_to_hsv(image), tf.image.rgb_to_hsv(image), atol=1e-6)
                same(ps.image.hsv_to_rgb(image), tf.image.hsv_to_rgb(image), atol=1e-6)
                same(
                    ps.image.total_variation(image),
                    tf.image.total_variation(tf.constant(image)),
                    rtol=1e-5,
                )
                other = rng.random(shape, np.float32)
                same(ps.image.psnr(image, other, 1), tf.image.psnr(image, other, 1), rtol=1e-5)
    image = rng.integers(0, 256, (32, 24, 3), np.uint8)
    same(ps.image.adjust_jpeg_quality(image, 70), tf.image.adjust_jpeg_quality(image, 70))


def test_stateless_operations_draw_tensorflows_numbers() -> None:
    rng = np.random.default_rng(5)
    for number in range(40):
        seed = [int(n) for n in rng.integers(-(2**31), 2**31, 2)]
        image = rng.integers(0, 256, (8, 9, 3), np.uint8)
        batch = rng.integers(0, 256, (16, 3, 2, 3), np.uint8)
        for name, value, arguments in (
            ("stateless_random_flip_left_right", image, ()),
            ("stateless_random_flip_up_down", image, ()),
            ("stateless_random_flip_left_right", batch, ()),
            ("stateless_random_flip_up_down", batch, ()),
            ("stateless_random_crop", image, ((3, 4, 3),)),
            ("stateless_random_jpeg_quality", image, (50, 90)),
        ):
            ours = getattr(ps.image, name)(value, *arguments, seed=seed)
            same(ours, getattr(tf.image, name)(value, *arguments, seed=seed))
        floats = rng.random((5, 4, 3), np.float32)
        for name, arguments in (
            ("stateless_random_brightness", (0.3,)),
            ("stateless_random_contrast", (0.5, 1.5)),
            ("stateless_random_saturation", (0.5, 1.5)),
            ("stateless_random_hue", (0.3,)),
        ):
            ours = getattr(ps.image, name)(floats, *arguments, seed=seed)
            theirs = getattr(tf.image, name)(floats, *arguments, seed=seed)
            same(ours, theirs, atol=2e-6)
        boxes = np.sort(rng.random((1, number % 3, 2, 2), np.float32), axis=2).reshape(1, -1, 4)
        how: dict[str, Any] = {
            "seed": seed,
            "min_object_covered": float(rng.choice([0, 0.1, 0.5, 0.9])),
            "aspect_ratio_range": (0.5, 2.0),
            "area_range": (0.1, 0.9),
            "max_attempts": int(rng.integers(1, 20)),
            "use_image_if_no_bounding_boxes": True,
        }
        size = [int(n) for n in rng.integers(1, 300, 2)] + [3]
        ours = ps.image.stateless_sample_distorted_bounding_box(size, boxes, **how)
        theirs = tf.image.stateless_sample_distorted_bounding_box(size, boxes, **how)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)


def test_operations_with_a_seed_go_on_with_tensorflows_numbers() -> None:
    rng = np.random.default_rng(6)
    image, batch = rng.integers(0, 256, (8, 9, 3), np.uint8), rng.random((6, 3, 2, 3), np.float32)
    boxes = np.array([[[0.1, 0.2, 0.6, 0.9]]], np.float32)
    tf.random.set_seed(5)
    set_seed(5)
    try:
        for _ in range(3):
            for name, value, arguments in (
                ("random_flip_left_right", image, ()),
                ("random_flip_up_down", batch, ()),
                ("random_crop", image, ((3, 4, 3),)),
                ("random_brightness", batch, (0.3,)),
                ("random_contrast", batch, (0.5, 1.5)),
                ("random_saturation", batch, (0.5, 1.5)),
                ("random_hue", batch, (0.3,)),
                ("random_jpeg_quality", image, (50, 90)),
            ):
                ours = getattr(ps.image, name)(value, *arguments, seed=3)
                same(ours, getattr(tf.image, name)(value, *arguments, seed=3), atol=2e-6)
            ours = ps.image.sample_distorted_bounding_box([40, 50, 3], boxes, seed=3)
            theirs = tf.image.sample_distorted_bounding_box([40, 50, 3], boxes, seed=3)
            for one, other in zip(ours, theirs, strict=True):
                same(one, other)
    finally:
        set_seed(None)
        tf.random.set_seed(None)


def test_flips_and_middles_are_the_golden_ones(golden: Path) -> None:
    expected = json.loads((golden / "tf_data" / "augment.expected.json").read_text())
    image = np.array([[[1], [2]]])
    flips = expected["stateless_random_flip_left_right"]
    for seed, flipped in zip(flips["seeds"], flips["flipped"], strict=True):
        found = ps.image.stateless_random_flip_left_right(image, seed)
        assert (found[0, 0, 0] == 2) == bool(flipped)
    for side, fraction, left in expected["central_crop_sizes"]:
        found = ps.image.central_crop(np.zeros([side, side, 1]), fraction)
        assert found.shape.as_list() == [left, left, 1]


def test_a_size_beyond_all_images_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ps.errors.ResourceExhaustedError, match="1048576 x 1048576 pixels"):
        ps.image.resize(np.zeros([2, 2, 3], np.uint8), [1 << 20, 1 << 20])
