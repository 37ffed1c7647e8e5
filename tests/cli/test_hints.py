"""Hints in errors on the command line name options of the command, not Python's keyword arguments."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from running import run

import penstock as ps
from penstock import formats
from penstock.cli.hints import advise_in_options, in_options
from penstock.cli.program import program


@pytest.mark.parametrize(
    ("command", "hint", "told"),
    [
        ("info", 'open(..., other_files="ignore")', "--read other_files=ignore"),
        ("info", "open(..., arrays=['x', 'y'])", '--read \'arrays=["x", "y"]\''),
        ("info", "open(..., header=False)", "--read header=false"),
        (
            "info",
            "open(..., custom_fields={'b': '<u8'})",
            """--read 'custom_fields={"b": "<u8"}'""",
        ),
        ("head", 'damage="skip"', "--damage skip"),
        ("head", "open(..., raw=True), or a schema", "--raw, or a schema"),
        ("head", "columns= with the other fields", "--columns with the other fields"),
        ("convert", "leave out exact=True to store", "leave out --exact to store"),
        ("convert", "page_bytes=4096", "--option page_bytes=4096"),
        ("convert", "max_side=, to shrink it", "--max-side, to shrink it"),
        ("convert", 'open(..., infer_records="all") also finds', "--infer all also finds"),
        ("fields add", "replace=True shows", "--replace shows"),
        ("fields add", 'missing="null" leaves', "--missing null leaves"),
        ("info", "penstock verify a.tfrecord", "penstock verify a.tfrecord"),
        ("head", "open(..., decode=False) gives bytes", "--read decode=false gives bytes"),
        ("convert", "decode=False gives bytes", "--read decode=false gives bytes"),
        ("verify", "open(..., decode=False)", "--read decode=false"),
        ("verify", 'open(..., damage="skip")', 'in Python, penstock.open(..., damage="skip")'),
        (
            "info",
            'open(..., table="", other_files="ignore")',
            """--read 'table=""' --read other_files=ignore""",
        ),
        ("head", "limits=penstock.Limits(image_pixels=9)", "--limit image_pixels=9"),
        ("convert", "leave it out: columns=[...]", "leave it out: --columns NAME,…"),
        ("head", 'open(..., types={FIELD: "binary"})', "--cast FIELD=binary"),
        ("head", "open(..., hive=False)", "--no-hive"),
        ("convert", "allow_damaged=True or x=3", "in Python, allow_damaged=True or x=3"),
        (
            "fields add",
            'write(..., table="jsonl")',
            'in Python, penstock.write(..., table="jsonl")',
        ),
        ("info", "open it without raw=True", "open it without --raw"),
        (
            "info",
            "open(..., limits={'record_bytes': 9})",
            "--limit record_bytes=9",
        ),
        ("info", "open(..., overlays=False)", "in Python, penstock.open(..., overlays=False)"),
        ("index", "open(..., raw=True)", "in Python, penstock.open(..., raw=True)"),
        ("convert", 'rename={"cls": "label"} renames', "--rename cls=label renames"),
        ("convert", 'rename={"a": "b", "c": "d e"}', "--rename a=b --rename 'c=d e'"),
        ("convert", "convert(..., rename={'a long one': ...})", "--rename 'a long one=NEW'"),
        ("convert", 'columns=["label", "image"]', "--columns label,image"),
        ("nothing", 'damage="skip"', 'damage="skip"'),
    ],
)
def test_keywords_become_options_if_the_command_has_them(
    command: str, hint: str, told: str
) -> None:
    assert in_options(hint, [*command.split(), "--json", "file"], program) == told


def test_a_failing_command_advises_what_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(
        ps.encode_images(np.zeros((1, 2, 2, 3), np.uint8), "png")[0].as_py()
    )
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "notes.doc").write_bytes(b"a note")
    failed = run("info", tmp_path)
    assert failed.status == 1
    assert "try: --read other_files=ignore\n" in failed.err
    told = run("info", "--json", tmp_path).document["error"]["hint"]
    assert run("info", tmp_path, *told.split()).status == 0


@pytest.mark.parametrize("name", ["a.parquet", "lr=3; b.parquet"])
def test_an_existing_target_is_replaced_with_the_option_that_the_error_names(
    tmp_path: Path, name: str
) -> None:
    ps.write({"id": [1]}, tmp_path / "a.tfrecord")
    target = tmp_path / name
    target.write_bytes(b"old")
    failed = run("convert", tmp_path / "a.tfrecord", target)
    assert failed.status == 2
    assert failed.err == f"{target} exists; pass --overwrite to replace it\n"
    assert run("convert", tmp_path / "a.tfrecord", target, "--overwrite").status == 0


@pytest.mark.parametrize(
    "words",
    [
        "convert a.tfrecord b.parquet",
        "convert a.tfrecord b.tfrecord --num-shards 2",
        "convert a.tfrecord b.tfrecord --shard-bytes 9",
        "convert a.tfrecord id={id}/{shard}.parquet",
        "convert a.tfrecord folder/ --to parquet",
        "convert a.tfrecord photos --to imagefolder",
        "convert a.tfrecord c{shard}.parquet --manifest files.manifest",
        "sort a.tfrecord --by id --into b.tfrecord",
        "dedupe a.tfrecord --into b.tfrecord",
        "split a.tfrecord --shares train=0.5,val=0.5 --into {split}.tfrecord",
        "repair a.tfrecord --into b.tfrecord",
        "fields drop a.tfrecord x --into b.tfrecord",
        "fields rename a.tfrecord x=y --into b.tfrecord",
        "fields add a.tfrecord --set y=1 --into b.tfrecord",
        "fields replace a.tfrecord --set x=1 --into folder/",
        "manifest a.tfrecord -o b.tfrecord",
    ],
)
def test_the_second_run_of_a_command_names_the_option_that_replaces_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    picture = ps.encode_images(np.zeros((3, 8, 8, 3), np.uint8), "png")
    ps.write({"id": [1, 2, 3], "x": [1, 1, 1], "image": picture, "label": [0, 1, 1]}, "a.tfrecord")
    if words.startswith("manifest"):
        ps.write({"id": [1]}, "b.tfrecord")
    else:
        assert run(*words.split()).status == 0
    if "--manifest" in words:
        for old in tmp_path.glob("c*.parquet"):
            old.unlink()
    failed = run(*words.split())
    assert failed.status == 2
    assert "pass --overwrite to replace it" in failed.err
    assert "overwrite=" not in failed.err
    assert run(*words.split(), "--overwrite").status == 0


def test_the_error_about_an_object_names_the_option_too() -> None:
    error = FileExistsError(
        errno.EEXIST, "the object exists; pass overwrite=True to replace it", "s3://b/x"
    )
    advise_in_options(error, ["convert", "a", "s3://b/x"], program)
    assert error.strerror == "the object exists; pass --overwrite to replace it"
    error = FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), "x=1")
    advise_in_options(error, ["convert", "a", "x=1"], program)
    assert error.strerror == os.strerror(errno.EEXIST)


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "a.tfrecord", "b.parquet", "--columns", "nope"),
        ("convert", "a.tfrecord", "b.parquet", "--rename", "nope=x"),
        ("convert", "a.tfrecord", "b.parquet", "--where", "nope > 3"),
        ("head", "a.tfrecord", "--columns", "id,nope"),
        ("stats", "a.tfrecord", "--columns", "nope"),
    ],
)
def test_a_field_that_is_not_there_is_a_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": [1]}, "a.tfrecord")
    failed = run(*words)
    assert failed.status == 2
    assert failed.err.endswith("Error: there is no field 'nope'; there are: id\n")


def test_misuse_is_reported_with_options_of_the_command_and_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": [1]}, "a.tfrecord")
    failed = run("repair", "--json", "a.tfrecord", "--into", "a.tfrecord")
    message = "a.tfrecord would be written over itself; use --in-place for that"
    assert failed.status == 2
    assert failed.document == {"error": {"type": "UsageError", "message": message}}
    assert failed.err.endswith(f"Error: {message}\n")
    assert "use --to or one of" in run("convert", "a.tfrecord", "b.xyz").err
    for words in [("info", "--json", "nowhere"), ("info", "--json", "--nope")]:
        failed = run(*words)
        assert failed.status == 2
        assert failed.document["error"]["message"]


def test_commands_that_are_advised_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "my bad.tfrecord"
    ps.write({"x": range(9)}, name)
    data = bytearray(Path(name).read_bytes())
    data[50] ^= 1
    Path(name).write_bytes(data)
    told = run("verify", name).out.partition("try: ")[2].strip()
    assert shlex.split(told)[:3] == ["penstock", "repair", name]
    told = run("stats", name).err.partition("try: ")[2].strip()
    assert told == "penstock verify 'my bad.tfrecord'"
    assert run(*shlex.split(told)[1:]).status == 1
    with pytest.raises(ps.StaleIndexError) as raised:
        ps.index(name, from_text=index_of_another(tmp_path), force=True)
    assert raised.value.hint == "penstock index --text 'my bad.tfrecord'"


def test_for_a_name_that_looks_like_an_option_the_hint_suggests_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"x": range(9)}, "./-x.tfrecord")
    data = bytearray(Path("-x.tfrecord").read_bytes())
    data[50] ^= 1
    Path("-x.tfrecord").write_bytes(data)
    told = run("stats", "--", "-x.tfrecord").err.partition("try: ")[2].strip()
    assert told == "penstock verify ./-x.tfrecord"
    assert run(*shlex.split(told)[1:]).status == 1
    told = run("verify", "--", "-x.tfrecord").out.partition("try: ")[2].strip()
    assert run(*shlex.split(told)[1:]).status == 0


def index_of_another(folder: Path) -> Path:
    ps.write({"x": range(4)}, folder / "other.tfrecord")
    ps.index(folder / "other.tfrecord", text=True)
    return folder / "other.tfrecord.idx"


def test_endings_that_are_advised_can_be_written(tmp_path: Path) -> None:
    ps.write({"x": range(9)}, tmp_path / "a.tfrecord")
    failed = run("convert", tmp_path / "a.tfrecord", tmp_path / "o.xyz")
    endings = failed.err.replace("\n", " ").rpartition("endings ")[2].split(", ")
    assert ".tfrecord" in endings
    for ending in endings:
        if not ending.strip().startswith("/"):
            assert formats.by_path("o" + ending.strip()).info.can_write
    assert ".mds" not in failed.err
    assert ".array_record" not in failed.err


def test_one_record_is_counted_in_the_singular(tmp_path: Path) -> None:
    one, more = tmp_path / "one.tfrecord", tmp_path / "more.tfrecord"
    two_fields = tmp_path / "two.tfrecord"
    ps.write({"x": [5]}, one)
    ps.write({"x": [5], "y": [6]}, two_fields)
    ps.write({"x": range(9)}, more)
    data = bytearray(more.read_bytes())
    data[50] ^= 1
    more.write_bytes(data)
    said = [
        run("stats", one).out,
        run("stats", "--damage", "skip", more).err,
        run("verify", one).out,
        run("diff", one, one).out,
        run("convert", one, tmp_path / "b.tfrecord").out,
        run("append", tmp_path / "b.tfrecord", one).out,
        run("fields", "drop", two_fields, "y", "--in-place").out,
    ]
    assert ["1 record" in text and "1 records" not in text for text in said] == [True] * len(said)
