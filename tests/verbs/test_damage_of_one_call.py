"""The note of a verb counts what this call left out, whatever the same dataset has skipped before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps


@pytest.fixture
def damaged(tmp_path: Path) -> ps.Dataset:
    pictures = ps.encode_images(np.zeros((12, 8, 8, 3), np.uint8), "png").to_pylist()
    for number in (3, 7):
        pictures[number] = pictures[number][:40]
    ps.write({"png": pictures, "id": range(12)}, tmp_path / "a.tar")
    return ps.open(tmp_path / "a.tar", damage="skip")


def test_each_call_counts_its_own_damage(damaged: ps.Dataset, tmp_path: Path) -> None:
    loader = ps.Loader(damaged, 4, decode={"png": ps.Image()})
    assert sum(len(batch["id"]) for batch in loader) == 10
    assert damaged.damage
    for number in range(2):
        made = ps.convert(damaged, tmp_path / f"{number}.beton")
        assert made.num_records == 10
        note = "2 damaged places were left out, with 2 records; Dataset.damage lists them"
        assert note in made.notes
    intact = ps.convert(damaged, tmp_path / "ids.parquet", columns=["id"])
    assert (intact.num_records, intact.notes) == (12, ())


def test_what_a_call_skips_is_listed_by_the_dataset(damaged: ps.Dataset, tmp_path: Path) -> None:
    ps.convert(damaged, tmp_path / "a.beton")
    assert len(damaged.damage) == 2
