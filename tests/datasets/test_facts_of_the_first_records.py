"""The first records or the first file do not determine the whole dataset: later values are returned or refused, but
never rounded or left out."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps


def rows(ds: ps.Dataset, name: str) -> list[Any]:
    return [row[name] for batch in ds.scan() for row in batch.to_pylist()]


def tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def npy(value: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, value)
    return data.getvalue()


def npz(value: Any) -> bytes:
    data = io.BytesIO()
    np.savez(data, v=value)
    return data.getvalue()


@pytest.mark.parametrize(("ending", "made"), [("npy", npy), ("npz", npz)])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_wider_float_after_the_first_members_is_not_rounded(
    tmp_path: Path, ending: str, made: Any, shape: tuple[int, ...]
) -> None:
    narrow, wide = made(np.full(shape, 0.1, np.float32)), made(np.full(shape, 0.1))
    members = [(f"{n:05d}.x.{ending}", narrow) for n in range(1100)]
    path = tar(tmp_path / "a.tar", [*members, (f"z.x.{ending}", wide)])
    with pytest.raises(ps.SchemaError, match="rounded") as caught:
        rows(ps.open(path), f"x.{ending}")
    assert caught.value.record == 1100
    if ending == "npy":  # the hint's advice works
        last = rows(ps.open(path, infer_records="all"), "x.npy")[-1]
        assert np.ravel(last).tolist() == [0.1] * max(1, int(np.prod(shape)))


def test_floats_of_several_widths_among_the_first_members_have_the_wider_type(
    tmp_path: Path,
) -> None:
    members = [("a.x.npy", npy(np.float32(0.5))), ("b.x.npy", npy(np.float64(0.1)))]
    assert rows(ps.open(tar(tmp_path / "a.tar", members)), "x.npy") == [0.5, 0.1]


def a_file(path: Path, values: Any) -> Path:
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        ps.write({"x": values}, path)
    return path


@pytest.mark.parametrize("ending", ["parquet", "arrow", "npz", "h5", "npy"])
@pytest.mark.parametrize("shape", [(1,), (1, 2)])
def test_a_file_of_wider_floats_than_the_first_is_not_rounded(
    tmp_path: Path, ending: str, shape: tuple[int, ...]
) -> None:
    paths = [
        a_file(tmp_path / f"a.{ending}", np.full(shape, 0.1, np.float32)),
        a_file(tmp_path / f"b.{ending}", np.full(shape, 0.1)),
    ]
    ds = ps.open(paths)
    with pytest.raises(ps.SchemaError, match="rounded") as caught:
        list(ds.scan())
    assert caught.value.file == str(paths[1])
    (field,) = ps.open(paths[1]).schema
    whole = ps.open(paths, schema=pa.schema([field]))
    assert np.ravel(rows(whole, field.name)[-1]).tolist() == [0.1] * shape[-1]
    # The user asked for this type, so values may be rounded.
    narrow = ps.open(paths, schema=ds.schema.remove_metadata())
    assert np.allclose(np.ravel(rows(narrow, field.name)[-1]), 0.1)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "tar", "tfrecord", "msgpack"])
def test_a_first_file_without_a_value_leaves_the_type_to_the_next(
    tmp_path: Path, ending: str
) -> None:
    for part, values in enumerate((pa.nulls(2), pa.nulls(2), pa.array(["a", "b"]))):
        ps.write(pa.table({"x": values, "n": [1, 2]}), tmp_path / f"{part}.{ending}")
    found = rows(ps.open([tmp_path / f"{part}.{ending}" for part in range(3)]), "x")
    texts = [v.decode() if isinstance(v, bytes) else v for v in found]
    assert texts == [None] * 4 + ["a", "b"]


def test_a_value_in_a_column_that_had_no_values_is_an_error(tmp_path: Path) -> None:
    ps.write(pa.table({"x": pa.nulls(1), "n": [1]}), tmp_path / "a.tar")
    ps.write(pa.table({"x": ["a"], "n": [1]}), tmp_path / "b.tar")
    schema = ps.open(tmp_path / "a.tar").schema
    with pytest.raises(ps.SchemaError, match="has a value"):
        list(ps.open(tmp_path / "b.tar", schema=schema).scan())


def test_fields_of_a_tar_say_what_they_were_inferred_from(tmp_path: Path) -> None:
    members = [(f"{n:05d}.cls", b"1") for n in range(1100)]
    path = tar(tmp_path / "a.tar", [*members, ("x.cls", b"2"), ("x.txt", b"late")])
    first = ps.schemas(path)
    assert [f.field.name for f in first.fields if "__" not in f.field.name] == ["cls"]
    assert not first.is_whole and first.files[0].inferred_from == "the first 1000 records of a.tar"
    whole = ps.schemas(path, everything=True)
    assert {"cls", "txt"} <= {f.field.name for f in whole.fields} and whole.is_whole
    assert whole.files[0].inferred_from == "all 1101 records of a.tar"


def test_small_tars_are_read_until_there_are_enough_records(tmp_path: Path) -> None:
    one = tar(tmp_path / "a.tar", [("a.cls", b"1")])
    two = tar(tmp_path / "b.tar", [("b.cls", b"1"), ("b.txt", b"later")])
    assert rows(ps.open([one, two]), "txt") == [None, "later"]


@pytest.mark.parametrize("checksums", ["headers", "none"])
@pytest.mark.parametrize("wrong", [{0}, {1, 2}, {0, 1, 2}])
def test_a_schema_does_not_depend_on_checksums_that_are_not_verified(
    tmp_path: Path, checksums: str, wrong: set[int]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write([{"a": 1, "b": 7}, {"a": 2}, {"a": 3}], path, index=False)
    data, at = bytearray(path.read_bytes()), 0
    for record in range(3):
        at += 12 + int.from_bytes(data[at : at + 8], "little") + 4
        if record in wrong:
            data[at - 4 : at] = bytes(4)
    path.write_bytes(data)
    ds = ps.open(path, checksums=checksums, index="never")
    assert (rows(ds, "a"), rows(ds, "b")) == ([1, 2, 3], [7, None, None])


@pytest.mark.parametrize(
    "metadata",
    [
        {"penstock.inferred_from": "all " + "9" * 5000 + " records of x"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "{{"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "3"},
    ],
)
def test_a_stored_schema_is_not_inferred_whatever_its_metadata_says(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    table = pa.table({"a": [1, 2]})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pq.write_table(table.append_column("b", [[3, 4]]), tmp_path / "b.parquet")
    dataset = ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.warns(UserWarning, match="the file has the column 'b', which is left out"):
        assert [row["a"] for row in dataset] == [1, 2, 1, 2]


def test_shards_of_whole_numbers_and_of_floats_have_no_type_in_common(tmp_path: Path) -> None:
    for shard, value in enumerate([1, 1.5]):
        ps.write([{"a": value}] * 3, tmp_path / f"s-0000{shard}-of-00002", format="tfrecord")
    with pytest.raises(ps.SchemaError, match="have no common type"):
        ps.open(f"{tmp_path}/s@2", infer_records="all")
    dataset = ps.open(f"{tmp_path}/s@2")
    assert dataset.schema.field("a").type == pa.int64()
    with pytest.raises(ps.SchemaError, match="holds float values"):
        list(dataset)
