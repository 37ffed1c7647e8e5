"""Mixture: every prefix has the shares, and each set is shuffled by itself."""

from __future__ import annotations

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
