"""A conversion to a folder of images: the names of its files end as the codec of their pictures does."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.storage.image_names import named_after_codec

ENDING = {"jpg": "jpg", "png": "png", "webp": "webp", "raw": "ppm"}
PILLOW = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "raw": "PPM"}
NAMES = ["cat/0.a.png", "cat/1.JPEG", "dog/2.webp", "dog/3.jpg", "dog/4.ppm", "dog/5.tif"]
SAME = {"jpg": {1, 3}, "png": {0}, "webp": {2}, "raw": {4}}
"""The records whose names already have an ending of the codec."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    for name in NAMES:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "in"


def files(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in found)


@pytest.mark.parametrize("mode", list(ENDING))
@pytest.mark.parametrize("how", [{}, {"threads": 2}])
def test_endings_follow_the_codec(folder: Path, tmp_path: Path, mode: str, how: dict[str, Any]):
    out = tmp_path / "out"
    source = ps.open(folder, file_names=True)
    ps.convert(source, out, format="imagefolder", image_mode=mode, max_side=20, **how)
    right = [
        NAMES[n] if n in SAME[mode] else f"{NAMES[n].rpartition('.')[0]}.{ENDING[mode]}"
        for n in range(len(NAMES))
    ]
    assert files(out) == right
    for name in right:
        with Image.open(out / name) as image:
            assert (image.format, max(image.size)) == (PILLOW[mode], 20)
    assert [record["file_name"] for record in ps.open(out, file_names=True)] == right


def test_a_renamed_column_names_the_files(folder: Path, tmp_path: Path) -> None:
    ps.convert(ps.open(folder, file_names=True), tmp_path / "a.tfrecord")
    rename = {"picture": "image", "was": "file_name"}
    source = ps.open(tmp_path / "a.tfrecord").rename({new: old for old, new in rename.items()})
    out = tmp_path / "out"
    ps.convert(source, out, format="imagefolder", rename=rename, image_mode="webp")
    assert {name.rpartition(".")[2] for name in files(out)} == {"webp"}


def test_other_copies_keep_the_names(folder: Path, tmp_path: Path) -> None:
    """Those of pictures whose bytes are not changed, even if they are wrong; and values that name no file."""
    (folder / "dog/5.tif").rename(folder / "dog/5.bmp")
    source = ps.open(folder, file_names=True)
    ps.convert(source, tmp_path / "out", format="imagefolder")
    assert files(tmp_path / "out") == files(folder)
    ps.convert(source, tmp_path / "out.parquet", image_mode="webp")
    kept = ps.open(tmp_path / "out.parquet").take(range(6)).column("file_name").to_pylist()
    assert kept == files(folder)


def test_names_that_become_the_same(folder: Path, tmp_path: Path) -> None:
    (folder / "dog/5.tif").rename(folder / "dog/3.tif")
    source = ps.open(folder, file_names=True)
    with pytest.raises(ps.SchemaError, match=r"already has the name 'dog/3.webp'") as caught:
        ps.convert(source, tmp_path / "out", format="imagefolder", image_mode="webp")
    assert "without the column 'file_name'" in str(caught.value.hint)


def test_each_kind_of_ending() -> None:
    assert named_after_codec("a.JPE", "jpeg") == "a.JPE"
    assert named_after_codec("a.b/c.Pgm", "ppm") == "a.b/c.Pgm"
    assert named_after_codec("a.b/c.pgm", "tiff") == "a.b/c.tif"
    assert named_after_codec("a.txt", "png") == "a.txt"


def members(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return sorted({name.partition(".")[2] for name in archive.getnames()})


def test_members_have_the_ending_that_all_names_of_a_folder_say(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out.tar"
    pixels = np.zeros((4, 5, 3), np.uint8)
    for name in ("cat/0.JPG", "cat/1.jpeg", "dog/2.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name, "JPEG")
    assert ps.convert(folder, out).notes == ()
    assert members(out) == ["image.jpg", "label.txt"]
    assert ps.open(out).schema.field("image").type == ps.open(folder).schema.field("image").type
    assert [one["image"] for one in ps.open(out)] == [one["image"] for one in ps.open(folder)]
    ps.convert(folder, out, rename={"image": "jpg"}, num_shards=2, shuffle=1, overwrite=True)
    assert members(next(tmp_path.glob("out-*0-of*.tar"))) == ["jpg", "label.txt"]


def test_members_of_several_codecs_have_the_ending_of_any(folder: Path, tmp_path: Path) -> None:
    (note,) = ps.convert(folder, tmp_path / "out.tar").notes
    assert "not all of one codec" in note
    assert members(tmp_path / "out.tar") == ["image.img", "label.txt"]
