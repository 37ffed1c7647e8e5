"""Appending to several files: a new shard, the end of the last one, and names."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from appending import NEW, ids, in_parallel, names_in
from reading import index_of


@pytest.mark.parametrize("kind", ["tfrecord", "tfrecord.gz", "parquet", "arrow"])
@pytest.mark.parametrize("target", ["", "part-*", "part-{shard:03d}.KIND"])
def test_several_files_get_a_new_shard(tmp_path: Path, kind: str, target: str) -> None:
    ps.write({"id": range(10)}, tmp_path / f"part-{{shard:03d}}.{kind}", shard_records=4)
    made = ps.append({"id": [10, 11]}, tmp_path / target.replace("KIND", kind))
    assert made.paths == (str(tmp_path / f"part-003.{kind}"),)
    assert made.num_bytes == os.path.getsize(made.paths[0])
    assert ids(tmp_path) == list(range(12))
    assert ps.open(tmp_path).schema == ps.open(tmp_path / f"part-000.{kind}").schema
    if kind.startswith("tfrecord"):
        assert index_of(made.paths[0]).exists()


def test_a_number_in_an_ending_is_not_a_shard_number(tmp_path: Path) -> None:
    ps.write({"id": [0, 1]}, tmp_path / "part-0.h5")
    made = ps.append({"id": [2]}, tmp_path)
    assert made.paths == (str(tmp_path / "part-1.h5"),)
    assert ids(tmp_path) == [0, 1, 2]


def test_the_end_of_the_last_of_several_files(tmp_path: Path) -> None:
    ps.write({"id": range(10)}, tmp_path / "x.tfrecord", num_shards=3)
    made = ps.append({"id": [10]}, tmp_path / "x@3.tfrecord", shard="last")
    assert made.paths == (str(tmp_path / "x-00002-of-00003.tfrecord"),)
    assert ids(tmp_path / "x@3.tfrecord") == list(range(11))


@pytest.mark.parametrize("shard", [None, "new"])
def test_a_set_whose_names_contain_the_count_takes_no_new_shard(
    tmp_path: Path, shard: str | None
) -> None:
    ps.write({"id": range(10)}, tmp_path / "x.tfrecord", num_shards=3)
    before = names_in(tmp_path)
    for target in ("x@3.tfrecord", "x@*.tfrecord", "x-*", ""):
        with pytest.raises(ValueError, match="shard='last'"):
            ps.append({"id": [10]}, tmp_path / target, shard=shard)
    assert names_in(tmp_path) == before


@pytest.mark.parametrize("names", [["a", "b"], ["p-00000-of-00002", "p-00001-of-00002"]])
def test_files_that_cannot_grow_are_not_recommended_for_more_records(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        ps.write({"id": [1]}, tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match="write the records to another file, and open both") as no:
        ps.append({"id": [2]}, tmp_path / "*.parquet")
    assert "last" not in str(no.value)
    ps.write({"id": [2]}, tmp_path / "q.parquet")
    assert ids(tmp_path / "*.parquet") == [1, 1, 2]


@pytest.mark.parametrize(
    ("names", "target"),
    [
        (["a.tfrecord", "b.tfrecord"], ""),
        (["p-8.tfrecord", "p-9.tfrecord"], ""),
        (["p-1.tfrecord", "p-2.tfrecord"], "p-[12].tfrecord"),
        (["p-1.tfrecord", "q-2.tfrecord"], ""),
    ],
)
def test_an_ambiguous_name_is_an_error(tmp_path: Path, names: list[str], target: str) -> None:
    for name in names:
        ps.write({"id": [1]}, tmp_path / name, index=False)
    with pytest.raises(ValueError, match=r"read before|do not determine|not match"):
        ps.append({"id": [2]}, tmp_path / target)
    assert names_in(tmp_path) == set(names)


def test_new_shards_of_formats_with_types_keep_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    old = pa.table({"id": [1], "name": ["a"]}, schema=schema)
    ps.write(old, tmp_path / "p-0.parquet")
    ps.append({"name": ["b"], "id": [2]}, tmp_path)
    assert ps.open(tmp_path / "p-1.parquet").schema == schema
    for data, field in [({"id": [1 << 40], "name": ["b"]}, "id"), ({"id": [1]}, "name")]:
        with pytest.raises(ps.SchemaError) as caught:
            ps.append(data, tmp_path)
        assert caught.value.field == field
    assert names_in(tmp_path) == {"p-0.parquet", "p-1.parquet"}


def test_two_simultaneous_new_shards_get_two_names(tmp_path: Path) -> None:
    ps.write({"id": [0]}, tmp_path / "p-000.tfrecord")
    in_parallel([lambda n=n: ps.append({"id": [n]}, tmp_path) for n in range(1, 9)])
    assert sorted(ids(tmp_path)) == list(range(9))
    assert len([name for name in names_in(tmp_path) if name.endswith(".tfrecord")]) == 9


def test_nothing_to_append_to_is_an_error(tmp_path: Path) -> None:
    for target in ("x.tfrecord", "x-*", "x-{shard}.tfrecord"):
        with pytest.raises(FileNotFoundError):
            ps.append(NEW, tmp_path / target)
    assert not names_in(tmp_path)
