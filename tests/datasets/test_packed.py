"""`ps.packed`: documents of different length as rows of one length."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets import _packing
from penstock.datasets._packing import in_one_line, whole

Row = dict[str, list[Any]]
ENDINGS = ("tfrecord", "tfrecord.gz", "parquet", "arrow", "h5", "msgpack", "tar")
LENGTHS = np.random.default_rng(0).integers(0, 40, 300)


def documents(lengths: Any) -> list[list[int]]:
    """Documents whose tokens are all different, and none is 0."""
    starts = np.cumsum(lengths) - lengths
    return [list(range(a + 1, a + n + 1)) for a, n in zip(starts, lengths, strict=True)]


def written(folder: Path, docs: Any, ending: str = "tfrecord", files: int = 1) -> ps.Dataset:
    table = pa.table({"id": np.arange(len(docs)), "tokens": pa.array(docs, pa.list_(pa.int64()))})
    made = ps.write(table, folder / f"d-{{shard}}.{ending}", num_shards=files, overwrite=True)
    return ps.open(list(made.paths), types={"tokens": pa.list_(pa.int64())})


def row_of(pieces: list[list[int]], length: int) -> Row:
    """A row in plain Python."""
    row: Row = {"tokens": [], "document": [], "position": [], "mask": []}
    for number, piece in enumerate(pieces):
        row["tokens"] += piece
        row["document"] += [number + 1] * len(piece)
        row["position"] += range(len(piece))
        row["mask"] += [True] * len(piece)
    return {
        name: values + [False if name == "mask" else 0] * (length - len(values))
        for name, values in row.items()
    }


def with_ends(doc: Any, bos: int | None, eos: int | None) -> list[int]:
    """A document with what is added to it."""
    ends = [[] if token is None else [token] for token in (bos, eos)]
    return [*ends[0], *doc, *ends[1]] if doc else []


def in_pieces(docs: Any, length: int, eos: int | None, bos: int | None = None) -> list[Row]:
    """`packed` with split=True, in plain Python."""
    rows: list[list[list[int]]] = []
    room = 0
    for doc in docs:
        left = with_ends(doc, bos, eos)
        while left:
            if not room:
                rows.append([])
                room = length
            rows[-1].append(left[:room])
            room, left = room - len(left[:room]), left[room:]
    return [row_of(row, length) for row in rows]


def best_fit(sizes: list[int], length: int) -> list[list[int]]:
    """The documents of each row, in plain Python: the longest first, each in the fullest row with room for it. Of rows
    that are equally full, the latest one gets the document."""
    rows: list[tuple[int, list[int]]] = []
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        if not sizes[number]:
            continue
        fitting = [row for row in rows if row[0] >= sizes[number]]
        row = min(reversed(fitting), key=lambda row: row[0], default=(length, []))
        if fitting:
            rows.remove(row)
        rows.append((row[0] - sizes[number], [*row[1], number]))
    return sorted(sorted(numbers) for _, numbers in rows)


def rows_of(data: ps.Dataset) -> list[Row]:
    return data.to_table().to_pylist()


LISTS = st.lists(st.integers(0, 30), max_size=40)
TOKENS = st.sampled_from([None, -1, -2])
SLOW = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@SLOW
@given(lengths=LISTS.filter(any), length=st.integers(1, 25), bos=TOKENS, eos=TOKENS)
@pytest.mark.parametrize("ending", ["tfrecord", "parquet", "arrow"])
def test_split_rows_are_those_of_plain_python(
    tmp_path: Path, ending: str, lengths: list[int], length: int, bos: int | None, eos: int | None
) -> None:
    docs = documents(np.array(lengths))
    data = ps.packed(written(tmp_path, docs, ending, 2), "tokens", length, bos=bos, eos=eos)
    expected = in_pieces(docs, length, eos, bos)
    assert rows_of(data) == expected
    assert len(data) == len(expected)
    order = np.random.default_rng(0).permutation(len(expected))
    assert data.take(order).to_pylist() == [expected[number] for number in order]
    assert data[-1] == expected[-1]


@SLOW
@given(lengths=LISTS.filter(any), length=st.integers(1, 25), bos=TOKENS, eos=TOKENS)
def test_pieces_are_those_of_plain_python(
    tmp_path: Path, lengths: list[int], length: int, bos: int | None, eos: int | None
) -> None:
    docs = documents(np.array(lengths))
    data = ps.pieces(written(tmp_path, docs, files=2), "tokens", length, bos=bos, eos=eos)
    expected = [row for doc in docs for row in in_pieces([doc], length, eos, bos)]
    assert rows_of(data) == expected
    assert data.take([len(data) - 1, 0]).to_pylist() == [expected[-1], expected[0]]
    (batch,) = ps.Loader(data, len(data), threads=0)
    assert batch["tokens"].tolist() == [row["tokens"] for row in expected]


@SLOW
@given(lengths=LISTS.filter(any), room=st.integers(1, 25), bos=TOKENS, eos=TOKENS)
def test_whole_documents_fit_best(
    tmp_path: Path, lengths: list[int], room: int, bos: int | None, eos: int | None
) -> None:
    docs = documents(np.array(lengths))
    docs_with_ends = [with_ends(doc, bos, eos) for doc in docs]
    length = max(map(len, docs_with_ends)) + room - 1
    data = ps.packed(
        written(tmp_path, docs, files=2), "tokens", length, bos=bos, eos=eos, split=False
    )
    rows = best_fit(list(map(len, docs_with_ends)), length)
    expected = [row_of([docs_with_ends[n] for n in row], length) for row in rows]
    assert [row["document"] for row in rows_of(data)] == [row["document"] for row in expected]
    assert rows_of(data) == expected
    assert data.take([len(data) - 1, 0]).to_pylist() == [expected[-1], expected[0]]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 9), max_size=200), rows=st.integers(1, 4))
def test_whole_documents_stay_in_their_window(lengths: list[int], rows: int) -> None:
    kept = _packing.WINDOW_ROWS
    _packing.WINDOW_ROWS = rows, rows
    try:
        packing = whole(np.array(lengths, np.int64), 10)
    finally:
        _packing.WINDOW_ROWS = kept
    assert sorted(packing.records) == np.flatnonzero(lengths).tolist()
    assert (packing.ends - packing.starts == np.array(lengths)[packing.records]).all()
    assert (packing.starts[1:] >= packing.ends[:-1]).all()
    assert (packing.starts // 10 == (packing.ends - 1) // 10).all()
    assert (np.diff(packing.first_records()) > 0).all()
    before = np.cumsum(lengths) - lengths
    for row in range(packing.num_rows):
        records = packing.records[packing.starts // 10 == row]
        assert len(set(before[records] // (10 * rows))) == 1
        assert sorted(records) == records.tolist()


def test_whole_documents_leave_little_padding() -> None:
    sizes = np.random.default_rng(0).geometric(1 / 500, 20_000).clip(1, 2048)
    assert whole(sizes, 2048).num_rows <= 1.02 * sizes.sum() / 2048
    assert in_one_line(sizes, 2048).num_rows == -(-sizes.sum() // 2048)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str, split: bool) -> None:
    docs = documents(LENGTHS)
    whole_file = written(tmp_path, docs, "arrow")
    expected = rows_of(ps.packed(whole_file, "tokens", 64, eos=-1, split=split))
    data = ps.packed(written(tmp_path, docs, ending, 3), "tokens", 64, eos=-1, split=split)
    assert rows_of(data) == expected
    numbers = [5, 0, len(data) - 1, 5]
    assert data.take(numbers).to_pylist() == [expected[number] for number in numbers]
    assert sum(shard.num_records for shard in data.shards) == len(data)
    assert [len(batch) for batch in data.scan(batch_records=7)][:2] == [7, 7]
    assert data.head(3).to_pylist() == expected[:3]
    tokens = [token for row in expected for token in row["tokens"] if token > 0]
    assert sorted(tokens) == [token for doc in docs for token in doc]


@pytest.mark.parametrize("split", [True, False])
def test_views_select_and_pickle_as_other_datasets(tmp_path: Path, split: bool) -> None:
    ds = written(tmp_path, documents(LENGTHS), files=2)
    data = ps.packed(ds.select(["tokens"]), "tokens", 64, split=split)
    expected = rows_of(data)
    assert rows_of(pickle.loads(pickle.dumps(data))) == expected
    assert rows_of(data.subset([1, 4])) == [expected[1], expected[4]]
    chosen = data.select(["mask", "tokens"])
    assert chosen[3] == {name: expected[3][name] for name in ("mask", "tokens")}
    assert pickle.loads(pickle.dumps(chosen))[3] == chosen[3]
    assert data.count() == len(expected) == data.to_table(["mask"]).num_rows
    train, val = ps.split(data, {"train": 0.5, "val": 0.5}).values()
    both = [*rows_of(train), *rows_of(val)]
    assert sorted(map(json.dumps, both)) == sorted(map(json.dumps, expected))
    with pytest.raises(ps.UnsupportedError, match="whole files"):
        ps.add_fields(data, {"x": np.arange(len(data))})


def test_a_view_of_documents_is_packed(tmp_path: Path) -> None:
    docs = documents(LENGTHS)
    ds = written(tmp_path, docs, files=3)
    long = [doc for doc in docs if len(doc) > 10]
    expected = in_pieces(long, 32, None)
    assert rows_of(ps.packed(ds.filter("len(tokens) > 10"), "tokens", 32)) == expected
    numbers = [number for number, doc in enumerate(docs) if len(doc) > 10]
    assert rows_of(ps.packed(ds.subset(numbers), "tokens", 32)) == expected


def test_an_overlay_gives_other_lengths(tmp_path: Path) -> None:
    docs = documents(LENGTHS)
    path = written(tmp_path, docs).paths[0]
    assert rows_of(ps.packed(ps.open(path), "tokens", 32)) == in_pieces(docs, 32, None)
    other = [doc[::-2] for doc in docs]
    ps.replace_fields(path, {"tokens": other})
    assert rows_of(ps.packed(ps.open(path), "tokens", 32)) == in_pieces(other, 32, None)


def damaged(path: str) -> list[int]:
    """Damage two records, and return the records that are still good."""
    data = bytearray(Path(path).read_bytes())
    for at in (len(data) // 3 + 14, len(data) // 2 + 14):
        data[at] ^= 1
    before = Path(path).stat()
    Path(path).write_bytes(bytes(data))
    # As if the disk had done it: a file that was written again is a ChangedError.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return [record["id"] for record in ps.open(path, damage="skip")]


@pytest.mark.parametrize("split", [True, False])
def test_damaged_documents_are_left_out(tmp_path: Path, split: bool) -> None:
    docs = documents(LENGTHS + 1)
    path = written(tmp_path, docs).paths[0]
    good = damaged(path)
    assert len(good) == 298
    ds = ps.open(path, damage="skip")
    data = ps.packed(ds, "tokens", 64, split=split)
    table = pa.table({"tokens": [docs[number] for number in good]})
    ps.write(table, tmp_path / "good.arrow")
    expected = rows_of(ps.packed(ps.open(tmp_path / "good.arrow"), "tokens", 64, split=split))
    assert rows_of(data) == expected
    assert len(data.damage) == len(ds.damage) == 2
    loader = ps.Loader(data, 4)
    assert [row for batch in loader for row in batch["tokens"].tolist()] == [
        row["tokens"] for row in expected
    ]
    with pytest.raises(ps.ChecksumError):
        ps.packed(ps.open(path), "tokens", 64, split=split)


def test_stop_packs_the_documents_before_the_damage(tmp_path: Path) -> None:
    docs = documents(LENGTHS + 1)
    path = written(tmp_path, docs).paths[0]
    first_bad = next(n for n, number in enumerate(damaged(path)) if n != number)
    data = ps.packed(ps.open(path, damage="stop"), "tokens", 64)
    assert rows_of(data) == in_pieces(docs[:first_bad], 64, None)


@pytest.mark.parametrize("split", [True, False])
def test_damage_after_the_lengths_were_read_costs_the_rows_of_the_document(
    tmp_path: Path, split: bool
) -> None:
    docs = documents(LENGTHS + 1)
    path = written(tmp_path, docs).paths[0]
    data = ps.packed(ps.open(path, damage="skip"), "tokens", 64, split=split)
    strict = ps.packed(ps.open(path), "tokens", 64, split=split)
    expected = rows_of(data)
    bad = {token for n in set(range(300)) - set(damaged(path)) for token in docs[n]}
    assert len(bad) > 2
    good = [row for row in expected if not bad & set(row["tokens"])]
    assert len(good) < len(expected)
    assert rows_of(data) == good
    assert [row["tokens"] for row in good] == [
        row for batch in ps.Loader(data, 4) for row in batch["tokens"].tolist()
    ]
    assert all("checksum" in region.reason for region in data.damage)
    before = []
    with pytest.raises(ps.ChecksumError) as caught:
        before += strict.scan(batch_records=1)
    assert caught.value.record is not None
    assert docs[caught.value.record][0] in bad
    with pytest.raises(ps.ChecksumError):
        strict.take(np.arange(len(strict)))


def test_rows_go_through_the_loader_and_resume_on_other_ranks(tmp_path: Path) -> None:
    data = ps.packed(written(tmp_path, documents(LENGTHS), files=2), "tokens", 64)
    order = ps.Shuffled(seed=3)
    plain = [row for batch in ps.Loader(data, 4, order=order) for row in batch["tokens"].tolist()]
    assert sorted(plain) == sorted(row["tokens"] for row in rows_of(data))

    def loaders() -> list[ps.Loader]:
        return [ps.Loader(data, 2, order=order, rank=r, world_size=2) for r in range(2)]

    first = loaders()
    begun = [iter(loader) for loader in first]
    seen = [row for _ in range(3) for it in begun for row in next(it)["tokens"].tolist()]
    assert seen == plain[:12]
    alone = ps.Loader(data, 4, order=order)
    alone.load_state_dict(json.loads(json.dumps(first[1].state_dict())))
    assert [row for batch in alone for row in batch["tokens"].tolist()] == plain[12:]


def test_a_batch_has_arrays_of_one_shape(tmp_path: Path) -> None:
    data = ps.packed(written(tmp_path, documents(LENGTHS)), "tokens", 64, eos=0)
    batch = next(iter(ps.Loader(data, 8)))
    assert {name: (a.shape, str(a.dtype)) for name, a in batch.items()} == {
        "tokens": ((8, 64), "int64"),
        "document": ((8, 64), "int32"),
        "position": ((8, 64), "int32"),
        "mask": ((8, 64), "bool"),
    }


@pytest.mark.parametrize("threads", [0, 2])
def test_the_mask_is_false_in_rows_that_only_fill_a_batch(tmp_path: Path, threads: int) -> None:
    data = ps.packed(written(tmp_path, documents(LENGTHS)), "tokens", 64, split=False)
    count = len(data) % 8
    assert count
    *_, last = ps.Loader(data, 8, uneven="pad", threads=threads)
    assert last["mask"].shape == (8, 64)
    assert not last["mask"][count:].any()
    assert last["mask"][:count].tolist() == [row["mask"] for row in rows_of(data)[-count:]]
    assert (last["document"][count:] > 0).any()


def test_a_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    ds = written(tmp_path, documents(LENGTHS))
    state = ps.Loader(ps.packed(ds, "tokens", 64), 4).state_dict()
    for data in (ps.packed(ds, "tokens", 64, split=False), ps.packed(ds, "tokens", 64, eos=1), ds):
        with pytest.raises(ps.StateError):
            ps.Loader(data, 4).load_state_dict(state)


def test_packed_rows_can_be_converted_and_queried(tmp_path: Path) -> None:
    data = ps.packed(written(tmp_path, documents(LENGTHS), files=2), "tokens", 64)
    expected = rows_of(data)
    for name in ("a.parquet", "a.arrow", "a.tfrecord"):
        ps.convert(data, tmp_path / name)
        again = ps.open(tmp_path / name)
        assert again.to_table(["tokens", "position"]).to_pylist() == [
            {"tokens": row["tokens"], "position": row["position"]} for row in expected
        ]
    assert data.lazy().select("tokens").collect()["tokens"].to_list() == [
        row["tokens"] for row in expected
    ]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "uint8"])
def test_tokens_keep_their_type(tmp_path: Path, dtype: str) -> None:
    tokens = pa.array([[1, 2, 3], [4], None, []], pa.list_(pa.from_numpy_dtype(dtype)))
    ps.write(pa.table({"tokens": tokens}), tmp_path / "a.parquet")
    data = ps.packed(ps.open(tmp_path / "a.parquet"), "tokens", 3, eos=9)
    assert data.schema.field("tokens").type == pa.list_(pa.from_numpy_dtype(dtype), 3)
    assert data.to_table()["tokens"].to_pylist() == [[1, 2, 3], [9, 4, 9]]


def test_a_missing_token_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    ps.write(pa.table({"tokens": [[1, 2, 3], [4, None]]}), tmp_path / "a.parquet")
    data = ps.packed(ps.open(tmp_path / "a.parquet"), "tokens", 3)
    assert data[0]["tokens"] == [1, 2, 3]
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        data.take([0, 1])
    assert (caught.value.record, caught.value.field) == (1, "tokens")


def test_no_documents_make_no_rows(tmp_path: Path) -> None:
    ps.write(pa.table({"tokens": pa.array([[], None], pa.list_(pa.int64()))}), tmp_path / "a.arrow")
    for split in (True, False):
        data = ps.packed(ps.open(tmp_path / "a.arrow"), "tokens", 8, split=split)
        assert len(data) == 0
        assert rows_of(data) == []
        assert data.take([]).num_rows == 0


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    ds = written(tmp_path, documents(LENGTHS))
    with pytest.raises(ps.SchemaError, match="no such column"):
        ps.packed(ds, "words", 8)
    with pytest.raises(ps.SchemaError, match="lists of numbers"):
        ps.packed(ds, "id", 8)
    with pytest.raises(ValueError, match="at least 1"):
        ps.packed(ds, "tokens", 0)
    for eos in ("end", 1.5, 2**70):
        with pytest.raises(ps.SchemaError, match="does not fit"):
            ps.packed(ds, "tokens", 8, eos=eos)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a Dataset"):
        ps.packed(ds.paths[0], "tokens", 8)  # type: ignore[arg-type]
    with pytest.raises(ps.SchemaError, match="lists of numbers"):
        ps.packed(ps.packed(ds, "tokens", 8), "tokens", 8)


def test_a_document_longer_than_a_row_is_an_error_that_names_it(tmp_path: Path) -> None:
    ds = written(tmp_path, documents([3, 9, 8, 12]), files=2)
    with pytest.raises(ps.SchemaError, match="2 documents are longer") as caught:
        ps.packed(ds, "tokens", 8, split=False)
    assert caught.value.record == 1
    with pytest.raises(ps.SchemaError, match="2 documents are longer") as caught:
        ps.packed(ds.subset([2, 3]), "tokens", 8, eos=1, split=False)
    assert (caught.value.file, caught.value.record) == (ds.paths[1], 0)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "tfrecord"])
@pytest.mark.parametrize("split", [True, False])
def test_the_documents_that_are_left_out_can_be_counted(
    tmp_path: Path, ending: str, split: bool
) -> None:
    """An `eos` alone is no document, so the rows have as many of them as there are documents with tokens."""
    docs = [[2, 3], [], [4], None, [], [5]]
    data = written(tmp_path, docs, ending)
    left_out = data.count("len(tokens) == 0 or tokens is null")
    assert left_out == 3
    rows = ps.packed(data, "tokens", 4, eos=1, split=split).to_table(columns=["tokens"])
    tokens = [token for row in rows["tokens"].to_pylist() for token in row]
    assert tokens.count(1) == len(docs) - left_out
    assert tokens == ([2, 3, 1, 4, 1, 5, 1, 0] if split else [2, 3, 1, 0, 4, 1, 5, 1])
    pieces = ps.pieces(data, "tokens", 4, eos=1)
    assert len(pieces) == len(docs) - left_out
