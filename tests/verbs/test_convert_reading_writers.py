"""Damaged pictures in conversions to formats whose writers decode pictures or read their heads."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps

COUNT, BAD = 9, [2, 3, 7]
HINT = 'open(..., damage="skip"), or penstock repair --decode'


def picture(number: int, kind: str) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), np.uint8)
    image, file = Image.fromarray(pixels), io.BytesIO()
    if kind == "cmyk":
        image, kind = image.convert("CMYK"), "jpeg"
    image.save(file, kind)
    return file.getvalue()


def written(path: Path, kind: str) -> Path:
    pictures = [picture(number, kind) for number in range(COUNT)]
    for number in BAD:
        pictures[number] = pictures[number][: len(pictures[number]) * 2 // 3]
    ps.write({"id": range(COUNT), "image": pictures}, path)
    return path


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("png", {}),
        ("cmyk", {}),
        ("webp", {"max_side": 20}),
        ("jpeg", {"max_side": 20}),
        ("jpeg", {"image_mode": "raw"}),
        ("png", {"image_mode": "smart"}),
        ("jpeg", {"image_mode": "proportion", "compress_probability": 0.3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("choice", [{"num_shards": 2}, {"where": "id != 5", "shuffle": 1}], ids=str)
def test_a_beton_is_written_without_the_damaged_pictures_that_it_encodes(
    kind: str, how: dict[str, Any], choice: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "a.tfrecord", kind)
    with pytest.raises(ps.SchemaError, match="record 2, field 'image': the image cannot be") as no:
        ps.convert(path, tmp_path / "no.beton", **{**how, "image_mode": "raw"})
    assert HINT in str(no.value.hint)
    ds = ps.open(path, damage="skip")
    made = ps.convert(ds, tmp_path / "out.beton", **how, **choice)
    left = [n for n in range(COUNT) if n not in BAD and ("where" not in choice or n != 5)]
    found = [record["id"] for record in ps.open(made.paths)]
    assert (found if "where" not in choice else sorted(found)) == left
    assert made.num_records == len(left)
    reasons = sorted(region.reason for region in ds.damage)
    assert [reason.partition(": ")[0] for reason in reasons] == [f"record {n}" for n in BAD]
    assert all("field 'image': " in reason for reason in reasons)
    assert ps.verify(made.paths[0], decode=True).ok


def test_a_jpeg_that_a_beton_stores_as_it_is_is_kept(tmp_path: Path) -> None:
    ds = ps.open(written(tmp_path / "a.tfrecord", "jpeg"), damage="skip")
    assert ps.convert(ds, tmp_path / "out.beton").num_records == COUNT
    assert not ds.damage


@pytest.mark.parametrize("choice", [{}, {"shuffle": 1}], ids=str)
def test_a_folder_is_written_without_pictures_that_have_no_head(
    choice: dict[str, Any], tmp_path: Path
) -> None:
    pictures = [picture(number, "png") for number in range(COUNT)]
    for number in BAD:
        pictures[number] = pictures[number][:20]
    path = tmp_path / "a.tfrecord"
    ps.write({"id": range(COUNT), "image": pictures}, path)
    with pytest.raises(ps.SchemaError, match="record 2, field 'image'") as no:
        ps.convert(path, tmp_path / "no", format="imagefolder")
    assert HINT in str(no.value.hint)
    ds = ps.open(path, damage="skip")
    made = ps.convert(ds, tmp_path / "out", format="imagefolder", **choice)
    assert made.num_records == COUNT - len(BAD)
    found = sorted(record["id"] for record in ps.open(tmp_path / "out"))
    assert found == [n for n in range(COUNT) if n not in BAD]
    assert len(ds.damage) == len(BAD)


def test_a_null_is_not_taken_for_damage(tmp_path: Path) -> None:
    pictures = [picture(0, "png"), None, picture(1, "png")[:90]]
    ps.write({"id": range(3), "image": pictures}, tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "a.parquet", damage="skip")
    with pytest.raises(ps.SchemaError, match="the value is null"):
        ps.convert(ds, tmp_path / "out.beton")
    assert [region.reason[:8] for region in ds.damage] == ["record 2"]
