"""A tar of penstock that is cut between two records: the lost end is listed where damage is skipped."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

NUM = 20
RECORD_BYTES = 2048
"""Two members, each of a header and a block of contents."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = {"a.bin": [b"a" * 500] * NUM, "b.bin": [b"b" * 500] * NUM}
    ps.write(table, tmp_path / "a.tar", index=False)
    return tmp_path / "a.tar"


def starts_of(path: Path) -> int:
    """Where the first record starts: after the comment of penstock."""
    with tarfile.open(path) as archive:
        return archive.getmembers()[0].offset


def cut(path: Path, end: int) -> None:
    path.write_bytes(path.read_bytes()[:end])


def read(path: Path, damage: Any, index: str, how: str) -> tuple[int, list[Any]]:
    ds = ps.open(path, damage=damage, index=index)
    if how == "count":
        return len(ds), ds.damage
    if how == "load":
        return sum(len(batch["a.bin"]) for batch in ps.Loader(ds, 8)), ds.damage
    return ds.to_table().num_rows, ds.damage


@pytest.mark.parametrize("damage", ["skip", "stop"])
@pytest.mark.parametrize("index", ["auto", "never"])
@pytest.mark.parametrize("how", ["scan", "count", "load"])
@pytest.mark.parametrize("kept", [1, 7, NUM])
def test_a_lost_end_is_listed(path: Path, damage: str, index: str, how: str, kept: int) -> None:
    cut(path, starts_of(path) + kept * RECORD_BYTES)
    count, damage_found = read(path, damage, index, how)
    assert count == kept
    [region] = damage_found
    assert (region.start_byte, region.num_records) == (path.stat().st_size, None)
    assert "no end" in region.reason
    with pytest.raises(ps.TruncatedError, match="no end"):
        ps.open(path)


@pytest.mark.parametrize("how", ["scan", "count", "load"])
def test_a_cut_inside_a_record_is_one_region(path: Path, how: str) -> None:
    cut(path, starts_of(path) + 7 * RECORD_BYTES + 512)  # a header without its contents
    count, damage = read(path, "skip", "never", how)
    assert count == 7
    assert len(damage) == 1


@pytest.mark.parametrize("how", ["scan", "count", "load"])
@pytest.mark.parametrize("zeros", [1024, 1536, 3072])
def test_a_tar_that_lacks_only_some_of_its_final_zeros_is_whole(
    path: Path, how: str, zeros: int
) -> None:
    cut(path, starts_of(path) + NUM * RECORD_BYTES + zeros)
    assert read(path, "skip", "never", how) == (NUM, [])
