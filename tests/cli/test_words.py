"""Words on the command line: `-`, sizes in bytes, and text of the user in messages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from running import run, run_process

import penstock as ps


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "-", "x.tfrecord"),
        ("convert", "single.tfrecord", "-", "--to", "tfrecord"),
        ("info", "-"),
        ("verify", "single.tfrecord", "-"),
        ("repair", "single.tfrecord", "--into", "-"),
        ("sort", "single.tfrecord", "--by", "id", "--into", "-"),
        ("append", "single.tfrecord", "-"),
        ("diff", "single.tfrecord", "-"),
        ("fields", "add", "single.tfrecord", "--from", "-"),
        ("layout", "-"),
        ("manifest", "single.tfrecord", "-o", "-"),
    ],
)
def test_a_dash_is_refused_in_the_place_of_a_file(
    words: tuple[str, ...], single: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(single.parent)
    before = sorted(single.parent.iterdir())
    ran = run(*words)
    assert ran.status == 2
    assert "'-' does not mean stdin or stdout" in ran.err
    assert "try: a temporary file" in ran.err
    assert sorted(single.parent.iterdir()) == before


def test_sizes_of_files_take_units(single: Path, tmp_path: Path) -> None:
    made = {}
    for size in ("2048", "2KiB", "2kb"):
        folder = tmp_path / size
        folder.mkdir()
        assert (
            run("convert", single, folder / "{shard}.tfrecord", "--shard-bytes", size).status == 0
        )
        made[size] = sorted((path.name, path.stat().st_size) for path in folder.glob("*.tfrecord"))
    assert len(made["2048"]) > 1
    assert made["2048"] == made["2KiB"] == made["2kb"]
    for wrong in ("0", "3 parrots", "-1"):
        ran = run("convert", single, tmp_path / "x.tfrecord", "--shard-bytes", wrong)
        assert (ran.status, "such as 3000000 or 64MiB" in ran.err) == (2, True)


def test_text_of_the_user_in_a_message_stays_as_it_was_typed(tmp_path: Path) -> None:
    pairs = {"__key__": ["a"], "json": pa.array(['{"id": 1, "url": "u"}'], pa.json_())}
    ps.write(pairs, tmp_path / "w.tar")
    target = tmp_path / "w.parquet"
    ran = run_process("convert", tmp_path / "w.tar", target, "--with", "id=json.id,url=json.url")
    assert ran.status == 2
    assert "'json.id,url=json.url': expected an operator" in ran.err
    assert "at ',url=json.url'" in ran.err
    assert "try: --with for each field: --with a=json.a --with b=json.b" in ran.err
    each = run(
        "convert", tmp_path / "w.tar", target, "--with", "id=json.id", "--with", "url=json.url"
    )
    assert each.status == 0
    ran = run_process("head", target, "--where", "id = 1 or threads=3")
    assert "'id = 1 or threads=3': expected `==`, at '= 1 or threads=3'" in ran.err


def test_a_new_folder_for_overlays_is_made_by_each_change(single: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "ov" / name for name in ("replace", "where", "drop", "rename")]
    words = [
        ("replace", single, "--set", "id=7"),
        ("replace", single, "--set", "id=8", "--where", "id > 3"),
        ("drop", single, "id"),
        ("rename", single, "id=number"),
    ]
    for folder, change in zip(folders, words, strict=True):
        ran = run("fields", *change, "--overlays", folder)
        assert (ran.status, ran.err.count("no such folder")) == (0, 0), ran.err
    assert ps.open(single, overlays=folders[0]).head(2)["id"].to_pylist() == [7, 7]
    assert "number" in ps.open(single, overlays=folders[3]).schema.names
