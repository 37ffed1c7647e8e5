"""The EXIF orientation in conversions: a picture that is encoded again is turned as its EXIF says."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import penstock as ps
from penstock.payloads.images import image_sizes, reencode
from penstock.payloads.orientation import orientations, upright

WAYS = range(1, 9)
STEPS = np.arange(24 * 40).reshape(24, 40)
PIXELS = np.stack([STEPS * 255 // STEPS.max(), STEPS % 40 * 6, STEPS // 40 * 10], 2).astype(
    np.uint8
)
TAG = 0x0112


def picture(way: int, codec: str = "PNG", pixels: np.ndarray = PIXELS) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x010F] = "maker"
    exif[TAG] = way
    options = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(codec, {})
    Image.fromarray(pixels).save(file, codec, exif=exif, **options)
    return file.getvalue()


def shown(data: bytes) -> Image.Image:
    """The picture as Pillow shows it."""
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", ["JPEG", "PNG", "WEBP"])
def test_each_orientation_is_found_and_turned_as_pillow_does(codec: str, way: int) -> None:
    data = picture(way, codec)
    assert orientations([data]).tolist() == [way]
    stored = np.asarray(Image.open(io.BytesIO(data)))
    assert np.array_equal(upright(stored, way), np.asarray(shown(data)))


@pytest.mark.parametrize("codec", ["JPEG", "PNG", "WEBP"])
def test_pictures_encoded_again_look_as_before(codec: str) -> None:
    before = [picture(way, codec) for way in WAYS]
    for mode in ("png", "webp", "jpeg"):
        made = reencode(before, mode, lossless=True, quality=95 if mode == "jpeg" else None)
        for old, new in zip(before, made.storage.to_pylist(), strict=True):
            if old == new:
                continue
            assert Image.open(io.BytesIO(new)).getexif().get(TAG, 1) == 1
            wanted, found = np.asarray(shown(old), int), np.asarray(shown(new).convert("RGB"), int)
            assert wanted.shape == found.shape
            assert abs(wanted - found).mean() < (3 if mode == "jpeg" else 0.5)


def test_pictures_made_smaller_look_as_before() -> None:
    grey = PIXELS[:, :, 0]
    before = [picture(way, "JPEG", pixels) for way in WAYS for pixels in (PIXELS, grey)]
    made = reencode([*before, None], max_side=20).storage.to_pylist()
    assert made.pop() is None
    for old, new in zip(before, made, strict=True):
        wanted, found = shown(old), shown(new)
        small = np.asarray(wanted.resize(found.size, Image.Resampling.BOX), int)
        assert max(found.size) == 20
        assert found.mode == wanted.mode
        assert abs(small - np.asarray(found, int)).mean() < 6


def test_pictures_that_keep_their_bytes_keep_their_exif() -> None:
    before = [picture(way, "JPEG") for way in WAYS]
    assert reencode(before, "jpeg", max_side=40).storage.to_pylist() == before


@pytest.mark.parametrize("target", ["out.tar", "out.parquet"])
def test_convert_turns_pictures_and_says_so(target: str, tmp_path: Path) -> None:
    before = [picture(way, "JPEG") for way in WAYS]
    ps.write({"jpg": before, "id": WAYS}, tmp_path / "in.tar")
    made = ps.convert(tmp_path / "in.tar", tmp_path / target, max_side=20, prove=True)
    sizes = image_sizes(ps.open(made.paths).to_table(columns=["jpg"])["jpg"]).to_pylist()
    assert [size["width"] for size in sizes] == [20] * 4 + [12] * 4
    assert [note for note in made.notes if "EXIF orientation" in note] == list(made.notes)
    assert len(made.notes) == 1
    copied = ps.convert(tmp_path / "in.tar", tmp_path / "same.tar")
    assert copied.notes == ()


@pytest.mark.parametrize("mode", ["jpg", "raw"])
@pytest.mark.parametrize("codec", ["JPEG", "PNG"])
def test_a_container_that_encodes_pictures_itself_turns_them_too(
    mode: str, codec: str, tmp_path: Path
) -> None:
    before = [picture(way, codec) for way in WAYS]
    ps.write({"image": ps.images.reencode(before), "id": WAYS}, tmp_path / "in.parquet")
    ps.convert(tmp_path / "in.parquet", tmp_path / "out.beton", image_mode=mode, prove=True)
    made = ps.open(tmp_path / "out.beton").to_table()["image"].to_pylist()
    for old, new in zip(before, made, strict=True):
        wanted, found = np.asarray(shown(old), int), np.asarray(shown(new), int)
        assert wanted.shape == found.shape
        assert abs(wanted - found).mean() < 4


@pytest.mark.parametrize("kind", [b"II*\0", b"MM\0*"])
def test_exif_that_makes_no_sense_is_no_orientation(kind: bytes) -> None:
    odd = [
        b"",
        b"\xff\xd8",
        b"\xff\xd8\xff\xe1\xff\xff",
        b"\x89PNG\r\n\x1a\n\xff",
        kind,
        kind + b"\xff" * 4,
    ]
    whole = picture(6, "JPEG")
    cut = [whole[:at] for at in range(0, 80, 7)]
    assert orientations([*odd, *cut]).max() in (1, 6)
    assert set(orientations(odd).tolist()) == {1}
    wrong = whole.replace(
        bytes([1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6]), bytes([1, 0x12, 0, 3, 0, 0, 0, 1, 0, 9])
    )
    assert wrong != whole
    assert orientations([wrong]).tolist() == [1]
