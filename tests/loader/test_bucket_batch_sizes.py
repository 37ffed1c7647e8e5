"""`buckets={column: {length: batch size}}`: a batch size for each bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

SIZES = {4: 10, 9: 4, 20: 3}
UNEVEN = ("drop", "wrap", "pad")
COUNT = 230


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 21, COUNT)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, lengths: np.ndarray) -> dict[str, ps.Dataset]:
    """Two sources. The id of a record is its number among the records of both."""
    folder, found = tmp_path_factory.mktemp("sizes"), {}
    for name, numbers in {"a": np.arange(150), "b": np.arange(150, COUNT)}.items():
        rows = {"id": numbers, "tokens": [np.arange(n) + 1 for n in lengths[numbers]]}
        ps.write(rows, folder / f"{name}.tfrecord")
        found[name] = ps.open(folder / f"{name}.tfrecord")
    return found


def orders() -> dict[str, Any]:
    return {
        "shuffled": ps.Shuffled(3),
        "mixture": ps.Mixture({"a": 0.3, "b": 0.7}, seed=3),
        "weighted": ps.Weighted(np.random.default_rng(0).random(COUNT), seed=3),
        "balanced": ps.Balanced(np.arange(COUNT) % 7 == 0, seed=3),
    }


def loader_of(sets: Any, world_size: int = 1, rank: int = 0, **options: Any) -> ps.Loader:
    given: dict[str, Any] = {"buckets": {"tokens": SIZES}, "threads": 0, "order": "shuffled"}
    given |= options
    given["order"] = orders()[given["order"]]
    return ps.Loader(sets, world_size=world_size, rank=rank, **given)


def real(batch: dict[str, Any]) -> list[int]:
    return batch["id"][batch.get("mask", slice(None))].tolist()


def bucket_of(batch: dict[str, Any]) -> int:
    return batch["tokens"].shape[1]


def in_order(sets: Any, order: str, epoch: int) -> Counter[int]:
    """The records of an epoch without buckets."""
    loader = ps.Loader(sets, 8, order=orders()[order])
    return Counter(loader.numbers(epoch, 0, loader.plan.length).tolist())


@pytest.mark.parametrize("order", orders())
def test_each_record_comes_as_often_as_the_order_has_it_in_batches_of_its_buckets_size(
    sets: Any, lengths: np.ndarray, order: str
) -> None:
    loader = loader_of(sets, order=order)
    for epoch in range(2):
        expected, batches = len(loader), list(loader)
        assert len(batches) == expected
        assert Counter(n for batch in batches for n in real(batch)) == in_order(sets, order, epoch)
        short = Counter[int]()
        for batch in batches:
            width = bucket_of(batch)
            below = max([-1, *(size for size in SIZES if size < width)])
            found = lengths[batch["id"]]
            assert below < found.min() <= found.max() <= width
            short[width] += len(batch["id"]) != SIZES[width]
            assert len(batch["id"]) <= SIZES[width]
        assert all(count <= 1 for count in short.values())  # the last one of a bucket


def test_equal_sizes_give_the_batches_of_one_batch_size(sets: Any) -> None:
    one = loader_of(sets, buckets={"tokens": dict.fromkeys(SIZES, 8)})
    other = loader_of(sets, buckets={"tokens": list(SIZES)}, batch_size=8)
    assert [b["id"].tolist() for b in one] == [b["id"].tolist() for b in other]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    order=st.sampled_from(sorted(orders())),
    world_size=st.integers(1, 4),
    uneven=st.sampled_from(UNEVEN),
    drop_last=st.booleans(),
    epoch=st.integers(0, 2),
)
def test_the_plan_is_what_all_ranks_deliver_and_each_step_has_one_bucket(
    sets: Any,
    sizes: list[int],
    order: str,
    world_size: int,
    uneven: str,
    drop_last: bool,
    epoch: int,
) -> None:
    by_length = dict(zip(SIZES, sizes, strict=True))
    options: dict[str, Any] = {"buckets": {"tokens": by_length}, "order": order}
    options |= {"uneven": uneven, "drop_last": drop_last, "epoch": epoch}
    report = ps.plan(loader_of(sets, world_size, **options), audit=True)
    assert report.ok and report.coverage is not None and report.buckets is not None
    assert [bucket.batch_size for bucket in report.buckets] == sizes
    assert report.batch_size == max(sizes)
    ranks = [list(loader_of(sets, world_size, rank, **options)) for rank in range(world_size)]
    steps = list(zip(*ranks, strict=True))
    assert len(steps) == report.num_steps
    seen, of_bucket, records = Counter[int](), Counter[int](), Counter[int]()
    for step in steps:
        assert len({batch["tokens"].shape for batch in step}) == 1
        width = bucket_of(step[0])
        of_bucket[width] += 1
        if uneven == "pad":
            assert len(step[0]["id"]) == by_length[width]
        for batch in step:
            seen.update(real(batch))
            records[width] += len(real(batch))
    assert [bucket.num_steps for bucket in report.buckets] == [of_bucket[n] for n in SIZES]
    assert [rank.num_records for rank in report.ranks] == [
        sum(len(batch["id"]) for batch in rank) for rank in ranks
    ]
    for bucket, size in zip(report.buckets, sizes, strict=True):
        rest = bucket.num_records % (size * world_size)
        lost = rest if drop_last else rest % world_size if uneven == "drop" else 0
        assert bucket.num_dropped == lost
        again = bucket.num_padding if uneven == "wrap" else 0
        assert records[bucket.sizes["tokens"]] == bucket.num_records - lost + again
    once = in_order(sets, order, epoch)
    assert uneven != "pad" or drop_last or seen == once
    assert set(seen) <= set(once)


def test_padded_steps_have_one_shape_for_each_bucket(sets: Any) -> None:
    shapes = {batch["tokens"].shape for batch in loader_of(sets, 2, 1, uneven="pad")}
    assert shapes == {(size, length) for length, size in SIZES.items()}


@given(
    order=st.sampled_from(sorted(orders())),
    epoch=st.integers(0, 3),
    stop=st.integers(0, 40),
    world_size=st.integers(1, 4),
    others=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    drawn=st.data(),
)
def test_a_state_continues_on_any_number_of_ranks_with_any_batch_sizes(
    sets: Any,
    order: str,
    epoch: int,
    stop: int,
    world_size: int,
    others: int,
    sizes: list[int],
    drawn: st.DataObject,
) -> None:
    seen = Counter[int]()
    options: dict[str, Any] = {"uneven": "pad", "order": order}
    loaders = [
        loader_of(sets, world_size, rank, epoch=epoch, **options) for rank in range(world_size)
    ]
    for loader in loaders:
        for _, batch in zip(range(stop), loader, strict=False):
            seen.update(real(batch))
    state = drawn.draw(st.sampled_from(loaders)).state_dict()
    if state["epoch"] != epoch:
        return
    assert state["position"] == seen.total() == loaders[0].position
    shapes: list[list[tuple[int, ...]]] = []
    if drawn.draw(st.booleans()):
        options["buckets"] = {"tokens": dict(zip(SIZES, sizes, strict=True))}
    for rank in range(others):
        loader = loader_of(sets, others, rank, **options)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        left = ps.plan(loader).num_steps
        batches = list(loader)
        assert len(batches) == left
        shapes.append([batch["tokens"].shape for batch in batches])
        for batch in batches:
            seen.update(real(batch))
        assert next(iter(loader)) is not None and loader.epoch == epoch + 1
    assert all(one == shapes[0] for one in shapes)
    assert seen == in_order(sets, order, epoch)


@pytest.mark.parametrize("stop", [1, 17, 40])
@pytest.mark.parametrize("order", ["shuffled", "mixture"])
def test_a_state_continues_as_if_there_had_been_no_stop(sets: Any, order: str, stop: int) -> None:
    whole = [batch["id"].tolist() for batch in loader_of(sets, order=order)]
    loader = loader_of(sets, order=order)
    for _ in zip(range(stop), loader, strict=False):
        pass
    resumed = loader_of(sets, order=order)
    resumed.load_state_dict(loader.state_dict())
    assert [batch["id"].tolist() for batch in resumed] == whole[stop:]
    ps.audit(resumed)


@pytest.mark.parametrize("stop", [1, 13, 30])
def test_the_same_batches_go_on_when_one_host_takes_the_batches_of_two(
    sets: Any, stop: int
) -> None:
    """As without buckets: only the records of all ranks together matter."""
    alone = {"tokens": {length: 2 * size for length, size in SIZES.items()}}
    whole = [real(batch) for batch in loader_of(sets, buckets=alone, uneven="pad")]
    two = [loader_of(sets, 2, rank, uneven="pad") for rank in range(2)]
    begun = [iter(loader) for loader in two]
    steps = [[n for it in begun for n in real(next(it))] for _ in range(stop)]
    assert steps == whole[:stop]
    one = loader_of(sets, buckets=alone, uneven="pad")
    one.load_state_dict(two[1].state_dict())
    assert [real(batch) for batch in one] == whole[stop:]
    back = [loader_of(sets, 2, rank, uneven="pad") for rank in range(2)]
    for loader in back:
        loader.load_state_dict(two[0].state_dict())
    rest = zip(*back, strict=True)
    assert [[n for batch in step for n in real(batch)] for step in rest] == whole[stop:]


def test_a_state_of_other_lengths_is_refused(sets: Any) -> None:
    loader = loader_of(sets)
    next(iter(loader))
    assert set(loader.state_dict()["order"]["buckets"]) == {"sizes", "lengths"}
    for buckets in ({4: 10, 10: 4, 20: 3}, {9: 4, 20: 3}):
        with pytest.raises(ps.StateError, match="another order"):
            loader_of(sets, buckets={"tokens": buckets}).load_state_dict(loader.state_dict())
    plain = loader_of(sets, buckets={"tokens": list(SIZES)}, batch_size=8)
    plain.load_state_dict(loader.state_dict())
    assert plain.state_dict() == loader.state_dict()


def test_threads_and_numbers_give_the_same_batches(sets: Any) -> None:
    expected = [batch["id"].tolist() for batch in loader_of(sets, 2, 1)]
    assert [b["id"].tolist() for b in loader_of(sets, 2, 1, threads=3)] == expected
    assert [n.tolist() for n in loader_of(sets, 2, 1).iter_numbers()] == expected
    loader = loader_of(sets, 2, 1)
    assert [loader[step]["id"].tolist() for step in range(len(loader))] == expected
    list(loader)
    stats = loader.stats()
    assert (stats.num_batches, stats.num_records) == (len(expected), sum(map(len, expected)))


def test_torch_and_keras_have_the_same_batches(sets: Any) -> None:
    expected = [[b["id"].tolist() for b in loader_of(sets, epoch=epoch)] for epoch in (0, 1)]
    torch = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    workers = torch.DataLoader(loader_of(sets).torch(), batch_size=None, num_workers=2)
    assert [[b["id"].tolist() for b in workers] for _ in expected] == expected
    keras = pytest.importorskip("penstock.adapters.keras", reason="Keras is not installed")
    batches = keras.KerasBatches(loader_of(sets), x="id", y=None)
    for epoch in expected:
        assert [batches[n][0].tolist() for n in range(len(batches))] == epoch
        batches.on_epoch_end()
    other = keras.KerasBatches(loader_of(sets), x="id", y=None)
    other.load_state_dict(keras.KerasBatches(loader_of(sets), x="id", y=None).state_dict(5))
    assert [other[n][0].tolist() for n in range(len(other))] == expected[0][5:]


def test_jax_has_the_same_batches(sets: Any) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    expected = [batch["id"].tolist() for batch in loader_of(sets)]
    assert [batch["id"].tolist() for batch in loader_of(sets).jax()] == expected


def test_columns_share_the_batch_sizes(tmp_path: Path) -> None:
    rows = {
        "tokens": [[1] * (n % 10 + 1) for n in range(60)],
        "f": [[1.0] * (n % 3) for n in range(60)],
    }
    ps.write(rows, tmp_path / "two.parquet")
    ds = ps.open(tmp_path / "two.parquet")
    for f in ([2, 3], {2: 7, 3: 2}, {3: 2, 2: 7}):
        loader = ps.Loader(ds, buckets={"tokens": {10: 2, 5: 7}, "f": f}, drop_last=True)
        shapes = {(batch["tokens"].shape, batch["f"].shape) for batch in loader}
        assert shapes == {((7, 5), (7, 2)), ((2, 10), (2, 3))}
    with pytest.raises(ValueError, match=r"\[7, 2\] for 'tokens', and \[7, 3\] for 'f'"):
        ps.Loader(ds, buckets={"tokens": {5: 7, 10: 2}, "f": {2: 7, 3: 3}})


@pytest.mark.parametrize(
    ("batch_size", "buckets", "kind", "message"),
    [
        (None, None, TypeError, "batch_size is missing"),
        (None, {"tokens": [4, 20]}, TypeError, "batch_size is missing"),
        (8, {"tokens": SIZES}, ValueError, r"\(10, 4, 3\), so leave out batch_size \(8\)"),
        (
            None,
            {"tokens": {4: 8, 20: 0}},
            ValueError,
            "batch size of bucket 20 of 'tokens' must be",
        ),
        (None, {"tokens": {4: 8, 20: "x"}}, TypeError, "batch size of bucket 20 of 'tokens'"),
        (None, {"tokens": {0: 8}}, ValueError, "a bucket of 'tokens' must be"),
        (None, {"tokens": {}}, ValueError, "ascending"),
    ],
)
def test_wrong_batch_sizes_say_what_to_write(
    sets: Any, batch_size: Any, buckets: Any, kind: Any, message: str
) -> None:
    with pytest.raises(kind, match=message):
        ps.Loader(sets["a"], batch_size, buckets=buckets)


def test_a_plan_and_a_loader_show_the_batch_sizes(sets: Any) -> None:
    loader = loader_of(sets)
    assert "batches of up to 10, " in repr(loader)
    assert "1 rank of 3 to 10 records" in str(ps.plan(loader))
