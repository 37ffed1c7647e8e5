"""`Image(resize=False, pad=...)`: torchvision's `RandomCrop` and `CenterCrop`, which are NumPy's `pad` and a slice."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import jpeg, made, picture
from same_records import png

import penstock as ps

FILL = (9, 20, 255)
PIXELS = np.stack([picture(45, 60, n) for n in range(24)])


def padded(pixels: np.ndarray, pad: int, fill: Any) -> np.ndarray:
    """The image with pixels around it."""
    height, width = pixels.shape[:2]
    made = np.empty((height + 2 * pad, width + 2 * pad, *pixels.shape[2:]), pixels.dtype)
    made[:] = fill
    made[pad : pad + height, pad : pad + width] = pixels
    return made


def drawn(key: int, flips: int, extra: tuple[int, int]) -> tuple[list[bool], list[int]]:
    """The rule as the docstring of `ps.Image` states it: the flips, then top and left."""
    state = key

    def below(end: int) -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        value = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return (value ^ value >> 31) * end >> 64

    return [below(2) == 1 for _ in range(flips)], [below(most + 1) for most in extra]


@settings(max_examples=100, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    pad=st.integers(0, 12),
    flip=st.sampled_from([False, True, "vertical", "both"]),
    crop=st.sampled_from(["random", "center"]),
    key=st.integers(0, 2**64 - 1),
    kind=st.sampled_from([jpeg, png, None]),
    exact=st.booleans(),
)
def test_a_crop_is_a_slice_of_the_padded_image(
    shape: tuple[int, int],
    size: tuple[int, int],
    pad: int,
    flip: Any,
    crop: Any,
    key: int,
    kind: Any,
    exact: bool,
) -> None:
    pad = min(pad, min(size) - 1)
    pixels = picture(*shape, 3)
    images: Any = [kind(pixels)] if kind else pixels[None]
    fill = FILL if pad else 0
    how: dict[str, Any] = {"crop": crop, "flip": flip, "fill": fill, "exact": exact}
    spec = ps.Image(size, **how, resize=False, pad=pad)
    extra = shape[0] + 2 * pad - size[0], shape[1] + 2 * pad - size[1]
    if min(extra) < 0:
        with pytest.raises(ps.SchemaError, match=f"its {shape[1]} x {shape[0]} pixels"):
            made(images, spec, key)
        return
    flips, place = drawn(key, {False: 0, "both": 2}.get(flip, 1), extra)
    top, left = place if crop == "random" else [round(side / 2) for side in extra]
    whole = padded(np.asarray(ps.decode_images(images)[0]) if kind else pixels, pad, fill)
    expected = whole[top : top + size[0], left : left + size[1]]
    axes = {False: (), True: (1,), "vertical": (0,), "both": (1, 0)}[flip]
    for axis, is_flipped in zip(axes, flips, strict=True):
        expected = np.flip(expected, axis) if is_flipped else expected
    np.testing.assert_array_equal(made(images, spec, key)[0], expected)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("dtype", ["uint16", "float32", "bfloat16"])
def test_padding_is_converted_to_numbers_as_pixels_are(dtype: str, layout: Any) -> None:
    how: dict[str, Any] = {"crop": "random", "flip": "both", "resize": False, "pad": 9}
    stored = made(PIXELS, ps.Image((45, 60), **how, fill=FILL))
    assert (stored == FILL).all(-1).any((1, 2)).all()
    numbers = ps.Image(dtype=dtype, layout=layout)
    spec = ps.Image((45, 60), **how, fill=FILL, dtype=dtype, layout=layout)
    np.testing.assert_array_equal(made(PIXELS, spec), made(stored, numbers))


def test_an_image_of_16_bits_keeps_them() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (30, 40), np.uint16)
    spec = ps.Image(26, crop="center", resize=False, dtype="uint16")
    np.testing.assert_array_equal(made([png(deep)], spec)[0][..., 0], deep[2:28, 7:33])


def test_jitter_leaves_the_padding_as_it_is() -> None:
    how: dict[str, Any] = {"crop": "random", "resize": False, "pad": 9, "fill": FILL}
    plain = made(PIXELS, ps.Image((45, 60), **how))
    dark = made(PIXELS, ps.Image((45, 60), **how, jitter={"brightness": (0.5, 0.5)}))
    margin = (plain == FILL).all(-1, keepdims=True)
    np.testing.assert_array_equal(dark, np.where(margin, plain, plain // 2))


# Columns that go with the image, on ranks and after resuming

BOX = (10.0, 5.0, 50.0, 38.0)


def of_record(folder: Path, **options: Any) -> dict[int, tuple[Any, ...]]:
    path = folder / "scenes.parquet"
    if not path.exists():
        masks = np.zeros((24, 45, 60), np.uint8)
        masks[:, 5:38, 10:50] = 7
        columns = {
            "image": np.repeat(masks[..., None], 3, -1),
            "mask": [png(mask) for mask in masks],
            "half": [png(mask[:44:2, ::2]) for mask in masks],
            "boxes": [[BOX]] * 24,
            "id": range(24),
        }
        ps.write(columns, path)
    same = {"mask": "nearest", "half": "nearest", "boxes": "xyxy"}
    spec = ps.Image(
        (40, 56), crop="random", resize=False, pad=6, flip="both", mask_fill=255, fill=99, same=same
    )
    how: dict[str, Any] = {"order": ps.Shuffled(seed=1), "ragged": "list", **options}
    size = how.pop("batch_size", 6)
    loader = ps.Loader(ps.open(path), size, decode={"image": spec}, **how)
    batches = [*islice(loader, 1)]
    resumed = ps.Loader(ps.open(path), size, decode={"image": spec}, **how)
    resumed.load_state_dict(loader.state_dict())
    batches += resumed
    names = ("image", "mask", "half", "boxes")
    return {
        int(n): tuple(np.asarray(batch[name][k]) for name in names)
        for batch in batches
        for k, n in enumerate(batch["id"])
    }


def test_masks_and_boxes_move_with_the_image(tmp_path: Path) -> None:
    places: set[tuple[float, ...]] = set()
    num_padded = 0
    for image, mask, half, boxes in of_record(tmp_path).values():
        assert set(np.unique(image)) <= {0, 7, 99}
        num_padded += (image == 99).any()
        np.testing.assert_array_equal(np.where(mask == 255, 99, mask), image[..., 0])
        assert (half != mask).mean() < 0.1
        rows, columns = np.nonzero(mask == 7)
        edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert boxes[0].tolist() == list(edges)
        places.add(tuple(edges))
    assert len(places) > 15 and num_padded > 15


def test_threads_ranks_and_resuming_repeat_the_crops(tmp_path: Path) -> None:
    expected = of_record(tmp_path, threads=0)
    ways: list[dict[int, tuple[Any, ...]]] = [
        of_record(tmp_path, threads=3, batch_size=5),
        of_record(tmp_path, rank=0, world_size=2) | of_record(tmp_path, rank=1, world_size=2),
    ]
    for found in ways:
        assert found.keys() == expected.keys()
        for n, columns in found.items():
            for one, other in zip(columns, expected[n], strict=True):
                np.testing.assert_array_equal(one, other)


def test_an_image_that_is_too_small_names_its_record_and_what_to_do(tmp_path: Path) -> None:
    ps.write({"image": [png(PIXELS[0]), png(PIXELS[1, :20, :30])]}, tmp_path / "d.parquet")
    spec = ps.Image(32, crop="random", resize=False, pad=4, flip=True)
    says = r"30 x 20 pixels \(with pad=4: 38 x 28\) are fewer than the 32 x 32 .* a larger pad="
    with pytest.raises(ps.SchemaError, match=says) as caught:
        list(ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": spec}))
    assert caught.value.record == 1
    spec = ps.Image(32, crop="random", resize=False, pad=6, flip=True)
    [batch] = ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": spec})
    assert batch["image"].shape == (2, 32, 32, 3)


# The description


def test_a_fixed_crop_is_described_and_pickled() -> None:
    pad: Any = np.int64(4)
    spec = ps.Image(32, crop="random", resize=False, pad=pad)
    assert repr(spec) == "Image(size=32, crop='random', resize=False, pad=4)"
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"resize": True}, "pad needs resize=False, for a crop whose pixels are not resized"),
        ({"pad": 32}, "pad must be from 0 to less than size=32, not 32"),
        ({"size": (40, 4)}, r"pad must be from 0 to less than size=\(40, 4\), not 4"),
        ({"pad": -1}, "pad must be"),
        ({"crop": None}, "resize=False needs crop='random' or crop='center'"),
        ({"crop": "letterbox"}, "resize=False needs"),
        ({"size": None}, "crop='random' needs a size"),
        ({"pad": 0, "fill": 1}, "fill and mask_fill need crop='letterbox' or pad="),
    ],
    ids=str,
)
def test_a_fixed_crop_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        usual: dict[str, Any] = {"size": 32, "crop": "random", "resize": False, "pad": 4}
        ps.Image(**{**usual, **wrong})
