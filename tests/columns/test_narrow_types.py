"""A schema with narrower types gives the same numbers, or an error."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([300, 1], pa.bool_()),
        ([[0, 1], [2]], pa.list_(pa.bool_())),
        ([1e30, 2.0], pa.float16()),
        ([[1.0], [-7e4, 2.0]], pa.list_(pa.float16())),
        ([300, 1], pa.int8()),
    ],
)
def test_values_that_would_become_others_are_refused(
    values: list[object], type_: pa.DataType, tmp_path: Path
) -> None:
    ps.write({"a": values}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord", schema=pa.schema([("a", type_)]))
    with pytest.raises(ps.SchemaError, match="does not fit"):
        list(dataset.scan())
    with pytest.raises(ps.SchemaError, match="does not fit"):
        dataset.take([0, 1])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([0, None, 1], pa.bool_()),
        ([[0, 1], [], None], pa.list_(pa.bool_())),
        ([0.5, float("inf"), -65504.0], pa.float16()),
        ([[1.0], [2.0, -0.25]], pa.list_(pa.float16())),
    ],
)
def test_values_that_fit_are_given(
    values: list[object], type_: pa.DataType, tmp_path: Path
) -> None:
    stored = {pa.bool_(): pa.int64(), pa.float16(): pa.float32()}
    inner = type_.value_type if pa.types.is_list(type_) else type_
    column = pa.array(values, pa.list_(stored[inner]) if type_ != inner else stored[inner])
    ps.write(pa.table({"a": column}), tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord", schema=pa.schema([("a", type_)]))
    wanted = [None if value == [] else value for value in values]
    found = pa.table(dataset)["a"].to_pylist()
    assert [None if value == [] else value for value in found] == wanted


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, 2, 3, 300, 5], pa.int8()),
        ([1, 0, 1, 2, 0], pa.bool_()),
        ([[1], [], [3, 4], [5, 300], [300]], pa.list_(pa.int8())),
        ([[1, 2], [3, 4], [5, 6], [7, 300], [1, 2]], pa.fixed_shape_tensor(pa.int8(), [2])),
        ([b"ab", b"cd", b"ef", b"g", b"hi"], pa.binary(2)),
        ([0, 1, 2, 1 << 40, 4], pa.date32()),
        ([0, 1, 2, 100_000, 4], pa.time32("s")),
        ([0, 1, 2, -5, 4], pa.time64("us")),
        ([0, 86_400_000, 0, 5, 0], pa.date64()),
    ],
)
def test_the_error_names_the_record_and_comes_after_the_records_before_it(
    values: list[object], type_: pa.DataType, tmp_path: Path
) -> None:
    ps.write({"a": values}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord", schema=pa.schema([("a", type_)]))
    records = 0
    with pytest.raises(ps.SchemaError, match="does not fit") as caught:
        for batch in dataset.scan():
            records += batch.num_rows
    assert records == caught.value.record == 3
    with pytest.raises(ps.SchemaError, match="does not fit") as caught:
        dataset.take([4, 0, 3])
    assert caught.value.record in {3, 4}
    assert dataset.take([2, 0]).num_rows == 2


def test_dates_and_times_come_back_as_what_they_were(tmp_path: Path) -> None:
    day, time = dt.date(2020, 1, 2), dt.time(3, 4, 5)
    moment = dt.datetime.combine(day, time)
    columns = {
        "date32": pa.array([day, None], pa.date32()),
        "date64": pa.array([day, day], pa.date64()),
        "time32": pa.array([time, time], pa.time32("s")),
        "time64": pa.array([time, None], pa.time64("us")),
        "timestamp": pa.array([moment, moment], pa.timestamp("us")),
        "zone": pa.array([moment, moment], pa.timestamp("ns", "UTC")),
        "duration": pa.array([5, 6], pa.duration("ms")),
        "dates": pa.array([[day], [day, day]], pa.list_(pa.date32())),
        "moments": pa.array([[moment], [moment, moment]], pa.list_(pa.timestamp("s"))),
        "text": pa.array(["a", None], pa.string_view()),
        "bytes": pa.array([b"a", b"b"], pa.binary_view()),
    }
    table = pa.table(columns)
    ps.write(table, tmp_path / "a.tfrecord")
    assert pa.table(ps.open(tmp_path / "a.tfrecord", schema=table.schema)).equals(table)


@pytest.mark.parametrize(
    "name", ["x.npy", "x.npz", "x.h5", "x.msgpack", "x.parquet", "x.arrow", "x.tar"]
)
@pytest.mark.parametrize("narrow", [pa.float32(), pa.float16()])
def test_a_float_beyond_a_narrower_type_is_not_infinity(
    tmp_path: Path, name: str, narrow: Any
) -> None:
    path = str(tmp_path / name)
    ps.write({"x": np.array([1.1, np.inf, -np.inf, np.nan])}, path)
    (column,) = [field.name for field in ps.open(path).schema if pa.types.is_floating(field.type)]
    schema = pa.schema([(column, narrow)])
    got = ps.open(path, schema=schema).take(range(4)).column(column)
    assert str(got.to_pylist()) == str(
        pa.array([1.1, np.inf, -np.inf, np.nan]).cast(narrow).to_pylist()
    )
    ps.write({"x": np.array([1.1, 1e300])}, path, overwrite=True)
    with pytest.raises(ps.SchemaError, match="1e\\+300 is outside the range"):
        ps.open(path, schema=schema).take([0, 1])


def test_floats_inside_lists_and_structs_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    ps.write(pa.table({"s": pa.array([{"a": 1.5, "b": [1.0, 1e300]}, None])}), path)
    for inner, fits in ((pa.float64(), True), (pa.float32(), False)):
        kind = pa.struct([("a", pa.float32()), ("b", pa.list_(inner))])
        dataset = ps.open(path, schema=pa.schema([("s", kind)]))
        if fits:
            assert dataset[0] == {"s": {"a": 1.5, "b": [1.0, 1e300]}}
        else:
            with pytest.raises(ps.SchemaError, match="outside the range"):
                dataset.take([0])
