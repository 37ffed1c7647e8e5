"""A schema that asks for fewer bits gives the same numbers, or an error."""

from __future__ import annotations

from pathlib import Path

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
