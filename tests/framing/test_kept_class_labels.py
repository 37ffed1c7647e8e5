"""If a file has only the numbers of class labels, they read back with their names, which its sidecar lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns import kept_names
from penstock.framing.index import kept_schema, sidecar
from penstock.loader import _class_names as class_names
from penstock.storage.local import LocalStorage
from reading import index_of

NAMES = ["dog", "cat", "dog", "eel", "cat"]
LABEL = pa.dictionary(pa.int32(), pa.string())
IMAGES = ps.encode_images(np.zeros((8, 4, 4, 3), np.uint8), "jpeg")
FORMATS = ["rec", "beton"]


def labels(names: list[str], dictionary: list[str] | None = None) -> pa.Array:
    if dictionary is None:
        return pa.array(names).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        pa.array([dictionary.index(name) for name in names], pa.int32()), pa.array(dictionary)
    )


def table(label: Any) -> pa.Table:
    return pa.table({"label": label, "image": IMAGES.slice(0, len(label))})


def found(path: Any, **how: Any) -> list[Any]:
    return [row["label"] for row in ps.open(path, columns=["label"], **how)]


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ps.write(table(labels(NAMES)), tmp_path / f"0-a.{request.param}").paths[0]


def test_names_come_back_from_every_way_of_reading(path: str) -> None:
    dataset = ps.open(path)
    assert ps.info(dataset).types == "kept" and dataset.schema.field("label").type == LABEL
    assert found(path) == NAMES and found(path, mmap=True) == NAMES
    assert dataset.take([3, 0]).column("label").to_pylist() == ["eel", "dog"]
    assert [row["label"] for row in ps.open(path)] == NAMES
    assert found(path, index="never") == [0, 1, 0, 2, 1]
    assert found(path, schema=ps.open(path).schema, index="never") == NAMES
    assert ps.verify(path).ok


def test_a_loader_makes_no_pass(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_names, "_read", None)
    loader = ps.Loader(ps.open(path), 5, columns=["label"])
    assert loader.class_names == {"label": ["dog", "cat", "eel"]}
    assert next(iter(loader))["label"].tolist() == [0, 1, 0, 2, 1]


def test_the_names_of_shards_come_from_the_longest_list(path: str, tmp_path: Path) -> None:
    other = str(tmp_path / f"b.{path.rsplit('.', maxsplit=1)[-1]}")
    ps.write(table(labels(["eel", "fox"], ["dog", "cat", "eel", "fox"])), other)
    for paths in ([path, other], [other, path]):
        assert sorted(found(paths)) == sorted([*NAMES, "eel", "fox"])
    ps.write(table(labels(["eel", "fox"])), other, overwrite=True)  # labels with other numbers
    assert found([path, other]) == [0, 1, 0, 2, 1, 0, 1]


def test_appended_labels_get_the_numbers_of_their_names(path: str, tmp_path: Path) -> None:
    more = ["fox", "cat", "eel"]
    if path.endswith(".rec"):
        ps.append(table(labels(more)), path)
        assert found(path) == NAMES + more
        assert found(path, index="never") == [0, 1, 0, 2, 1, 3, 1, 2]
    else:
        ps.append(table(labels(more)), tmp_path, shard="new")
        assert found(str(tmp_path)) == NAMES + more
    wanted = {"label": ["dog", "cat", "eel", "fox"]}
    assert ps.Loader(ps.open(str(tmp_path)), 2, columns=["label"]).class_names == wanted


def test_more_classes_than_their_numbers_are_refused(tmp_path: Path) -> None:
    few = labels(["a"]).cast(pa.dictionary(pa.int8(), pa.string()))
    path = ps.write(table(few), tmp_path / "a.rec").paths[0]
    many = [f"{n:x}" for n in range(200)]
    with pytest.raises(
        ps.SchemaError, match="200 classes are too many for numbers of the type int8"
    ):
        ps.append(pa.table({"label": labels(["z", *many][1:]), "image": [b"x"] * 200}), path)
    assert found(path) == ["a"]


def test_numbers_that_are_appended_to_labels_make_all_of_them_numbers(tmp_path: Path) -> None:
    path = ps.write(table(labels(NAMES)), tmp_path / "a.rec").paths[0]
    ps.append(table(pa.array([7], pa.float32())), path)
    assert found(path) == [0, 1, 0, 2, 1, 7]


def test_conversion_and_changes_of_fields_keep_the_names(path: str, tmp_path: Path) -> None:
    ending = path.rsplit(".", maxsplit=1)[-1]
    for other in FORMATS:
        made = ps.convert(path, tmp_path / f"x.{other}")
        assert found(made.paths) == NAMES, other
    if ending == "beton":
        ps.rename_fields(path, {"label": "kind"}, in_place=True)
        assert [row["kind"] for row in ps.open(path)] == NAMES
        new = pa.array(["x", "y", "x", "y", "y"]).dictionary_encode()
        ps.add_fields(path, {"more": new}, in_place=True)
        assert ps.open(path).schema.field("more").type == pa.int64()
        assert [row["kind"] for row in ps.open(path)] == NAMES


def test_a_record_without_labels_reads_as_no_names(tmp_path: Path) -> None:
    for ending in FORMATS:
        path = ps.write(table(labels([])), tmp_path / f"a.{ending}").paths[0]
        assert found(path) == []


@pytest.mark.parametrize(
    "dictionary",
    [pa.array([b"a", b"b"]), pa.array([3, 4]), pa.array(["a", None]), pa.array(["a", "a"])],
)
def test_dictionaries_of_no_names_read_as_numbers(dictionary: Any, tmp_path: Path) -> None:
    label = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), dictionary)
    for ending in FORMATS:
        path = ps.write(table(label), tmp_path / f"a.{ending}", overwrite=True).paths[0]
        assert found(path) == [0, 0]


@pytest.mark.parametrize("ending", FORMATS)
def test_more_names_than_are_kept_read_as_numbers(ending: str, tmp_path: Path) -> None:
    many = [f"{n:x}" for n in range(kept_names.MOST_NAMES + 1)]
    path = ps.write(table(labels(["a"], many)), tmp_path / f"a.{ending}").paths[0]
    assert found(path) == [10]


@pytest.mark.parametrize(
    "claim", [b"", b"{", b'"ab"', b"[1,2,3]", b'["dog","dog","eel"]', b"[" * 9999, b"\xff"]
)
def test_stored_claims_that_are_not_names_end_in_numbers_or_errors(claim: bytes, path: str) -> None:
    index = sidecar.load(str(index_of(path)), LocalStorage())
    schema = kept_schema.from_bytes(index.schema)
    assert schema is not None
    fields = [
        f.with_metadata({kept_names.NAMES_KEY: claim}) if f.name == "label" else f for f in schema
    ]
    kept = kept_schema.to_bytes(pa.schema(fields))
    sidecar.save(replace(index, schema=kept), path, LocalStorage())
    with pytest.raises(ps.SchemaError):
        found(path)


def test_a_number_beyond_the_names_is_an_error(path: str) -> None:
    index = sidecar.load(str(index_of(path)), LocalStorage())
    schema = kept_schema.from_bytes(index.schema)
    assert schema is not None
    short = pa.schema(
        [kept_names.named(f, ("dog", "cat")) if f.name == "label" else f for f in schema]
    )
    sidecar.save(replace(index, schema=kept_schema.to_bytes(short)), path, LocalStorage())
    with pytest.raises(
        ps.SchemaError, match="there is no class number 2: the 2 classes are numbered from 0"
    ):
        found(path)


def test_names_in_a_schema_do_not_apply_to_rewritten_files(tmp_path: Path) -> None:
    source = ps.write(table(labels(NAMES)), tmp_path / "a.beton").paths[0]
    field = ps.open(source, columns=["label"]).schema.field("label")
    assert json.loads((field.metadata or {})[kept_names.NAMES_KEY]) == ["dog", "cat", "eel"]
    other = pa.table([labels(["x", "y"])], schema=pa.schema([field]))
    for ending in ("beton", "tfrecord", "msgpack", "parquet"):
        made = ps.write(other, tmp_path / f"b.{ending}").paths
        assert found(made) == ["x", "y"], ending
        assert ps.Loader(ps.open(made), 2).class_names == {"label": ["x", "y"]}
