"""`penstock fields`: overlay fields on the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from running import run

import penstock as ps
from overlaying import folder_of
from penstock.verbs.fields.overlays import write_overlay


def keep(source: Path, name: str, **columns: object) -> None:
    dataset = ps.open(source)
    batch = pa.record_batch(columns)
    firsts = dataset.files.firsts
    write_overlay(
        dataset,
        name,
        batch.schema,
        lambda shard: [batch.slice(firsts[shard], firsts[shard + 1] - firsts[shard])],
    )


def test_list_shows_names_fields_and_files(shards: Path) -> None:
    keep(shards, "scores", score=range(300), word=["w"] * 300)
    first = ps.open(shards).paths[0]
    keep(Path(first), "\x1b[31mred", other=[0.5] * 100)
    shown = run("fields", "list", shards)
    assert shown.status == 0
    lines = shown.out.splitlines()
    assert lines[0].split() == ["name", "field", "type", "files", "bytes"]
    assert [line.split()[:6] for line in lines if "scores" in line] == [
        ["scores", "score", "int64", "3", "of", "3"]
    ]
    assert any(line.split() == ["word", "string"] for line in lines)
    assert "1 of 3" in shown.out
    assert "\x1b[31m" not in shown.out
    document = run("fields", "list", shards, "--json").document
    scores, red = document["overlays"]
    assert scores["name"] == "scores"
    assert scores["fields"] == [
        {"name": "score", "type": "int64"},
        {"name": "word", "type": "string"},
    ]
    assert scores["files"] == list(ps.open(shards).paths)
    assert (scores["num_files"], scores["sequence"]) == (3, 1)
    assert red["files"] == [first]


def test_list_of_files_without_overlays(single: Path) -> None:
    shown = run("fields", "list", single)
    assert (shown.status, shown.out) == (0, "")
    assert "no fields are stored next to" in shown.err
    assert run("fields", "list", single, "--json").document == {"overlays": []}


def test_remove_deletes_one_overlay_and_keeps_the_others(single: Path) -> None:
    keep(single, "a", score=range(300))
    keep(single, "b", score=[0] * 300)
    assert run("head", single, "-n", 1, "--json").document["records"][0]["score"] == 0
    removed = run("fields", "remove", single, "b", "--json")
    assert removed.document == {"removed": [f"{folder_of(single)}/b.overlay"]}
    assert run("head", single, "--start", 7, "-n", 1, "--json").document["records"][0]["score"] == 7
    wrong = run("fields", "remove", single, "b")
    assert wrong.status == 2
    assert "there are: a" in wrong.err
    assert run("fields", "remove", single, "a").out.strip() == f"{folder_of(single)}/a.overlay"
    assert ps.overlays(single) == []


def test_the_hint_for_a_stale_overlay_works(single: Path) -> None:
    keep(single, "new", score=range(300))
    ps.write({"id": range(10)}, single, overwrite=True)
    refused = run("head", single)
    assert refused.status == 1
    assert f"penstock fields remove {single} new" in refused.err
    assert run("verify", single).status == 1
    assert run("fields", "remove", single, "new").status == 0
    assert run("head", single).status == 0
    assert run("verify", single).status == 0


def test_a_folder_of_overlays_is_read_by_every_command(shards: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    before = sorted(path.name for path in shards.iterdir())
    assert run("fields", "add", shards, "--set", "good=1", "--overlays", mine).status == 0
    assert run("fields", "replace", shards, "--set", "good=2", "--overlays", mine).status == 0
    assert sorted(path.name for path in shards.iterdir()) == before
    there = (shards, "--overlays", mine)
    for words in (("info",), ("head",), ("schema",), ("stats",), ("fields", "list")):
        assert "good" in run(*words, *there).out, words
        assert "good" not in run(*words, shards).out, words
    assert run("plan", *there, "--batch-size", "9").status == 0
    assert run("verify", *there).status == 0
    assert run("convert", shards, tmp_path / "out.parquet", "--overlays", mine).status == 0
    assert set(ps.open(tmp_path / "out.parquet").to_table()["good"].to_pylist()) == {2}
    assert run("diff", shards, tmp_path / "out.parquet", "--overlays", mine).status == 0
    listed = run("fields", "list", *there, "--json").document["overlays"]
    assert [(one["name"], one["folder"]) for one in listed] == [
        ("good", str(mine)),
        ("good-2", str(mine)),
    ]
    assert run("fields", "remove", shards, "good-2").status == 2
    assert run("fields", "remove", shards, "good-2", "--overlays", mine).status == 0
    missing = run("head", shards, "--overlays", tmp_path / "typo")
    assert missing.status == 2 and "no such folder for overlays" in missing.err
