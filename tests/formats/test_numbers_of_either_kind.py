"""A field with integers in some records and floats in others can be read if no value changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.features import FixedLen

FLOATS = [pa.float32(), pa.float64()]


def _mixed(folder: Path, make: Any = lambda values: values) -> str:
    ps.write({"x": make([1, 2])}, folder / "a.tfrecord")
    ps.write({"x": make([1.5])}, folder / "b.tfrecord")
    return str(folder / "*.tfrecord")


def _read(source: Any, kind: pa.DataType, **options: Any) -> list[Any]:
    ds = ps.open(source, schema=pa.schema([("x", kind)]), **options)
    return [row["x"] for row in ds]


@pytest.mark.parametrize("kind", FLOATS)
def test_scalars_and_lists(tmp_path: Path, kind: pa.DataType) -> None:
    source = _mixed(tmp_path)
    assert _read(source, kind) == [1, 2, 1.5]
    assert ps.open(source, schema=pa.schema([("x", kind)])).take([2, 0])["x"].to_pylist() == [
        1.5,
        1,
    ]
    assert _read(source, pa.list_(kind)) == [[1], [2], [1.5]]
    (tmp_path / "lists").mkdir()
    lists = _mixed(tmp_path / "lists", lambda values: [[[v], []] for v in values])
    assert _read(lists, pa.list_(pa.list_(kind))) == [[[1], []], [[2], []], [[1.5], []]]


def test_the_hints_of_the_refusals_work(tmp_path: Path) -> None:
    source = _mixed(tmp_path)
    for options in ({}, {"infer_records": "all"}):
        with pytest.raises(ps.SchemaError) as refused:
            list(ps.open(source, **options))
        assert refused.value.hint is not None
        assert "types={'x': 'float64'}" in refused.value.hint
        assert [record["x"] for record in ps.open(source, types={"x": "float64"}, **options)] == [
            1,
            2,
            1.5,
        ]
    (tmp_path / "c.tfrecord").write_bytes(
        (tmp_path / "a.tfrecord").read_bytes() + (tmp_path / "b.tfrecord").read_bytes()
    )
    with pytest.raises(ps.SchemaError, match=r"types=\{'x': 'float64'\}"):
        ps.open(tmp_path / "c.tfrecord")
    assert _read(tmp_path / "c.tfrecord", pa.float64()) == [1, 2, 1.5]


@pytest.mark.parametrize("dialect", ["tensorflow", "protobuf"])
def test_what_is_given_in_tensorflows_terms_follows_tensorflow(
    tmp_path: Path, dialect: str
) -> None:
    source = _mixed(tmp_path)
    with pytest.raises(ps.SchemaError, match="holds int64 values"):
        list(ps.open(source, schema={"x": FixedLen([], "float32")}, dialect=dialect))
    with pytest.raises(ps.SchemaError, match="holds int64 values"):
        _read(source, pa.float32(), dialect="tensorflow")


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 63).map(lambda n: -(1 << n) + 1))
def test_whole_numbers_are_read_as_floats_or_refused(value: int) -> None:
    for kind, number in ((pa.float32(), np.float32), (pa.float64(), np.float64)):
        _check([value], kind, int(number(value)) == value)


@given(st.floats(width=32) | st.integers(-(1 << 65), 1 << 65).map(np.float32).map(float))
def test_floats_are_read_as_whole_numbers_or_refused(value: float) -> None:
    _check([value], pa.int64(), value.is_integer() and -(2.0**63) <= value < 2.0**63)


def _check(values: list[Any], kind: pa.DataType, is_held: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ps.write({"x": values}, f"{folder}/x.tfrecord")
        if is_held:
            assert _read(f"{folder}/x.tfrecord", kind) == values
            return
        with pytest.raises(ps.SchemaError, match="cannot hold exactly") as refused:
            _read(f"{folder}/x.tfrecord", kind)
        assert refused.value.record == 0 and refused.value.field == "x"
