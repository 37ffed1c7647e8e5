"""`hive=`: columns whose values are the names of folders."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

ENDINGS = ("parquet", "arrow", "npz", "h5", "beton", "tfrecord", "tfrecord.gz", "msgpack", "tar")
FOLDERS = {"year=2024/month=01": [1, 2], "year=2024/month=02": [3], "year=2025/month=01": [4, 5]}
RECORDS = [
    {"id": number, "year": int(folder[5:9]), "month": int(folder[-2:])}
    for folder, numbers in FOLDERS.items()
    for number in numbers
]


def written(folder: Path, ending: str = "parquet") -> Path:
    for name, numbers in FOLDERS.items():
        (folder / name).mkdir(parents=True)
        ps.write({"id": numbers}, folder / name / f"part-0.{ending}")
    return folder


@pytest.mark.parametrize("ending", ENDINGS)
def test_keys_of_folders_are_columns(tmp_path: Path, ending: str) -> None:
    ds = ps.open(written(tmp_path, ending), hive=True)
    assert ds.schema.names == ["id", "year", "month"]
    assert ds.schema.types == [pa.int64()] * 3
    assert list(ds) == RECORDS
    assert ds.take([4, 0, 4], ["month", "id"]).to_pydict() == {"month": [1, 1, 1], "id": [5, 1, 5]}
    assert ds.to_table(["year"])["year"].to_pylist() == [one["year"] for one in RECORDS]
    assert ps.open(tmp_path, hive=False).schema.names == ["id"]
    (batch,) = ps.Loader(ds, 5)
    assert batch["year"].tolist() == [2024, 2024, 2024, 2025, 2025]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("year == 2025", [4, 5]),
        ("year == 2024 and id > 1", [2, 3]),
        ("month in [1] and year < 2025", [1, 2]),
        ("year > 2024 or id == 1", [1, 4, 5]),
        ("year == 1999", []),
        (pc.field("month") == 1, [1, 2, 4, 5]),
        (lambda batch: pc.equal(batch["year"], 2025).to_numpy(False), [4, 5]),
    ],
)
def test_conditions_on_them(tmp_path: Path, ending: str, where: Any, chosen: list[int]) -> None:
    view = ps.open(written(tmp_path, ending), hive=True).filter(where)
    assert view.to_table()["id"].to_pylist() == chosen
    assert view.count() == len(view) == len(chosen)
    assert [view[n]["id"] for n in range(len(view))] == chosen
    if chosen:
        (batch,) = ps.Loader(view, len(chosen))
        assert batch["id"].tolist() == chosen


def test_conditions_skip_whole_files(tmp_path: Path) -> None:
    ds = ps.open(written(tmp_path), hive=True)
    shutil.rmtree(tmp_path / "year=2025")
    for where in ("year == 2024", "year < 2025 and id > 0", pc.field("year") == 2024):
        view = ds.filter(where)
        assert view.to_table()["id"].to_pylist() == [1, 2, 3]
        assert len(view) == 3
    with pytest.raises(FileNotFoundError):
        ds.filter("id > 0").to_table()


@pytest.mark.parametrize("ending", ["parquet", "tfrecord"])
def test_query_engines_skip_whole_files(tmp_path: Path, ending: str) -> None:
    ds = ps.open(written(tmp_path, ending), hive=True)
    shutil.rmtree(tmp_path / "year=2025")
    column, field = pl.col, pc.field
    for predicate in (
        column("year") == 2024,
        (column("year") < 2025) & (column("id") > 0),
        (column("id") > 0) & column("year").is_in([2023, 2024]),
        column("year") != 2025,
        column("year").is_between(2000, 2024) & (column("month") < 12),
        pl.lit(2024) == column("year"),
    ):
        assert ds.lazy().filter(predicate).collect()["id"].to_list() == [1, 2, 3], predicate
    found = ds.to_arrow_dataset()
    for expression in (
        field("year") == 2024,
        (field("year") < 2025) & (field("id") > 0),
        (field("id") > 0) & field("year").isin([2023, 2024]),
        ~(field("year") == 2025),
    ):
        assert found.to_table(filter=expression)["id"].to_pylist() == [1, 2, 3]
        assert ds.count(expression) == 3
    for where in ("year = 2024", "year in (2023, 2024) and id > 0", "year between 2000 and 2024"):
        query = f"select id from found where {where} order by id"
        assert duckdb.sql(query).fetchall() == [(1,), (2,), (3,)]
    for where in ("year != 2025", "not year == 2025 and id > 0", "year in [1, 2024] and id > 0"):
        assert ds.count(where) == 3


def test_pyarrow_and_polars_read_the_same(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": range(6),
            "kind": ["a b", "ü/x", None, "50%", "a b", "=="],
            "day": ["2024-01-01"] * 3 + ["2024-02-01"] * 3,
            "n": [1, -2, 3, 1, None, 7],
        }
    )
    keys = pa.schema([table.schema.field(name) for name in ("kind", "day", "n")])
    how = pads.partitioning(keys, flavor="hive")
    pads.write_dataset(table, tmp_path, format="parquet", partitioning=how)
    ds = ps.open(tmp_path, hive=True)
    found = ds.to_table().sort_by("id")
    assert found.select(table.column_names).equals(table)
    assert pads.dataset(tmp_path, partitioning=how).to_table().sort_by("id").equals(found)
    frame = pl.scan_parquet(tmp_path, hive_partitioning=True, try_parse_hive_dates=False).collect()
    assert frame.sort("id").to_dicts() == found.to_pylist()


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@settings(max_examples=25)
@given(st.lists(st.none() | texts | st.integers(-99, 99).map(str), min_size=1, max_size=4))
def test_what_pyarrow_writes_reads_back(values: list[str | None]) -> None:
    table = pa.table({"id": range(len(values)), "key": pa.array(values, pa.string())})
    how = pads.partitioning(table.schema.remove(0), flavor="hive")
    with tempfile.TemporaryDirectory() as folder:
        pads.write_dataset(table, folder, format="feather", partitioning=how)
        found = ps.open(folder, hive=True, types={"key": "string"})
        assert found.to_table().sort_by("id").to_pydict() == table.to_pydict()


def test_types_and_schemas_say_the_type(tmp_path: Path) -> None:
    written(tmp_path)
    ds = ps.open(tmp_path, hive=True, types={"month": "string", "year": "int16"})
    assert ds[0] == {"id": 1, "year": 2024, "month": "01"}
    assert ds.schema.field("year").type == pa.int16()
    schema = pa.schema([("month", pa.string()), ("id", pa.int64()), ("none", pa.float32())])
    ds = ps.open(tmp_path, hive=True, schema=schema)
    assert ds[4] == {"month": "01", "id": 5, "none": None}
    assert ps.open(tmp_path, hive=True, schema=schema.remove(2).remove(1))[4] == {"month": "01"}
    with pytest.raises(ps.SchemaError, match="does not fit the schema") as caught:
        ps.open(tmp_path, hive=True, types={"year": "int8"})
    assert (caught.value.field, caught.value.found) == ("year", "2024")


def test_null_is_refused_where_the_schema_forbids_it(tmp_path: Path) -> None:
    (tmp_path / "k=__HIVE_DEFAULT_PARTITION__").mkdir()
    ps.write({"id": [1]}, tmp_path / "k=__HIVE_DEFAULT_PARTITION__" / "a.arrow")
    assert ps.open(tmp_path, hive=True)[0] == {"id": 1, "k": None}
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), ("id", pa.int64())])
    with pytest.raises(ps.SchemaError, match="does not let this column be null"):
        ps.open(tmp_path, hive=True, schema=schema)


def test_a_folder_replaces_the_column_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "year=7").mkdir()
    ps.write({"year": [1, 2], "id": [3, 4]}, tmp_path / "year=7" / "a.tfrecord")
    ds = ps.open(tmp_path, hive=True)
    assert list(ds) == [{"id": 3, "year": 7}, {"id": 4, "year": 7}]
    assert ds.take([1]).to_pylist() == [{"id": 4, "year": 7}]


def test_files_without_the_keys_of_others_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    ps.write({"id": [9]}, tmp_path / "year=2024" / "b.parquet")
    with pytest.raises(ps.SchemaError, match="not in a folder for this key") as caught:
        ps.open(tmp_path, hive=True)
    assert (caught.value.file, caught.value.field) == (
        str(tmp_path / "year=2024" / "b.parquet"),
        "month",
    )
    ps.write({"id": [9]}, tmp_path / "b.parquet")
    with pytest.raises(ps.SchemaError, match="needs folders such as year=2024"):
        ps.open(tmp_path / "b.parquet", hive=True)
    with pytest.raises(ValueError, match="leave out raw= or hive="):
        ps.open(tmp_path, hive=True, raw=True)


def test_a_folder_gives_the_keys_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "kind=sales" / "data"
    data.mkdir(parents=True)
    written(data)
    for source in (data, f"{data}/", str(data / "..") + "/data"):
        assert list(ps.open(source)) == RECORDS
    monkeypatch.chdir(data)
    assert list(ps.open(".")) == RECORDS
    assert list(ps.open("year=2025")) == [{"id": 4, "month": 1}, {"id": 5, "month": 1}]
    assert ps.open(".", hive=True).schema.names == ["id", "kind", "year", "month"]
    assert ps.open("year=*/*/*.parquet").schema.names == ["id"]
    assert ps.open(".", columns=["id"]).schema.names == ["id"]


def test_a_folder_with_a_file_of_other_keys_has_no_such_columns(tmp_path: Path) -> None:
    written(tmp_path)
    ps.write({"id": [9]}, tmp_path / "year=2024" / "part-0.parquet")
    assert ps.open(tmp_path).schema.names == ["id"]


def test_keys_are_those_of_the_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path) / "year=2024")
    ds = ps.open("month=02/*.parquet", hive=True)
    assert list(ds) == [{"id": 3, "year": 2024, "month": 2}]
    copy = pickle.loads(pickle.dumps(ds))
    monkeypatch.chdir(os.sep)
    assert list(copy) == list(ds)


def test_verbs_keep_them(tmp_path: Path) -> None:
    ds = ps.open(written(tmp_path / "data", "tfrecord"), hive=True)
    ps.convert(ds, tmp_path / "all.tfrecord", prove=True)
    assert list(ps.open(tmp_path / "all.tfrecord")) == RECORDS
    assert ps.stats(ds)["year"].values.max == 2025
    moved = tmp_path / "data" / "year=2026"
    before = ds.fingerprint
    (tmp_path / "data" / "year=2025").rename(moved)
    assert ps.open(tmp_path / "data", hive=True).fingerprint != before
    assert ps.open(tmp_path / "data").fingerprint == ps.open(tmp_path / "data").fingerprint


def test_field_verbs_change_only_what_is_in_the_files(tmp_path: Path) -> None:
    ds = ps.open(written(tmp_path, "arrow"), hive=True)
    ps.add_fields(ds, {"new": [1, 2, 3, 4, 5]})
    assert ps.open(tmp_path, hive=True)[4] == {"id": 5, "new": 5, "year": 2025, "month": 1}
    ps.bake_fields(ps.open(tmp_path, hive=True), in_place=True)
    assert ps.open(tmp_path, overlays=False, hive=False)[4] == {"id": 5, "new": 5}
