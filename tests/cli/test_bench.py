"""`penstock bench`: tables, JSON, the page, misuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running import run

import penstock as ps

QUICK = ("--rounds", 1, "--seconds", 0.5)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(3).integers(0, 255, (20, 16, 16, 3), np.uint8)
    path = tmp_path / "pictures.tfrecord"
    ps.write({"image": ps.encode_images(pixels, "png"), "label": [n // 5 for n in range(20)]}, path)
    return path


def test_formats_shows_a_table_reasons_and_a_recommendation(pictures: Path) -> None:
    ran = run("bench", "formats", pictures, "--only", "tfrecord,npy,mds", "--rounds", 2)
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("20 records:")
    assert any(line.startswith("tfrecord gzip ") for line in lines)
    assert any(line.startswith("mds ") and "does not write this format" in line for line in lines)
    assert any(line.startswith("npy ") and "an array" in line for line in lines)
    assert any(line.startswith("All in all: ") for line in lines)
    assert "A fixed piece of work took" in " ".join(ran.out.split())
    assert "penstock-bench" not in ran.out


def test_images_shows_quality(pictures: Path) -> None:
    ran = run("bench", "images", pictures, "--quality", "80", *QUICK)
    assert ran.status == 0
    assert "20 of 20 images in column image, 16 x 16 pixels" in ran.out
    assert "JPEG 80" in ran.out
    assert "With storage that gives 500 MB/s" in ran.out or "Keep the images" in ran.out


def test_shuffle_shows_mixing_and_cost(pictures: Path) -> None:
    ran = run("bench", "shuffle", pictures, "--batch-size", 5, *QUICK)
    assert ran.status == 0
    assert "labels: label, 4 different" in ran.out
    assert "hard disk" in ran.out
    ran = run("bench", "shuffle", pictures, "--seek-ms", 5, "--mb-per-s", 100, *QUICK)
    assert "your disk" in ran.out


@pytest.mark.parametrize("name", ["formats", "shuffle"])
def test_json_is_one_document_and_the_page_is_written(
    pictures: Path, tmp_path: Path, name: str
) -> None:
    more = ["--only", "arrow"] if name == "formats" else []
    page = tmp_path / "page.html"
    ran = run("bench", name, pictures, "--json", "--html", page, *QUICK, *more)
    assert ran.status == 0
    document = ran.document
    assert document["rows"]
    assert document["sentences"]
    assert document["noise"]["probe"]["repeats"] > 2
    assert document["machine"]["cores"] >= 1
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["formats", "--only", "nonsense"], "unknown format 'nonsense'"),
        (["images", "--quality", "high"], "'high' are not numbers"),
        (["images", "--quality", "101"], "from 1 to 100"),
        (["images", "--column", "label2"], "no column 'label2'"),
        (["shuffle", "--label", "nothing"], "no column 'nothing'"),
        (["shuffle", "--seek-ms", "5"], "give both"),
        (["shuffle", "--html", "/no/such/folder/x.html"], "/no/such/folder/x.html"),
        (["formats", "--temporary", "/no/such/folder"], "does not exist"),
    ],
)
def test_misuse_is_reported_before_anything_is_measured(
    pictures: Path, arguments: list[str], message: str
) -> None:
    ran = run("bench", arguments[0], pictures, *arguments[1:], "--rounds", 1, "--seconds", 0)
    assert ran.status == 2
    assert message in ran.err


def test_damage_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"label": [n // 50 for n in range(400)], "x": [b"x" * 100] * 400}, path, index=False)
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 100, len(data) // 2) + 50] ^= 1
    path.write_bytes(data)
    for name in ("formats", "shuffle"):
        ran = run("bench", name, path, "--index", "never", *QUICK)
        assert ran.status == 1
        assert "record 200" in ran.err
    with pytest.raises(ValueError, match="399 of 400 records can be read"):
        ps.bench.shuffle(ps.open(path, damage="skip", index="never"))
