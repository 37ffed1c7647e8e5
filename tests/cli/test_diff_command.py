"""`penstock diff`: what it prints about differences, and its exit status."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from running import run, run_process

import penstock as ps


def test_diff_of_equal_files_ends_with_status_0(single: Path, shards: Path) -> None:
    done = run("diff", single, shards)
    assert done.status == 0
    assert done.out == "equal: 300 records\n"
    assert run("diff", "--json", single, shards).document["equal"] is True


def test_diff_names_what_differs_and_ends_with_status_1(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    names = ["other" if n == 7 else name for n, name in enumerate(table["name"].to_pylist())]
    other = table.set_column(1, "name", pa.array(names)).append_column("new", table["id"])
    ps.write(other, tmp_path / "other.parquet")
    done = run("diff", single, tmp_path / "other.parquet")
    assert done.status == 1
    assert "different: 300 of 300 records" in done.out
    assert re.search(r"^new +300 +0 +null +0$", done.out, re.MULTILINE)
    assert "only in B" in done.out
    done = run("diff", "--json", single, tmp_path / "other.parquet")
    assert done.status == 1
    fields = {field["name"]: field for field in done.document["fields"]}
    assert fields["name"]["num_records"] == 1
    assert fields["name"]["examples"] == [
        {"record_a": 7, "record_b": 7, "a": "dog", "b": "other", "place": 0}
    ]
    assert (fields["new"]["kind"], fields["new"]["num_only_in_b"]) == ("only in b", 300)
    assert run("diff", "--columns", "id", single, tmp_path / "other.parquet").status == 0


def test_diff_shows_hostile_values_as_escapes(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    ps.write(table.set_column(1, "name", pa.array(["x"] * 300)), tmp_path / "other.parquet")
    done = run_process("diff", single, tmp_path / "other.parquet")
    assert done.status == 1
    assert "\\x1b" in done.out
    assert "\x1b" not in done.out
    assert not any(line.endswith(" ") for line in done.out.splitlines())


def test_diff_by_a_key_names_the_keys_of_one_side(
    single: Path, tmp_path: Path, table: pa.Table
) -> None:
    ps.write(table[::-1][:299], tmp_path / "other.arrow")
    done = run("diff", "--by", "id", single, tmp_path / "other.arrow")
    assert done.status == 1
    assert "1 record only in A: 0" in done.out


def test_diff_of_damage_is_an_error_and_can_be_skipped(single: Path, damaged: Path) -> None:
    done = run("diff", single, damaged)
    assert done.status == 1
    assert "data checksum does not match" in done.err
    done = run("diff", "--json", "--damage", "skip", single, damaged)
    assert done.status == 1
    assert len(done.document["damage"]) == 1
    assert done.document["records"]["num_b"] == 299
    assert run("diff", single, damaged.parent / "nothing.tfrecord").status == 2


def test_all_keys_that_one_side_lacks_are_listed_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = "k" * 100
    ps.write({"id": [*(f"k{n}" for n in range(9)), long]}, "a.parquet")
    ps.write({"id": ["k3"]}, "b.parquet")
    few = ps.diff("a.parquet", "b.parquet", by="id").records.keys_only_in_a
    assert few == ("k0", "k1", "k2")
    found = ps.diff("a.parquet", "b.parquet", by="id", all_keys=True).records
    assert found.keys_only_in_a == (*(f"k{n}" for n in range(9) if n != 3), long)
    with pytest.raises(ValueError, match="names no key"):
        ps.diff("a.parquet", "b.parquet", all_keys=True)
