"""Rare types of columns: every format treats them in the same way, or refuses them with a reason."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from reading import run_python

CUT = "a\0b"


@pytest.mark.parametrize("suffix", ["msgpack", "tfrecord"])
@pytest.mark.parametrize(
    "table",
    [
        pa.table([[1, 2]], names=[CUT]),
        pa.table([[1, 2], [3, 4]], names=["a", CUT]),
        pa.table({"x": pa.array([{CUT: 1}, {CUT: 2}])}),
        pa.table({"x": pa.array([[{CUT: 1}], []])}),
    ],
)
def test_a_name_with_a_nul_is_never_cut(tmp_path: Path, suffix: str, table: pa.Table) -> None:
    with pytest.raises(ps.SchemaError):
        ps.write(table, tmp_path / f"a.{suffix}")
    ps.write(table, tmp_path / "a.arrow")
    with pytest.raises(ps.SchemaError):
        ps.convert(tmp_path / "a.arrow", tmp_path / f"a.{suffix}")
    assert [path.name for path in tmp_path.iterdir() if "arrow" not in path.name] == []
    renamed = ps.write(
        table.rename_columns([f"n{n}" for n in range(len(table.columns))]), tmp_path / "b.arrow"
    )
    assert renamed.num_records == 2


@pytest.mark.parametrize("index", [True, False])
def test_empty_feature_lists_are_read(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "a.tfrecord"
    table = {"x": pa.array([[], []], pa.list_(pa.list_(pa.int64()))), "y": [0, 1]}
    ps.write(table, path, index=index)
    # Only the sidecar knows their type; without it, they are columns of nulls.
    inner = pa.int64() if index else pa.null()
    assert ps.open(path).schema.field("x").type == pa.list_(pa.list_(inner))
    assert [record["x"] or [] for record in ps.open(path)] == [[], []]
    assert [record["y"] for record in ps.open(path)] == [0, 1]
    ps.convert(path, tmp_path / "b.tfrecord", prove=True)
    assert ps.stats(path).num_records == 2


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
@pytest.mark.parametrize("suffix", ["h5", "npz", "parquet", "arrow", "tar", "tfrecord", "msgpack"])
def test_views_are_taken_in_any_order(tmp_path: Path, suffix: str, type_: Any) -> None:
    texts = ["a", "a text longer than a view holds", "c"]
    values = [text.encode() for text in texts] if type_ == pa.binary_view() else texts
    path = tmp_path / f"a.{suffix}"
    ps.write({"x": pa.array(values, type_), "n": [0, 1, 2]}, path)
    dataset = ps.open(path)
    name = next(one for one in dataset.schema.names if one.startswith("x"))
    whole = [record[name] for record in dataset]
    for order in ([1, 0], [2, 2, 0, 1, 1], [0, 2], [1]):
        assert dataset.take(order).column(name).to_pylist() == [whole[n] for n in order]
    ps.convert(path, tmp_path / "b.arrow", shuffle=3)
    found = [record[name] for record in ps.open(tmp_path / "b.arrow")]
    assert sorted(found) == sorted(whole)


@pytest.mark.parametrize("suffix", ["h5", "parquet"])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([[], []], pa.list_(pa.int8(), 0)),
        pa.array([{"y": []}, {"y": []}], pa.struct([("y", pa.list_(pa.int8(), 0))])),
        pa.array([{}, {}], pa.struct([])),
    ],
)
def test_values_without_bytes_are_refused_or_come_back(
    tmp_path: Path, suffix: str, column: pa.Array
) -> None:
    path = tmp_path / f"a.{suffix}"
    try:
        ps.write({"x": column}, path)
    except (ps.SchemaError, ps.UnsupportedError) as error:
        assert "x" in str(error)
        assert list(tmp_path.iterdir()) == []
    else:
        assert [record["x"] for record in ps.open(path)] == column.to_pylist()


def test_attributes_that_are_neither_text_nor_json(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3)
        file.attrs["bytes"] = np.bytes_(b"\xff\xfe")
        file.attrs["nan"] = np.nan
        file.attrs["some"] = np.array([1.5, np.inf])
        file.attrs["text"] = "größer"
        file.attrs["names"] = np.array([b"\xff", b"ok"])
    found = ps.open(tmp_path / "a.h5").schema.metadata
    assert found[b"bytes"] == b"\xff\xfe"
    assert found[b"nan"] == b'"nan"'
    assert found[b"some"] == b'[1.5, "inf"]'
    assert found[b"text"].decode() == "größer"
    assert found[b"names"] == b'["/w==", "ok"]'


def test_a_conversion_that_a_value_ends_leaves_nothing(tmp_path: Path) -> None:
    for n, text in enumerate(["fine", "not\0fine"]):
        ps.write({"x": [text] * 3}, tmp_path / f"in-{n}.parquet")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ps.SchemaError):
        ps.convert(str(tmp_path / "in-*.parquet"), str(out / "x-{shard}.h5"))
    assert list(out.iterdir()) == []


def test_times_in_nanoseconds_are_pythons_values_and_need_no_pandas(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 6)
    columns = {
        "at": pa.array([moment, None], pa.timestamp("ns")),
        "zone": pa.array([moment, None], pa.timestamp("ns", "UTC")),
        "took": pa.array([5000, None], pa.duration("ns")),
        "time": pa.array([7000, None], pa.time64("ns")),
        "all": pa.array([[moment], []], pa.list_(pa.timestamp("ns"))),
        "exact": pa.array([1, None], pa.duration("ns")),
    }
    ps.write(pa.table(columns), tmp_path / "a.parquet")
    code = """
import sys
import penstock as ps
dataset = ps.open(sys.argv[1], columns=["at", "took", "time"])
print([str(value) for value in dataset[0].values()])
print("pandas" in sys.modules)
"""
    first, second = run_python(code, str(tmp_path / "a.parquet")).splitlines()
    assert "2020-01-02 03:04:05.000006" in first
    assert second == "False"
    record = ps.open(tmp_path / "a.parquet")[0]
    assert type(record["at"]) is dt.datetime
    assert record["at"] == moment
    assert record["zone"].utcoffset() == dt.timedelta()
    assert record["took"] == dt.timedelta(microseconds=5)
    assert record["time"] == dt.time(0, 0, 0, 7)
    assert record["all"] == [moment]
    assert record["exact"].value == 1, "a nanosecond is not lost"


@pytest.mark.parametrize("key", [b"penstock.key", b"other", b"\xff"])
@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar", "arrow", "npz"])
def test_metadata_of_a_field_may_be_any_bytes(tmp_path: Path, key: bytes, ending: str) -> None:
    field = pa.field("a", pa.int64(), metadata={key: b"\xff\xfe"})
    pq.write_table(pa.table([[1, 2]], schema=pa.schema([field])), tmp_path / "a.parquet")
    ps.convert(tmp_path / "a.parquet", tmp_path / f"b.{ending}")
    assert [row["a"] for row in ps.open(tmp_path / f"b.{ending}")] == [1, 2]
