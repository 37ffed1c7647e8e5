"""Folders of images whose table names pictures that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import FormatError

NAMES = ["0.png", "gone.png", "1.png", "2.png", "lost/3.png"]


@pytest.fixture(params=["csv", "jsonl"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(np.full((4, 5, 3), number, np.uint8)).save(folder / f"{number}.png")
    if request.param == "csv":
        lines = ["file_name,x", *(f"{name},{n}" for n, name in enumerate(NAMES))]
    else:
        lines = [json.dumps({"file_name": name, "x": n}) for n, name in enumerate(NAMES)]
    (folder / f"metadata.{request.param}").write_text("\n".join(lines) + "\n")
    return folder


def test_a_missing_picture_is_an_error_that_says_how_to_go_on(folder: Path) -> None:
    with pytest.raises(FormatError, match=r"names the image 'gone\.png'") as caught:
        ps.open(folder)
    assert caught.value.record == 1
    assert caught.value.hint is not None and 'damage="skip"' in caught.value.hint


def test_damage_skip_leaves_its_record_out_and_lists_it(folder: Path, tmp_path: Path) -> None:
    ds = ps.open(folder, damage="skip")
    assert len(ds) == 3
    assert [record["x"] for record in ds] == [0, 2, 3]
    assert ps.open(folder, damage="skip")[[2, 0]]["x"].to_pylist() == [3, 0]
    assert [(one.num_records, one.reason.split()[1]) for one in ds.damage] == [(1, "1"), (1, "4")]
    assert "'lost/3.png', which is not in the folder" in ds.damage[1].reason
    found = ps.convert(ps.open(folder, damage="skip"), tmp_path / "out.parquet")
    assert found.num_records == 3
    assert any("2 damaged places were left out" in note for note in found.notes), found.notes
    loader = ps.Loader(ps.open(folder, damage="skip"), 3, decode={"image": ps.Image(2)})
    assert next(iter(loader))["image"][:, 0, 0, 0].tolist() == [0, 1, 2]
