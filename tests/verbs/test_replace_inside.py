"""`replace_fields` for JSON: texts stay JSON, and a key inside is set without touching the rest."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.verbs.fields._inside import _put_text

TEXTS = [f'{{"a": 1.0, "cls" : {n % 4} ,"z":[{n}, {{"cls":2}}]}}' for n in range(8)]


@pytest.fixture(params=["parquet", "tar"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"a.{request.param}"
    sizes = [{"x": n, "in": {"y": str(n)}} for n in range(8)]
    data = {"json": pa.array(TEXTS, pa.json_()), "size": sizes, "cls": range(8)}
    ps.write(data, path)
    return path


def texts_of(path: Path) -> list[str]:
    return ps.open(path).to_table(["json"])["json"].combine_chunks().storage.to_pylist()


def members(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return {member.name.partition(".")[2] for member in archive if member.isfile()}


def changed(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"json": [json.dumps({"n": len(text)}) for text in batch["json"].to_pylist()]}


@pytest.mark.parametrize("how", [{"in_place": True}, {}], ids=["in place", "overlay"])
def test_texts_for_json_are_json(path: Path, how: dict[str, Any]) -> None:
    ps.replace_fields(path, changed, reads=["json"], **how)
    assert ps.open(path).schema.field("json").type == pa.json_()
    assert ps.open(path).count("json.n > 10") == 8
    if path.suffix == ".tar":
        assert "json" in members(path)


def test_texts_that_are_not_json_are_refused(path: Path) -> None:
    texts = [*TEXTS[:5], "{", *TEXTS[6:]]
    for where in (None, "cls >= 4"):
        with pytest.raises(ps.SchemaError, match=r"record 5, field 'json'.*\n.*found '{'"):
            ps.replace_fields(path, {"json": texts}, where=where, in_place=True)
    assert texts_of(path) == TEXTS


def test_a_member_with_another_name_is_noted(path: Path) -> None:
    made = ps.replace_fields(path, {"cls": 0.5}, in_place=True)
    if path.suffix == ".tar":
        assert made.notes == (
            "field 'cls': its values are double, so its members are named .cls.npy, and webdataset finds no 'cls'",
        )
        assert "cls.npy" in members(path)
    else:
        assert made.notes == ()


def test_a_key_in_json_is_set(path: Path) -> None:
    made = ps.replace_fields(path, {"json.cls": 7}, where="json.cls == 3", in_place=True)
    assert made.notes == ("2 of 8 records got new values",)
    assert texts_of(path) == [text.replace('"cls" : 3 ', '"cls" : 7 ') for text in TEXTS]


def test_keys_and_fields_of_structs_are_set_from_a_table(path: Path) -> None:
    right = pa.table({"cls": [1, 6], "json.cls": [10, 60], "size.in.y": ["one", "six"]})
    ps.replace_fields(path, right, by="cls", missing="keep")
    rows = list(ps.open(path))
    assert [json.loads(row["json"])["cls"] for row in rows] == [0, 10, 2, 3, 0, 1, 60, 3]
    assert [row["size"]["in"]["y"] for row in rows] == ["0", "one", "2", "3", "4", "5", "six", "7"]
    assert [row["size"]["x"] for row in rows] == list(range(8))


def test_empty_cells_keep_the_old_values(path: Path) -> None:
    (path.parent / "right.csv").write_text("cls,json.cls,size.x\n1,10,\n2,,20\n")
    ps.replace_fields(path, path.parent / "right.csv", by="cls", missing="keep", in_place=True)
    assert texts_of(path)[1:3] == [TEXTS[1].replace('"cls" : 1', '"cls" : 10'), TEXTS[2]]
    assert [row["size"]["x"] for row in ps.open(path).take([1, 2]).to_pylist()] == [1, 20]


def test_errors_name_the_key(path: Path) -> None:
    for fields, said in (
        ({"json.a.b": 7}, "record 4, field 'json.a.b'.*no object that has the key"),
        ({"size.q": 1}, "field 'size.q': no such field"),
        ({"size.x": "t"}, "field 'size.x': the new values do not fit"),
        ({"json.cls": 1, "json": "{}"}, "as a whole and inside"),
    ):
        with pytest.raises(ps.SchemaError, match=said):
            ps.replace_fields(path, fields, where="cls >= 4", in_place=True)


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ("{}", ["k"], '{"k": 7}'),
        (" { } ", ["k"], ' {"k": 7 } '),
        ('{"a":1}', ["k"], '{"a":1, "k": 7}'),
        ('{"k":1,"k":[2]}', ["k"], '{"k":1,"k":7}'),
        ('{"\\u006b" : "}" }', ["k"], '{"\\u006b" : 7 }'),
        ('{"a":{"k":"{"},"k":1}', ["a", "k"], '{"a":{"k":7},"k":1}'),
        ('{"a":{}}', ["a", "k"], '{"a":{"k": 7}}'),
    ],
)
def test_only_the_value_changes(text: str, path: list[str], found: str) -> None:
    assert _put_text(text, 0, path, "7") == found
    json.loads(found)


def test_bfloat16_is_added_as_float32(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ps.write({"id": range(3)}, tmp_path / "a.tfrecord")
    values = torch.tensor([1.5, -0.0078125, 3e38], dtype=torch.bfloat16)
    ps.add_fields(tmp_path / "a.tfrecord", {"x": values})
    assert ps.open(tmp_path / "a.tfrecord").to_table()["x"].to_pylist() == values.tolist()
