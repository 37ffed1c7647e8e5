"""Batches of images for training: numbers and layouts, damage, and the memory they use."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import RANDOM, jpeg, keys, made, picture, recipe

import penstock as ps
from penstock import _core
from penstock.loader.images import decode_into, value_table

# Outputs


def test_numbers_equal_numpys() -> None:
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


def test_images_of_several_sizes_are_a_list_if_no_size_is_given() -> None:
    pixels = [picture(20, 30, 1), picture(25, 10, 2)]
    data = ps.encode_images(pixels, "png")
    found = made(data, ps.Image())
    for one, expected in zip(found, pixels, strict=True):
        np.testing.assert_array_equal(one, expected)
    planes = made(data, ps.Image(dtype="float32", layout="nchw"))
    assert [one.shape for one in planes] == [(3, 20, 30), (3, 25, 10)]
    assert made(data[:1], ps.Image()).shape == (1, 20, 30, 3)
    with pytest.raises(ValueError, match="different sizes"):
        made(data, ps.Image(), out=np.empty((2, 20, 30, 3), np.uint8))


def test_a_batch_is_written_into_the_given_memory() -> None:
    data = [jpeg(picture(70, 80, n)) for n in range(3)]
    room = np.full((3, 64, 64, 3), 7, np.uint8)
    assert made(data, RANDOM, out=room) is room
    np.testing.assert_array_equal(room, made(data, RANDOM))
    larger = np.zeros((5, 64, 64, 3), np.uint8)
    made(data, RANDOM, out=larger[1:4])
    np.testing.assert_array_equal(larger[1:4], room)
    assert not larger[[0, 4]].any()


def test_an_output_array_that_does_not_fit_is_refused() -> None:
    data = [jpeg(picture(70, 80))]
    for wrong in (np.empty((1, 64, 64, 3), np.int8), np.empty((2, 64, 64, 3), np.uint8)):
        with pytest.raises(ValueError, match="out must be uint8"):
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
    with pytest.raises(ValueError, match="keys must be uint64"):
        decode_into(data, RANDOM, np.arange(1))
    with pytest.raises(ValueError, match="keys must be uint64"):
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
        with pytest.raises(ps.FormatError, match="not a JPEG") as caught:
            made(damaged_batch(), RANDOM, threads=threads)
        assert caught.value.record == 1
    with pytest.raises(ps.TruncatedError) as caught:
        made([jpeg(picture(80, 80)), jpeg(picture(80, 80))[:-300]], RANDOM)
    assert caught.value.record == 1


def test_damaged_images_are_skipped_and_reported() -> None:
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


def test_readable_parts_are_salvaged_and_reported() -> None:
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


def test_a_jpeg_truncated_anywhere_is_damaged_whatever_its_crop() -> None:
    data = jpeg(picture(60, 60), subsampling="4:2:0")
    spec = ps.Image(8, crop="random", scale=(0.1, 0.1))
    cuts = [data[:length] for length in range(0, len(data), 7)] + [data[:-1], data[:-2]]
    _, faults = decode_into(cuts, spec, np.zeros(len(cuts), np.uint64), damage="skip", threads=2)
    assert [fault.place for fault in faults] == list(range(len(cuts)))


def test_bytes_after_the_end_of_a_jpeg_are_ignored() -> None:
    data = jpeg(picture(60, 90))
    np.testing.assert_array_equal(made([data + b"\0\0\0"], RANDOM, 3), made([data], RANDOM, 3))


def test_an_image_that_claims_to_be_huge_is_refused_before_it_is_decoded() -> None:
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


def test_memory_of_a_pool_is_reused_after_the_last_view_is_freed() -> None:
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


def test_batches_are_in_the_memory_of_a_pool() -> None:
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


@pytest.mark.parametrize("views", [False, True])
def test_memory_of_batches_is_used_again_in_the_next_epoch(tmp_path: Path, views: bool) -> None:
    path = tmp_path / "x.tfrecord"
    images = [jpeg(picture(300, 400, n), quality=95) for n in range(40)]
    ps.write({"image": images, "n": list(range(40))}, path)
    spec = ps.Image(64, crop="random")
    decode = spec if views else lambda column: spec.decode(column, keys=keys(*range(8)))
    loader = ps.Loader(ps.open(path), 8, order=ps.Shuffled(2), decode={"image": decode})
    first = [batch["image"].copy() for batch in loader]
    pool = loader._maker.pool  # pyright: ignore[reportPrivateUsage]
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
