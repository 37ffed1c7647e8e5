"""msgpack and msgpack-numpy read files that penstock writes, whose bytes equal their own; and penstock reads
theirs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

in_one_folder = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=40)
records = st.fixed_dictionaries(
    {
        "int": st.none() | int64s,
        "large": st.integers(0, (1 << 64) - 1),
        "float": st.none() | st.floats(allow_nan=False),
        "text": st.none() | texts,
        "bytes": st.none() | st.binary(max_size=300),
        "bool": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | int64s, max_size=20),
        "map": st.none() | st.fixed_dictionaries({"x": texts, "y": st.lists(texts, max_size=3)}),
    }
)


def _in_order(record: dict[str, Any]) -> dict[str, Any]:
    """Keys in the order of the schema; Hypothesis makes them in any order."""
    inner = record["map"]
    ordered = {name: record[name] for name in SCHEMA.names}
    return {**ordered, "map": inner and {"x": inner["x"], "y": inner["y"]}}


SCHEMA = pa.schema(
    [
        ("int", pa.int64()),
        ("large", pa.uint64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("bool", pa.bool_()),
        ("list", pa.list_(pa.int64())),
        ("map", pa.struct([("x", pa.string()), ("y", pa.list_(pa.string()))])),
    ]
)


def written(data: Any, folder: Path, **options: Any) -> bytes:
    path = folder / "a.msgpack"
    ps.write(data, path, overwrite=True, index=False, **options)
    return path.read_bytes()


@in_one_folder
@given(values=st.lists(records.map(_in_order), min_size=1, max_size=20))
def test_records_are_the_bytes_that_msgpack_packs(values: list[Any], tmp_path: Path) -> None:
    data = written(pa.Table.from_pylist(values, SCHEMA), tmp_path)
    assert data == b"".join(msgpack.packb(value) for value in values)
    assert list(_unpacked(data)) == values
    found = ps.open(tmp_path / "a.msgpack", schema=SCHEMA, index="never")
    assert found.take(range(len(values))).to_pylist() == values


def _unpacked(data: bytes, **options: Any) -> Any:
    unpacker = msgpack.Unpacker(**options)
    unpacker.feed(data)
    return unpacker


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_at_every_border_are_packed_alike(size: int, tmp_path: Path) -> None:
    values = [{"t": "x" * size, "b": b"x" * size, "l": [True] * size}]
    data = written(pa.Table.from_pylist(values), tmp_path)
    assert data == msgpack.packb(values[0])
    keys = {f"k{n}": n for n in range(max(1, min(size, 300)))}
    assert written(pa.Table.from_pylist([keys]), tmp_path) == msgpack.packb(keys)
    name = {"n" * max(size, 1): 1}
    assert written(pa.Table.from_pylist([name]), tmp_path) == msgpack.packb(name)


def test_float32_and_timestamps_are_packed_alike(tmp_path: Path) -> None:
    moments = [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
    ]
    for unit in ("us", "ms", "s"):
        keep = [m.replace(microsecond=0) if unit != "us" else m for m in moments]
        data = written(pa.table({"t": pa.array(keep, pa.timestamp(unit, "UTC"))}), tmp_path)
        assert data == b"".join(msgpack.packb({"t": m}, datetime=True) for m in keep)
        assert [r["t"] for r in _unpacked(data, timestamp=3)] == keep
    floats = [0.5, -0.0, float("inf"), 1e-45]
    data = written(pa.table({"f": pa.array(floats, pa.float32())}), tmp_path)
    assert data == b"".join(
        msgpack.packb({"f": np.float32(f).item()}, use_single_float=True) for f in floats
    )


ARRAYS = [
    np.arange(6, dtype="<f4").reshape(2, 3),
    np.arange(4, dtype="|u1"),
    np.array([[True, False]]),
    np.zeros((2, 0, 3), "<i8"),
    np.arange(24, dtype="<f2").reshape(2, 3, 2, 2),
    np.arange(300, dtype="<u2"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype} {a.shape}")
def test_tensors_are_the_bytes_that_msgpack_numpy_packs(array: np.ndarray, tmp_path: Path) -> None:
    packed = msgpack.packb({"t": array}, default=msgpack_numpy.encode)
    path = tmp_path / "b.msgpack"
    path.write_bytes(packed * 3)
    found = pa.table(ps.open(path, index="never"))
    assert found.schema.field("t").type.shape == list(array.shape)
    data = written(found, tmp_path)
    assert data == packed * 3
    for record in _unpacked(data, object_hook=msgpack_numpy.decode):
        np.testing.assert_array_equal(record["t"], array)
        assert record["t"].dtype == array.dtype


def test_tensors_of_several_shapes_and_scalars_go_there_and_back(tmp_path: Path) -> None:
    values = [
        {"t": np.arange(n * 2, dtype=np.int16).reshape(n, 2), "s": np.float64(n)} for n in range(4)
    ]
    packed = b"".join(msgpack.packb(value, default=msgpack_numpy.encode) for value in values)
    (tmp_path / "b.msgpack").write_bytes(packed)
    found = pa.table(ps.open(tmp_path / "b.msgpack", index="never"))
    assert found.column("s").to_pylist() == [0, 1, 2, 3]
    for record, value in zip(
        _unpacked(written(found, tmp_path), object_hook=msgpack_numpy.decode), values, strict=True
    ):
        np.testing.assert_array_equal(record["t"], value["t"])
        assert record["s"] == value["s"]


def test_object_arrays_are_pickles_and_are_never_opened(tmp_path: Path) -> None:
    class Canary:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sung",))

    record = {"t": np.array([Canary()], dtype=object)}
    path = tmp_path / "b.msgpack"
    path.write_bytes(msgpack.packb(record, default=msgpack_numpy.encode) * 2)
    found = pa.table(ps.open(path))
    assert found.schema.field("t").type == pa.binary()
    assert ps.verify(path).ok
    assert not (tmp_path / "sung").exists()
    assert written(found, tmp_path) == path.read_bytes()
