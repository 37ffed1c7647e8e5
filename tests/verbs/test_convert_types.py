"""`types=`, `text=` and `key=` of `convert`."""

from __future__ import annotations

import tarfile
from pathlib import Path

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
