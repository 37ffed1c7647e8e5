"""`types=`, `text=` and `key=` of `convert`."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

DATA = {
    "id": [7, 8, 9],
    "caption": [b"caf\xc3\xa9", b"two", b"three"],
    "blob": [b"\xff\xfe", b"\x00", b"x"],
}


@pytest.fixture
def source(tmp_path: Path) -> str:
    ps.write(DATA, tmp_path / "data.tfrecord")
    return str(tmp_path / "data.tfrecord")


@pytest.mark.parametrize("text", [["caption"], "auto"])
def test_text_becomes_strings(source: str, tmp_path: Path, text: object) -> None:
    ps.convert(source, tmp_path / "out.parquet", text=text)
    schema = ps.open(tmp_path / "out.parquet").schema
    assert schema.field("caption").type == pa.string()
    assert schema.field("blob").type == pa.binary()
    ps.convert(source, tmp_path / "out.tar", text=text, key="id")
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert {"7.caption.txt", "8.caption.txt", "9.id"} <= set(tar.getnames())
        assert tar.extractfile("7.caption.txt").read() == "café".encode()
    assert [record["id"] for record in ps.open(tmp_path / "out.tar")] == [7, 8, 9]


def test_without_it_bytes_stay_bytes(source: str, tmp_path: Path) -> None:
    ps.convert(source, tmp_path / "out.parquet")
    assert ps.open(tmp_path / "out.parquet").schema.field("caption").type == pa.binary()


def test_bytes_that_are_not_text_are_named(source: str, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError) as caught:
        ps.convert(source, tmp_path / "out.parquet", text=["blob"])
    assert (caught.value.field, caught.value.record) == ("blob", 0)
    assert not (tmp_path / "out.parquet").exists()


def test_types_go_with_views_and_datasets(source: str, tmp_path: Path) -> None:
    view = ps.open(source).filter("id > 7")
    ps.convert(view, tmp_path / "out.arrow", types={"id": "int16"}, text=["caption"])
    found = ps.open(tmp_path / "out.arrow")
    assert found.schema.field("id").type == pa.int16()
    assert found.to_table(["id", "caption"]).to_pylist() == [
        {"id": 8, "caption": "two"},
        {"id": 9, "caption": "three"},
    ]


def test_wrong_words_are_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="list of names"):
        ps.convert(source, tmp_path / "out.arrow", text="caption")
    with pytest.raises(ps.SchemaError, match="no such field"):
        ps.convert(source, tmp_path / "out.arrow", text=["captions"])
    for key, message in (("none", "no such column for key="), ("blob", "strings or integers")):
        with pytest.raises(ps.SchemaError, match=message):
            ps.convert(source, tmp_path / "out.tar", key=key)


def test_on_the_command_line(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "out.tar")
    line = ["convert", source, target, "--text", "auto", "--key", "id", "--cast", "id=int32"]
    done = CliRunner().invoke(program, line)
    assert done.exit_code == 0, done.output
    with tarfile.open(target) as tar:
        assert "8.caption.txt" in tar.getnames()
    wrong = CliRunner().invoke(program, ["convert", source, target, "--text", "captoin"])
    assert wrong.exit_code == 2


# -- columns of bytes that are text ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.parquet", "out.tar", "out.arrow", "out.msgpack", "out.h5"])
def test_the_summary_names_columns_of_bytes_that_are_text(
    source: str, tmp_path: Path, name: str
) -> None:
    assert ps.convert(source, tmp_path / name).text_columns == ("caption",)
    assert ps.open(tmp_path / name)[1]["caption"] == b"two"


def test_no_column_is_named_if_the_target_has_no_text_or_text_is_said(
    source: str, tmp_path: Path
) -> None:
    assert ps.convert(source, tmp_path / "a.tfrecord", columns=["caption"]).text_columns == ()
    for number, text in enumerate((["caption"], "auto", [])):
        made = ps.convert(source, tmp_path / f"{number}.parquet", text=text)
        assert made.text_columns == ()


def test_only_the_records_that_are_converted_count(source: str, tmp_path: Path) -> None:
    made = ps.convert(source, tmp_path / "one.parquet", where="id == 9")
    assert made.text_columns == ("caption", "blob")
    renamed = {"caption": "words"}
    made = ps.convert(source, tmp_path / "two.parquet", rename=renamed, columns=["id", "caption"])
    assert made.text_columns == ("caption",)  # as text= takes it


def test_one_late_value_that_is_not_text_is_enough(tmp_path: Path) -> None:
    words = [b"word"] * 20_000
    lists = pa.array([[b"a", b"b"], []] * 10_000)
    ps.write({"a": words, "b": [*words[1:], b"\xff"], "c": lists}, tmp_path / "a.tfrecord")
    ps.write({"a": [b"", None]}, tmp_path / "empty.arrow")
    made = ps.convert(tmp_path / "a.tfrecord", tmp_path / "a.parquet", shard_records=15_000)
    assert made.text_columns == ("a", "c")
    assert ps.convert(tmp_path / "empty.arrow", tmp_path / "b.parquet").text_columns == ()


def test_images_and_strings_are_not_named(tmp_path: Path) -> None:
    images = ps.encode_images(np.zeros((2, 8, 8, 3), np.uint8), "png")
    ps.write({"image": images, "name": ["a", "b"]}, tmp_path / "a.arrow")
    assert ps.convert(tmp_path / "a.arrow", tmp_path / "b.parquet").text_columns == ()


def test_the_command_line_says_it_once(source: str, tmp_path: Path) -> None:
    line = ["convert", source, str(tmp_path / "out-{shard}.parquet"), "--num-shards", "3"]
    done = CliRunner().invoke(program, line)
    note = "note: all values of caption are text, but stay bytes; --text caption writes strings\n"
    assert done.stderr == note
    done = CliRunner().invoke(program, [*line, "--overwrite", "--text", "caption"])
    assert done.stderr == ""
    done = CliRunner().invoke(program, [*line, "--overwrite", "--json"])
    assert json.loads(done.stdout)["text_columns"] == ["caption"]
    assert done.stderr == ""


def test_text_auto_leaves_json_so_that_its_fields_can_be_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(3):
            for ending, data in (("json", f'{{"id": {number}}}'.encode()), ("txt", b"hello")):
                member = tarfile.TarInfo(f"s{number}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    how = ["--text", "auto", "--with", "id=json.id"]
    lines = [
        ["convert", tmp_path / "a.tar", tmp_path / "convert.parquet", *how],
        ["sort", tmp_path / "a.tar", "--by", "id", "--into", tmp_path / "sort.parquet", *how],
    ]
    for line in lines:
        ran = CliRunner().invoke(program, list(map(str, line)), catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
        found = ps.open(tmp_path / f"{line[0]}.parquet")
        assert found.to_table()["id"].to_pylist() == [0, 1, 2]
        types = [found.schema.field(name).type for name in ("json", "txt")]
        assert types == [pa.json_(), pa.string()]
