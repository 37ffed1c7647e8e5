"""Numbered sets that lack a shard: an error, unless the caller ignores it, and a finding of `verify` and `repair`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program
from penstock.storage import MemoryStorage


@pytest.fixture
def lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a missing shard, number 5 of 12."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("set")
    ps.write({"id": list(range(48))}, "set/x.tfrecord", num_shards=12)
    name = "set/x-00005-of-00012.tfrecord"
    os.remove(name)
    return name


NAMES = ("set", "set/*.tfrecord", "set/x@12.tfrecord", "set/x@*.tfrecord", "set/x-0000*-of*")


@pytest.mark.parametrize("source", NAMES)
def test_a_missing_shard_is_an_error_that_says_how_to_read_the_others(
    lacking: str, source: str
) -> None:
    told = r"(shard 5 of 12 is missing|x@12\.tfrecord includes it).*missing_shards="
    with pytest.raises(FileNotFoundError, match=told):
        ps.open(source)
    ds = ps.open(source, missing_shards="ignore")
    assert lacking not in ds.paths
    ids = [record["id"] for record in ds]
    assert set(range(20, 24)).isdisjoint(ids) and ids[:3] == [0, 1, 2]


@pytest.mark.parametrize("source", NAMES)
def test_verify_reports_a_missing_shard_and_checks_the_others(lacking: str, source: str) -> None:
    report = ps.verify(source)
    assert [(one.kind, one.file) for one in report.findings] == [("missing", lacking)]
    assert report.num_records == 4 * len(report.paths) >= 36 and report.num_lost is None


def test_a_pattern_of_some_numbers_lacks_only_what_it_would_match(lacking: str) -> None:
    assert len(ps.open("set/x-0000[0-4]*")) == 20
    assert len(ps.open("set/x-0000[68]-of-*")) == 8
    assert len(ps.open("set/x-0001*")) == 8
    assert ps.verify("set/x-0000[0-4]*").ok
    with pytest.raises(FileNotFoundError, match=r"shard 5 of 12 is missing;"):
        ps.open("set/x-0000[0-6]*")


def test_a_pattern_of_some_numbers_in_a_storage_of_objects() -> None:
    storage = MemoryStorage()
    ps.write({"id": [1, 2, 3]}, "a/x.tfrecord", num_shards=3, storage=storage, index=False)
    assert len(ps.open("a/x-0000[01]*", storage=storage)) == 2
    storage.remove("a/x-00001-of-00003.tfrecord")
    for source in ("a/x-0000[01]*", "a/x@*.tfrecord", "a/*"):
        with pytest.raises(FileNotFoundError, match="shard 1 of 3"):
            ps.open(source, storage=storage)
    for source in ("a/x@3.tfrecord", "a/x@*.tfrecord", "a/*"):
        assert len(ps.open(source, storage=storage, missing_shards="ignore")) == 2
        (finding,) = ps.verify(source, storage=storage).findings
        assert (finding.kind, finding.file) == ("missing", "a/x-00001-of-00003.tfrecord")


def test_very_many_missing_shards_are_counted(tmp_path: Path) -> None:
    ps.write({"id": [1]}, tmp_path / "x-00000-of-1000000.tfrecord")
    findings = ps.verify(tmp_path).findings
    assert len(findings) == 101
    assert findings[0].file.endswith("x-0000001-of-1000000.tfrecord")
    assert findings[-1].file.endswith("x@1000000.tfrecord")
    assert findings[-1].message == "999899 more of its 1000000 shards are missing"


def test_repair_reports_a_missing_shard_and_saves_the_others(lacking: str) -> None:
    report = ps.repair("set", into="whole/")
    assert [(one.kind, one.file) for one in report.findings] == [("missing", lacking)]
    assert report.num_records == 44
    assert len(ps.open("whole", missing_shards="ignore")) == 44


def _run(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(program, list(words))
    return found.exit_code, found.stdout, found.stderr


def test_the_command_line_has_the_word_for_it(lacking: str) -> None:
    for command in (["info"], ["stats"], ["schema"], ["head"], ["diff", "set"]):
        status, _, error = _run(*command, "set")
        assert status == 2 and "--allow-missing reads the others" in error
        assert _run(*command, "set", "--allow-missing")[0] == 0
    assert _run("convert", "set", "a.parquet", "--allow-missing")[0] == 0
    assert len(ps.open("a.parquet")) == 44
    status, out, _ = _run("verify", "set", "--json")
    assert status == 1 and json.loads(out)["findings"][0]["file"] == lacking


def test_other_words_for_missing_shards_are_refused(lacking: str) -> None:
    with pytest.raises(ValueError, match="missing_shards='skip' is not one of"):
        ps.open("set", missing_shards="skip")  # pyright: ignore[reportArgumentType]
