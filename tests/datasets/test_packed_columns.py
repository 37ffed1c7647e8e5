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


def rows_with_ends(docs: Any, length: int, bos: int, eos: int, pad: int) -> list[list[int]]:
    """The values of one column, in plain Python."""
    line = [value for doc in docs for value in (bos, *doc, eos)]
    line += [pad] * (-len(line) % length)
    return [line[at : at + length] for at in range(0, len(line), length)]


def test_each_column_has_its_own_ends(tmp_path: Path) -> None:
    ids, labels, weights = [[5, 6, 7], [8, 9]], [[-100, 6, 7], [-100, 9]], [[0.5] * 3, [1.5] * 2]
    ps.write({"ids": ids, "labels": labels, "weights": weights}, tmp_path / "a.arrow")
    ds = ps.open(tmp_path / "a.arrow")
    columns, pad = ["ids", "labels", "weights"], {"ids": 0, "labels": -100}

    def made(**options: Any) -> ps.Dataset:
        return ps.packed(ds, columns, 4, pad=pad, **options)

    rows = made(bos=2, eos={"ids": 1, "labels": 1, "weights": 0.25})
    assert [row["ids"] for row in rows] == rows_with_ends(ids, 4, 2, 1, 0)
    assert [row["labels"] for row in rows] == rows_with_ends(labels, 4, -100, 1, -100)
    expected = rows_with_ends(weights, 4, 0, 0.25, 0)  # type: ignore[arg-type]
    assert [row["weights"] for row in rows] == expected
    # A column that is not named has its padding there, so a label of 0 is never learned.
    plain = made(bos=2, eos=1)
    assert [row["labels"] for row in plain] == rows_with_ends(labels, 4, -100, -100, -100)
    assert plain.fingerprint == made(bos=2, eos={"ids": 1}).fingerprint
    others = [
        rows,
        plain,
        made(bos={"ids": 2, "labels": 2}, eos=1),
        made(bos=2, eos={**pad, "ids": 1}),
    ]
    assert len({one.fingerprint for one in others}) == 3
    state = ps.Loader(rows, 1).state_dict()
    with pytest.raises(ps.StateError):
        ps.Loader(plain, 1).load_state_dict(state)
    ps.Loader(made(bos=2, eos={"ids": 1, "labels": 1, "weights": 0.25}), 1).load_state_dict(state)


@pytest.mark.parametrize(
    ("eos", "message"),
    [
        ({"labels": 1}, "eos= has no token for this column"),
        ({"ids": 1, "mask": 1}, "eos= is for the columns that are packed: ids, labels"),
        ({"ids": 1, "labels": 0.5}, "eos=0.5 does not fit"),
    ],
)
def test_ends_of_other_columns_are_refused(tmp_path: Path, eos: Any, message: str) -> None:
    ps.write({"ids": [[5, 6]], "labels": [[5, 6]]}, tmp_path / "a.arrow")
    with pytest.raises(ps.SchemaError, match=message):
        ps.pieces(ps.open(tmp_path / "a.arrow"), ["ids", "labels"], 4, eos=eos)


def test_lists_of_one_token_that_were_taken_for_numbers_name_the_type(tmp_path: Path) -> None:
    ps.write(
        {"t": pa.array([[5], [6]], pa.list_(pa.int64()))}, tmp_path / "a.tfrecord", index=False
    )
    with pytest.raises(ps.SchemaError, match="this column is int64") as caught:
        ps.packed(ps.open(tmp_path / "a.tfrecord", index="never"), "t", 4)
    assert caught.value.hint is not None
    assert 'types={"t": "list<int32>"}' in caught.value.hint
    data = ps.open(tmp_path / "a.tfrecord", index="never", types={"t": "list<int32>"})
    assert ps.packed(data, "t", 4)[0]["t"] == [5, 6, 0, 0]
