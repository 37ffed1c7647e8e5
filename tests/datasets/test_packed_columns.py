"""`ps.packed` of several columns that go together, such as tokens and a mask for the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_packed import LISTS, SLOW, documents, rows_of, written

import penstock as ps


def with_masks(folder: Path, docs: Any, ending: str) -> ps.Dataset:
    """Documents with two more lists each: true for odd tokens, and their halves."""
    table = pa.table(
        {
            "odd": pa.array([[bool(n % 2) for n in doc] for doc in docs], pa.list_(pa.bool_())),
            "tokens": pa.array(docs, pa.list_(pa.int64())),
            "half": pa.array([[n / 2 for n in doc] for doc in docs], pa.list_(pa.float32())),
        }
    )
    made = ps.write(table, folder / f"m-{{shard}}.{ending}", num_shards=2, overwrite=True)
    return ps.open(list(made.paths))


@SLOW
@given(
    lengths=LISTS.filter(any),
    length=st.integers(31, 45),
    eos=st.sampled_from([None, -2]),
    how=st.sampled_from(["cut", "whole", "pieces"]),
)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_several_columns_are_packed_in_the_same_places(
    tmp_path: Path, ending: str, lengths: list[int], length: int, eos: int | None, how: str
) -> None:
    ds = with_masks(tmp_path, documents(np.array(lengths)), ending)

    def made(columns: Any) -> ps.Dataset:
        if how == "pieces":
            return ps.pieces(ds, columns, length, eos=eos)
        return ps.packed(ds, columns, length, eos=eos, split=how == "cut")

    data = made(["tokens", "odd", "half"])
    assert data.schema.names == ["tokens", "odd", "half", "document", "position", "mask"]
    alone = rows_of(made("tokens"))
    # An eos of -2 and padding of 0 have no odd bit, and half of an eos is 0.
    expected = [
        {
            **row,
            "odd": [n % 2 == 1 for n in row["tokens"]],
            "half": [max(n, 0) / 2 for n in row["tokens"]],
        }
        for row in alone
    ]
    assert rows_of(data) == expected
    order = np.random.default_rng(0).permutation(len(expected))
    assert data.take(order).to_pylist() == [expected[number] for number in order]
    assert data.select(["odd"])[0] == {"odd": expected[0]["odd"]}


def test_columns_of_other_lengths_are_an_error_that_names_the_record(tmp_path: Path) -> None:
    table = {"tokens": [[1, 2], [3, 4, 5], [6]], "loss_mask": [[0, 1], [1, 1], [0]]}
    ps.write(table, tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "a.parquet")
    with pytest.raises(ps.SchemaError, match="has 2 values, and 'tokens' has 3") as caught:
        ps.packed(ds, ["tokens", "loss_mask"], 4)
    assert (caught.value.record, caught.value.field) == (1, "loss_mask")
    good = ds.filter("len(loss_mask) == len(tokens)")
    (row,) = rows_of(ps.packed(good, ["tokens", "loss_mask"], 4))
    assert (row["tokens"], row["loss_mask"]) == ([1, 2, 6, 0], [0, 1, 0, 0])


def test_a_missing_value_of_another_column_names_that_column(tmp_path: Path) -> None:
    ps.write({"tokens": [[1], [2, 3]], "weight": [[1.0], [None, 1.0]]}, tmp_path / "a.parquet")
    data = ps.packed(ps.open(tmp_path / "a.parquet"), ["tokens", "weight"], 3)
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        data.to_table()
    assert (caught.value.record, caught.value.field) == (1, "weight")


def test_damaged_documents_are_left_out_of_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    docs = documents([3, 4, 5])
    ps.write({"tokens": docs, "again": docs}, path)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # in the last record
    path.write_bytes(content)
    data = ps.packed(ps.open(path, damage="skip"), ["tokens", "again"], 4)
    rows = rows_of(data)
    assert [row["tokens"] for row in rows] == [row["again"] for row in rows]
    assert [row["tokens"] for row in rows] == [[1, 2, 3, 4], [5, 6, 7, 0]]


@pytest.mark.parametrize("columns", [[], ["tokens", "tokens"]])
def test_no_columns_and_repeated_columns_are_refused(tmp_path: Path, columns: list[str]) -> None:
    with pytest.raises(ValueError, match="different columns"):
        ps.packed(written(tmp_path, [[1]]), columns, 4)
