"""Writing MessagePack: every kind of column, columns with metadata marks, what is refused, and appending."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from msgpack_files import numpy_map, packed, table

import penstock as ps
from penstock.columns.types import VariableShapeTensorType


def written(batch: Any, tmp_path: Path, **options: Any) -> bytes:
    path = tmp_path / "written.msgpack"
    ps.write(batch, path, overwrite=True, **options)
    return path.read_bytes()


def test_every_kind_of_column_is_written_and_read_again(tmp_path: Path) -> None:
    tensors = pa.fixed_shape_tensor(pa.float32(), [2])
    storage = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float32()), 2)
    ragged = VariableShapeTensorType(pa.int16(), 1)
    shapes = pa.array([{"data": [1, 2], "shape": [2]}, None], ragged.storage_type)
    given = pa.table(
        {
            "tensor": pa.ExtensionArray.from_storage(tensors, storage),
            "ragged": pa.ExtensionArray.from_storage(ragged, shapes),
            "time": pa.array([datetime(2020, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us")),
            "date": pa.array([18_000, -1], pa.date32()),
            "duration": pa.array([5, None], pa.duration("ms")),
            "label": pa.array(["cat", "dog"]).dictionary_encode(),
            "half": pa.array(np.array([0.5, 2], np.float16)),
            "large": pa.array(["x", None], pa.large_string()),
            "view": pa.array([b"x" * 20, b""], pa.binary_view()),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)),
            "views": pa.array([[1], [2, 3]], pa.list_view(pa.int32())),
            "deep": pa.array([{"x": [{"y": 1}]}, {"x": None}]),
            "nothing": pa.nulls(2),
            "runs": pa.RunEndEncodedArray.from_arrays([2], ["same"]),
            "small": pa.array([-1, 2], pa.int8()),
        }
    )
    data = written(given, tmp_path)
    found = table(data, schema=given.schema.remove(given.schema.get_field_index("runs")))
    for name in found.schema.names:
        assert found.column(name).to_pylist() == given.column(name).to_pylist(), name
    plain = msgpack.Unpacker(strict_map_key=False)
    plain.feed(data)
    first, second = plain
    assert first["label"] == "cat" and first["runs"] == "same" and first["fixed"] == [1, 2]
    assert first["tensor"][b"data"] == np.array([1, 2], "<f4").tobytes()
    assert second["ragged"] is None and second["deep"] == {"x": None}
    assert first["date"].seconds == 18_000 * 86_400
    again = written(given.slice(1), tmp_path)
    assert again == data[len(data) - len(again) :]


def test_marked_columns_are_written_as_they_were(tmp_path: Path) -> None:
    data = packed(
        {"e": msgpack.ExtType(5, b"xy"), "v": 1, "n": numpy_map(np.float32(2))},
        {"e": msgpack.ExtType(6, b""), "v": "x", "n": numpy_map(np.float32(3))},
        {"e": None, "v": None, "n": None},
    )
    found = table(data)
    again = table(written(found, tmp_path))
    assert again.schema.equals(found.schema, check_metadata=False)
    assert again.to_pylist() == found.to_pylist()
    assert msgpack.unpackb(written(found.slice(0, 1), tmp_path))["e"] == msgpack.ExtType(5, b"xy")


def test_a_lone_record_column_is_written_unchanged(tmp_path: Path) -> None:
    values = [b"\x01", b"\x81\xa1a\xc0", b"\xdd\x00\x00\x00\x00"]
    records = pa.table({"record": pa.array(values, pa.binary())})
    assert written(records, tmp_path) == b"".join(values)
    assert msgpack.unpackb(written(records.slice(0, 1), tmp_path, payload="map")) == {
        "record": b"\x01"
    }
    for wrong in (b"", b"\x01\x02", b"\x92\x01", b"\xc1"):
        with pytest.raises(ps.SchemaError, match="one whole MessagePack value") as caught:
            written(pa.table({"record": pa.array([b"\x01", wrong])}), tmp_path)
        assert caught.value.record == 1
    with pytest.raises(ps.SchemaError, match="one binary column"):
        written(pa.table({"a": [1]}), tmp_path, payload="raw")


def test_unwritable_data_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "no.msgpack"
    for column in (
        pa.array([None], pa.month_day_nano_interval()),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    ):
        with pytest.raises(ps.SchemaError, match="cannot convert between") as caught:
            ps.write(pa.table({"a": [1], "b": column}), path)
        assert caught.value.field == "b"
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ps.SchemaError):
        ps.write(twice, path)
    assert not list(tmp_path.iterdir())


def test_a_tensor_with_a_null_in_it_is_refused_with_its_record(tmp_path: Path) -> None:
    storage = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, None], pa.int8()), 2)
    column = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [2]), storage)
    with pytest.raises(ps.SchemaError, match="holds a null") as caught:
        written(pa.table({"t": column}), tmp_path)
    assert (caught.value.record, caught.value.field) == (1, "t")


def test_a_permuted_tensor_is_written_in_the_order_of_its_axes(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.int8(), [2, 3], permutation=[1, 0])
    storage = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int8(), 6))
    data = written(pa.table({"t": pa.ExtensionArray.from_storage(kind, storage)}), tmp_path)
    assert msgpack.unpackb(data)["t"][b"shape"] == [3, 2]
    assert msgpack.unpackb(data)["t"][b"data"] == bytes([1, 4, 2, 5, 3, 6])


def test_records_are_appended_to_a_file_of_values_but_not_to_an_array(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    ps.write(pa.table({"a": [1, 2]}), path)
    ps.append(pa.table({"a": [3]}), path)
    assert path.read_bytes() == packed({"a": 1}, {"a": 2}, {"a": 3})
    assert ps.open(path).take([2, 0]).to_pylist() == [{"a": 3}, {"a": 1}]
    path.write_bytes(msgpack.packb([{"a": 1}]))
    with pytest.raises(ps.FormatError, match="one array"):
        ps.append(pa.table({"a": [3]}), path)
