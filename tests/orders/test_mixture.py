"""Mixture: every prefix has the shares, and each set is shuffled by itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


def sets_of(found: np.ndarray, sizes: list[int]) -> np.ndarray:
    return np.searchsorted(np.cumsum(sizes), found, side="right")


def worst(weights: list[float], seed: int, epochs: int = 3, length: int = 2000) -> float:
    """The largest difference, in records, between a set and its share in any prefix of some epochs."""
    sizes = [997] * len(weights)
    order = ps.Mixture({str(n): w for n, w in enumerate(weights)}, seed, length)
    found = np.concatenate([order.take(sizes, e, 0, length) for e in range(epochs)])
    sets = sets_of(found, sizes)
    positions = np.arange(1, len(sets) + 1)
    shares = np.array(weights) / sum(weights)
    counts = [np.cumsum(sets == number) for number in range(len(weights))]
    return max(np.abs(c - share * positions).max() for c, share in zip(counts, shares, strict=True))


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=4).filter(any), st.integers(0, 2**64 - 1)
)
def test_up_to_four_sets_have_their_shares_within_one_record(weights, seed) -> None:
    assert worst(weights, seed) <= 1 + 1e-9


@given(st.lists(st.integers(1, 1000), min_size=5, max_size=30), st.integers(0, 2**64 - 1))
def test_any_sets_have_their_shares_within_two_records(weights, seed) -> None:
    assert worst(weights, seed) <= 2


def test_fractions_are_taken_as_exact_decimals() -> None:
    order = ps.Mixture({"a": 0.7, "b": 0.2, "c": 0.1}, 0, 10**6)
    found = sets_of(order.take([10**6] * 3, 0, 0, 10**6), [10**6] * 3)
    assert np.bincount(found).tolist() == [700_000, 200_000, 100_000]


def test_weights_that_are_not_short_fractions_hold_over_a_billion_positions() -> None:
    shares = np.array([np.pi, np.e, 0.1234567890123])
    order = ps.Mixture(dict(zip("abc", shares.tolist(), strict=True)), 0, 10**9)
    # The records at the end of the epoch show how many came from each set.
    found = order.take([10**9] * 3, 0, 10**9 - 1000, 10**9)
    assert len(set(found.tolist())) == 1000
    from penstock import _core

    before = _core.mixed(order._whole, 0, 0, 10**9, 10**9, 10**9)[1]
    assert np.abs(np.array(before) - shares / shares.sum() * 10**9).max() < 3


def test_the_pattern_does_not_repeat() -> None:
    order = ps.Mixture({"a": 0.5, "b": 0.5}, 0)
    sets = sets_of(order.take([50_000] * 2, 0, 0, 100_000), [50_000] * 2).astype(float)
    for lag in (1, 2, 3, 4, 10, 16, 20, 64, 100, 256, 512):
        score = np.corrcoef(sets[:-lag], sets[lag:])[0, 1]
        # Neighbouring positions must differ more often than by chance; positions farther apart need
        # not.
        assert abs(score) < (0.3 if lag < 10 else 0.02), (lag, score)
    # A rank that has every second, fourth … position does not get one set more often than the
    # other.
    for step in (2, 4, 8, 256):
        for first in range(min(step, 8)):
            share = sets[first::step].mean()
            assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(sets) / step)


def test_each_set_is_shuffled_and_begins_again_when_it_ends() -> None:
    sizes = [40, 300]
    order = ps.Mixture({"a": 0.5, "b": 0.5}, 3)
    assert order.length(sizes) == 340
    found = np.concatenate([order.take(sizes, epoch, 0, 340) for epoch in range(6)])
    a, b = found[found < 40], found[found >= 40]
    # Across epochs: no record of a set comes again before all of them have come.
    passes = [a[n : n + 40] for n in range(0, len(a) - 39, 40)]
    assert all(sorted(p.tolist()) == list(range(40)) for p in passes)
    assert len({tuple(p.tolist()) for p in passes}) == len(passes)
    assert sorted(b[:300].tolist()) == list(range(40, 340))


def test_an_epoch_has_exactly_its_shares() -> None:
    for sizes in ([6, 2], [300, 100], [750, 250], [3000, 1000]):
        order = ps.Mixture({"a": 0.75, "b": 0.25}, 1)
        for epoch in range(5):
            found = order.take(sizes, epoch, 0, sum(sizes))
            assert sorted(found.tolist()) == list(range(sum(sizes)))


def test_sizes_may_come_by_name() -> None:
    order = ps.Mixture({"a": 0.25, "b": 0.75}, 0)
    by_name = order.take({"b": 6, "a": 2}, 0, 0, 8)
    assert by_name.tolist() == order.take([2, 6], 0, 0, 8).tolist()


def test_a_set_without_weight_is_not_touched_and_may_be_empty() -> None:
    order = ps.Mixture({"a": 1, "b": 0}, 0)
    assert order.length([5, 0]) == 5
    assert sorted(order.take([5, 0], 0, 0, 5).tolist()) == [0, 1, 2, 3, 4]


def test_one_set_alone_is_an_exact_shuffle() -> None:
    order = ps.Mixture({"a": 1}, 0)
    found = [order.take([100], epoch, 0, 100) for epoch in (0, 1)]
    assert [sorted(f.tolist()) for f in found] == [list(range(100))] * 2
    assert not np.array_equal(*found)


def test_far_epochs_of_large_sets_cost_nothing() -> None:
    order = ps.Mixture({"a": 0.9, "b": 0.1}, 0)
    found = order.take([10**9, 10**6], 10**6, 10**8, 10**8 + 1000)
    assert np.bincount(sets_of(found, [10**9, 10**6])).tolist() in (
        [899, 101],
        [900, 100],
        [901, 99],
    )


def test_invalid_mixtures_are_refused() -> None:
    for weights in ({"a": -1}, {"a": 0, "b": 0}, {}, {"a": float("nan")}, {"a": float("inf")}):
        with pytest.raises(ValueError, match="weights must be 0 or more"):
            ps.Mixture(weights, 0)
    order = ps.Mixture({"a": 1, "b": 1}, 0)
    with pytest.raises(ValueError, match="mixes 2 datasets, not 3"):
        order.length([1, 2, 3])
    with pytest.raises(ValueError, match="dataset 'b' has a weight above 0, but no records"):
        order.length([1, 0])
    with pytest.raises(ValueError, match="the datasets are"):
        order.length({"a": 1, "c": 1})
    with pytest.raises(ValueError, match="is beyond position"):
        order.take([2**62, 2**61], 5, 0, 1)


sizes_and_weights = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from([0.01, 0.1, 0.25, 0.5, 1, 3, 7])),
    min_size=1,
    max_size=6,
)


def until(word, drawn, seed=0) -> tuple[ps.Mixture, list[int]]:
    weights = {str(n): weight for n, (_, weight) in enumerate(drawn)}
    return ps.Mixture(weights, seed, word), [size for size, _ in drawn]


@given(sizes_and_weights, st.integers(0, 5), st.integers(0, 9))
def test_an_epoch_that_ends_with_the_first_set_has_no_record_twice(drawn, epoch, seed) -> None:
    order, sizes = until("first_exhausted", drawn, seed)
    length = order.length(sizes)
    found = order.take(sizes, epoch, 0, length)
    assert len(set(found.tolist())) == length
    counts = np.bincount(sets_of(found, sizes), minlength=len(sizes))
    weights = np.array([weight for _, weight in drawn])
    shares = weights / weights.sum() * length
    assert np.abs(counts - shares).max() <= 2 + 1e-9
    # With one position more, the share of a set, or its count, would be more records than it has.
    longer = ps.Mixture(order.weights, seed, length + 1).take(sizes, 0, 0, length + 1)
    counts = np.bincount(sets_of(longer, sizes), minlength=len(sizes))
    shares = weights / weights.sum() * (length + 1)
    assert (np.maximum(counts, shares) > np.array(sizes) + 1e-9).any()


@given(sizes_and_weights, st.integers(0, 5), st.integers(0, 9))
def test_an_epoch_that_ends_with_the_last_set_has_every_record(drawn, epoch, seed) -> None:
    order, sizes = until("all_exhausted", drawn, seed)
    length = order.length(sizes)
    found = order.take(sizes, epoch, 0, length)
    assert set(found.tolist()) == set(range(sum(sizes)))
    shares = np.array([weight for _, weight in drawn])
    shares = shares / shares.sum() * (length - 1)
    if length > 1 and (shares >= np.array(sizes) - 1e-9).all():
        shorter = ps.Mixture(order.weights, seed, length - 1).take(sizes, 0, 0, length - 1)
        assert len(set(shorter.tolist())) < sum(sizes)


@pytest.mark.parametrize("word", ["first_exhausted", "all_exhausted"])
def test_any_part_of_an_epoch_that_ends_with_a_set_can_be_computed_alone(word) -> None:
    order, sizes = until(word, [(90, 0.5), (1000, 0.3), (40, 0.2)])
    length = order.length(sizes)
    for epoch in (0, 3):
        whole = order.take(sizes, epoch, 0, length)
        parts = [order.take(sizes, epoch, n, min(n + 77, length)) for n in range(0, length, 77)]
        assert np.array_equal(np.concatenate(parts), whole)
    first, second = (order.take(sizes, epoch, 0, length).tolist() for epoch in (0, 1))
    assert first != second


def test_epochs_that_end_with_the_first_set_take_other_records_of_a_large_set() -> None:
    order, sizes = until("first_exhausted", [(100, 0.5), (1000, 0.5)])
    assert order.length(sizes) == 200
    taken = [order.take(sizes, epoch, 0, 200) for epoch in range(10)]
    large = np.concatenate([found[found >= 100] for found in taken])
    assert sorted(large.tolist()) == list(range(100, 1100))
    assert all(sorted(f[f < 100].tolist()) == list(range(100)) for f in taken)


def test_a_set_without_weight_does_not_end_an_epoch() -> None:
    for word in ("first_exhausted", "all_exhausted"):
        order = ps.Mixture({"a": 1, "b": 0}, 0, word)
        assert order.length([5, 0]) == order.length([5, 3]) == 5


def test_another_word_for_the_length_is_refused() -> None:
    with pytest.raises(ValueError, match="'first_exhausted' or 'all_exhausted', not 'first'"):
        ps.Mixture({"a": 1}, 0, "first")  # type: ignore[arg-type]


LATER = {
    2: {"a": 0, "b": 1, "c": 3},
    3: {"a": 0.5, "b": 0.3, "c": 0.2},
    9: {"a": 1, "b": 0, "c": 0},
}


@given(st.integers(0, 2**64 - 1), st.integers(1, 300), st.integers(0, 12))
def test_each_set_goes_on_where_it_was_when_weights_change(seed, length, epoch) -> None:
    weights, sizes = {"a": 0.7, "b": 0.3, "c": 0}, [37, 11, 50]
    order = ps.Mixture(weights, seed, length, later=LATER)
    found = np.concatenate([order.take(sizes, e, 0, length) for e in range(13)])
    sets = sets_of(found, sizes)
    for number, first in enumerate((0, 37, 48)):
        own, size = found[sets == number] - first, sizes[number]
        turns = [own[at : at + size] for at in range(0, len(own), size)]
        assert all(len(set(turn.tolist())) == len(turn) for turn in turns), "a record came again"
    now = {
        n: w
        for start, each in {0: weights, **LATER}.items()
        if start <= epoch
        for n, w in each.items()
    }
    counts = np.bincount(sets[epoch * length : (epoch + 1) * length], minlength=3)
    shares = np.array([now[name] for name in "abc"]) / sum(now.values())
    assert (np.abs(counts - shares * length) <= 2).all()
    part = order.take(sizes, epoch, length // 3, length // 2)
    np.testing.assert_array_equal(part, found[epoch * length :][length // 3 : length // 2])


def test_weights_of_later_epochs_change_nothing_before() -> None:
    plain = ps.Mixture({"a": 2, "b": 1}, 5, 30)
    order = ps.Mixture({"a": 2, "b": 1}, 5, 30, {4: {"b": 2, "a": 1}, 6: {"a": 2, "b": 1}})
    for epoch in range(4):
        expected = plain.take([9, 40], epoch, 0, 30)
        np.testing.assert_array_equal(order.take([9, 40], epoch, 0, 30), expected)
    assert "later" not in plain.spec() and plain != order
    assert order.spec()["later"] == [[4, [["a", 1.0], ["b", 2.0]]], [6, [["a", 2.0], ["b", 1.0]]]]
    assert ps.Mixture({"a": 1, "b": 0}, 0, later={1: {"a": 0, "b": 1}}).length([5, 7]) == 12


@pytest.mark.parametrize(
    ("later", "says"),
    [
        ({0: {"a": 1, "b": 1}}, "from 1, not 0"),
        ({"1": {"a": 1, "b": 1}}, "from 1, not '1'"),
        ({1: {"a": 1}}, "mixes \\['a'\\] from epoch 1 on"),
        ({1: {"a": -1, "b": 1}}, "0 or more"),
    ],
)
def test_later_weights_that_mean_nothing_are_refused(later, says) -> None:
    with pytest.raises(ValueError, match=says):
        ps.Mixture({"a": 1, "b": 1}, 0, 10, later)
    with pytest.raises(ValueError, match="is a number or None"):
        ps.Mixture({"a": 1}, 0, "all_exhausted", {1: {"a": 1}})


def test_weights_may_change_in_the_middle_of_a_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = {"a": ps.open(_written("a", 40)), "b": ps.open(_written("b", 60))}

    def loader(later, world_size=1, rank=0):
        order = ps.Mixture({"a": 0.8, "b": 0.2}, 3, 40, later)
        return ps.Loader(sets, 10 // world_size, order=order, world_size=world_size, rank=rank)

    first = loader({})
    records = [*next(iter(first))["id"]]
    state = json.loads(json.dumps(first.state_dict()))
    halves = [loader({1: {"a": 0.2, "b": 0.8}}, 2, rank) for rank in range(2)]
    for half in halves:
        half.load_state_dict(state)
    for _ in range(2):
        epochs = [list(half) for half in halves]
        for one, other in zip(*epochs, strict=True):
            records += [*one["id"], *other["id"]]
    assert len(records) == len(set(records)) == 80  # 32 of a, 8 of b; then 8 of a, 32 of b
    assert sum(number < 40 for number in records) == 40
    changed = ps.Loader(sets, 10, order=ps.Mixture({"a": 0.5, "b": 0.5}, 3, 40))
    with pytest.raises(ps.StateError, match="another order"):
        changed.load_state_dict(state)
    with pytest.raises(ps.StateError, match="another order"):
        changed.load_state_dict({**state, "order": {**state["order"], "later": [["x"]]}})


def _written(name: str, number: int) -> str:
    path = f"{name}.arrow"
    ps.write({"id": np.arange(number) + (40 if name == "b" else 0)}, path, overwrite=True)
    return path
