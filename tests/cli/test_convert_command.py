"""`penstock convert`: options of both sides, what is refused, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run


def test_convert_there_and_back_keeps_every_value(shards: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "a.parquet", tmp_path / "back.tfrecord"
    document = run("convert", "--json", shards, there).document
    assert document["paths"] == [str(there)]
    assert document["num_records"] == 300
    assert run("convert", "--prove", there, back).status == 0
    before = run("head", "--json", "-n", "300", shards).document["records"]
    assert run("head", "--json", "-n", "300", back).document["records"] == before


def test_convert_takes_options_of_both_sides(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tfrecord"
    options = ("--damage", "skip", "--columns", "id", "--rename", "id=number", "--num-shards", "2")
    document = run("convert", "--json", damaged, target, *options, "--option", "level=9").document
    assert len(document["paths"]) == 2
    assert len(document["damage"]) == 1
    assert document["num_records"] == 299
    (record,) = run("head", "-n", "1", "--json", document["paths"][0]).document["records"]
    assert record == {"number": 0}


def test_convert_overwrites_only_where_told(single: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    target.write_bytes(b"mine")
    assert run("convert", single, target).status == 2
    assert target.read_bytes() == b"mine"
    assert run("convert", single, target, "--overwrite").status == 0


@pytest.mark.parametrize(
    "options", [("x.nonsense",), ("x.parquet", "--option", "no=1"), ("x.parquet", "--rename", "id")]
)
def test_convert_refuses_what_it_does_not_know(
    options: tuple[str, ...], single: Path, tmp_path: Path
) -> None:
    assert run("convert", single, tmp_path / options[0], *options[1:]).status == 2
    assert not (tmp_path / options[0]).exists()


def test_convert_of_damaged_data_ends_with_status_1(damaged: Path, tmp_path: Path) -> None:
    done = run("convert", damaged, tmp_path / "a.parquet")
    assert done.status == 1
    assert "checksum" in done.err
    assert not (tmp_path / "a.parquet").exists()
