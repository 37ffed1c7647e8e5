"""Tensors whose shapes differ by record. When pyarrow reads bytes or a C stream, it gives them its own type; in
penstock they must have the same type wherever they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.columns.types import VariableShapeTensorType, own_types

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
    """The values as pyarrow returns them after writing and reading them."""
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


def test_they_are_stored_in_overlays(tmp_path: Path) -> None:
    ps.write({"n": [0, 1, 2]}, tmp_path / "a.tfrecord")
    ps.add_fields(tmp_path / "a.tfrecord", {"x": batch().column("x")})
    check(tmp_path / "a.tfrecord")


# Other parameters of Arrow's type, which do not affect values.
SAYINGS = [
    '{"dim_names": ["H", "W"]}',
    '{"uniform_shape": [null, 2]}',
    '{"permutation": [0, 1]}',
    '{"permutation": [0, 1], "dim_names": ["H", "W"], "uniform_shape": [null, 2]}',
    '{"dim_names": ["x], permutation=[1,0", "W"]}',
]


def saying(metadata: str, *, inside: bool = False) -> pa.Table:
    """The records as a program without support for tensors writes them and pyarrow reads them."""
    storage = batch().column("x").storage
    called = {
        "ARROW:extension:name": "arrow.variable_shape_tensor",
        "ARROW:extension:metadata": metadata,
    }
    field = pa.field("x", storage.type, metadata=called)
    if inside:
        storage = pa.StructArray.from_arrays([storage], fields=[field])
        field = pa.field("x", storage.type)
    given = pa.record_batch(
        [storage, pa.array([0, 1, 2])], schema=pa.schema([field, pa.field("n", pa.int64())])
    )
    return pa.Table.from_batches([through_bytes(given)])


def write_with_pyarrow(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    kind = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, kind(file, table.schema) as stream:
        stream.write_table(table)


@pytest.mark.parametrize("metadata", SAYINGS)
@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "a.parquet"])
def test_they_are_tensors_whatever_the_other_parameters_of_their_type(
    name: str, metadata: str, tmp_path: Path
) -> None:
    write_with_pyarrow(saying(metadata), tmp_path / name)
    check(tmp_path / name)
    for into in ("b.msgpack", "b.tar", "b.parquet"):
        ps.convert(tmp_path / name, tmp_path / into, prove=True)
        check(tmp_path / into)


@pytest.mark.parametrize("metadata", SAYINGS)
@pytest.mark.parametrize("name", ["a.arrow", "a.parquet", "a.msgpack"])
def test_they_are_written_whatever_the_other_parameters_of_their_type(
    name: str, metadata: str, tmp_path: Path
) -> None:
    ps.write(saying(metadata), tmp_path / name)
    check(tmp_path / name)
    ps.write({"x": saying(metadata)["x"], "n": [0, 1, 2]}, tmp_path / name, overwrite=True)
    check(tmp_path / name)


def test_they_are_stored_in_overlays_whatever_the_other_parameters_of_their_type(
    tmp_path: Path,
) -> None:
    ps.write({"n": [0, 1, 2]}, tmp_path / "a.tfrecord")
    ps.add_fields(tmp_path / "a.tfrecord", {"x": saying(SAYINGS[0])["x"]})
    check(tmp_path / "a.tfrecord")


def test_a_loader_makes_arrays_of_them_whatever_the_other_parameters_of_their_type(
    tmp_path: Path,
) -> None:
    table = saying(SAYINGS[0])
    write_with_pyarrow(table.filter(table["x"].is_valid()), tmp_path / "a.arrow")
    found = next(iter(ps.Loader(ps.open(tmp_path / "a.arrow"), batch_size=2)))
    assert [one.tolist() for one in found["x"]] == [[[1, 2], [3, 4]], [[5, 6]]]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "a.parquet"])
def test_permuted_axes_are_refused_not_forgotten(name: str, inside: bool, tmp_path: Path) -> None:
    table = saying('{"permutation": [1, 0], "dim_names": ["W", "H"]}', inside=inside)
    write_with_pyarrow(table, tmp_path / name)
    with pytest.raises(ps.UnsupportedError, match=r"permuted, \[1,0\]") as caught:
        ps.open(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)
    assert caught.value.field == "x"
    assert "transpose the values" in str(caught.value)
    with pytest.raises(ps.UnsupportedError, match="permuted"):
        ps.write(table, tmp_path / f"b{name}")
    assert not (tmp_path / f"b{name}").exists()


def test_permuted_tensors_are_written_as_their_storage_as_the_error_advises(tmp_path: Path) -> None:
    chunk = saying('{"permutation": [1, 0]}')["x"].chunk(0)
    ps.write({"x": chunk.storage}, tmp_path / "a.arrow")
    assert ps.open(tmp_path / "a.arrow")[2]["x"] == {"data": [5, 6], "shape": [1, 2]}


@pytest.mark.parametrize(
    "value",
    [pa.float16(), pa.bool_(), pa.timestamp("ns", "UTC"), pa.decimal128(5, 2), pa.binary(4)],
    ids=str,
)
def test_what_pyarrow_says_of_a_type_is_understood_for_all_values(value: pa.DataType) -> None:
    schema = pa.schema([("x", VariableShapeTensorType(value, 3))])
    assert own_types(pa.ipc.read_schema(schema.serialize())) == schema


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5"])
def test_arrays_that_cannot_hold_them_say_which_column_it_was(name: str, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="holds only tensors of one shape") as caught:
        ps.write(batch(), tmp_path / name)
    assert caught.value.field is not None
    assert "x" in caught.value.field.split(".")


@pytest.mark.parametrize("name", ["a.npz", "a.h5"])
@pytest.mark.parametrize("inside", [False, True])
def test_arrays_of_one_shape_say_what_to_do_with_them(
    name: str, inside: bool, tmp_path: Path
) -> None:
    with pytest.raises(ps.SchemaError, match="tensors of one shape") as caught:
        ps.write(saying("{}", inside=inside), tmp_path / name)
    assert caught.value.field == "x"
    assert "list<" not in str(caught.value)
    assert "pad them" in str(caught.value)
    assert "Parquet" in str(caught.value)
    # Only Arrow and Parquet can nest them in other types.
    assert ("tar" in str(caught.value)) != inside
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["a.npz", "a.h5"])
def test_padded_tensors_are_held_by_arrays_as_the_error_advises(name: str, tmp_path: Path) -> None:
    ps.write({"x": np.zeros((3, 2, 2), np.float32)}, tmp_path / name)
    assert ps.open(tmp_path / name).schema.field("x").type.shape == [2, 2]
