"""`verify` and `repair` of several files, of which one is missing or cannot be saved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program


def run(*words: object) -> tuple[int, str, str]:
    ran = CliRunner().invoke(program, [str(word) for word in words])
    return ran.exit_code, ran.stdout, ran.stderr


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.parquet" for name in "abc"]
    for path in paths:
        ps.write({"id": [1, 2, 3]}, path)
    return paths


def test_verify_checks_the_others_and_reports_what_is_missing(three: list[Path]) -> None:
    three[1].unlink()
    report = ps.verify([*map(str, three), str(three[0].parent / "zz*.parquet")])
    assert [(f.kind, f.file, f.message) for f in report.findings] == [
        ("missing", str(three[1]), "no such file"),
        ("missing", str(three[0].parent / "zz*.parquet"), "no file matches"),
    ]
    assert (report.ok, report.num_records, report.num_lost) == (False, 6, None)
    assert report.paths == (str(three[0]), str(three[2]))
    status, out, _ = run("verify", "--json", *three)
    assert (status, [f["kind"] for f in json.loads(out)["findings"]]) == (1, ["missing"])
    status, out, _ = run("verify", *three)
    assert (status, "missing: no such file" in out, "repair" in out) == (1, True, False)


def test_verify_of_damage_and_a_missing_file_reports_both(three: list[Path]) -> None:
    three[0].write_bytes(three[0].read_bytes()[:-20])
    three[2].unlink()
    report = ps.verify(three)
    assert [f.kind for f in report.findings] == ["missing", "truncated"]
    assert report.num_records == 3


def test_a_missing_shard_of_a_manifest_is_a_finding(three: list[Path], tmp_path: Path) -> None:
    ps.manifest(three, tmp_path / "m.manifest")
    three[2].unlink()
    report = ps.verify(tmp_path / "m.manifest")
    assert [(f.kind, f.file) for f in report.findings] == [("missing", str(three[2]))]
    assert report.num_records == 6


def test_verify_raises_if_all_files_are_missing(three: list[Path]) -> None:
    for path in three:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        ps.verify(three)
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        ps.verify(three[0])
    assert run("verify", *three)[0] == 2


def test_repair_lists_the_files_of_which_nothing_could_be_saved(
    three: list[Path], tmp_path: Path
) -> None:
    three[1].write_bytes(three[1].read_bytes()[:-20])
    three[2].write_bytes(b"")
    report = ps.repair(three, into=tmp_path / "out")
    assert report.unwritten == (str(three[1]), str(three[2]))
    assert report.paths == (str(tmp_path / "out" / "a.parquet"),)
    shutil.rmtree(tmp_path / "out")
    status, out, _ = run("repair", *three, "--into", tmp_path / "out")
    assert status == 1
    for path in three[1:]:
        assert f"wrote no file for {path}: nothing could be saved" in " ".join(out.split())
    status, out, _ = run("repair", *three, "--in-place", "--json")
    assert (status, json.loads(out)["unwritten"]) == (1, list(map(str, three[1:])))


def test_a_repair_of_files_without_damage_leaves_none_unwritten(three: list[Path]) -> None:
    assert ps.repair(three, in_place=True).unwritten == ()
    assert run("repair", *three, "--in-place")[0] == 0
