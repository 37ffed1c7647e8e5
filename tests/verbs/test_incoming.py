"""Records on their way to a writer: iterables of dicts, and slices of lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import penstock as ps
from penstock.columns.types import cast_values
from penstock.verbs.write.incoming import batches_of


def test_a_generator_may_use_its_dict_and_arrays_again(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        row: dict[str, Any] = {"x": np.zeros(2, np.int32), "l": [0], "b": bytearray(b"-")}
        for number in range(2500):
            row["id"] = number
            row["x"][:] = number
            row["l"][0] = number
            row["b"][:] = b"%d" % number
            yield row

    ps.write(rows(), tmp_path / "x.tfrecord")
    for number, row in enumerate(ps.open(tmp_path / "x.tfrecord")):
        text = str(number) if isinstance(row["b"], str) else b"%d" % number
        assert {**row, "x": list(row["x"])} == {
            "id": number,
            "x": [number] * 2,
            "l": [number],
            "b": text,
        }


def test_a_type_that_comes_late_is_refused_with_a_way_out(tmp_path: Path) -> None:
    rows = ({"a": None if number < 1500 else 1, "i": number} for number in range(2000))
    with pytest.raises(ps.SchemaError, match="from_pylist") as caught:
        ps.write(rows, tmp_path / "x.tfrecord")
    assert (caught.value.record, caught.value.field) == (1500, "a")


def test_records_of_many_bytes_are_gathered_a_few_at_a_time() -> None:
    made = batches_of({"image": b"x" * (1 << 20)} for _ in range(100))
    sizes = [batch.num_rows for batch in made.batches]
    assert sizes == [32, *[4] * 17]


@pytest.mark.parametrize("kind", ["uint8", "int32", "float64", "bool"])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_slices_of_lists_are_cast_alone(kind: str, is_fixed: bool) -> None:
    # pyarrow would cast all 4 million values for each slice.
    flat = pa.array(np.ones(4_000_000, kind))
    ends = pa.array(np.arange(0, len(flat) + 1, 1000, dtype=np.int32))
    lists: Any = pa.FixedSizeListArray.from_arrays(flat, 1000)
    lists = lists if is_fixed else pa.ListArray.from_arrays(ends, flat)
    wanted = pa.list_(pa.int64(), 1000) if is_fixed else pa.list_(pa.int64())
    made = cast_values(lists.slice(100, 10), wanted)
    assert made.get_total_buffer_size() < 100_000
    assert made.to_pylist() == [[1] * 1000] * 10


def test_slices_of_tensors_are_cast_alone() -> None:
    made = batches_of({"x": np.arange(1_000_000, dtype=np.int32).reshape(1000, 10, 100)})
    column = next(made.batches).column("x").slice(5, 2)
    wide = cast_values(column, pa.list_(pa.int64(), 1000))
    assert wide.get_total_buffer_size() < 100_000
    assert wide.flatten().to_pylist() == list(range(5000, 7000))


def test_refusals_name_the_column() -> None:
    frame = pd.DataFrame({"fine": [1, 2], "mixed": [1, "x"]})
    with pytest.raises(ps.SchemaError) as caught:
        batches_of(frame)
    assert caught.value.field == "mixed"
    objects = pl.DataFrame({"fine": [1, 2], "things": [object(), object()]})
    with pytest.raises(ps.SchemaError, match="Python objects") as caught:
        batches_of(objects)
    assert caught.value.field == "things"
    weights = torch.ones(3, requires_grad=True)
    with pytest.raises(ps.SchemaError, match="detach") as caught:
        batches_of({"fine": [1, 2, 3], "weights": weights})
    assert caught.value.field == "weights"


def test_the_index_of_a_pandas_frame_is_a_column_if_it_is_not_the_default() -> None:
    values = {"a": [1, 2]}
    named = pd.DataFrame(values, index=pd.Index(["x", "y"], name="id"))
    assert pa.Table.from_batches(batches_of(named).batches).to_pylist() == [
        {"a": 1, "id": "x"},
        {"a": 2, "id": "y"},
    ]
    texts = pd.DataFrame(values, index=["x", "y"])
    assert batches_of(texts).schema.names == ["a", "__index_level_0__"]
    for rows in (pd.DataFrame(values), pd.DataFrame({"a": [1, 2, 3]}).query("a > 1")):
        assert batches_of(rows).schema.names == ["a"]


def test_objects_of_polars_are_refused_in_a_dict_as_well() -> None:
    series = pl.Series([{1}, {2}], dtype=pl.Object)
    for data in ({"c": series}, pl.DataFrame({"c": series})):
        with pytest.raises(ps.SchemaError, match="Python objects") as caught:
            batches_of(data)
        assert caught.value.field == "c"
