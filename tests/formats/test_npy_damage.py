"""npy files that are truncated, or longer than their header says, read with damage skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps

WAYS = ["stop", "skip"]


def cut_file(path: Path, array: np.ndarray, num_bytes: int) -> int:
    """Write an array, remove bytes from the end of its file, and return how many are left."""
    np.save(path, array)
    data = path.read_bytes()[:-num_bytes]
    path.write_bytes(data)
    return len(data)


def ids_of(ds: ps.Dataset) -> list[int]:
    return [n for batch in ds.scan() for n in batch["data"].to_numpy_ndarray()[:, 0].tolist()]


@pytest.mark.parametrize("damage", WAYS)
def test_the_records_before_a_truncation_are_delivered_and_the_others_reported(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "a.npy"
    size = cut_file(path, np.arange(2000).reshape(1000, 2), 100)
    ds = ps.open(path, damage=damage)
    assert ds.damage == []
    assert ids_of(ds) == list(range(0, 1986, 2))
    [region] = ds.damage
    assert (region.num_records, region.start_byte, region.end_byte) == (7, size - 12, size)
    assert len(ds) == 993
    assert ds.take([992])["data"].to_numpy_ndarray().tolist() == [[1984, 1985]]
    with pytest.raises(ps.RecordIndexError):
        ds.take([993])


def test_a_truncated_file_among_others_loses_only_its_records(tmp_path: Path) -> None:
    cut_file(tmp_path / "a.npy", np.arange(20).reshape(10, 2), 1)
    np.save(tmp_path / "b.npy", np.arange(100, 120).reshape(10, 2))
    ds = ps.open(tmp_path, damage="stop")
    assert ids_of(ds) == [*range(0, 18, 2), *range(100, 120, 2)]
    assert [region.num_records for region in ds.damage] == [1]
    made = ps.convert(ps.open(tmp_path, damage="skip"), tmp_path / "c.parquet", prove=True)
    assert made.num_records == 19


@pytest.mark.parametrize("damage", WAYS)
def test_bytes_after_an_array_are_skipped_and_reported(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(20).reshape(10, 2))
    path.write_bytes(path.read_bytes() + b"more")
    ds = ps.open(path, damage=damage)
    assert ids_of(ds) == list(range(0, 20, 2))
    assert [(r.num_records, r.end_byte - r.start_byte) for r in ds.damage] == [(0, 4)]


@pytest.mark.parametrize("damage", WAYS)
def test_a_truncation_that_affects_every_record_is_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.npy"
    cut_file(path, np.asfortranarray(np.arange(20).reshape(10, 2)), 1)
    with pytest.raises(ps.TruncatedError, match="truncated"):
        ps.open(path, damage=damage)


def test_a_cut_record_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    cut_file(path, np.zeros((2, 1000)), 1)
    with pytest.raises(ps.LimitError, match="record_bytes"):
        ps.open(path, damage="skip", limits={"record_bytes": 7999})
