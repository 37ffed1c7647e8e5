"""Sets of shards: what is said of left-over and empty shards, and of the files that a repair wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps


def test_repair_names_the_new_files_of_damaged_ones_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # long names are broken over lines
    paths = ps.write({"id": range(12)}, "x.tfrecord", num_shards=6).paths
    with open(paths[3], "r+b") as file:
        file.write(b"\0\0")
    report = ps.repair(paths, into="whole")
    lines = [line for line in str(report).splitlines() if line.startswith("wrote")]
    assert lines == [f"wrote {report.paths[3]}", "wrote 5 files without damage"]


def test_an_older_set_of_the_same_name_is_noted_when_another_is_written(tmp_path: Path) -> None:
    ps.write({"id": [1, 2]}, tmp_path / "x.parquet", num_shards=2)
    made = ps.write({"id": [1, 2, 3]}, tmp_path / "x.parquet", num_shards=3)
    assert f"{tmp_path}/x@2.parquet has the same name" in made.notes[0]
    made = ps.convert(made.paths, tmp_path / "x.parquet", num_shards=1)
    assert f"{tmp_path}/x@2.parquet and {tmp_path}/x@3.parquet has" in made.notes[0]
    assert ps.write({"id": [1, 2]}, tmp_path / "y.parquet", num_shards=2).notes == ()


def test_an_empty_file_among_others_is_a_note_of_verify(tmp_path: Path) -> None:
    paths = ps.write({"id": [1, 2]}, tmp_path / "x.tfrecord", num_shards=2, index=False).paths
    Path(paths[1]).write_bytes(b"")
    report = ps.verify(tmp_path)
    assert report.ok and report.num_records == 1
    assert [(one.kind, one.file, one.severity) for one in report.findings] == [
        ("empty_file", paths[1], "note")
    ]
    Path(paths[0]).write_bytes(b"")
    assert ps.verify(tmp_path).findings == ()
