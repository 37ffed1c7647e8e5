"""`--hive`: the names of folders as columns."""

from __future__ import annotations

from pathlib import Path

from running import run

import penstock as ps


def test_commands_read_the_names_of_folders(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / "data" / f"year={year}").mkdir(parents=True)
        ps.write({"id": [year, year]}, tmp_path / "data" / f"year={year}" / "a.tfrecord")
    data = tmp_path / "data"
    shown = run("head", data, "--hive", "--json", "--where", "year == 2024")
    assert [record["year"] for record in shown.document["records"]] == [2024, 2024]
    found = run("stats", data, "--hive", "--json", "--where", "year == 2023").document
    assert (found["num_records"], found["fields"][1]["name"]) == (2, "year")
    assert [
        field["name"] for field in run("info", data, "--hive", "--json").document["fields"]
    ] == [
        "id",
        "year",
    ]
    assert run("convert", data, tmp_path / "all.tfrecord", "--hive").status == 0
    assert ps.open(tmp_path / "all.tfrecord")[3] == {"id": 2024, "year": 2024}
    assert (
        run("sort", data, "--into", tmp_path / "sorted.arrow", "--by", "year", "--hive").status == 0
    )
    assert run("head", data, "--json").document["records"][0] == {"id": 2023, "year": 2023}
    assert run("head", data, "--json", "--no-hive").document["records"][0] == {"id": 2023}
    files = ps.schemas(ps.open(data, hive=True))
    assert [field.field.name for field in files.fields] == ["id"]


def test_folders_without_keys_are_an_error_that_names_the_option(tmp_path: Path) -> None:
    ps.write({"id": [1]}, tmp_path / "a.arrow")
    failed = run("head", tmp_path / "a.arrow", "--hive")
    assert failed.status == 1
    assert "try: --no-hive, which leaves" in failed.err
