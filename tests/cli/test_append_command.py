"""`penstock append`: what it prints, and its exit status."""

from __future__ import annotations

from pathlib import Path

from running import run

import penstock as ps


def test_append_counts_what_it_added(tmp_path: Path) -> None:
    source, target = tmp_path / "new.parquet", tmp_path / "x.tfrecord"
    ps.write({"id": [3, 4]}, source)
    ps.write({"id": [1, 2]}, target)
    before = target.stat().st_size
    document = run("append", "--json", source, target).document
    assert document == {
        "paths": [str(target)],
        "num_records": 2,
        "num_bytes": target.stat().st_size - before,
        "notes": [],
        "damage": [],
    }
    shown = run("append", source, target)
    assert shown.status == 0
    assert shown.out.startswith("2 records, ")
    assert [record["id"] for record in ps.open(target)] == [1, 2, 3, 4, 3, 4]


def test_append_makes_a_new_shard(tmp_path: Path) -> None:
    source = tmp_path / "new.tfrecord"
    ps.write({"id": [3]}, source)
    ps.write({"id": [1, 2]}, tmp_path / "p-{shard}.tfrecord.gz", shard_records=1)
    shown = run("append", source, tmp_path / "p-*", "--option", "level=9")
    assert shown.status == 0
    assert str(tmp_path / "p-2.tfrecord.gz") in shown.out


def test_append_distinguishes_misuse_from_records_that_do_not_fit(tmp_path: Path) -> None:
    source = tmp_path / "new.tfrecord"
    ps.write({"id": [3]}, source)
    ps.write({"name": ["a"]}, tmp_path / "x.tfrecord", num_shards=1)
    target = tmp_path / "x-00000-of-00001.tfrecord"
    misfit = run("append", "--json", source, target)
    assert misfit.status == 1
    assert misfit.document["error"]["field"] == "id"
    assert run("append", source, tmp_path / "x@1.tfrecord").status == 2
    assert run("append", source, tmp_path / "nothing").status == 2
    assert run("append", source, target, "--option", "colour=red").status == 2


def test_append_passes_on_only_options_of_the_format(tmp_path: Path) -> None:
    new, target = tmp_path / "new.tfrecord", tmp_path / "there.tfrecord"
    ps.write({"id": [1]}, new)
    ps.write({"id": [2]}, target)
    for word in ("index=false", "wait_seconds=1", "threads=1", "progress=1", "level=high"):
        done = run("append", new, target, "--option", word)
        assert done.status == 2, word
        assert word.partition("=")[0] in done.err
    assert len(ps.open(target)) == 1
    assert run("append", new, target, "--option", "level=9").status == 0
