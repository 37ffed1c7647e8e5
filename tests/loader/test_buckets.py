"""`buckets=`: batches of records of similar length."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets import lengths as reading

SIZES = [4, 9, 20]
UNEVEN = ("drop", "wrap", "pad")


def written(folder: Path, lengths: Any, name: str = "tokens.tfrecord") -> ps.Dataset:
    tokens = [np.arange(length) + 1 for length in lengths]
    made = ps.write({"id": np.arange(len(tokens)), "tokens": tokens}, folder / name, overwrite=True)
    return ps.open(list(made.paths))


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return np.random.default_rng(0).integers(1, 21, 500)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, lengths: np.ndarray) -> ps.Dataset:
    return written(tmp_path_factory.mktemp("buckets"), lengths)


def loader_of(data: Any, world_size: int = 1, rank: int = 0, **options: Any) -> ps.Loader:
    given: dict[str, Any] = {"order": ps.Shuffled(seed=3), "buckets": {"tokens": SIZES}, **options}
    return ps.Loader(data, 8, world_size=world_size, rank=rank, threads=0, **given)


def steps_of(data: Any, world_size: int, **options: Any) -> list[list[dict[str, Any]]]:
    """The batches of an epoch: for each step, the batches of all ranks."""
    ranks = [list(loader_of(data, world_size, rank, **options)) for rank in range(world_size)]
    return [list(step) for step in zip(*ranks, strict=True)]


def test_a_state_is_kept_if_the_rest_has_as_many_steps_as_an_epoch(data: ps.Dataset) -> None:
    """With more ranks, a step has more records. So the rest of an epoch may have as many steps as a whole epoch."""
    first = loader_of(data)
    next(iter(first))
    state = first.state_dict()
    for world_size in range(2, 9):
        other = loader_of(data, world_size)
        other.load_state_dict(state)
        assert other.state_dict() == state
        again = loader_of(data, world_size)
        again.load_state_dict(other.state_dict())
        assert [b["id"].tolist() for b in again] == [b["id"].tolist() for b in other]


@pytest.mark.parametrize(
    "order", [ps.Sequential(), ps.Shuffled(1), ps.Blocked(1), ps.Buffered(1, 64)]
)
def test_every_record_comes_once_in_its_bucket(
    data: ps.Dataset, lengths: np.ndarray, order: Any
) -> None:
    loader = loader_of(data, order=order)
    seen: list[int] = []
    for batch in loader:
        width = batch["tokens"].shape[1]
        below = max([0, *(size for size in SIZES if size < width)])
        assert width in SIZES
        for number, row in zip(batch["id"], batch["tokens"], strict=True):
            length = lengths[number]
            assert below < length <= width
            assert row.tolist() == [*range(1, length + 1), *[0] * (width - length)]
        seen += batch["id"].tolist()
    assert len(loader) == len(list(loader_of(data, order=order)))
    assert sorted(seen) == list(range(len(lengths)))


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 3])
def test_all_ranks_have_the_same_bucket_and_size_in_a_step(
    data: ps.Dataset, lengths: np.ndarray, world_size: int, uneven: str, drop_last: bool
) -> None:
    counted: Counter[int] = Counter()
    for step in steps_of(data, world_size, uneven=uneven, drop_last=drop_last):
        assert len({batch["tokens"].shape for batch in step}) == 1
        for batch in step:
            counted.update(batch["id"][batch.get("mask", np.ones(len(batch["id"]), bool))].tolist())
    bucket_sizes = np.bincount(np.searchsorted(SIZES, lengths))
    lost = len(lengths) - len(counted)
    repeated = sum(times - 1 for times in counted.values())
    if drop_last:
        assert lost == sum(n % (8 * world_size) for n in bucket_sizes)
    elif uneven == "drop":
        assert lost == sum(n % (8 * world_size) % world_size for n in bucket_sizes)
    else:
        assert lost == 0
    assert repeated < len(SIZES) * world_size if uneven == "wrap" else repeated == 0


def test_padded_steps_are_full(data: ps.Dataset) -> None:
    for batch in loader_of(data, uneven="pad"):
        assert batch["mask"].shape == (8,) == batch["id"].shape


def test_epochs_differ_and_repeat(data: ps.Dataset) -> None:
    loader = loader_of(data)
    first, second = ([batch["id"].tolist() for batch in loader] for _ in range(2))
    assert first != second
    loader.set_epoch(0)
    assert [batch["id"].tolist() for batch in loader] == first
    shapes = [batch["tokens"].shape[1] for batch in loader_of(data)]
    assert shapes != sorted(shapes)


@given(stop=st.integers(0, 60), world_size=st.integers(1, 4), drawn=st.data())
def test_a_state_continues_on_any_number_of_ranks(
    data: ps.Dataset, stop: int, world_size: int, drawn: st.DataObject
) -> None:
    before: Counter[int] = Counter()
    loaders = [loader_of(data, world_size, rank, uneven="pad") for rank in range(world_size)]
    for loader in loaders:
        for _, batch in zip(range(stop), loader, strict=False):
            before.update(batch["id"][batch["mask"]].tolist())
    state = drawn.draw(st.sampled_from(loaders)).state_dict()
    if state["epoch"] == 1:
        return
    others = drawn.draw(st.integers(1, 4))
    after: Counter[int] = Counter()
    shapes: list[list[tuple[int, ...]]] = []
    for rank in range(others):
        loader = loader_of(data, others, rank, uneven="pad")
        loader.load_state_dict(state)
        batches = list(loader)
        shapes.append([batch["tokens"].shape for batch in batches])
        for batch in batches:
            after.update(batch["id"][batch["mask"]].tolist())
    assert all(one == shapes[0] for one in shapes)
    assert before + after == Counter(range(len(data)))


@pytest.mark.parametrize("stop", [0, 1, 17, 40])
def test_a_state_continues_as_if_there_had_been_no_stop(data: ps.Dataset, stop: int) -> None:
    whole = [batch["id"].tolist() for batch in loader_of(data)]
    loader = loader_of(data)
    for _ in zip(range(stop), loader, strict=False):
        pass
    resumed = loader_of(data)
    resumed.load_state_dict(loader.state_dict())
    again = loader_of(data)
    rest = []
    for number, batch in enumerate(resumed):
        rest.append(batch["id"].tolist())
        if number == 3:  # a state of a loader that was itself resumed
            again.load_state_dict(resumed.state_dict())
            assert [one["id"].tolist() for one in again] == whole[stop + 4 :]
    assert rest == whole[stop:]
    assert [batch["id"].tolist() for batch in resumed] == [
        batch["id"].tolist() for batch in (loader_of(data, epoch=1))
    ]
    resumed.set_epoch(0)
    assert [batch["id"].tolist() for batch in resumed] == whole


def test_threads_change_nothing(data: ps.Dataset) -> None:
    one, other = (
        loader_of(data),
        ps.Loader(data, 8, order=ps.Shuffled(seed=3), buckets={"tokens": SIZES}, threads=3),
    )
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a["id"], b["id"])
        assert np.array_equal(a["tokens"], b["tokens"])
    assert np.array_equal(pickle.loads(pickle.dumps(one))[2]["id"], one[2]["id"])


def test_lengths_are_read_once_and_kept_in_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: np.ndarray
) -> None:
    scanned: list[Any] = []
    read = reading.shard_batches
    monkeypatch.setattr(
        reading,
        "shard_batches",
        lambda dataset, columns, threads, shards, skipped: (
            scanned.extend(shards) or read(dataset, columns, threads, shards, skipped)
        ),
    )
    for name in ("a.tfrecord", "a.tfrecord.gz", "a.parquet", "a.arrow"):
        ds = written(tmp_path, lengths, name)
        first = [batch["id"].tolist() for batch in loader_of(ds)]
        assert scanned == [0]
        assert [batch["id"].tolist() for batch in loader_of(ps.open(ds.paths[0]))] == first
        assert scanned == [0]
        scanned.clear()


def test_lengths_in_the_index_of_a_changed_file_are_not_used(tmp_path: Path) -> None:
    for count in (30, 31):
        ds = written(tmp_path, [count % 7 + 1] * count)
        assert sum(len(batch["id"]) for batch in loader_of(ds)) == count
    assert {batch["tokens"].shape[1] for batch in loader_of(ds)} == {4}


def test_views_and_several_datasets_have_buckets(
    tmp_path: Path, data: ps.Dataset, lengths: np.ndarray
) -> None:
    view = data.filter("id >= 100")
    ids = [number for batch in loader_of(view) for number in batch["id"].tolist()]
    assert sorted(ids) == list(range(100, 500))
    other = written(tmp_path, [3] * 40)
    both = list(loader_of([data, other]))
    assert sum(len(batch["id"]) for batch in both) == 540


def test_a_view_takes_the_lengths_from_the_index_of_its_file(
    tmp_path: Path, lengths: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = written(tmp_path, lengths)
    loader_of(ds)
    monkeypatch.setattr(
        reading, "shard_batches", lambda *given: pytest.fail("read again") if given[3] else []
    )
    view = ds.subset(np.arange(100, 500))
    ids = [number for batch in loader_of(view) for number in batch["id"].tolist()]
    assert sorted(ids) == list(range(100, 500))
    short = ds.subset(np.flatnonzero(lengths <= 4))
    assert {batch["tokens"].shape[1] for batch in loader_of(short)} == {4}


@pytest.mark.parametrize("damage", ["skip", "stop"])
def test_damaged_records_are_left_out_of_their_batches(
    tmp_path: Path, lengths: np.ndarray, damage: Any
) -> None:
    path = Path(written(tmp_path, lengths).paths[0])
    data = bytearray(path.read_bytes())
    for at in (len(data) // 3 + 14, len(data) // 2 + 14):  # in the payloads of two records
        data[at] ^= 1
    path.write_bytes(bytes(data))
    good = [record["id"] for record in ps.open(path, damage=damage)]
    assert 100 < len(good) < 500
    loader = loader_of(ps.open(path, damage=damage), order=ps.Sequential())
    ids = [number for batch in loader for number in batch["id"].tolist()]
    if damage == "skip":
        assert len(good) == 498
        assert sorted(ids) == good
    else:
        assert set(ids) < set(good)


def test_several_columns_share_a_bucket(tmp_path: Path) -> None:
    tokens = [[1] * (n % 10 + 1) for n in range(100)]
    frames = [[1.0] * (n % 3 + 1) for n in range(100)]
    ps.write({"tokens": tokens, "frames": frames}, tmp_path / "two.tfrecord")
    loader = loader_of(
        ps.open(tmp_path / "two.tfrecord"), buckets={"tokens": [5, 10], "frames": [2, 3]}
    )
    shapes = {(batch["tokens"].shape[1], batch["frames"].shape[1]) for batch in loader}
    assert shapes == {(5, 2), (10, 3)}


def test_longer_lists_are_an_error_or_truncated(data: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match=r"longer than the largest bucket \(9\)") as caught:
        loader_of(data, buckets={"tokens": [4, 9]})
    assert "truncate=True" in str(caught.value)
    batches = list(loader_of(data, buckets={"tokens": [4, 9]}, truncate=True))
    assert {batch["tokens"].shape[1] for batch in batches} == {4, 9}
    assert sum(len(batch["id"]) for batch in batches) == 500


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ({"id": [4]}, r"longer than the largest bucket \(4\)"),
        ({"none": [4]}, "no such column for buckets="),
        ({"tokens": [9, 4]}, "ascending"),
        ({"tokens": []}, "ascending"),
        ({"tokens": [4, 4, 20]}, "ascending"),
        ({"tokens": [0, 20]}, "bucket of 'tokens'"),
        ([4, 9], "is a dict"),
    ],
)
def test_wrong_buckets_are_refused(data: ps.Dataset, buckets: Any, message: str) -> None:
    with pytest.raises((ps.SchemaError, ValueError, TypeError), match=message):
        loader_of(data, buckets=buckets)


def test_a_state_of_other_buckets_is_refused(data: ps.Dataset) -> None:
    loader = loader_of(data)
    next(iter(loader))
    with pytest.raises(ps.StateError):
        loader_of(data, buckets={"tokens": [10, 20]}).load_state_dict(loader.state_dict())
    for counts in ([1], None, [1, 2, "3"], [-1, 0, 0], [501, 0, 0]):
        with pytest.raises(ps.StateError, match="other buckets"):
            loader_of(data).load_state_dict({**loader.state_dict(), "buckets": counts})
