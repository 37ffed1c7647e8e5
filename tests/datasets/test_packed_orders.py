"""`ps.packed` in another order for each epoch, with other padding, and with the numbers of the records."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_packed import (
    LENGTHS,
    LISTS,
    SLOW,
    best_fit,
    documents,
    in_pieces,
    row_of,
    rows_of,
    written,
)

import penstock as ps


def in_order(docs: list[list[int]], order: list[int], length: int, *, split: bool) -> list[Any]:
    """The rows of documents in an order, sorted by their first documents, in plain Python."""
    ordered = [docs[number] for number in order]
    if split:
        rows = in_pieces(ordered, length, None)
    else:
        rows = [
            row_of([ordered[n] for n in row], length)
            for row in best_fit(list(map(len, ordered)), length)
        ]
    record_of = {token: number for number, doc in enumerate(docs) for token in doc}
    return sorted(rows, key=lambda row: record_of[row["tokens"][0]])


@SLOW
@given(
    lengths=LISTS.filter(any),
    length=st.integers(30, 45),
    epoch=st.integers(0, 3),
    split=st.booleans(),
)
@pytest.mark.parametrize("ending", ["tfrecord", "parquet"])
def test_rows_of_an_order_are_those_of_plain_python(
    tmp_path: Path, ending: str, lengths: list[int], length: int, epoch: int, split: bool
) -> None:
    docs = documents(np.array(lengths))
    order = ps.Shuffled(seed=5)
    ds = written(tmp_path, docs, ending, 2)
    data = ps.packed(ds, "tokens", length, split=split, order=order, epoch=epoch)
    numbers = order.take(len(docs), epoch, 0, len(docs)).tolist()
    expected = in_order(docs, numbers, length, split=split)
    assert rows_of(data) == expected
    places = np.random.default_rng(0).permutation(len(expected))
    assert data.take(places).to_pylist() == [expected[place] for place in places]
    assert sum(shard.num_records for shard in data.shards) == len(data)


@pytest.mark.parametrize("split", [True, False])
def test_each_epoch_has_every_token_once_in_other_rows(tmp_path: Path, split: bool) -> None:
    docs = documents(LENGTHS)
    ds = written(tmp_path, docs, files=3)
    every = []
    for epoch in range(3):
        data = ps.packed(ds, "tokens", 64, split=split, order=ps.Shuffled(0), epoch=epoch)
        rows = [row["tokens"] for row in rows_of(data)]
        tokens = sorted(token for row in rows for token in row if token)
        assert tokens == list(range(1, len(tokens) + 1))
        assert len(tokens) == LENGTHS.sum()
        every.append({tuple(row) for row in rows})
        assert rows == [row["tokens"] for row in rows_of(pickle.loads(pickle.dumps(data)))]
    assert len(every[0] & every[1]) + len(every[1] & every[2]) < 5


@pytest.mark.parametrize(
    "order",
    [ps.Blocked(0, window_chunks=2), ps.Interleaved(2, 3), ps.Buffered(0, 20), ps.Sequential()],
    ids=lambda order: type(order).__name__,
)
def test_every_order_packs_each_document_once(tmp_path: Path, order: Any) -> None:
    docs = documents(LENGTHS)
    ds = written(tmp_path, docs, "parquet", files=3)
    data = ps.packed(ds, "tokens", 64, order=order, epoch=1)
    tokens = sorted(token for row in rows_of(data) for token in row["tokens"] if token)
    assert tokens == list(range(1, LENGTHS.sum() + 1))
    if isinstance(order, ps.Sequential):
        assert rows_of(data) == rows_of(ps.packed(ds, "tokens", 64))


def test_weights_repeat_documents(tmp_path: Path) -> None:
    docs = documents([3, 5, 4])
    order = ps.Weighted([1, 3, 0], seed=0, num_records=4)
    data = ps.packed(written(tmp_path, docs), "tokens", 6, order=order)
    tokens = [token for row in rows_of(data) for token in row["tokens"] if token]
    assert sorted(tokens) == sorted([*docs[0], *docs[1] * 3])


def test_a_run_goes_on_in_the_packing_of_its_epoch_on_other_ranks(tmp_path: Path) -> None:
    ds = written(tmp_path, documents(LENGTHS), files=2)

    def loader(epoch: int, rank: int = 0, world_size: int = 1) -> ps.Loader:
        rows = ps.packed(ds, "tokens", 64, order=ps.Shuffled(seed=1), epoch=epoch)
        options: dict[str, Any] = {"rank": rank, "world_size": world_size, "epoch": epoch}
        return ps.Loader(rows, 4 // world_size, order=ps.Shuffled(seed=2), **options)

    plain = [row for batch in loader(2) for row in batch["tokens"].tolist()]
    two = [loader(2, rank, 2) for rank in range(2)]
    begun = [iter(one) for one in two]
    seen = [row for _ in range(3) for it in begun for row in next(it)["tokens"].tolist()]
    assert seen == plain[:12]
    state = json.loads(json.dumps(two[1].state_dict()))
    again = loader(state["epoch"])
    again.load_state_dict(state)
    assert [row for batch in again for row in batch["tokens"].tolist()] == plain[12:]
    with pytest.raises(ps.StateError):
        loader(1).load_state_dict(state)


@pytest.mark.parametrize("how", ["cut", "whole", "pieces", "shuffled"])
def test_record_numbers_name_the_document_of_each_token(tmp_path: Path, how: str) -> None:
    docs = documents(LENGTHS)
    ds = written(tmp_path, docs, files=2)
    keywords: Any = {"eos": -1, "record_numbers": "record"}
    if how == "pieces":
        data = ps.pieces(ds, "tokens", 64, **keywords)
    else:
        order = ps.Shuffled(3) if how == "shuffled" else None
        data = ps.packed(ds, "tokens", 64, split=how != "whole", order=order, **keywords)
    record_of = {token: number for number, doc in enumerate(docs) for token in doc}
    for row in rows_of(data):
        known = zip(row["tokens"], row["record"], row["mask"], strict=True)
        for token, record, is_real in known:
            assert is_real == (record >= 0)
            assert token <= 0 or record == record_of[token]
            assert token != -1 or record >= 0
    plain = rows_of(data.select(["tokens", "record"]))
    assert plain == data.take(np.arange(len(data))).select(["tokens", "record"]).to_pylist()
    batch = next(iter(ps.Loader(data, 4, columns=["record"])))
    assert (batch["record"].dtype, batch["record"].shape) == (np.int64, (4, 64))


def test_record_numbers_are_those_of_the_view_that_was_packed(tmp_path: Path) -> None:
    ds = written(tmp_path, documents(LENGTHS)).filter("len(tokens) > 30")
    row = ps.packed(ds, "tokens", 64, record_numbers="record")[1]
    assert row["tokens"][0] in ds[row["record"][0]]["tokens"]


@pytest.mark.parametrize("pack", [ps.packed, ps.pieces])
def test_padding_has_the_value_that_is_given(tmp_path: Path, pack: Any) -> None:
    table = {"tokens": [[5, 6, 7], [8, 9]], "labels": [[-100, 6, 7], [8, 9]]}
    ps.write(table, tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "a.parquet")
    rows = pack(ds, "tokens", 4, pad=3)
    assert rows_of(rows)[-1]["tokens"][-1] == 3
    assert [t for row in rows_of(rows) for t in row["tokens"] if t != 3] == [5, 6, 7, 8, 9]
    assert all((row["tokens"][n] == 3) != row["mask"][n] for row in rows_of(rows) for n in range(4))
    rows = pack(ds, ["tokens", "labels"], 4, pad={"tokens": 3, "labels": -100})
    last = rows_of(rows)[-1]
    assert {t for t, real in zip(last["labels"], last["mask"], strict=True) if not real} == {-100}
    assert rows.fingerprint != pack(ds, ["tokens", "labels"], 4, pad=3).fingerprint
    first = pack(ds, ["tokens", "labels"], 8, pad=3)[0]
    assert [first["tokens"][-1], first["labels"][-1]] == [3, 0]


def test_other_arguments_of_packed_are_checked(tmp_path: Path) -> None:
    docs = documents([3, 9])
    ds = written(tmp_path, docs)
    with pytest.raises(ps.SchemaError, match="pad='x' does not fit"):
        ps.packed(ds, "tokens", 8, pad="x")  # type: ignore[arg-type]
    with pytest.raises(ps.SchemaError, match="columns that are packed: tokens"):
        ps.packed(ds, "tokens", 8, pad={"id": 1})
    with pytest.raises(ps.SchemaError, match="another name"):
        ps.packed(ds, "tokens", 8, record_numbers="mask")
    with pytest.raises(TypeError, match="name of a column"):
        ps.packed(ds, "tokens", 8, record_numbers=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs an order="):
        ps.packed(ds, "tokens", 8, epoch=1)
    with pytest.raises(TypeError, match="is not an order"):
        ps.packed(ds, "tokens", 8, order=ps.Shuffled)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Mixture of the rows"):
        ps.packed(ds, "tokens", 8, order=ps.Mixture({"a": 1}, seed=0))
    with pytest.raises(ps.SchemaError, match="longer than a row") as caught:
        ps.packed(ds, "tokens", 8, split=False, order=ps.Shuffled(0))
    assert caught.value.record == 1


def test_damage_in_a_shuffled_packing_costs_the_documents(tmp_path: Path) -> None:
    docs = documents(LENGTHS + 1)
    path = Path(written(tmp_path, docs).paths[0])
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 14] ^= 1
    path.write_bytes(bytes(data))
    ds = ps.open(path, damage="skip")
    good = {record["id"] for record in ds}
    rows = rows_of(ps.packed(ds, "tokens", 64, order=ps.Shuffled(0), epoch=2))
    tokens = sorted(token for row in rows for token in row["tokens"] if token)
    assert tokens == sorted(token for number in good for token in docs[number])
    assert len(good) == len(docs) - 1


def test_no_documents_in_an_order_make_no_rows(tmp_path: Path) -> None:
    ps.write(pa.table({"tokens": pa.array([[], None], pa.list_(pa.int64()))}), tmp_path / "a.arrow")
    data = ps.packed(ps.open(tmp_path / "a.arrow"), "tokens", 8, order=ps.Shuffled(0))
    assert rows_of(data) == []


def test_several_datasets_are_packed_one_by_one_and_mixed(tmp_path: Path) -> None:
    sets = {}
    for number, name in enumerate("ab"):
        ps.write({"tokens": [[number]] * 6}, tmp_path / f"{name}.tfrecord")
        sets[name] = ps.open(tmp_path / f"{name}.tfrecord")
    for several in (sets, list(sets.values())):
        with pytest.raises(TypeError, match=r"pack each .*order=penstock\.Mixture"):
            ps.packed(several, "tokens", 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"not str; try penstock\.open"):
        ps.packed("a.tfrecord", "tokens", 2)  # pyright: ignore[reportArgumentType]
    rows = {name: ps.packed(ds, "tokens", 2) for name, ds in sets.items()}
    loader = ps.Loader(rows, 2, order=ps.Mixture({"a": 0.5, "b": 0.5}, seed=0))
    assert {n for batch in loader for n in np.unique(batch["tokens"]).tolist()} == {0, 1}
