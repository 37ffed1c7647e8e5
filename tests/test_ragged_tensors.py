"""Tensors whose shapes differ by record: pyarrow makes a type of its own of them, wherever it reads
bytes or a C stream; they are to be the same in penstock wherever they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.types import VariableShapeTensorType

TYPE = VariableShapeTensorType(pa.float32(), 2)


def batch() -> pa.RecordBatch:
    values: list[Any] = [
        {"data": [1, 2, 3, 4], "shape": [2, 2]},
        None,
        {"data": [5, 6], "shape": [1, 2]},
    ]
    storage = pa.array(values, TYPE.storage_type)
    arrays = [pa.ExtensionArray.from_storage(TYPE, storage), pa.array([0, 1, 2])]
    return pa.record_batch(arrays, names=["x", "n"])


def through_bytes(given: pa.RecordBatch) -> pa.RecordBatch:
    """As pyarrow gives it to whoever reads it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema) as stream:
        stream.write_batch(given)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def check(path: Path) -> None:
    ds = ps.open(path)
    assert ds.schema.field("x").type == TYPE
    assert ds.take([0, 1, 2]).column("x").to_pylist() == batch().column("x").to_pylist()
    assert ds.take([2]).column("x").type == TYPE


@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "a.parquet", "a.tar", "a.msgpack"])
def test_they_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    ps.write(batch(), tmp_path / name)
    check(tmp_path / name)


@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "a.parquet"])
@pytest.mark.parametrize("into", ["b.tar", "b.msgpack", "b.parquet"])
def test_they_are_converted_from_where_pyarrow_reads(name: str, into: str, tmp_path: Path) -> None:
    ps.write(batch(), tmp_path / name)
    ps.convert(tmp_path / name, tmp_path / into)
    check(tmp_path / into)


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet", "a.tar"])
def test_they_are_written_from_what_pyarrow_read(name: str, tmp_path: Path) -> None:
    given = through_bytes(batch())
    assert given.schema.field("x").type != TYPE
    ps.write(given, tmp_path / name)
    check(tmp_path / name)


def test_they_are_written_from_a_stream_that_waits_to_be_counted(tmp_path: Path) -> None:
    given = pa.RecordBatchReader.from_batches(batch().schema, iter([batch()]))
    ps.write(given, tmp_path / "a-{shard}.tar", num_shards=2)
    assert ps.open(tmp_path / "a-*.tar").schema.field("x").type == TYPE


def test_they_are_kept_beside_a_shard(tmp_path: Path) -> None:
    ps.write({"n": [0, 1, 2]}, tmp_path / "a.tfrecord")
    ps.add_fields(tmp_path / "a.tfrecord", {"x": batch().column("x")})
    check(tmp_path / "a.tfrecord")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5"])
def test_arrays_that_cannot_hold_them_say_which_column_it_was(name: str, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="an array cannot hold") as caught:
        ps.write(batch(), tmp_path / name)
    assert caught.value.field is not None
    assert "x" in caught.value.field.split(".")
