"""Views within lists, structs and dictionaries, as polars writes them, are read as ordinary values."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import penstock as ps

FRAME = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "tags": [["a", "a text longer than a view holds"], [], None],
        "pair": [{"x": "a", "y": b"b"}, {"x": None, "y": b""}, None],
        "kind": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "level": pl.Series(["low", "high", None], dtype=pl.Enum(["low", "high"])),
    }
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FRAME.write_ipc(tmp_path / "a.arrow")
    return tmp_path / "a.arrow"


def test_arrow_files_of_polars_are_read_in_order_and_at_random(path: Path) -> None:
    dataset = ps.open(path)
    rows = FRAME.to_dicts()
    assert pa.table(dataset).to_pylist() == rows
    assert dataset.take([2, 0]).to_pylist() == [rows[2], rows[0]]
    assert ps.diff(path, path).equal
    assert ps.stats(path).num_records == 3


@pytest.mark.parametrize("target", ["a.parquet", "b.arrow", "a.msgpack"])
def test_they_become_other_files(path: Path, tmp_path: Path, target: str) -> None:
    ps.convert(path, tmp_path / target, prove=True)
    assert pa.table(ps.open(tmp_path / target)).to_pylist() == FRAME.to_dicts()
    assert ps.diff(path, tmp_path / target).equal


def test_categories_are_written_by_their_values(tmp_path: Path) -> None:
    ps.write(FRAME.select("id", "tags", "kind", "level"), tmp_path / "a.tfrecord")
    found = ps.open(tmp_path / "a.tfrecord").take([0, 1]).to_pylist()
    assert [row["kind"] for row in found] == ["a", None]
    assert [row["level"] for row in found] == ["low", "high"]
