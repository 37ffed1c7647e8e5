"""`types=` of `open`: the types of some fields are given, and the others are inferred as without it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

DATA = {
    "caption": [b"caf\xc3\xa9", b"b", b"c"],
    "label": [1, 2, 300],
    "words": [[b"a"], [b"b", b"c"], []],
    "score": [1.5, 2.0, 3.0],
}
TYPES = {"caption": "string", "label": "int32", "words": pa.string()}


@pytest.mark.parametrize("ending", ["tfrecord", "parquet", "arrow"])
def test_some_types_are_given_and_the_others_inferred(tmp_path: Path, ending: str) -> None:
    ps.write(DATA, tmp_path / f"data.{ending}")
    before = ps.open(tmp_path / f"data.{ending}")
    ds = ps.open(tmp_path / f"data.{ending}", types=TYPES)
    assert ds.schema.names == before.schema.names
    assert ds.schema.field("caption").type == pa.string()
    assert ds.schema.field("label").type == pa.int32()
    assert ds.schema.field("words").type == pa.list_(pa.string())
    assert ds.schema.field("score").type == before.schema.field("score").type
    assert ds[0]["caption"] == "café"
    assert ds[1]["words"] == ["b", "c"]
    assert [batch.schema for batch in ds.scan()] == [ds.schema]
    assert pickle.loads(pickle.dumps(ds)).schema == ds.schema


@pytest.mark.parametrize("ending", ["tar", "npz"])
def test_other_formats(tmp_path: Path, ending: str) -> None:
    ps.write({"caption": DATA["caption"], "label": DATA["label"]}, tmp_path / f"data.{ending}")
    ds = ps.open(tmp_path / f"data.{ending}", types={"caption": "string", "label": "int32"})
    assert ds.to_table(["caption", "label"]).to_pydict() == {
        "caption": ["café", "b", "c"],
        "label": [1, 2, 300],
    }


def test_types_go_with_overlays_and_several_files(tmp_path: Path) -> None:
    made = ps.write(DATA, tmp_path / "data.tfrecord", num_shards=3)
    ps.add_fields(list(made.paths), {"extra": [1, 2, 3]})
    ds = ps.open(list(made.paths), types={"label": "int16", "extra": "int64"})
    assert ds.to_table(["label", "extra"]).to_pydict() == {"label": [1, 2, 300], "extra": [1, 2, 3]}
    assert ds.schema.field("label").type == pa.int16()


def test_values_that_do_not_fit_name_their_record(tmp_path: Path) -> None:
    ps.write({**DATA, "caption": [b"a", b"\xff\xfe", b"c"]}, tmp_path / "data.tfrecord")
    for types in ({"label": "int8"}, {"caption": "string"}):
        with pytest.raises(ps.SchemaError) as caught:
            ps.open(tmp_path / "data.tfrecord", types=types).to_table()
        assert caught.value.field == next(iter(types))
        assert caught.value.record == (1 if "caption" in types else 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"types": {"none": "string"}}, ps.SchemaError, "there are: caption"),
        ({"types": {"label": "integer"}}, ValueError, "is not a type"),
        ({"types": {"label": int}}, TypeError, "pyarrow types"),
        ({"types": ["label"]}, TypeError, "is a dict"),
        ({"types": {"label": "int8"}, "raw": True}, ValueError, "raw=True"),
        ({"types": {"label": "int8"}, "schema": pa.schema([])}, ValueError, "schema="),
    ],
)
def test_wrong_types_are_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    ps.write(DATA, tmp_path / "data.tfrecord")
    with pytest.raises(error, match=message):
        ps.open(tmp_path / "data.tfrecord", **options)


def test_a_key_that_does_not_fit_its_type_names_column_and_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ps.write({"__key__": ["1", "2", "3b", "4b"], "label": [1, 2, 3, 4]}, path)
    for reading in (
        lambda: list(ps.open(path, types={"__key__": "int64"}).scan()),
        lambda: ps.open(path, types={"__key__": "int64"})[2],
    ):
        with pytest.raises(ps.SchemaError, match="'3b'") as caught:
            reading()
        error = caught.value
        assert (error.file, error.record, error.field) == (str(path), 2, "__key__")
    assert ps.open(path, types={"__key__": "int64"})[1]["__key__"] == 2


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("first", INTEGERS, ids=str)
@pytest.mark.parametrize("second", INTEGERS, ids=str)
def test_a_hint_with_a_wider_integer_type_is_true_for_all_values(
    tmp_path: Path, first: pa.DataType, second: pa.DataType
) -> None:
    def ends(type_: pa.DataType) -> list[int]:
        has_sign = pa.types.is_signed_integer(type_)
        bits = type_.bit_width - has_sign
        return [-(1 << bits) if has_sign else 0, (1 << bits) - 1]

    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, type_ in zip(paths, (first, second), strict=True):
        ps.write(pa.table({"n": pa.array(ends(type_), type_)}), path)
    holds = ends(first)[0] <= ends(second)[0] and ends(second)[1] <= ends(first)[1]
    if holds:
        assert ps.open(paths).to_table()["n"].to_pylist() == [*ends(first), *ends(second)]
        return
    with pytest.raises(ps.SchemaError) as caught:
        ps.open(paths).to_table()
    is_wider = ends(second)[0] <= ends(first)[0] and ends(first)[1] <= ends(second)[1]
    assert (caught.value.hint is not None) == is_wider
    if is_wider:
        assert f"types={{'n': '{second}'}}" in str(caught.value.hint)
        found = ps.open(paths, types={"n": str(second)}).to_table()["n"].to_pylist()
        assert found == [*ends(first), *ends(second)]


@pytest.mark.parametrize("ending", ["npz", "parquet", "arrow", "hdf5"])
def test_for_tensors_the_type_means_their_values(tmp_path: Path, ending: str) -> None:
    values = np.arange(12, dtype=np.float16).reshape(3, 2, 2) / 2
    ps.write({"v": values, "s": values[:, 0, 0]}, tmp_path / f"x.{ending}")
    ds = ps.open(tmp_path / f"x.{ending}", types={"v": "float32", "s": "float64"})
    assert ds.schema.field("v").type == pa.fixed_shape_tensor(pa.float32(), [2, 2])
    batch = next(iter(ps.Loader(ds, 3)))
    assert (batch["v"].dtype, batch["s"].dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(batch["v"], values)
    assert duckdb.sql("select sum(s) from found", connection=_with(ds)).fetchall() == [(6.0,)]


def _with(ds: ps.Dataset) -> duckdb.DuckDBPyConnection:
    return duckdb.connect().register("found", ds.to_arrow_dataset())
