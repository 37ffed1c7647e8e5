"""Weighted and Balanced: records that come more often or less often than others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=200).filter(any),
    st.integers(0, 2**64 - 1),
    st.integers(1, 5000),
)
def test_each_epoch_has_the_share_of_every_record_within_one(weights, seed, length) -> None:
    order = ps.Weighted(weights, seed, length)
    found = np.bincount(order.take(len(weights), 0, 0, length), minlength=len(weights))
    shares = np.array(weights) / sum(weights) * length
    assert np.abs(found - shares).max() < 1 + 1e-6
    assert not found[np.array(weights) == 0].any()


@pytest.mark.parametrize("order", [ps.Weighted, ps.Balanced])
def test_the_name_of_a_column_is_not_its_values(order) -> None:
    with pytest.raises(TypeError, match=r"ds.to_table\(columns=\['label'\]\)\['label'\]"):
        order("label", seed=0)


@pytest.mark.parametrize("weight", [5e-324, 1.5e-310, 1.7e308])
def test_the_smallest_and_the_largest_numbers_are_weights(weight: float) -> None:
    found = ps.Weighted([weight, weight], 0, 4).take(2, 0, 0, 4)
    assert np.bincount(found).tolist() == [2, 2]


def test_over_epochs_rare_records_come_as_often_as_they_weigh() -> None:
    weights = np.linspace(0, 1, 200)
    order = ps.Weighted(weights, 0)
    epochs = 3000
    found = np.bincount(
        np.concatenate([order.take(200, e, 0, 200) for e in range(epochs)]), minlength=200
    )
    shares = weights / weights.sum() * 200 * epochs
    assert (np.abs(found - shares) < 5 * np.sqrt(epochs) / 2 + 1).all()


def test_weighted_records_come_in_random_order() -> None:
    found = ps.Weighted(np.ones(10_000), 0).take(10_000, 0, 0, 10_000)
    assert sorted(found.tolist()) == list(range(10_000))
    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.05


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=300),
    st.integers(0, 2**64 - 1),
    st.integers(1, 700),
)
def test_classes_are_even_in_every_prefix(labels, seed, length) -> None:
    order = ps.Balanced(labels, seed, length)
    found = np.concatenate([order.take(len(labels), epoch, 0, length) for epoch in range(3)])
    classes = np.array(labels)[found]
    counts = np.array([np.cumsum(classes == label) for label in set(labels)])
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 1
    # No record comes again before all of its class have come.
    for label in set(labels):
        size, mine = labels.count(label), found[classes == label]
        for first in range(0, len(mine) - size + 1, size):
            assert len(set(mine[first : first + size].tolist())) == size


def test_classes_come_in_random_order_and_their_records_too() -> None:
    labels = np.repeat([0, 1, 2], [100, 1000, 300])
    order = ps.Balanced(labels, 0, 30_000)
    found = order.take(1400, 0, 0, 30_000)
    rows = labels[found].reshape(-1, 3)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 10_000 / 6) ** 2 / (10_000 / 6)).sum() < 5 + 5 * np.sqrt(10)
    small = found[labels[found] == 0].reshape(100, 100)
    assert len({tuple(turn.tolist()) for turn in small}) == 100
    scores = [np.corrcoef(np.arange(100), turn)[0, 1] * np.sqrt(99) for turn in small]
    assert max(map(abs, scores)) < 5


def test_arrays_that_do_not_fit_are_refused() -> None:
    for weights in ([], [0, 0], [1, -1], [np.nan], [np.inf]):
        with pytest.raises(ValueError, match="weights must be 0 or more"):
            ps.Weighted(weights, 0)
    with pytest.raises(ValueError, match="shape"):
        ps.Weighted([[1, 2]], 0)
    with pytest.raises(ValueError, match="2 weights for 3 records"):
        ps.Weighted([1, 2], 0).take(3, 0, 0, 1)
    with pytest.raises(ValueError, match="2 labels for 3 records"):
        ps.Balanced([1, 2], 0).take(3, 0, 0, 1)
    import pyarrow as pa

    with pytest.raises(
        ValueError, match="1 of 2 records have no value, the first of them record 1;"
    ):
        ps.Balanced(pa.array(["a", None]), 0)
    chunks = pa.chunked_array([[2, 1], [None, 3, None]])
    for weights in (chunks, [2, 1, None, 3, None]):
        with pytest.raises(
            ValueError, match=r"2 of 5 records .* first of them record 2; .*fill_null\(0\)"
        ):
            ps.Weighted(weights, 0)
    assert len(ps.Weighted(chunks.fill_null(0), 0).weights) == 5
