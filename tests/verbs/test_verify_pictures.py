"""`verify(decode=True)` decodes every picture, and names the damaged ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

NUM = 12
BAD = (3, 9)


def pictures(codec: Any) -> list[bytes]:
    """Encoded pictures, of which some are cut."""
    pixels = np.random.default_rng(0).integers(0, 256, (NUM, 32, 32, 3), np.uint8)
    found = [image.as_py() for image in ps.encode_images(list(pixels), codec).storage]
    for record in BAD:
        found[record] = found[record][: len(found[record]) // 2]
    return found


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp"])
@pytest.mark.parametrize(
    "name",
    ["a.tfrecord", "a.tfrecord.gz", "a.tar", "a.parquet", "a.arrow", "a.beton", "a.msgpack",
     "a.h5", "a.rec", "a.npz"],
)  # fmt: skip
def test_each_damaged_picture_is_a_finding_in_every_format(
    tmp_path: Path, name: str, codec: str
) -> None:
    path = tmp_path / name
    images = pictures(codec)
    other = {"label": np.arange(NUM).astype("f4")} if name == "a.rec" else {"id": range(NUM)}
    ps.write({**other, "image": images}, path)
    assert ps.verify(path).ok
    report = ps.verify(path, decode=True)
    assert [(f.file, f.record, f.num_records) for f in report.findings] == [
        (str(path), record, 1) for record in BAD
    ]
    assert report.num_records == NUM - len(BAD)
    assert all("field 'image': the picture" in f.message for f in report.findings)
    if name in ("a.tfrecord", "a.tar", "a.msgpack", "a.rec"):
        data = path.read_bytes()
        for finding in report.findings:
            assert images[finding.record or 0] in data[finding.start_byte : finding.end_byte]


def test_columns_of_other_bytes_are_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"text": [b"word %d" % n for n in range(NUM)], "id": range(NUM)}, path)
    assert ps.verify(path, decode=True).ok


def test_pictures_around_a_damaged_record_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    images = pictures("jpeg")
    ps.write({"image": images}, path, index=False)
    data = bytearray(path.read_bytes())
    data[data.index(images[5]) + 40] ^= 1
    path.write_bytes(data)
    found = ps.verify(path, decode=True).findings
    assert [(f.kind, f.record) for f in found] == [
        ("data_checksum", 5), ("picture", 3), ("picture", 9)
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures in folders: two are cut, and one file is no picture at all."""
    for number, data in enumerate(pictures("jpeg")):
        path = tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "photos" / "cat" / "5.jpg").write_bytes(b"<html>")
    return tmp_path / "photos"


def test_a_damaged_picture_of_a_folder_is_its_whole_file(folder: Path) -> None:
    report = ps.verify(folder, decode=True)
    sizes = {str(path): path.stat().st_size for path in folder.rglob("*.jpg")}
    places = {(f.file, f.start_byte, f.end_byte) for f in report.findings}
    wanted = {(path, 0, size) for path, size in sizes.items() if Path(path).stem in ("3", "5", "9")}
    assert places == wanted
    assert report.num_records == NUM - 3
    ds = ps.open(folder, damage="skip")
    loader = ps.Loader(ds, 4, decode={"image": ps.Image(8)})
    assert sum(len(batch["image"]) for batch in loader) == NUM - 3
    assert {(one.file, one.start_byte, one.end_byte) for one in loader.damage} == wanted
    scanned = ps.open(folder, damage="skip")
    assert scanned.to_table().num_rows == NUM - 1
    [region] = scanned.damage
    assert (region.file, region.start_byte, region.end_byte) == (str(folder / "cat/5.jpg"), 0, 6)


def test_the_command_decodes_pictures(folder: Path) -> None:
    call = [sys.executable, "-m", "penstock", "verify", str(folder / "dog")]
    assert subprocess.run(call, check=False).returncode == 0
    (folder / "dog" / "2.jpg").write_bytes((folder / "cat" / "3.jpg").read_bytes())
    assert subprocess.run(call, check=False).returncode == 0
    found = subprocess.run([*call, "--decode"], check=False, capture_output=True, text=True)
    assert found.returncode == 1
    assert "record 2, bytes 0 to" in " ".join(found.stdout.split())
    told = found.stdout.partition("try: ")[2].split()
    assert told[:3] == ["penstock", "repair", "--decode"]
    whole = folder.parent / "whole"
    repaired = subprocess.run(
        [sys.executable, "-m", *told[:-1], str(whole)], check=False, capture_output=True, text=True
    )
    assert repaired.returncode == 0, repaired.stderr
    assert ps.verify(whole, decode=True).ok
