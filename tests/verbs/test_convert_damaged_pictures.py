"""Damaged pictures in conversions that encode pictures again: an error that names file and record, or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

rng = np.random.default_rng(5)
WHOLE = ps.encode_images(
    rng.integers(0, 255, (12, 40, 50, 3), np.uint8), "jpeg"
).storage.to_pylist()
BAD = [2, 3, 7]
"""The records whose picture ends too early."""
FORMATS = ["tfrecord", "tar", "parquet"]
CHANGES: list[dict[str, Any]] = [{"max_side": 20}, {"image_mode": "webp"}]


def written(path: Path, first: int = 0, bad: list[int] | None = None) -> Path:
    images = list(WHOLE)
    for number in BAD if bad is None else bad:
        images[number] = images[number][: len(images[number]) // (2 + number % 2)]
    ps.write({"id": range(first, first + 12), "image": images}, path)
    return path


def ids_in(paths: Any) -> list[int]:
    return [record["id"] for record in ps.open(paths)]


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("kind", FORMATS)
def test_damage_skip_leaves_out_damaged_pictures_and_lists_them(
    kind: str, how: dict[str, Any], tmp_path: Path
) -> None:
    one, two = written(tmp_path / f"1.{kind}"), written(tmp_path / f"2.{kind}", 12, [0])
    ds = ps.open([one, two], damage="skip")
    made = ps.convert(
        ds, tmp_path / "out.parquet", images=["image"], num_shards=3, prove=True, **how
    )
    left = [n for n in range(24) if n not in (*BAD, 12)]
    assert ids_in(made.paths) == left
    assert made.num_records == len(left)
    assert [ps.open(path).count() for path in made.paths] == [7, 7, 6]
    told = [(region.file, region.num_records) for region in ds.damage]
    assert told == [(str(one), 1)] * 3 + [(str(two), 1)]
    for region, number in zip(ds.damage, [*BAD, 0], strict=True):
        assert region.reason.startswith(f"record {number}: field 'image': ")
        assert 0 <= region.start_byte < region.end_byte <= Path(region.file).stat().st_size


@pytest.mark.parametrize(
    "choice",
    [{"where": "id != 5"}, {"shuffle": 3}, {"sample": 1.0}, {"where": "id > 1", "shuffle": 0}],
)
def test_damage_skip_leaves_out_damaged_pictures_of_chosen_records(
    choice: dict[str, Any], tmp_path: Path
) -> None:
    ds = ps.open(written(tmp_path / "1.tfrecord"), damage="skip")
    made = ps.convert(ds, tmp_path / "out.parquet", images=["image"], max_side=20, **choice)
    found = ids_in(made.paths)
    least = 2 if choice.get("where") == "id > 1" else 0
    no = [5] if choice.get("where") == "id != 5" else []
    assert sorted(found) == [n for n in range(least, 12) if n not in (*BAD, *no)]
    assert made.num_records == len(found)
    reasons = sorted(region.reason for region in ds.damage)
    assert [reason.partition(":")[0] for reason in reasons] == [f"record {n}" for n in BAD]


def test_other_damage_and_damaged_pictures_are_both_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "1.tfrecord")
    data = bytearray(path.read_bytes())
    data[len(data) - 40] ^= 1  # in the last record
    path.write_bytes(data)
    ds = ps.open(path, damage="skip")
    made = ps.convert(ds, tmp_path / "out.parquet", images=["image"], max_side=20)
    assert ids_in(made.paths) == [n for n in range(11) if n not in BAD]
    assert len(ds.damage) == 4
    assert sum("field 'image'" in region.reason for region in ds.damage) == 3


def test_all_pictures_damaged_gives_a_file_without_records(tmp_path: Path) -> None:
    ds = ps.open(written(tmp_path / "1.tfrecord", 0, list(range(12))), damage="skip")
    made = ps.convert(ds, tmp_path / "out.parquet", images=["image"], max_side=20)
    assert (made.num_records, ids_in(made.paths), len(ds.damage)) == (0, [], 12)


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("choice", [{}, {"where": "id >= 13"}, {"where": "id >= 13", "shuffle": 1}])
def test_the_error_names_the_file_and_its_record(
    how: dict[str, Any], choice: dict[str, Any], tmp_path: Path
) -> None:
    good = written(tmp_path / "1.tfrecord", 0, [])
    bad = written(tmp_path / "2.tfrecord", 12, [9])
    with pytest.raises(ps.FormatError) as caught:
        ps.convert([good, bad], tmp_path / "out.parquet", images=["image"], **how, **choice)
    error = caught.value
    assert (error.file, error.record, error.field) == (str(bad), 9, "image")
    assert 'damage="skip"' in (error.hint or "")
    assert not (tmp_path / "out.parquet").exists()
