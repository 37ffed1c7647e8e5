"""TFRecord stores a struct as one feature for each of its fields. It reads back as a struct, by the schema in the
sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

BOX = pa.struct([("x", pa.int8()), ("name", pa.string())])
NESTED = pa.struct(
    [
        ("box", BOX),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("score", pa.float64()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": {"box": {"x": 1, "name": "a"}, "tags": ["p"], "kind": "k", "score": 0.5}},
    {"id": 2, "s": {"box": {"x": 2, "name": "b"}, "tags": [], "kind": "l", "score": 1.5}},
]
SCHEMA = pa.schema([("id", pa.int16()), ("s", NESTED)])


@pytest.fixture(params=["", ".gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    return ps.write(table, tmp_path / f"0-a.tfrecord{request.param}").paths[0]


def rows(path: Any, **how: Any) -> list[dict[str, Any]]:
    return list(ps.open(path, **how))


def test_structs_come_back_as_they_were(path: str) -> None:
    dataset = ps.open(path)
    assert ps.info(dataset).types == "kept" and dataset.schema.names == ["id", "s"]
    read = pa.struct([f if f.name != "score" else f.with_type(pa.float32()) for f in NESTED])
    assert dataset.schema.types == [pa.int16(), read]
    assert rows(path) == ROWS and rows(path, mmap=True) == ROWS
    assert rows(path, columns=["s"]) == [{"s": row["s"]} for row in ROWS]
    assert dataset.take([1, 0]).to_pylist() == ROWS[::-1]
    assert ps.verify(path).ok
    flat = ["id", "s/box/name", "s/box/x", "s/kind", "s/score", "s/tags"]
    assert sorted(ps.open(path, index="never").schema.names) == flat


def test_a_given_schema_may_have_structs(path: str) -> None:
    assert rows(path, schema=ps.open(path).schema, index="never") == ROWS
    wanted = pa.schema([("s", pa.struct([("box", pa.struct([("x", pa.int64())]))]))])
    assert rows(path, schema=wanted) == [{"s": {"box": {"x": n}}} for n in (1, 2)]
    with pytest.raises(ps.SchemaError, match="holds bytes"):
        rows(path, schema=pa.schema([("s", pa.struct([("kind", pa.int64())]))]))
    with pytest.raises(ps.SchemaError, match="a struct without fields"):
        ps.open(path, schema=pa.schema([("s", pa.struct([]))]))


def test_a_missing_struct_is_a_struct_of_missing_fields(tmp_path: Path) -> None:
    box = pa.struct([pa.field("x", pa.int8(), nullable=False), ("y", pa.int8())])
    values = [{"x": 1, "y": None}, None, {"x": 3, "y": 4}]
    path = ps.write({"s": pa.array(values, box)}, tmp_path / "a.tfrecord").paths[0]
    assert ps.open(path).schema.field("s").type == pa.struct([("x", pa.int8()), ("y", pa.int8())])
    assert [row["s"] for row in ps.open(path)] == [values[0], {"x": None, "y": None}, values[2]]
    whole = pa.schema([pa.field("s", box, nullable=False)])
    path = ps.write(pa.Table.from_pylist([{"s": values[2]}], schema=whole), path, overwrite=True)
    assert ps.open(path.paths).schema == whole
    assert ps.write({"s": pa.array([None, None], box)}, tmp_path / "b.tfrecord").num_records == 2
    assert [row["s"] for row in ps.open(tmp_path / "b.tfrecord")] == [{"x": None, "y": None}] * 2


def test_lists_of_lists_in_structs_are_feature_lists(tmp_path: Path) -> None:
    values = [{"a": [[1, 2], [3]], "b": 7}, {"a": [], "b": 8}]
    type_ = pa.struct([("a", pa.list_(pa.list_(pa.int16()))), ("b", pa.int8())])
    path = ps.write({"s": pa.array(values, type_)}, tmp_path / "a.tfrecord").paths[0]
    assert ps.open(path).schema.field("s").type == type_
    assert [row["s"] for row in ps.open(path)] == values


@pytest.mark.parametrize("name", ["feature_lists/s", "context/s"])
def test_structs_in_a_named_part_are_columns(name: str, tmp_path: Path) -> None:
    values = pa.array([{"a": [1]}, {"a": [2]}], pa.struct([("a", pa.list_(pa.int64()))]))
    path = ps.write({name: values}, tmp_path / "a.tfrecord").paths[0]
    assert [list(row.values()) for row in ps.open(path)] == [[[1]], [[2]]]
    assert not any(map(pa.types.is_struct, ps.open(path).schema.types))


def test_a_struct_without_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="cannot hold"):
        ps.write({"s": pa.array([{}, {}], pa.struct([])), "n": [1, 2]}, tmp_path / "a.tfrecord")


def test_appended_structs_are_structs(path: str, tmp_path: Path) -> None:
    ps.append(pa.Table.from_pylist(ROWS, schema=SCHEMA), path)
    assert rows(path) == ROWS * 2
    ps.append(pa.Table.from_pylist(ROWS, schema=SCHEMA), tmp_path, shard="new")
    assert rows(str(tmp_path)) == ROWS * 3


def test_after_separate_fields_were_appended_structs_read_as_columns(tmp_path: Path) -> None:
    path = ps.write({"s": [{"a": 1, "b": 2}]}, tmp_path / "a.tfrecord").paths[0]
    ps.append({"s/a": [3], "s/b": [4]}, path)
    assert ps.info(path).types == "kept"
    assert rows(path) == [{"s/a": 1, "s/b": 2}, {"s/a": 3, "s/b": 4}]


@pytest.mark.parametrize("in_place", [True, False])
def test_fields_are_changed_with_all_that_is_in_them(
    path: str, in_place: bool, tmp_path: Path
) -> None:
    def changed(verb: Any, *given: Any, **more: Any) -> str:
        how = {"in_place": True} if in_place else {"into": tmp_path / verb.__name__}
        return verb(path, *given, **how, **more).paths[0]

    there = changed(ps.rename_fields, {"s": "t"})
    assert rows(there) == [{"id": row["id"], "t": row["s"]} for row in ROWS]
    assert "t/box/x" in ps.open(there, index="never").schema.names
    name = "t" if in_place else "s"
    new = pa.array([{"tags": "u"}, {"tags": "v"}])
    there = changed(ps.add_fields, {name: new}, replace=True)
    assert rows(there) == [{"id": n, name: {"tags": tag}} for n, tag in ((1, "u"), (2, "v"))]
    assert sorted(ps.open(there, index="never").schema.names) == ["id", f"{name}/tags"]
    there = changed(ps.drop_fields, name)
    assert rows(there) == [{"id": 1}, {"id": 2}]
    assert ps.open(there, index="never").schema.names == ["id"]


def test_conversions_and_comparisons_know_structs(path: str, tmp_path: Path) -> None:
    for target in ("b.parquet", "b.msgpack", "b.tfrecord"):
        made = ps.convert(path, tmp_path / target, prove=True)
        assert rows(made.paths) == ROWS, target
        assert ps.diff(path, made.paths).equal, target


def test_damage_in_a_struct_names_its_record(tmp_path: Path) -> None:
    ps.write({"s": [{"a": 1}, {"a": 2}]}, tmp_path / "a.tfrecord")
    text = pa.schema([("s", pa.struct([("a", pa.string())]))])
    with pytest.raises(ps.SchemaError) as caught:
        rows(tmp_path / "a.tfrecord", schema=text)
    assert (caught.value.record, caught.value.field) == (0, "s/a")


def test_a_column_that_is_called_as_a_field_of_a_struct(tmp_path: Path) -> None:
    table = pa.table({"s": [{"a": 1}], "s/b": pa.array([2], pa.int8())})
    path = ps.write(table, tmp_path / "a.tfrecord").paths[0]
    assert rows(path) == [{"s": {"a": 1}, "s/b": 2}]
