"""Images in conversions: found, kept unchanged, re-encoded, made smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType
from penstock.payloads.images import image_sizes

rng = np.random.default_rng(0)
PIXELS = [rng.integers(0, 255, (20 + n, 30, 3), dtype=np.uint8) for n in range(40)]
JPEGS = ps.encode_images(PIXELS, "jpeg")


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = str(tmp_path / "in.tfrecord")
    ps.write({"image": JPEGS.storage, "label": range(40), "note": [b"JPEG"] * 40}, path)
    return path


def converted(source: str, tmp_path: Path, **options: object) -> pa.Table:
    target = str(tmp_path / "out.parquet")
    ps.convert(source, target, overwrite=True, prove=True, **options)  # type: ignore[arg-type]
    return pa.table(ps.open(target))


def test_images_not_selected_for_encoding_keep_their_bytes(source: str, tmp_path: Path) -> None:
    found = converted(source, tmp_path)
    assert found.column("image").to_pylist() == JPEGS.storage.to_pylist()
    named = converted(source, tmp_path, images=["image"])
    assert isinstance(named.schema.field("image").type, ImageType)
    assert named.column("image").to_pylist() == JPEGS.storage.to_pylist()


def test_images_are_encoded_again_and_made_smaller(source: str, tmp_path: Path) -> None:
    for mode, codec in (("png", "png"), ("webp", "webp"), ("raw", "ppm"), ("jpg", "jpeg")):
        found = converted(source, tmp_path, image_mode=mode, max_side=16)
        assert found.schema.field("image").type == ImageType(codec)
        assert found.column("note").to_pylist() == [b"JPEG"] * 40
        sizes = image_sizes(found.column("image")).to_pylist()
        assert {size["codec"] for size in sizes} == {codec}
        assert all(max(size["width"], size["height"]) == 16 for size in sizes)
    whole = converted(source, tmp_path, image_mode="raw").column("image")
    right = ps.decode_images(JPEGS)
    for mine, theirs in zip(ps.decode_images(whole), right, strict=True):
        assert (mine == theirs).all()
    small, large = (
        sum(
            len(one)
            for one in converted(source, tmp_path, jpeg_quality=q).column("image").to_pylist()
        )
        for q in (10, 95)
    )
    assert small < large / 2


def test_values_that_cannot_be_encoded_are_errors_with_record_and_field(
    source: str, tmp_path: Path
) -> None:
    broken = JPEGS.storage.to_pylist()
    broken[33] = broken[33][:200]
    path = str(tmp_path / "broken.tfrecord")
    ps.write({"image": broken, "label": range(40)}, path)
    with pytest.raises(ps.FormatError) as caught:
        converted(path, tmp_path, image_mode="png")
    assert (caught.value.record, caught.value.field) == (33, "image")
    with pytest.raises(ValueError, match="no column holds images"):
        converted(path, tmp_path, columns=["label"], image_mode="png")
    with pytest.raises(ps.SchemaError, match="does not exist, or cannot hold images"):
        converted(path, tmp_path, images=["label"], image_mode="png")


# -- a type says what a sample showed -------------------------------------------------------------

LATER = ["png", "webp", "ppm"]


@pytest.fixture(params=["rec", "tar", "parquet"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file whose images are JPEGs, as their type says, except for the last ones."""
    last = [ps.encode_images(PIXELS[:1], codec).storage[0].as_py() for codec in LATER]
    images = [*[JPEGS.storage[0].as_py()] * 1100, *last]
    typed = pa.ExtensionArray.from_storage(ImageType("jpeg"), pa.array(images, pa.binary()))
    path = str(tmp_path / f"mixed.{request.param}")
    label = pa.array(range(len(images)), pa.float32())
    ps.write(pa.table({"image": typed, "label": label}), path)
    assert ps.open(path).schema.field("image").type == ImageType("jpeg")
    return path


@pytest.mark.parametrize("target", ["tar", "parquet", "rec", "msgpack", "tfrecord"])
def test_a_later_image_of_another_codec_keeps_its_bytes(
    mixed: str, target: str, tmp_path: Path
) -> None:
    path = str(tmp_path / f"out.{target}")
    ps.convert(mixed, path, columns=["image", "label"], prove=True)
    want = image_sizes(pa.table(ps.open(mixed)).column("image")).to_pylist()
    assert [size["codec"] for size in want[-3:]] == LATER
    assert image_sizes(pa.table(ps.open(path)).column("image")).to_pylist() == want


def test_a_later_image_of_another_codec_becomes_what_ffcv_decodes(
    mixed: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "out.beton")
    ps.convert(mixed, path, columns=["image", "label"], prove=True)
    sizes = image_sizes(pa.table(ps.open(path)).column("image")).to_pylist()
    assert {size["codec"] for size in sizes} == {"jpeg"}


def test_a_later_image_of_another_codec_gets_its_codecs_ending_in_a_folder(
    mixed: str, tmp_path: Path
) -> None:
    ps.convert(mixed, str(tmp_path / "out"), columns=["image"], format="imagefolder")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name.partition(".")[2] for name in names[1099:1103]] == ["jpg", *LATER]


def test_a_later_image_of_another_codec_is_made_smaller_and_encoded(
    mixed: str, tmp_path: Path
) -> None:
    smaller = converted(mixed, tmp_path, max_side=8).column("image")
    assert [size["codec"] for size in image_sizes(smaller[-3:]).to_pylist()] == LATER
    anew = converted(mixed, tmp_path, image_mode="png").column("image")
    assert {size["codec"] for size in image_sizes(anew).to_pylist()} == {"png"}


def test_a_later_image_of_another_codec_is_decoded_in_a_batch(mixed: str) -> None:
    loader = ps.Loader(ps.open(mixed), 1103, decode={"image": ps.Image(16)}, columns=["image"])
    pixels = next(iter(loader))["image"]
    assert (pixels[-3] == pixels[-1]).all()
    assert abs(pixels[-3].astype(int) - pixels[0]).mean() < 30
