"""`Image(exif=True)`: pictures are first turned upright, as Pillow's `exif_transpose` does, with all that goes along."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import made, picture
from PIL import Image as Pillow
from PIL import ImageOps

import penstock as ps

WAYS = range(1, 9)
HEIGHT, WIDTH = 60, 84
PIXELS = picture(HEIGHT, WIDTH)
BILINEAR = Pillow.Resampling.BILINEAR


def file(pixels: np.ndarray, way: int, codec: str = "JPEG", **options: Any) -> bytes:
    """A picture with an EXIF orientation; without EXIF if it is 0."""
    to, exif = io.BytesIO(), Pillow.Exif()
    exif[0x010F] = "maker"
    exif[0x0112] = way
    options = {"JPEG": {"quality": 92}, "WEBP": {"lossless": True}}.get(codec, {}) | options
    Pillow.fromarray(pixels).save(to, codec, **options, **({"exif": exif} if way else {}))
    return to.getvalue()


def shown(data: bytes) -> Pillow.Image:
    return ImageOps.exif_transpose(Pillow.open(io.BytesIO(data)))


def plain(data: bytes) -> bytes:
    """The upright picture of Pillow, as a file without EXIF."""
    return file(np.asarray(shown(data)), 0, "PNG")


def stored(upright: np.ndarray, way: int) -> np.ndarray:
    """The pixels that a file of this orientation stores for an upright picture: found by trying all turns."""
    for back in WAYS:
        tried = np.asarray(shown(file(upright, back, "PNG")))
        if np.array_equal(np.asarray(shown(file(tried, way, "PNG"))), upright):
            return tried
    raise AssertionError("no turn undoes this orientation")


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("crop", [None, "center", "random", "letterbox"])
@pytest.mark.parametrize("way", WAYS)
def test_a_picture_is_made_from_the_upright_pixels_of_pillow(
    way: int, crop: Any, exact: bool
) -> None:
    keys = range(6)
    spec: dict[str, Any] = {"size": (50, 46), "crop": crop, "flip": "both", "exact": exact}
    if crop == "letterbox":
        spec["fill"] = (1, 90, 200)
    for codec in ("JPEG", "PNG"):
        data = file(PIXELS, way, codec)
        found = made([data] * 6, ps.Image(**spec, exif=True), *keys)
        np.testing.assert_array_equal(found, made([plain(data)] * 6, ps.Image(**spec), *keys))


@pytest.mark.parametrize("codec", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("way", WAYS)
def test_a_resize_and_a_letterbox_are_those_of_pillow(way: int, codec: str) -> None:
    data = file(PIXELS, way, codec)
    wanted = shown(data).convert("RGB")
    whole = made([data], ps.Image((31, 77), exif=True))[0].astype(int)
    assert abs(whole - np.asarray(wanted.resize((77, 31), BILINEAR), int)).max() <= 1
    boxed = made([data], ps.Image((64, 48), crop="letterbox", exif=True))[0].astype(int)
    assert abs(boxed - np.asarray(ImageOps.pad(wanted, (48, 64), BILINEAR), int)).max() <= 1
    assert np.array_equal(made([data], ps.Image(exif=True))[0], np.asarray(wanted))


def test_pictures_of_all_turns_keep_their_own_upright_sizes() -> None:
    data = [file(PIXELS, way) for way in WAYS]
    found = ps.decode_images(data, ps.Image(exif=True))
    for pixels, one in zip(found, data, strict=True):
        assert np.array_equal(pixels, np.asarray(shown(one)))
    as_stored = ps.decode_images(data, ps.Image())
    assert as_stored.shape == (8, HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_every_dtype_and_layout_is_turned(dtype: str, layout: Any) -> None:
    deep = np.random.default_rng(1).integers(0, 65536, (HEIGHT, WIDTH)).astype(np.uint16)
    grey = PIXELS[:, :, 0]
    for way, pixels in ((6, PIXELS), (7, deep), (8, grey), (3, deep)):
        data = file(pixels, way, "PNG")
        spec: dict[str, Any] = {"size": 30, "dtype": dtype, "layout": layout, "crop": "center"}
        found = made([data], ps.Image(**spec, exif=True))
        assert np.array_equal(found, made([plain(data)], ps.Image(**spec)))


def test_a_damaged_jpeg_is_salvaged_upright() -> None:
    noise = np.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    cut = file(noise, 6)
    cut = cut[: len(cut) * 2 // 3]
    (found,) = ps.decode_images([cut], ps.Image(exif=True), allow_damaged=True)
    (as_stored,) = ps.decode_images([cut], ps.Image(), allow_damaged=True)
    assert found.shape == (WIDTH, HEIGHT, 3)
    assert np.array_equal(found, np.rot90(as_stored, -1))


def test_pixels_and_files_without_exif_are_as_before() -> None:
    spec: dict[str, Any] = {"size": 20, "crop": "random", "flip": True}
    for images in (PIXELS[None], [b"P6 2 1 255 abcdef"], [file(PIXELS, 0)], [file(PIXELS, 1)]):
        before = made(images, ps.Image(**spec))
        assert np.array_equal(made(images, ps.Image(**spec, exif=True)), before)


def scenes(folder: Path, masks: Any, **columns: Any) -> ps.Dataset:
    """Eight pictures of one upright scene, one of each orientation, and upright masks without EXIF."""
    pictures = [file(stored(PIXELS, way), way, "PNG") for way in WAYS]
    ps.write({"image": pictures, "mask": masks, **columns}, folder / "s.parquet", overwrite=True)
    return ps.open(folder / "s.parquet")


@pytest.mark.parametrize("spec", [{}, {"size": 32}, {"size": (40, 24), "crop": "random"}], ids=str)
def test_masks_boxes_and_points_are_those_of_the_upright_picture(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    mask = (np.arange(HEIGHT * WIDTH) % 251).reshape(HEIGHT, WIDTH).astype(np.uint8)
    deep = mask.astype(np.uint16) * 256
    boxes, points = [[10.0, 5.0, 40.0, 30.0]], [[3.0, 50.0]]
    same: Any = {
        "mask": "nearest",
        "deep": "nearest",
        "colour": "nearest",
        "right": "image",
        "boxes": "xyxy",
        "points": "xy",
    }
    columns = {
        "boxes": [boxes] * 8,
        "points": [points] * 8,
        # These have orientations of their own, other than that of their picture.
        "deep": [file(stored(deep, 9 - way), 9 - way, "PNG") for way in WAYS],
        "colour": [file(stored(PIXELS, 9 - way), 9 - way, "PNG") for way in WAYS],
        "right": [file(stored(PIXELS, 9 - way), 9 - way, "PNG") for way in WAYS],
    }
    data = scenes(tmp_path, [file(mask, 0, "PNG")] * 8, **columns)
    upright = [file(PIXELS, 0, "PNG")] * 8
    twin = {
        **columns,
        "image": upright,
        "right": upright,
        "colour": upright,
        "mask": [file(mask, 0, "PNG")] * 8,
        "deep": [file(deep, 0, "PNG")] * 8,
    }
    ps.write(twin, tmp_path / "twin.parquet")
    spec = {**spec, "flip": "both", "same": same}

    def batch(source: ps.Dataset, **more: Any) -> Any:
        decode = {"image": ps.Image(**spec, **more)}
        return next(iter(ps.Loader(source, 8, decode=decode, ragged="list")))

    found, wanted = batch(data, exif=True), batch(ps.open(tmp_path / "twin.parquet"))
    for name in ("image", *same):
        np.testing.assert_array_equal(found[name], wanted[name], name)
    assert found["deep"].dtype == np.uint16


def test_a_mask_that_fits_only_the_upright_picture_says_exif(tmp_path: Path) -> None:
    mask = file(PIXELS[:, :, 0], 0, "PNG")
    odd = file(PIXELS[:30, :, 0], 0, "PNG")
    decode = {"image": ps.Image(32, same={"mask": "nearest"})}
    data = scenes(tmp_path, [mask] * 8)
    with pytest.raises(ps.SchemaError, match="proportions") as caught:
        next(iter(ps.Loader(data, 8, decode=decode)))
    assert caught.value.hint is not None and "ps.Image(exif=True)" in caught.value.hint
    assert caught.value.record == 4
    skipping = ps.open(tmp_path / "s.parquet", damage="skip")
    assert [len(batch["image"]) for batch in ps.Loader(skipping, 8, decode=decode)] == [4]
    assert len(skipping.damage) == 4
    assert all("exif=True" in region.reason for region in skipping.damage)
    # Where no turn helps, the hint is the usual one.
    data = scenes(tmp_path, [odd] * 8)
    with pytest.raises(ps.SchemaError, match="proportions") as caught:
        next(iter(ps.Loader(data, 8, decode=decode)))
    assert caught.value.hint is not None and "damage=" in caught.value.hint


def test_a_loader_of_upright_pictures_goes_on_from_its_state(tmp_path: Path) -> None:
    data = scenes(tmp_path, [file(PIXELS[:, :, 0], 0, "PNG")] * 8)
    spec = ps.Image(24, crop="random", flip=True, same={"mask": "nearest"}, exif=True)

    def loader() -> ps.Loader:
        return ps.Loader(data, 2, order=ps.Shuffled(seed=1), decode={"image": spec})

    whole = list(loader())
    first = loader()
    walk = iter(first)
    next(walk)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    again = loader()
    again.load_state_dict(state)
    for found, wanted in zip(again, whole[1:], strict=True):
        assert np.array_equal(found["image"], wanted["image"])
        assert np.array_equal(found["mask"], wanted["mask"])


def test_the_option_is_shown_compared_and_pickled() -> None:
    spec = ps.Image(224, exif=True)
    assert repr(spec) == "Image(size=224, exif=True)"
    assert repr(ps.Image(224, exif=False)) == "Image(size=224)"
    assert pickle.loads(pickle.dumps(spec)) == spec != ps.Image(224)
    assert hash(spec) != hash(ps.Image(224))
