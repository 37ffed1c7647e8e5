"""Shuffled: a permutation computed number by number."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


def whole(order, num_records, epoch=0) -> np.ndarray:
    return order.take(num_records, epoch, 0, order.length(num_records))


def test_every_record_comes_once_for_every_length_up_to_5000() -> None:
    for num_records in range(5001):
        found = np.bincount(whole(ps.Shuffled(num_records), num_records), minlength=num_records)
        assert (found == 1).all(), num_records


@given(st.integers(5001, 300_000), st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_every_record_comes_once_for_any_length(num_records: int, seed: int, epoch: int) -> None:
    found = np.bincount(whole(ps.Shuffled(seed), num_records, epoch), minlength=num_records)
    assert (found == 1).all()


@given(st.integers(1, 2**63 - 1), st.integers(0, 2**64 - 1), st.floats(0, 1), st.integers(0, 500))
def test_parts_of_the_largest_sets_are_distinct_records(
    num_records: int, seed: int, where: float, count: int
) -> None:
    start = min(int(where * num_records), num_records - 1)
    stop = min(start + count, num_records)
    found = ps.Shuffled(seed).take(num_records, 3, start, stop)
    assert found.dtype == np.int64
    assert len(found) == stop - start == len(np.unique(found))
    assert not len(found) or (found.min() >= 0 and found.max() < num_records)


@given(st.integers(0, 3000), st.data())
def test_any_cut_of_an_epoch_gives_the_same_records(num_records: int, data: st.DataObject) -> None:
    order = ps.Shuffled(data.draw(st.integers(0, 2**64 - 1)))
    cuts = sorted(data.draw(st.lists(st.integers(0, num_records), max_size=5)))
    edges = [0, *cuts, num_records]
    parts = [order.take(num_records, 1, a, b) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole(order, num_records, 1))
