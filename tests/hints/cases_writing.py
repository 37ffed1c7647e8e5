"""Hints of write and convert."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from steps import Case, Cases, cli, equal_in, left_out, rows

import penstock as ps
from penstock.columns.types import VariableShapeTensorType
from penstock.formats.beton import writer as beton_write


def lists_of_lists() -> Case:
    data = {"a": [[[1], [2, 3]]]}

    def as_sequence() -> None:
        ps.write(data, "a.tfrecord", payload="sequence")
        assert rows("a.tfrecord") == [{"a": [[1], [2, 3]]}]

    return Case(lambda: ps.write(data, "a.tfrecord", payload="example"), as_sequence)


def wrong_payload() -> Case:
    data = {"a": [1], "b": [2]}

    def as_maps() -> None:
        ps.write(data, "a.msgpack", payload="map")
        assert rows("a.msgpack") == [{"a": 1, "b": 2}]

    return Case(lambda: ps.write(data, "a.msgpack", payload="raw"), as_maps)


def twins() -> Case:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], ["a", "a"])
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)

    def scanned() -> None:
        (found,) = ps.open("a.arrow").scan()
        assert found.equals(batch)

    return Case(lambda: ps.convert("a.arrow", "b.parquet"), scanned)


# -- formats that are only read, and places that take no file -------------------------------------


def _elsewhere(name: str) -> Case:
    table = pa.table({"a": [1, 2]})
    return Case(lambda: ps.write(table, name), lambda: equal_in(table, "a.parquet", "a.tfrecord"))


def mds_is_read_only() -> Case:
    return _elsewhere("a.mds")


def arrayrecord_is_read_only() -> Case:
    return _elsewhere("a.array_record")


def a_pipe() -> Case:
    os.mkfifo("pipe")

    def copied() -> None:
        ps.write({"a": [1, 2]}, "a.parquet")
        with subprocess.Popen("cat a.parquet > pipe", shell=True):
            Path("b.parquet").write_bytes(Path("pipe").read_bytes())
        assert rows("b.parquet") == [{"a": 1}, {"a": 2}]

    write = lambda: ps.write({"a": [1, 2]}, "pipe", format="parquet", overwrite=True)  # noqa: E731
    return Case(write, copied)


# -- Python's values ------------------------------------------------------------------------------


NO_TEXT = "\udcff"
"""The string that `os.listdir` returns for a name that is not UTF-8."""


def half_a_pair_as_bytes() -> Case:
    def encoded() -> None:
        data = [value.encode("utf-8", "surrogatepass") for value in ("a", NO_TEXT)]
        ps.write({"a": data}, "a.parquet")
        back = [row["a"].decode("utf-8", "surrogatepass") for row in rows("a.parquet")]
        assert back == ["a", NO_TEXT]

    return Case(lambda: ps.write({"a": ["a", NO_TEXT]}, "a.parquet"), encoded)


def a_file_name_as_bytes() -> Case:
    def named() -> None:
        ps.write([{"a": os.fsencode(NO_TEXT)}], "a.parquet")
        assert rows("a.parquet") == [{"a": b"\xff"}]

    return Case(lambda: ps.write([{"a": NO_TEXT}], "a.parquet"), named)


OF_ONE_TYPE = (
    "give them one type; or write record batches with a type that fits both, such as "
    "pa.RecordBatch.from_pylist(rows, schema)"
)
OF_ONE_SHAPE = (
    "bring them to one shape, or write a column of penstock.types.VariableShapeTensorType to Parquet, "
    "Arrow, MessagePack or a tar"
)


def values_of_two_types() -> Case:
    data = [{"a": 1}, {"a": "x"}]

    def of_one() -> None:
        ps.write([{"a": str(row["a"])} for row in data], "a.parquet")
        assert rows("a.parquet") == [{"a": "1"}, {"a": "x"}]

    return Case(lambda: ps.write(data, "a.parquet"), of_one, OF_ONE_TYPE)


def values_of_two_types_in_batches() -> Case:
    data = [{"a": "x"}, {"a": b"y"}]

    def batch() -> None:
        schema = pa.schema([("a", pa.binary())])
        ps.write(pa.RecordBatch.from_pylist(data, schema), "a.parquet")
        assert rows("a.parquet") == [{"a": b"x"}, {"a": b"y"}]

    return Case(lambda: ps.write(data, "a.parquet"), batch, OF_ONE_TYPE)


SHAPES = [np.ones((2, 2)), np.ones((1, 2))]


def shapes_in(path: str) -> list[Any]:
    """The tensors of a file as nested lists."""
    return [row["a"].tolist() for row in rows(path)]


def _write_shapes() -> Any:
    return ps.write([{"a": value} for value in SHAPES], "a.parquet")


def _tensors() -> pa.Table:
    type_ = VariableShapeTensorType(pa.float64(), 2)
    stored = [{"data": value.ravel().tolist(), "shape": value.shape} for value in SHAPES]
    column = pa.ExtensionArray.from_storage(type_, pa.array(stored, type_.storage_type))
    return pa.table({"a": column, "b": [1, 2]})


def _padded() -> pa.Table:
    whole = np.zeros((2, 2, 2))
    for place, value in enumerate(SHAPES):
        whole[place, : len(value)] = value
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(whole)
    return pa.table({"a": column, "b": [1, 2]})


def values_of_one_shape() -> Case:
    def padded() -> None:
        ps.write({"a": np.stack([SHAPES[0], np.pad(SHAPES[1], ((0, 1), (0, 0)))])}, "a.parquet")
        assert shapes_in("a.parquet") == [[[1, 1], [1, 1]], [[1, 1], [0, 0]]]

    return Case(_write_shapes, padded, OF_ONE_SHAPE)


def values_of_several_shapes() -> Case:
    def of_tensors() -> None:
        for path in ("a.parquet", "a.arrow", "a.msgpack", "a.tar"):
            ps.write(_tensors(), path)
            assert shapes_in(path) == [value.tolist() for value in SHAPES]

    return Case(_write_shapes, of_tensors, OF_ONE_SHAPE)


# -- tensors --------------------------------------------------------------------------------------


def _of_one_shape(advised: Callable[[], Any]) -> Case:
    return Case(lambda: ps.write(_tensors(), "a.npz"), advised)


def tensors_are_padded() -> Case:
    def padded() -> None:
        ps.write(_padded(), "a.npz")
        assert shapes_in("a.npz") == [[[1, 1], [1, 1]], [[1, 1], [0, 0]]]

    return _of_one_shape(padded)


def tensors_are_left_out() -> Case:
    return _of_one_shape(lambda: left_out(_tensors(), "a", "a.npz"))


def tensors_are_written_elsewhere() -> Case:
    return _of_one_shape(values_of_several_shapes().advised)


def _permuted() -> pa.Table:
    """The array that pyarrow reads if tensors were written with a permutation."""
    storage = _tensors()["a"].chunk(0).storage
    called = {
        "ARROW:extension:name": "arrow.variable_shape_tensor",
        "ARROW:extension:metadata": '{"permutation": [1, 0]}',
    }
    given = pa.record_batch([storage], pa.schema([pa.field("a", storage.type, metadata=called)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema) as stream:
        stream.write_batch(given)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def permuted_tensors_are_transposed() -> Case:
    def transposed() -> None:
        turned = []
        for row in _permuted()["a"].chunk(0).storage.to_pylist():
            value = np.array(row["data"]).reshape(row["shape"]).T
            turned.append({"data": value.ravel().tolist(), "shape": value.shape})
        type_ = VariableShapeTensorType(pa.float64(), 2)
        column = pa.ExtensionArray.from_storage(type_, pa.array(turned, type_.storage_type))
        ps.write({"a": column}, "a.parquet")
        assert shapes_in("a.parquet") == [[[1, 1], [1, 1]], [[1], [1]]]

    return Case(lambda: ps.write(_permuted(), "a.parquet"), transposed)


def permuted_tensors_as_they_lie() -> Case:
    def stored() -> None:
        chunk = _permuted()["a"].chunk(0)
        ps.write({"a": chunk.storage}, "a.parquet")
        assert [row["a"] for row in rows("a.parquet")] == chunk.storage.to_pylist()

    return Case(lambda: ps.write(_permuted(), "a.parquet"), stored)


# -- what a format has no room for ----------------------------------------------------------------


def _metadata() -> tuple[pa.Table, Callable[[], Any]]:
    table = pa.table({"a": [1, 2]}).replace_schema_metadata({"k": "x" * 70_000})
    return table, lambda: ps.write(table, "a.h5")


def long_metadata_is_replaced() -> Case:
    table, write = _metadata()

    def replaced() -> None:
        ps.write(table.replace_schema_metadata({"k": "x"}), "a.h5")
        assert ps.open("a.h5").schema.metadata[b"k"] == b"x"

    return Case(write, replaced)


def long_metadata_elsewhere() -> Case:
    table, write = _metadata()

    def elsewhere() -> None:
        for path in ("a.parquet", "a.arrow"):
            ps.write(table, path)
            assert ps.open(path).schema.metadata[b"k"] == b"x" * 70_000

    return Case(write, elsewhere)


def a_long_name() -> Case:
    name = "a_name_of_seventeen"
    ps.write({name: [1, 2]}, "a.parquet")

    def shorter() -> None:
        ps.convert("a.parquet", "a.beton", rename={name: "a"})
        assert rows("a.beton") == [{"a": 1}, {"a": 2}]
        cli(f"convert a.parquet b.beton --rename {name}=a")
        assert rows("b.beton") == rows("a.beton")

    return Case(lambda: ps.convert("a.parquet", "a.beton"), shorter)


LARGE = {"a": [b"x" * 3_000_000]}


def a_large_value() -> Case:
    def in_a_page() -> None:
        ps.write(LARGE, "a.beton", page_bytes=4194304)
        assert rows("a.beton") == [{"a": LARGE["a"][0]}]

    return Case(
        lambda: ps.write(LARGE, "a.beton", page_bytes=1 << 21), in_a_page, "page_bytes=4194304"
    )


def a_value_larger_than_pages() -> Case:
    def refused() -> None:
        with pytest.MonkeyPatch.context() as patch:  # 2 GiB are too much for a test
            patch.setattr(beton_write, "MAX_PAGE_BYTES", 1 << 21)
            ps.write(LARGE, "a.beton", page_bytes=1 << 21)

    def elsewhere() -> None:
        equal_in(pa.table(LARGE), "a.parquet")

    return Case(refused, elsewhere, "write another format: no page can be as large")


CASES: Cases = {
    "'payload=\"sequence\"'": lists_of_lists,
    "'payload=\"map\"'": wrong_payload,
    "'scan() returns both'": twins,
    "'write Parquet or TFRecord'": mds_is_read_only,
    "'write TFRecord or Parquet'": arrayrecord_is_read_only,
    "'write to a file, and copy it from there'": a_pipe,
    '\'write bytes: value.encode("utf-8", "surrogatepass"), or os.fsencode(name) for a file name\'': (
        half_a_pair_as_bytes,
        a_file_name_as_bytes,
    ),
    "_OTHER_TYPES if None in (shape, self.shape) or shape == self.shape else _OTHER_SHAPES": (
        values_of_two_types,
        values_of_two_types_in_batches,
        values_of_one_shape,
        values_of_several_shapes,
    ),
    "f'pad them to one shape, leave them out (columns=), or write {formats}'": (
        tensors_are_padded,
        tensors_are_left_out,
        tensors_are_written_elsewhere,
    ),
    "'transpose the values and write the type without a permutation, or read it with pyarrow and pass its storage (chunk.storage), which has the values and shapes as stored'": (
        permuted_tensors_are_transposed,
        permuted_tensors_as_they_lie,
    ),
    "'replace_schema_metadata, or write Parquet or Arrow'": (
        long_metadata_is_replaced,
        long_metadata_elsewhere,
    ),
    "f'rename the field: convert(..., rename={{{name!r}: ...}})'": a_long_name,
    "f'page_bytes={needed}' if needed <= MAX_PAGE_BYTES else 'write another format: no page can be as large'": (
        a_large_value,
        a_value_larger_than_pages,
    ),
}
