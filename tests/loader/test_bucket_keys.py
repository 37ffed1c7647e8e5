"""`buckets=` by a column of integers, or by an expression that gives integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

COUNT = 200
SIZES = [5, 12, 30]
RNG = np.random.default_rng(0)
A, B = RNG.integers(0, 15, COUNT), RNG.integers(1, 16, COUNT)
TABLE = pa.table(
    {
        "id": np.arange(COUNT),
        "num_tokens": pa.array(A + B, pa.int32()),
        "a": [[7] * n for n in A],
        "b": [[8] * n for n in B],
        "text": ["é" * n for n in A + B],
        "score": (A + B) + 0.5,
    }
)


@pytest.fixture(scope="module", params=["tfrecord", "parquet"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    folder = tmp_path_factory.mktemp("keys")
    made = ps.write(TABLE, folder / f"k-{{shard}}.{request.param}", num_shards=3)
    lists = {"a": pa.list_(pa.int64()), "b": pa.list_(pa.int64()), "text": pa.string()}
    return ps.open(list(made.paths), types=lists)


def batches_of(data: Any, buckets: Any, **options: Any) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"order": ps.Shuffled(seed=3), "threads": 0, **options}
    size = None if any(isinstance(sizes, dict) for sizes in buckets.values()) else 8
    return list(ps.Loader(data, size, buckets=buckets, **given))


@pytest.mark.parametrize("columns", [["id"], ["id", "b"]])
def test_lists_that_are_not_read_decide_the_bucket(data: ps.Dataset, columns: list[str]) -> None:
    sizes = {"a": {5: 8, 14: 4}, "b": [5, 15]}
    for batch in batches_of(data, sizes, columns=columns):
        ids, found = batch["id"], list(batch)
        is_long = (A[ids] > 5) | (B[ids] > 5)
        assert is_long.all() or not is_long.any()
        assert len(ids) <= (4 if is_long[0] else 8) and found == columns
        if "b" in columns:
            assert batch["b"].shape == (len(ids), 15 if is_long[0] else 5)
    with pytest.raises(ps.SchemaError, match=r"longer than the largest bucket.*with length"):
        ps.Loader(data, 8, buckets={"a": [5]}, columns=["id"])


KEYS = ["num_tokens", "len(text)", "len(a) + len(b)", 'cast(score, "int64")', "`num_tokens` + 0"]


@pytest.mark.parametrize("key", KEYS)
def test_each_batch_has_records_of_one_bucket(data: ps.Dataset, key: str) -> None:
    if "cast" in key:
        key = 'cast(score - 0.5, "int64")'
    buckets_of = np.searchsorted(SIZES, A + B)
    loader = ps.Loader(data, 8, buckets={key: SIZES}, order=ps.Shuffled(3), threads=0)
    report = ps.plan(loader, audit=True)
    assert report.ok
    assert [one.sizes for one in report.buckets or ()] == [{key: size} for size in SIZES]
    batches = list(loader)
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == list(range(COUNT))
    assert all(len(set(buckets_of[batch["id"]])) == 1 for batch in batches)
    assert key not in batches[0] or key == "num_tokens"


def test_batches_are_those_of_a_list_of_that_length(tmp_path: Path, data: ps.Dataset) -> None:
    """The records of each batch are those of buckets by a column of lists with these lengths."""
    lists = {"id": np.arange(COUNT), "both": [[0] * n for n in A + B]}
    ps.write(lists, tmp_path / "lists.arrow")
    expected = batches_of(ps.open(tmp_path / "lists.arrow"), {"both": SIZES}, uneven="pad")
    found = batches_of(data, {"len(a) + len(b)": SIZES}, uneven="pad")
    assert [b["id"].tolist() for b in found] == [b["id"].tolist() for b in expected]


def test_lists_are_padded_as_ragged_and_pad_to_say(data: ps.Dataset) -> None:
    for batch in batches_of(data, {"num_tokens": SIZES}, ragged="pad", pad_to={"b": 20}):
        assert batch["a"].shape == (len(batch["id"]), max(A[batch["id"]]))
        assert batch["b"].shape == (len(batch["id"]), 20)
    for batch in batches_of(data, {"len(a) + len(b)": SIZES, "a": [4, 9, 15]}):
        assert batch["a"].shape[1] in (4, 9, 15)
        assert isinstance(batch["b"], tuple)


def test_the_key_may_be_a_column_that_is_not_read(data: ps.Dataset) -> None:
    batches = batches_of(data, {"num_tokens": {12: 16, 30: 4}}, columns=["id"])
    assert {tuple(batch) for batch in batches} == {("id",)}
    assert max(len(batch["id"]) for batch in batches) == 16


def batches_by(data: Any, key: str) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches_of(data, {key: SIZES})]


def test_views_and_mixtures_have_buckets_by_expression(data: ps.Dataset) -> None:
    some = data.filter("num_tokens > 12")
    found = batches_by(some, "len(text)")
    assert sorted(n for batch in found for n in batch) == np.flatnonzero(A + B > 12).tolist()
    both = ps.Loader(
        {"x": data, "y": some},
        8,
        order=ps.Mixture({"x": 0.5, "y": 0.5}, seed=0),
        buckets={"len(text)": SIZES},
        threads=0,
    )
    buckets_of = np.searchsorted(SIZES, A + B)
    assert all(len(set(buckets_of[batch["id"]])) == 1 for batch in both)


def test_a_state_resumes_on_other_ranks(data: ps.Dataset) -> None:
    def loader(rank: int = 0, world_size: int = 1) -> ps.Loader:
        options: dict[str, Any] = {"rank": rank, "world_size": world_size, "threads": 0}
        return ps.Loader(
            data, 8 // world_size, order=ps.Shuffled(1), buckets={"len(text)": SIZES}, **options
        )

    expected = [sorted(batch["id"].tolist()) for batch in loader()]
    two = [loader(rank, 2) for rank in range(2)]
    begun = [iter(one) for one in two]
    steps = [[n for it in begun for n in next(it)["id"].tolist()] for _ in range(4)]
    assert [sorted(step) for step in steps] == expected[:4]
    alone = loader()
    alone.load_state_dict(two[1].state_dict())
    assert [sorted(batch["id"].tolist()) for batch in alone] == expected[4:]
    other = ps.Loader(data, 8, order=ps.Shuffled(1), buckets={"len(a)": SIZES}, threads=0)
    with pytest.raises(ps.StateError):
        other.load_state_dict(two[0].state_dict())


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    made = ps.write({"id": np.arange(50), "n": np.arange(50) % 20}, tmp_path / "d.tfrecord")
    path = Path(made.paths[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2 + 14] ^= 1
    path.write_bytes(bytes(content))
    ds = ps.open(path, damage="skip")
    good = [record["id"] for record in ds]
    assert len(good) == 49
    batches = batches_of(ds, {"n + 0": SIZES})
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == good
    assert all(np.ptp(np.searchsorted(SIZES, batch["id"] % 20)) == 0 for batch in batches)


def test_a_missing_value_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    ps.write(pa.table({"n": [3, None, 4]}), tmp_path / "n.parquet")
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        batches_of(ps.open(tmp_path / "n.parquet"), {"n": SIZES})
    assert (caught.value.record, caught.value.field) == (1, "n")
    assert len(batches_of(ps.open(tmp_path / "n.parquet").filter("n is not null"), {"n": [9]})) == 1


def test_larger_values_are_an_error_or_in_the_largest_bucket(data: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match=r"largest bucket \(9\).* with value") as caught:
        batches_of(data, {"len(text)": [9]})
    assert "truncate=True" in str(caught.value)
    batches = batches_of(data, {"len(text)": [4, 9]}, truncate=True)
    assert sum(len(batch["id"]) for batch in batches) == COUNT
    assert max(len(text) for batch in batches for text in batch["text"]) == max(A + B)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("text", r"(?s)string.*len\(text\)"),
        ("score", r"(?s)(double|float).*cast\(score"),
        ("len(text) / 2", "double"),
        ("words", "no such column for buckets="),
        ("len(words)", "no such column for buckets="),
        ("len(text", "neither"),
        ("3", "neither"),
        ('len("three")', "needs a column"),
    ],
)
def test_other_keys_are_refused(data: ps.Dataset, key: str, message: str) -> None:
    with pytest.raises(ps.SchemaError, match=message) as caught:
        batches_of(data, {key: SIZES})
    assert caught.value.field in (key, "words")
