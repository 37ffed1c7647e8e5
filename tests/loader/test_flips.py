"""`Image(flip=...)`: mirrored, upside down, or both, each by a draw of its own."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, made, picture, recipe
from same_records import png

import penstock as ps

KEYS = range(0, 2**64, 2**64 // 40)
PIXELS = [jpeg(picture(45, 60, 3))] * len(KEYS)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("image", [{}, {"size": 21}, {"size": 32, "crop": "center"}], ids=str)
def test_both_flips_are_two_draws_and_the_first_is_that_of_true(
    image: dict[str, Any], layout: Any, dtype: str
) -> None:
    image = {**image, "dtype": dtype, "layout": layout}
    across, down = (2, 1) if layout == "nhwc" else (3, 2)
    whole = made(PIXELS, ps.Image(**image), *KEYS)
    flips = np.array([recipe().view(45, 60, key)[4] for key in KEYS])
    both = made(PIXELS, ps.Image(**image, flip="both"), *KEYS)
    counts = {True: 0, False: 0}
    for n, flip in enumerate(flips):
        expected = np.flip(whole[n], across - 1) if flip else whole[n]
        upside_down = np.flip(expected, down - 1)
        is_down = np.array_equal(both[n], upside_down)
        assert is_down or np.array_equal(both[n], expected)
        counts[is_down] += 1
    assert min(counts.values()) > 8
    mirrored = np.where(flips.reshape(-1, 1, 1, 1), np.flip(whole, across), whole)
    for flip in (True, "horizontal"):
        np.testing.assert_array_equal(made(PIXELS, ps.Image(**image, flip=flip), *KEYS), mirrored)
    turned = np.where(flips.reshape(-1, 1, 1, 1), np.flip(whole, down), whole)
    np.testing.assert_array_equal(made(PIXELS, ps.Image(**image, flip="vertical"), *KEYS), turned)


def test_a_random_crop_is_the_same_whether_it_is_mirrored_or_turned() -> None:
    image: dict[str, Any] = {"size": 24, "crop": "random"}
    one = made(PIXELS, ps.Image(**image, flip=True), *KEYS)
    other = made(PIXELS, ps.Image(**image, flip="vertical"), *KEYS)
    flips = np.array([recipe().view(45, 60, key)[4] for key in KEYS]).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(
        np.where(flips, np.flip(one, 2), one), np.where(flips, np.flip(other, 1), other)
    )


def test_an_image_of_16_bits_is_turned_too() -> None:
    deep = [png(np.arange(35, dtype=np.uint16).reshape(5, 7) * 1800)] * 20
    found = made(deep, ps.Image(dtype="uint16", flip="vertical"))[..., 0]
    upper = found[:, 0, 0]
    assert set(upper) == {0, 28 * 1800}
    np.testing.assert_array_equal(
        found[upper > 0], np.flip(found[upper == 0][:1], 1).repeat((upper > 0).sum(), 0)
    )


def test_the_description_names_the_flip() -> None:
    bool_: Any = np.True_
    unknown: Any = "up"
    assert ps.Image(8, flip="horizontal") == ps.Image(8, flip=True)
    assert repr(ps.Image(8, flip="horizontal")) == "Image(size=8, flip=True)"
    assert repr(ps.Image(8, flip=bool_)) == "Image(size=8, flip=True)"
    flips: tuple[Any, ...] = ("vertical", "both")
    for flip in flips:
        spec = ps.Image(8, flip=flip)
        assert repr(spec) == f"Image(size=8, flip={flip!r})"
        assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(ValueError, match="unknown flip='up'; known: False, True, horizontal, vert"):
        ps.Image(8, flip=unknown)
