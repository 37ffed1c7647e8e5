"""`repair` of files next to which fields are stored: they are refused, or repaired without these fields."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from cli.running import run
from damaging import flipped


def with_fields(path: Path, *, damaged: int | None = None) -> Path:
    """A file of 50 records with the field `score` next to it, and one damaged record."""
    ps.write({"id": range(50)}, path)
    size = path.stat().st_size // 50
    ps.add_fields(path, {"score": [n * n for n in range(50)]})
    if damaged is not None:
        path.write_bytes(flipped(path.read_bytes(), 8 * (damaged * size + 20)))
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("damaged", [None, 7])
@pytest.mark.parametrize("in_place", [False, True])
def test_nothing_is_written_if_a_file_has_an_overlay(
    tmp_path: Path, damaged: int | None, in_place: bool
) -> None:
    ps.write({"id": range(50)}, tmp_path / "a.tfrecord")
    path = with_fields(tmp_path / "b.tfrecord", damaged=damaged)
    first = tmp_path / "a.tfrecord"
    first.write_bytes(flipped(first.read_bytes(), 8 * 20))
    before = files_in(tmp_path)
    where: dict[str, Any] = {"in_place": True} if in_place else {"into": tmp_path / "out"}
    with pytest.raises(ps.UnsupportedError, match="the overlay 'score'") as refused:
        ps.repair(tmp_path, **where)
    assert refused.value.file == str(path)
    assert files_in(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_an_overlay_is_found_before_a_cluster_is_asked(tmp_path: Path) -> None:
    path = with_fields(tmp_path / "a.tfrecord", damaged=7)
    with pytest.raises(ps.UnsupportedError, match="the overlay 'score'"):
        ps.repair(path, in_place=True, on="ray://127.0.0.1:1")


def test_the_first_advice_keeps_the_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_fields(Path("b-00001-of-00002.tfrecord"), damaged=7)
    failed = run("repair", "b-00001-of-00002.tfrecord", "--into", "c.tfrecord")
    assert failed.status == 1
    told = failed.err.split("try: ")[1]
    done = run(*told.split(" writes ")[0].split()[1:])
    assert done.status == 0, done.err
    (made,) = Path().glob("whole-*.tfrecord")
    wanted = [{"id": n, "score": n * n} for n in range(50) if n != 7]
    assert ps.open(made).to_table().to_pylist() == wanted
    assert "--no-overlays repairs without them" in told


def test_a_repair_without_overlays_leaves_out_their_fields(tmp_path: Path) -> None:
    path = with_fields(tmp_path / "a.tfrecord", damaged=7)
    data = path.read_bytes()
    assert run("repair", path, "--into", tmp_path / "b.tfrecord", "--no-overlays").status == 0
    assert ps.open(tmp_path / "b.tfrecord").to_table().to_pylist() == [
        {"id": n} for n in range(50) if n != 7
    ]
    assert path.read_bytes() == data
    assert [one.name for one in ps.overlays(path)] == ["score"]


def test_in_place_removes_the_overlays_of_replaced_files_only(tmp_path: Path) -> None:
    whole = with_fields(tmp_path / "a.tfrecord")
    damaged = with_fields(tmp_path / "b.tfrecord", damaged=7)
    made = ps.repair(tmp_path, in_place=True, overlays=False)
    assert made.paths == (str(damaged),)
    assert ps.open(damaged).to_table().to_pylist() == [{"id": n} for n in range(50) if n != 7]
    assert ps.open(whole).schema.names == ["id", "score"]
    assert ps.overlays(damaged) == []
    assert not any("fields" in name for name in os.listdir(tmp_path) if "b.tfrecord" in name)
