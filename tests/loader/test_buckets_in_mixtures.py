"""`buckets=` with orders that repeat or omit records. Their epochs differ in the number of records of each bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

SIZES = [4, 9, 20]
UNEVEN = ("drop", "wrap", "pad")
COUNT = 170


def written(path: Path, first: int, longest: int, count: int) -> ps.Dataset:
    lengths = np.random.default_rng(first).integers(1, longest + 1, count)
    tokens = [np.arange(length) + 1 for length in lengths]
    ps.write({"id": np.arange(first, first + count), "tokens": tokens}, path)
    return ps.open(path)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ps.Dataset]:
    folder = tmp_path_factory.mktemp("mixture")
    return {
        "short": written(folder / "short.tfrecord", 0, 6, 130),
        "long": written(folder / "long.parquet", 130, 20, 40),
    }


def orders() -> dict[str, Any]:
    weights = np.random.default_rng(0).random(COUNT)
    return {
        "mixture": ps.Mixture({"short": 0.3, "long": 0.7}, seed=3),
        "fewer": ps.Mixture({"short": 0.5, "long": 0.5}, seed=3, num_records=101),
        "weighted": ps.Weighted(weights, seed=3),
        "balanced": ps.Balanced(np.arange(COUNT) % 7 == 0, seed=3),
    }


def loader_of(
    sets: dict[str, ps.Dataset], order: str, world_size: int = 1, rank: int = 0, **options: Any
) -> ps.Loader:
    given: dict[str, Any] = {"buckets": {"tokens": SIZES}, "threads": 0, **options}
    return ps.Loader(sets, 8, order=orders()[order], world_size=world_size, rank=rank, **given)


def real(batch: dict[str, Any]) -> list[int]:
    ids = batch["id"]
    return ids[batch.get("mask", np.ones(len(ids), bool))].tolist()


def in_order(sets: dict[str, ps.Dataset], order: str, epoch: int) -> Counter[int]:
    """The records of an epoch without buckets. In these sets, a record's id is its number."""
    loader = ps.Loader(sets, 8, order=orders()[order])
    return Counter(loader.numbers(epoch, 0, loader.plan.length).tolist())


@pytest.mark.parametrize("order", orders())
def test_an_epoch_has_the_records_of_the_order(sets: dict[str, ps.Dataset], order: str) -> None:
    loader = loader_of(sets, order, uneven="pad")
    for epoch in range(4):
        expected = len(loader)
        batches = list(loader)
        assert len(batches) == expected
        assert Counter(n for batch in batches for n in real(batch)) == in_order(sets, order, epoch)
        for batch in batches:
            width = batch["tokens"].shape[1]
            longest = (batch["tokens"][batch["mask"]] != 0).sum(1)
            below = max([0, *(size for size in SIZES if size < width)])
            assert below < longest.min() <= longest.max() <= width
    assert loader.epoch == 4


def test_epochs_may_differ_in_their_number_of_steps(sets: dict[str, ps.Dataset]) -> None:
    loader = loader_of(sets, "mixture")
    found = [len(list(loader)) for _ in range(8)]
    assert len(set(found)) > 1
    for epoch, count in enumerate(found):
        loader.set_epoch(epoch)
        assert len(loader) == count
        assert np.array_equal(loader[count - 1]["id"], list(loader)[-1]["id"])


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("drop_last", [False, True])
def test_all_ranks_have_the_same_bucket_and_size_in_a_step(
    sets: dict[str, ps.Dataset], order: str, uneven: Any, drop_last: bool
) -> None:
    ranks = [
        list(loader_of(sets, order, 3, rank, uneven=uneven, drop_last=drop_last, epoch=1))
        for rank in range(3)
    ]
    for step in zip(*ranks, strict=True):
        assert len({batch["tokens"].shape for batch in step}) == 1


@given(
    order=st.sampled_from(sorted(orders())),
    epoch=st.integers(0, 5),
    stop=st.integers(0, 30),
    world_size=st.integers(1, 4),
    others=st.integers(1, 4),
    drawn=st.data(),
)
def test_a_state_continues_on_any_number_of_ranks(
    sets: dict[str, ps.Dataset],
    order: str,
    epoch: int,
    stop: int,
    world_size: int,
    others: int,
    drawn: st.DataObject,
) -> None:
    seen = Counter[int]()
    given: dict[str, Any] = {"uneven": "pad", "epoch": epoch}
    loaders = [loader_of(sets, order, world_size, rank, **given) for rank in range(world_size)]
    for loader in loaders:
        for _, batch in zip(range(stop), loader, strict=False):
            seen.update(real(batch))
    state = drawn.draw(st.sampled_from(loaders)).state_dict()
    if state["epoch"] != epoch:
        return
    assert state["position"] == seen.total() == loaders[0].position
    for rank in range(others):
        loader = loader_of(sets, order, others, rank, uneven="pad")
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        for batch in loader:
            seen.update(real(batch))
        assert next(iter(loader)) is not None and loader.epoch == epoch + 1
    assert seen == in_order(sets, order, epoch)


@pytest.mark.parametrize("stop", [0, 1, 9, 20])
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_state_continues_as_if_there_had_been_no_stop(
    sets: dict[str, ps.Dataset], stop: int, epoch: int
) -> None:
    loader = loader_of(sets, "mixture", epoch=epoch)
    whole = [batch["id"].tolist() for batch in loader]
    loader.set_epoch(epoch)
    for _ in zip(range(stop), loader, strict=False):
        pass
    resumed = loader_of(sets, "mixture")
    resumed.load_state_dict(loader.state_dict())
    assert [batch["id"].tolist() for batch in resumed] == whole[stop:]
    following = loader_of(sets, "mixture", epoch=epoch + 1)
    assert [b["id"].tolist() for b in resumed] == [b["id"].tolist() for b in following]


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("uneven", UNEVEN)
def test_a_plan_counts_every_record_of_the_order(
    sets: dict[str, ps.Dataset], order: str, uneven: Any
) -> None:
    loader = loader_of(sets, order, 2, uneven=uneven, epoch=2)
    report = ps.plan(loader, audit=True)
    assert report.ok and report.buckets is not None and report.coverage is not None
    assert report.num_steps == len(loader) == sum(bucket.num_steps for bucket in report.buckets)
    assert report.length == sum(bucket.num_records for bucket in report.buckets)
    ps.audit(loader)


def test_keras_has_the_steps_of_each_epoch(sets: dict[str, ps.Dataset]) -> None:
    keras = pytest.importorskip("penstock.adapters.keras")
    loader = loader_of(sets, "mixture")
    expected = [[batch["id"].tolist() for batch in loader] for _ in range(3)]
    batches = keras.KerasBatches(loader_of(sets, "mixture"), x="id", y=None)
    for epoch in expected:
        assert [batches[n][0].tolist() for n in range(len(batches))] == epoch
        batches.on_epoch_end()


def test_workers_of_torch_have_the_steps_of_each_epoch(sets: dict[str, ps.Dataset]) -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = loader_of(sets, "mixture")
    expected = [[batch["id"].tolist() for batch in loader] for _ in range(2)]
    batches = data.DataLoader(loader_of(sets, "mixture").torch(), batch_size=None, num_workers=2)
    assert [[batch["id"].tolist() for batch in batches] for _ in range(2)] == expected
