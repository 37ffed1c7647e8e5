"""Reading files of which a change of fields in place is unfinished warns, because some have the old fields."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.verbs.fields.rewrite_journal import Journal


class Killed(BaseException):
    """Raised to end a job as a kill would."""


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four files, of which a killed job has changed one."""
    paths = ps.write({"id": range(8), "label": range(8)}, tmp_path / "a.tfrecord", num_shards=4)

    def die(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "finish", die)
        ps.rename_fields(paths.paths, {"label": "cls"}, in_place=True)
    return list(paths.paths)


@pytest.mark.parametrize("kind", ["list", "glob", "folder", "set", "brace"])
def test_opening_a_half_changed_set_warns_once(half: list[str], tmp_path: Path, kind: str) -> None:
    sources = {
        "list": half,
        "glob": f"{tmp_path}/a-*",
        "folder": tmp_path,
        "set": f"{tmp_path}/a@4.tfrecord",
        "brace": f"{tmp_path}/a-{{00000..00003}}-of-00004.tfrecord",
    }
    with pytest.warns(UserWarning, match=r"unfinished: 1 of 4 files have it; repeat that call"):
        ps.open(sources[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.open(sources[kind])


def test_the_call_that_finishes_the_change_does_not_warn(half: list[str]) -> None:
    ps.rename_fields(half, {"label": "cls"}, in_place=True)
    assert ps.open(half).schema.names == ["id", "cls"]


def test_one_file_and_other_files_of_the_folder_do_not_warn(
    half: list[str], tmp_path: Path
) -> None:
    ps.write({"id": range(4)}, tmp_path / "b.tfrecord", num_shards=2)
    assert len(ps.open(half[0])) == len(ps.open(half[3])) == 2
    assert len(ps.open(f"{tmp_path}/b-*")) == 4


def _killed_then_again(job: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes of a job that was killed after its first file, and called again."""

    def die(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "finish", die)
        job()
    return list(job().notes)


def test_a_change_that_is_continued_says_how_many_records_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ps.write({"id": range(8), "x": range(8)}, tmp_path / "a.tfrecord", num_shards=4).paths
    table = pa.table({"id": [1, 2, 7], "x": [10, 20, 70]})

    def by_key() -> Any:
        return ps.replace_fields(paths, table, by="id", missing="keep", in_place=True)

    assert _killed_then_again(by_key, monkeypatch) == ["3 of 8 records got new values"]
    assert [record["x"] for record in ps.open(paths)] == [0, 10, 20, 3, 4, 5, 6, 70]

    def by_condition() -> Any:
        return ps.replace_fields(paths, {"x": 0}, where="x >= 10", in_place=True)

    (note,) = _killed_then_again(by_condition, monkeypatch)
    assert (
        note == "2 of 6 records got new values, in the 3 of 4 files that an earlier call had left"
    )
    added = pa.table({"id": [1, 2], "y": [1, 2]})

    def add() -> Any:
        return ps.add_fields(paths, added, by="id", missing="null", in_place=True)

    assert _killed_then_again(add, monkeypatch) == ["2 of 8 records got new values and 6 got null"]
