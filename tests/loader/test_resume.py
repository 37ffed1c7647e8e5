"""Continuing from a state: at every step, on any number of threads and ranks, in the same order.

The tests compare sequences of records, never sets.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from loader.torturing import ids_of, write

COUNT = 10_000
THREADS = (0, 1, 3, 8)
RANKS = (1, 2, 3, 4, 6, 8, 12)
WAYS = list(itertools.product(THREADS, RANKS))
GLOBAL_BATCH = 240  # divisible by all numbers of ranks; 41 whole steps, then one of 160 records
ORDER = ps.Shuffled(seed=6)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    return ps.open(write("stored.npz", tmp_path_factory.mktemp("resume"), COUNT))


def loaded(data: Any, state: dict[str, Any], batch_size: int, **options: Any) -> ps.Loader:
    """A new loader that continues from a state that was converted to JSON and back."""
    text = json.dumps(state)
    assert len(text) < 1024
    loader = ps.Loader(data, batch_size, **options)
    loader.load_state_dict(json.loads(text))
    return loader


def batches_of(loader: ps.Loader, most: int | None = None) -> list[list[int]]:
    """The next batches. Checks that no thread is left."""
    iterator = iter(loader)
    found = [ids_of(batch) for batch in itertools.islice(iterator, most)]
    iterator.close()  # pyright: ignore[reportAttributeAccessIssue]
    return found


def flat(batches: list[list[int]]) -> list[int]:
    """The records of some batches."""
    return list(itertools.chain.from_iterable(batches))


def states_of(loader: ps.Loader) -> list[dict[str, Any]]:
    """The state before each step of an epoch, and after the last."""
    return [loader.state_dict(), *(loader.state_dict() for _ in loader)]


# -- every step ---------------------------------------------------------------------------------


def check_every_step(data: Any, batch_size: int, most: int | None, **options: Any) -> None:
    """From each step, the next `most` batches must be the same as without a resume. From each tenth step (or, if
    there are more than a thousand steps, from about a hundred of them), all remaining batches must be the same. From
    the last step, the next epoch must follow."""
    whole = batches_of(ps.Loader(data, batch_size, **options))
    following = batches_of(ps.Loader(data, batch_size, epoch=1, **options))
    states = states_of(ps.Loader(data, batch_size, **options))
    assert len(states) == len(whole) + 1
    every = max(10, len(whole) // 100)
    for step, state in enumerate(states[:-1]):
        some = None if step % every == 0 else most
        end = None if some is None else step + some
        assert batches_of(loaded(data, state, batch_size, **options), some) == whole[step:end]
    assert batches_of(loaded(data, states[-1], batch_size, **options)) == following


@pytest.mark.parametrize("threads", [0, 2])
def test_from_every_step_of_an_epoch_the_same_batches_follow(
    dataset: ps.Dataset, threads: int
) -> None:
    check_every_step(dataset, 100, 2, order=ORDER, threads=threads)


@pytest.mark.stress
@pytest.mark.parametrize("threads", THREADS)
def test_from_every_record_of_an_epoch_the_same_batches_follow(
    dataset: ps.Dataset, threads: int
) -> None:
    check_every_step(dataset, 1, 3, order=ORDER, threads=threads)
    check_every_step(dataset, 37, None, order=ORDER, threads=threads)


def orders(count: int) -> dict[str, Any]:
    labels = np.random.default_rng(0).integers(0, 5, count)
    return {
        "sequential": ps.Sequential(),
        "shuffled": ps.Shuffled(2),
        "blocked": ps.Blocked(2, window_chunks=3, chunk_records=64),
        "buffered": ps.Buffered(2, size=50),
        "interleaved": ps.Interleaved(3, 4, shard_lengths=[count // 2, count - count // 2]),
        "weighted": ps.Weighted(labels + 1.0, seed=2),
        "balanced": ps.Balanced(labels, seed=2),
    }


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("uneven", ["drop", "wrap", "pad"])
@pytest.mark.parametrize("order", list(orders(10)))
def test_a_loader_continues_with_every_order_at_any_end_of_an_epoch(
    order: str, uneven: str, drop_last: bool, tmp_path: Path
) -> None:
    """There are 307 records, so the last step of 1, 2 and 5 ranks is uneven."""
    data = ps.open(write("stored.npz", tmp_path, 307))
    options: dict[str, Any] = {"uneven": uneven, "drop_last": drop_last}
    options["order"] = orders(307)[order]
    for rank, world_size in ((0, 1), (1, 2), (4, 5)):
        ranks = {"rank": rank, "world_size": world_size, "threads": 0}
        check_every_step(data, 16, 2, **options, **ranks)
        last = [n for n in (0, 1, 2) if n < len(ps.Loader(data, 16, **options, **ranks))]
        states = states_of(ps.Loader(data, 16, **options, **ranks))
        whole = batches_of(ps.Loader(data, 16, **options, **ranks))
        for back in last:
            state = states[len(whole) - back - 1]
            other = loaded(data, state, 16, **options, **{**ranks, "threads": 2})
            assert batches_of(other) == whole[len(whole) - back - 1 :]
            assert len(batches_of(other)) == len(other), "the next epoch is whole"
            assert other.epoch == 2


@pytest.mark.parametrize(
    "name",
    [
        *("plain.tfrecord", "gzip.tfrecord", "deflated.npz", "x.tar", "x.parquet"),
        *("shards-{shard}.tfrecord", "shards-{shard}.tar"),
    ],
)
def test_a_loader_continues_with_every_format(name: str, tmp_path: Path) -> None:
    data = write(name, tmp_path, 700)
    expected = ORDER.take(700, 0, 0, 700).tolist()
    for number, state in enumerate(states_of(ps.Loader(ps.open(data), 64, order=ORDER))[:-1]):
        loader = loaded(ps.open(data), state, 64, order=ORDER, threads=(0, 3)[number % 2])
        assert flat(batches_of(loader)) == expected[64 * number :]


# -- other threads and ranks --------------------------------------------------------------------


def state_at(dataset: ps.Dataset, way: tuple[int, int], batch_size: int, step: int) -> Any:
    """The state after some steps, which must be the same on all ranks."""
    threads, world_size = way
    rank = random.Random(f"{way} {step}").randrange(world_size)
    loader = ps.Loader(
        dataset, batch_size, order=ORDER, threads=threads, rank=rank, world_size=world_size
    )
    batches_of(loader, step)
    return loader.state_dict()


def ranks_of(
    dataset: ps.Dataset, state: Any, way: tuple[int, int], batch_size: int, most: int | None = None
) -> list[list[list[int]]]:
    """The batches that each rank gets from a state on, by steps."""
    threads, world_size = way
    options: dict[str, Any] = {"order": ORDER, "threads": threads, "world_size": world_size}
    loaders = [loaded(dataset, state, batch_size, rank=r, **options) for r in range(world_size)]
    return [batches_of(loader, most) for loader in loaders]


def sequence(ranks: list[list[list[int]]]) -> list[int]:
    """The records of all ranks, step after step."""
    return [n for step in zip(*ranks, strict=True) for batch in step for n in batch]


def check_equal_steps(dataset: ps.Dataset, step: int, changes: list[Any]) -> None:
    """If a step has as many records as before, each rank gets the batches that it would have got without a resume."""
    fresh = ps.Loader(dataset, 1, order=ORDER).state_dict()
    whole = {ranks: ranks_of(dataset, fresh, (0, ranks), GLOBAL_BATCH // ranks) for ranks in RANKS}
    states = {way: state_at(dataset, way, GLOBAL_BATCH // way[1], step) for way in WAYS}
    assert len({json.dumps(state) for state in states.values()}) == 1
    for before, after in changes:
        found = ranks_of(dataset, states[before], after, GLOBAL_BATCH // after[1])
        assert found == [rank[step:] for rank in whole[after[1]]], (before, after)


def test_all_threads_and_ranks_have_the_same_state_and_continue_with_the_same_batches(
    dataset: ps.Dataset,
) -> None:
    """The states of all 28 combinations are equal, so continuing from one is the same as continuing from any. The
    test covers the last two whole steps of the epoch and the uneven step after them."""
    shifted = [*WAYS[9:], *WAYS[:9]]
    check_equal_steps(dataset, 39, list(zip(WAYS, shifted, strict=True)))


@pytest.mark.stress
@pytest.mark.parametrize("step", [0, 1, 17, 39, 40, 41])
def test_all_changes_of_threads_and_ranks_at_other_steps(dataset: ps.Dataset, step: int) -> None:
    check_equal_steps(dataset, step, list(itertools.product(WAYS, WAYS)))


def check_other_steps(dataset: ps.Dataset, changes: list[Any], rng: random.Random) -> None:
    """If a step has a different number of records, the sequence of all ranks continues, and each record of the epoch
    comes once."""
    expected = ORDER.take(COUNT, 0, 0, COUNT).tolist()
    for before, after in changes:
        size = rng.choice((5, 16, 31))
        step = rng.randrange(COUNT // (size * before[1]))
        state = state_at(dataset, before, size, step)
        assert state["position"] == step * size * before[1]
        found = sequence(ranks_of(dataset, state, after, rng.choice((16, 77))))
        rest = expected[state["position"] :]
        assert found[: len(rest)] == rest, (before, after)
        # The gaps of the last step are filled with the first records.
        assert found[len(rest) :] == expected[: len(found) - len(rest)]
        assert len(found) - len(rest) < after[1]


def test_other_batches_on_other_ranks_continue_the_same_sequence(dataset: ps.Dataset) -> None:
    rng = random.Random(1)
    check_other_steps(dataset, rng.sample(list(itertools.product(WAYS, WAYS)), 12), rng)


@pytest.mark.stress
def test_after_any_change_of_batches_the_sequence_continues(dataset: ps.Dataset) -> None:
    check_other_steps(dataset, list(itertools.product(WAYS, WAYS)), random.Random(2))


def test_three_changes_in_one_epoch(dataset: ps.Dataset) -> None:
    """The two epochs that follow are complete, each in its own order."""
    rng = random.Random(3)
    for _ in range(2):
        expected = ORDER.take(COUNT, 0, 0, COUNT).tolist()
        seen: list[int] = []
        state = ps.Loader(dataset, 1, order=ORDER).state_dict()
        for _ in range(4):
            way, size = rng.choice(WAYS), rng.randrange(1, 60)
            steps = rng.randrange(1, 6)
            ranks = ranks_of(dataset, state, way, size, steps)
            seen += sequence(ranks)
            assert seen == expected[: len(seen)]
            options: dict[str, Any] = {"order": ORDER, "threads": way[0], "world_size": way[1]}
            loader = loaded(dataset, state, size, rank=rng.randrange(way[1]), **options)
            batches_of(loader, steps)
            state = loader.state_dict()
            assert state["position"] == len(seen)
        loader = loaded(dataset, state, 50, order=ORDER, threads=2)
        assert flat(batches_of(loader)) == expected[len(seen) :]
        for epoch in (1, 2):
            following = ORDER.take(COUNT, epoch, 0, COUNT).tolist()
            assert flat(batches_of(loader)) == following


# -- when the state is taken --------------------------------------------------------------------


def test_a_state_before_any_batch_is_the_start_of_the_epoch(dataset: ps.Dataset) -> None:
    loader = ps.Loader(dataset, 100, order=ORDER, epoch=3)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (3, 0)
    iterator = iter(loader)
    assert loader.state_dict() == state, "no batch has come yet"
    assert next(iterator)["id"].tolist() == ORDER.take(COUNT, 3, 0, 100).tolist()
    iterator.close()  # pyright: ignore[reportAttributeAccessIssue]
    other = loaded(dataset, state, 100, order=ORDER)
    assert flat(batches_of(other)) == ORDER.take(COUNT, 3, 0, COUNT).tolist()


def test_a_loaded_state_is_returned_until_the_first_batch(dataset: ps.Dataset) -> None:
    loader = ps.Loader(dataset, 100, order=ORDER)
    batches_of(loader, 7)
    state = loader.state_dict()
    once = loaded(dataset, state, 100, order=ORDER)
    assert once.state_dict() == state
    assert loaded(dataset, once.state_dict(), 100, order=ORDER).state_dict() == state


def test_a_state_taken_within_the_loop_counts_the_batches_that_the_loop_got(
    dataset: ps.Dataset,
) -> None:
    """This does not depend on how far the threads have read ahead."""
    loader = ps.Loader(dataset, 100, order=ORDER, threads=8)
    for step, _ in enumerate(loader, 1):
        state = loader.state_dict()
        wanted = (0, step * 100) if step < 100 else (1, 0)
        assert (state["epoch"], state["position"]) == wanted


def test_a_rest_too_short_for_a_step_ends_the_epoch(dataset: ps.Dataset) -> None:
    """This happens if the last batch is dropped and the step has become longer."""
    state = ps.Loader(dataset, 100, order=ORDER).state_dict() | {"position": COUNT - 50}
    loader = loaded(dataset, state, 100, order=ORDER, drop_last=True)
    assert batches_of(loader) == []
    assert loader.epoch == 1
    assert len(batches_of(loader)) == 100


def test_a_state_at_the_very_end_is_the_next_epoch(dataset: ps.Dataset) -> None:
    state = ps.Loader(dataset, 100, order=ORDER).state_dict() | {"position": COUNT}
    loader = loaded(dataset, state, 100, order=ORDER)
    assert batches_of(loader) == []
    assert (loader.epoch, loader.state_dict()["position"]) == (1, 0)


def test_no_records_make_no_batches(tmp_path: Path) -> None:
    loader = ps.Loader(ps.open(write("stored.npz", tmp_path, 0)), 4, order=ORDER, threads=2)
    assert batches_of(loader) == []
    assert (len(loader), loader.epoch) == (0, 1)
    assert batches_of(loaded(loader.source.datasets[0], loader.state_dict(), 4, order=ORDER)) == []


def test_data_that_grew_begins_with_the_epoch_that_the_error_names(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": range(10)}, path)
    first = ps.Loader(ps.open(path), 4, order=ps.Shuffled(1))
    next(iter(first))
    ps.append({"id": range(10, 15)}, path)
    order = ps.Shuffled(1)
    with pytest.raises(ps.StateError, match="number of records") as caught:
        ps.Loader(ps.open(path), 4, order=order).load_state_dict(first.state_dict())
    assert caught.value.hint and caught.value.hint.endswith("Loader(..., epoch=1)")
    grown = ps.Loader(ps.open(path), 4, order=order, epoch=1)
    found = [number for batch in grown for number in batch["id"].tolist()]
    assert found == order.take(15, 1, 0, 15).tolist()
    fewer = ps.Loader(ps.open(path).subset([1, 2]), 4)
    with pytest.raises(ps.StateError, match="number of records") as caught:
        fewer.load_state_dict(grown.state_dict())  # at the beginning of epoch 2
    assert caught.value.hint and caught.value.hint.endswith("Loader(..., epoch=2)")
