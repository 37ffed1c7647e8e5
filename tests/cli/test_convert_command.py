"""`penstock convert`: options of the read and the written format, refused arguments, and its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from running import run

import penstock as ps
from penstock import formats
from penstock.contract.options import options_from


def test_convert_there_and_back_keeps_every_value(shards: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "a.parquet", tmp_path / "back.tfrecord"
    document = run("convert", "--json", shards, there).document
    assert document["paths"] == [str(there)]
    assert document["num_records"] == 300
    assert run("convert", "--prove", there, back).status == 0
    before = run("head", "--json", "-n", "300", shards).document["records"]
    assert run("head", "--json", "-n", "300", back).document["records"] == before


@pytest.mark.parametrize("command", ["convert", "head", "stats"])
def test_a_condition_is_evaluated_before_a_computed_field(tmp_path: Path, command: str) -> None:
    path, target = tmp_path / "a.tfrecord", tmp_path / "b.arrow"
    ps.write({"price": ["1.5", "n/a", "", "2.5"]}, path)
    words = (path, target) if command == "convert" else (path,)
    computed = ("--with", 'f=cast(price, "float64")')
    failed = run(command, *words, *computed)
    assert failed.status == 1
    assert f"{path}: record 1, field 'f'" in failed.err
    done = run(command, *words, *computed, "--where", 'price not in ["n/a", ""]', "--json")
    assert done.status == 0, done.err
    if command == "convert":
        assert ps.open(target).to_table()["f"].to_pylist() == [1.5, 2.5]


def test_convert_takes_options_of_both_sides(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tfrecord"
    options = ("--damage", "skip", "--columns", "id", "--rename", "id=number", "--num-shards", "2")
    document = run("convert", "--json", damaged, target, *options, "--option", "level=9").document
    assert len(document["paths"]) == 2
    assert len(document["damage"]) == 1
    assert document["num_records"] == 299
    (record,) = run("head", "-n", "1", "--json", document["paths"][0]).document["records"]
    assert record == {"number": 0}


def test_convert_writes_files_for_each_value(tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", f"{tmp_path}/out/zip={{zip}}/{{shard}}.parquet"
    ps.write({"zip": ["01", "2", "01"], "n": [1, 2, 3]}, source)
    done = run("convert", source, target)
    assert done.status == 0
    assert "read it with --cast zip=string" in done.out + done.err
    shown = run("head", "--json", "--cast", "zip=string", tmp_path / "out").document["records"]
    assert shown == [{"n": 1, "zip": "01"}, {"n": 3, "zip": "01"}, {"n": 2, "zip": "2"}]
    wrong = run("convert", source, f"{tmp_path}/other/{{zap}}.parquet")
    assert wrong.status == 2
    assert "nothing replaces {zap}" in wrong.err and "there are: zip, n" in wrong.err


def test_convert_overwrites_only_on_request(single: Path, tmp_path: Path) -> None:
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


# -- options of the written format ----------------------------------------------------------------


def test_an_option_reaches_the_format_and_nothing_else(tmp_path: Path) -> None:
    source, target = tmp_path / "s.parquet", tmp_path / "o.h5"
    ps.write({"id": np.arange(5000)}, source)
    assert run("convert", source, target, "--option", "shuffle=true").status == 0
    assert [record["id"] for record in ps.open(target)] == list(range(5000))
    assert _is_shuffled(target)
    # The same in Python.
    ps.convert(source, target, write_options={"shuffle": True}, shuffle=7, overwrite=True)
    assert [record["id"] for record in ps.open(target)] != list(range(5000))
    assert _is_shuffled(target)


def _is_shuffled(path: Path) -> bool:
    with h5py.File(path) as file:
        ids: Any = file["id"]
        return ids.shuffle


@pytest.mark.parametrize(
    "word",
    [
        "where=id > 1",
        "sample=1",
        "num_shards=2",
        "threads=1",
        "progress=1",
        "format=npz",
        "max_side=8",
    ],
)
def test_an_option_that_the_written_format_lacks_is_misuse(
    word: str, single: Path, tmp_path: Path
) -> None:
    done = run("convert", single, tmp_path / "o.parquet", "--option", word)
    assert done.status == 2
    assert f"parquet has no option '{word.partition('=')[0]}'; its options: compr" in done.err
    assert list(tmp_path.glob("o*")) == []


@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        ("o.parquet", "level=high", "parquet: option level is a whole number or None, not 'high'"),
        ("o.parquet", "level=1.5", "parquet: option level is a whole number or None, not 1.5"),
        ("o.parquet", "compression=1", "parquet: option compression is text or None, not 1"),
        ("o.parquet", "row_group_bytes=[1]", "option row_group_bytes is a whole number, not [1]"),
        ("o.parquet", "dictionary=False", "option dictionary is true or false, not 'False'"),
        ("o.tfrecord", "member_bytes=true", "option member_bytes is a whole number, not True"),
        ("o.tfrecord", "exact=7", "tfrecord: option exact is true or false, not 7"),
        ("o.beton", "compress_probability=x", "option compress_probability is a number, not 'x'"),
        ("o.npz", "text_length={}", "npz: option text_length is a whole number or None, not {}"),
    ],
)
def test_a_value_of_a_wrong_type_is_misuse(
    name: str, word: str, said: str, single: Path, tmp_path: Path
) -> None:
    done = run("convert", single, tmp_path / name, "--option", word)
    assert done.status == 2
    assert said in done.err
    assert not (tmp_path / name).exists()


def _options() -> Iterator[tuple[str, str, str]]:
    for fmt in formats.FORMATS:
        for kind in ("read", "write"):
            options = getattr(fmt, f"{kind}_options")
            yield from ((fmt.info.name, kind, field.name) for field in fields(options))


@pytest.mark.parametrize(("format", "kind", "option"), list(_options()))
def test_every_option_of_every_format_refuses_values_of_other_types(
    format: str, kind: str, option: str
) -> None:
    options = getattr(formats.by_name(format), f"{kind}_options")
    with pytest.raises(TypeError, match=f"{format}: option {option} is .*, not"):
        options_from(options, {option: object()}, format)
    default = getattr(options(), option)
    assert getattr(options_from(options, {option: default}, format), option) == default


def test_numpy_numbers_and_paths_are_accepted_as_option_values(tmp_path: Path) -> None:
    ps.write({"x": [1]}, tmp_path / "a.parquet", level=np.int8(9), dictionary=np.bool_(False))
    with pytest.raises(TypeError, match="parquet: option level is a whole number or None, not '9'"):
        ps.write({"x": [1]}, tmp_path / "b.parquet", level="9")
    given = options_from(formats.by_name("imagefolder").read_options, {"table": Path("a")}, "x")
    assert given.table == "a"


def test_comparing_with_another_type_and_a_name_that_is_taken_are_misuse(
    single: Path, tmp_path: Path
) -> None:
    for words in [("--where", 'id > "a"'), ("--rename", "id=name")]:
        done = run("convert", single, tmp_path / "o.parquet", *words)
        assert done.status == 2, words
        assert done.err.splitlines()[-1].startswith("Error: field '")


def test_a_note_names_the_options_of_the_command(tmp_path: Path) -> None:
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    mixed = [ps.encode_images(pixels, codec).storage[0].as_py() for codec in ("jpeg", "png")]
    ps.write({"image": mixed}, tmp_path / "a.parquet")
    shown = run("convert", tmp_path / "a.parquet", tmp_path / "a.tar").err
    assert "--rename image=jpg --image-mode jpg writes .jpg" in shown
    ps.write({"seg": mask_of_0_and_5()}, tmp_path / "b.parquet")
    call = ("convert", tmp_path / "b.parquet", tmp_path / "c.parquet", "--max-side", "4")
    assert "; --masks seg keeps them" in run(*call).err
    done = run(*call, "--masks", "seg", "--overwrite")
    assert (done.status, done.err) == (0, "")
    failed = run(*call, "--masks", "nope", "--overwrite")
    assert (failed.status, "nope" in failed.err) == (1, True)


def mask_of_0_and_5() -> list[bytes]:
    mask = np.full((1, 9, 9), 5, np.uint8)
    mask[:, ::2] = 0
    return ps.encode_images(mask, "png").storage.to_pylist()


def test_damaged_pictures_are_skipped_on_request(tmp_path: Path) -> None:
    jpegs = ps.encode_images(np.zeros((3, 30, 30, 3), np.uint8), "jpeg").storage.to_pylist()
    jpegs[1] = jpegs[1][:-60]
    ps.write({"id": [0, 1, 2], "image": jpegs}, tmp_path / "a.tfrecord")
    call = ("convert", tmp_path / "a.tfrecord", tmp_path / "b.parquet", "--max-side", "8")
    failed = run(*call)
    assert failed.status == 1
    assert f"{tmp_path / 'a.tfrecord'}: record 1, field 'image': " in failed.err
    assert "--damage skip, or penstock repair --decode" in failed.err
    done = run(*call, "--damage", "skip")
    assert done.status == 0
    assert "record 1: field 'image': " in done.err
    document = run(*call, "--damage", "skip", "--overwrite", "--json").document
    assert document["num_records"] == 2
    assert [region["num_records"] for region in document["damage"]] == [1]


def test_changed_values_are_reported_and_refused_on_request(tmp_path: Path) -> None:
    ps.write({"share": [0.1]}, tmp_path / "a.parquet")
    note = "field 'share': float64 is rounded to float32, which the format holds"
    shown = run("convert", tmp_path / "a.parquet", tmp_path / "a.tfrecord")
    assert shown.err.splitlines() == [f"note: {note}"]
    document = run("convert", "--json", tmp_path / "a.parquet", tmp_path / "b.tfrecord").document
    assert document["notes"] == [note]
    appended = run("append", tmp_path / "a.parquet", tmp_path / "a.tfrecord")
    assert note in appended.err
    for verb, target in (("convert", "c.tfrecord"), ("append", "a.tfrecord")):
        refused = run(verb, tmp_path / "a.parquet", tmp_path / target, "--exact")
        assert refused.status == 1
        assert "float32 would round 0.1" in refused.err
        assert "leave out --exact" in refused.err


def test_drop_writes_all_other_fields(tmp_path: Path) -> None:
    data, into = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    ps.write({"id": [1, 2], "a": [3, 4], "b": [5, 6]}, data)
    how = ("convert", data, into, "--overwrite", "--drop")
    assert run(*how, "a").status == 0
    assert ps.open(into).to_table().to_pydict() == {"id": [1, 2], "b": [5, 6]}
    assert run(*how, "a,b", "--with", "c=a + b", "--rename", "c=sum").status == 0
    assert ps.open(into).to_table().to_pydict() == {"id": [1, 2], "sum": [8, 10]}
    for words, message in (
        (("A",), "there is no field 'A'; there are: id, a, b"),
        (("a", "--columns", "b"), "--columns and --drop exclude each other"),
        (("a,b,id",), "--drop: no field would be left"),
    ):
        done = run(*how, *words)
        assert (done.status, message in done.err) == (2, True)
