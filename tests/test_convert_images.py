"""Images in conversions: found, kept as they are, encoded anew, made smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.images import image_sizes
from penstock.types import ImageType

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


def test_images_that_nobody_asked_about_keep_their_bytes(source: str, tmp_path: Path) -> None:
    found = converted(source, tmp_path)
    assert found.column("image").to_pylist() == JPEGS.storage.to_pylist()
    named = converted(source, tmp_path, images=["image"])
    assert isinstance(named.schema.field("image").type, ImageType)
    assert named.column("image").to_pylist() == JPEGS.storage.to_pylist()


def test_images_are_encoded_anew_and_made_smaller(source: str, tmp_path: Path) -> None:
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


def test_what_cannot_be_encoded_names_record_and_field(source: str, tmp_path: Path) -> None:
    broken = JPEGS.storage.to_pylist()
    broken[33] = broken[33][:200]
    path = str(tmp_path / "broken.tfrecord")
    ps.write({"image": broken, "label": range(40)}, path)
    with pytest.raises(ps.FormatError) as caught:
        converted(path, tmp_path, image_mode="png")
    assert (caught.value.record, caught.value.field) == (33, "image")
    with pytest.raises(ValueError, match="no column holds images"):
        converted(path, tmp_path, columns=["label"], image_mode="png")
    with pytest.raises(ps.SchemaError, match="no such column of images"):
        converted(path, tmp_path, images=["label"], image_mode="png")
