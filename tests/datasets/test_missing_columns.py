"""Columns of schema= that some of the files do not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.contract.added import repeated
from reading import ROOT

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.int64()),
        ("vector", pa.fixed_shape_tensor(pa.float32(), [2])),
        ("score", pa.float64()),
    ]
)
NULLS = {"name": None, "vector": None, "score": None}
ENDINGS = ("parquet", "arrow", "npz", "h5", "beton", "tfrecord", "msgpack", "tar")


def written(folder: Path, ending: str) -> list[str]:
    """A file with all columns, and one that has only id."""
    vector = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2), np.float32))
    table = pa.table({"id": [1, 2], "name": ["x", "y"], "score": [0.5, 0.25], "vector": vector})
    ps.write(table, folder / f"all.{ending}")
    ps.write({"id": [3, 4, 5]}, folder / f"few.{ending}")
    return [str(folder / f"{name}.{ending}") for name in ("few", "all")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_without_a_nullable_column_has_nulls_there(tmp_path: Path, ending: str) -> None:
    paths = written(tmp_path, ending)
    ds = ps.open(paths, schema=SCHEMA)
    assert ds.schema.equals(SCHEMA)
    few = [{"id": n, **NULLS} for n in (3, 4, 5)]
    assert [ds[n] for n in range(3)] == few
    assert [(ds[n]["id"], ds[n]["name"], ds[n]["score"]) for n in (3, 4)] == [
        (1, "x", 0.5),
        (2, "y", 0.25),
    ]
    assert next(batch.schema.names for batch in ds.scan()) == SCHEMA.names
    assert ds.take([4, 0, 4], ["score", "id"]).to_pydict() == {
        "score": [0.25, None, 0.25],
        "id": [2, 3, 2],
    }
    assert ds.to_table(["name"])["name"].to_pylist() == [None, None, None, "x", "y"]
    assert ds.count("score > 0") == 2
    assert ds.count("name is null") == 3
    assert ps.open(paths[0], schema=SCHEMA)[0] == few[0]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "npz", "h5", "beton"])
def test_a_column_that_must_not_be_null_is_an_error(tmp_path: Path, ending: str) -> None:
    paths = written(tmp_path, ending)
    schema = pa.schema([("id", pa.int64()), pa.field("score", pa.float64(), nullable=False)])
    with pytest.raises(ps.SchemaError, match="does not have this column") as caught:
        ps.open(paths, schema=schema)
    assert (caught.value.file, caught.value.field) == (paths[0], "score")
    late = ps.open(paths[::-1], schema=schema)
    with pytest.raises(ps.SchemaError, match="does not have this column") as caught:
        list(late.scan())
    assert (caught.value.file, caught.value.field) == (paths[0], "score")


def test_a_file_with_none_of_the_columns_is_an_error(tmp_path: Path) -> None:
    paths = written(tmp_path, "parquet")
    with pytest.raises(ps.SchemaError, match="no such column; the file has: id") as caught:
        ps.open(paths, schema=pa.schema([("scroe", pa.float64()), ("nmae", pa.string())]))
    assert (caught.value.file, caught.value.field) == (paths[0], "scroe")


def test_shards_of_mds() -> None:
    folder = ROOT / "tests" / "golden" / "mds" / "all"
    plain = ps.open(folder)
    name = plain.schema.names[0]
    ds = ps.open(folder, schema=pa.schema([("none", pa.string()), plain.schema.field(name)]))
    assert ds.to_table().to_pylist() == [
        {"none": None, **record} for record in plain.to_table([name]).to_pylist()
    ]


def test_verbs_and_loaders_take_them(tmp_path: Path) -> None:
    paths = written(tmp_path, "parquet")
    ds = ps.open(paths, schema=SCHEMA.remove(2))
    ps.convert(ds, tmp_path / "out.arrow")
    expected = ds.to_table().to_pylist()
    assert ps.open(tmp_path / "out.arrow").to_table().to_pylist() == expected
    assert ps.stats(ds)["score"].num_null == 3
    (batch,) = ps.Loader(ds, 5, fill={"score": -1})
    assert batch["score"].tolist() == [-1, -1, -1, 0.5, 0.25]
    assert batch["name"].tolist() == [None, None, None, "x", "y"]


def test_overlays_beside_them(tmp_path: Path) -> None:
    paths = written(tmp_path, "parquet")
    ps.add_fields(paths, {"new": [1, 2, 3, 4, 5]})
    ds = ps.open(paths, schema=SCHEMA.remove(2).append(pa.field("new", pa.int64())))
    assert ds[0] == {"name": None, "id": 3, "score": None, "new": 1}
    assert ds[4] == {"name": "y", "id": 2, "score": 0.25, "new": 5}


TYPES: list[tuple[pa.DataType, Callable[[], Any]]] = [
    (pa.int8(), lambda: 3),
    (pa.string(), lambda: "é"),
    (pa.list_(pa.int64()), lambda: [1, 2]),
    (pa.struct([("a", pa.int64())]), lambda: {"a": 1}),
    (pa.dictionary(pa.int32(), pa.string()), lambda: "cat"),
]


@given(st.sampled_from(TYPES), st.booleans(), st.integers(0, 9))
def test_one_value_is_repeated(
    kind: tuple[pa.DataType, Callable[[], Any]], is_null: bool, count: int
) -> None:
    type_, value = kind
    made = repeated(pa.array([None if is_null else value()], type_), count)
    assert made.type == type_
    assert made.to_pylist() == [None if is_null else value()] * count
