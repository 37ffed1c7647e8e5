"""Shuffled: a permutation computed number by number."""

from __future__ import annotations

import itertools
import math
import resource
import tracemalloc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from orders import reference
from penstock import _core
from penstock.orders.keys import record_keys


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
def test_any_division_of_an_epoch_gives_the_same_records(
    num_records: int, data: st.DataObject
) -> None:
    order = ps.Shuffled(data.draw(st.integers(0, 2**64 - 1)))
    cuts = sorted(data.draw(st.lists(st.integers(0, num_records), max_size=5)))
    edges = [0, *cuts, num_records]
    parts = [order.take(num_records, 1, a, b) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole(order, num_records, 1))


@pytest.mark.parametrize("num_records", [1, 2, 64, 65, 100, 4096, 4097, 10**6, 10**9, 2**63 - 1])
def test_the_permutation_is_that_of_its_description(num_records: int) -> None:
    for seed, epoch in [(0, 0), (1, 0), (0, 1), (2**64 - 1, 7)]:
        start = max(0, num_records - 10)
        found = ps.Shuffled(seed).take(num_records, epoch, start, num_records)
        key = reference.key_of(seed, epoch)
        expected = [
            reference.permuted(num_records, key, 0, position)
            for position in range(start, num_records)
        ]
        assert found.tolist() == expected


def chi_squared(found: np.ndarray, expected: float) -> float:
    """Chi squared, as the number of standard deviations above its expected value."""
    freedom = found.size - 1
    value = ((found - expected) ** 2 / expected).sum()
    return float((value - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("num_records", [2, 3, 4, 5, 6])
def test_all_permutations_of_few_records_are_equally_likely(num_records: int) -> None:
    count = 50 * math.factorial(num_records) + 2000
    for first_seed in (0, 10**9, 2**63):
        seeds = range(first_seed, first_seed + count)
        counted = Counter(tuple(whole(ps.Shuffled(s), num_records).tolist()) for s in seeds)
        every = itertools.permutations(range(num_records))
        found = np.array([counted[order] for order in every])
        assert chi_squared(found, count / found.size) < 5


@pytest.mark.parametrize("over", ["seeds", "epochs"])
def test_all_permutations_of_three_among_a_hundred_are_equally_likely(over: str) -> None:
    """This tests sets that are too large for the plain shuffle, by the relative positions of three records."""
    count = 6000
    counted: Counter[tuple[int, ...]] = Counter()
    for n in range(count):
        seed, epoch = (n, 0) if over == "seeds" else (0, n)
        records = whole(ps.Shuffled(seed), 100, epoch)
        counted[tuple(np.argsort([int(np.flatnonzero(records == r)[0]) for r in range(3)]))] += 1
    assert chi_squared(np.array(list(counted.values())), count / 6) < 5


@pytest.mark.parametrize("num_records", [50, 100])
def test_every_record_is_equally_likely_at_every_position(num_records: int) -> None:
    count = 6000
    found = np.zeros((num_records, num_records))
    for seed in range(count):
        found[np.arange(num_records), whole(ps.Shuffled(seed), num_records)] += 1
    assert abs(chi_squared(found, count / num_records)) < 5


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation, in units of the standard deviation for independent permutations."""
    return float(np.corrcoef(a, b)[0, 1] * math.sqrt(len(a) - 1))


@pytest.mark.parametrize("num_records", [10_000, 100_000, 131_072])
def test_records_of_an_epoch_are_not_related(num_records: int) -> None:
    scores, moves = [], []
    for seed in range(20):
        records = whole(ps.Shuffled(seed), num_records)
        positions = np.arange(num_records)
        scores += [correlation(records[:-lag], records[lag:]) for lag in (1, 2, 3, 7, 64, 256)]
        scores.append(correlation(positions, records))
        # |record - position| is n / 3 on average, with the variance of a random permutation.
        mean = np.abs(records - positions).mean()
        moves.append((mean - num_records / 3) / (num_records * math.sqrt(2 / 45 / num_records)))
    assert max(map(abs, scores)) < 5
    assert 0.7 < np.std(scores) < 1.3
    assert max(map(abs, moves)) < 5


def test_epochs_and_neighbouring_seeds_are_not_related() -> None:
    num_records = 20_000
    orders = [
        whole(ps.Shuffled(seed), num_records, epoch) for seed in range(6) for epoch in range(6)
    ]
    pairs = list(itertools.combinations(orders, 2))
    scores = [correlation(a, b) for a, b in pairs]
    assert max(map(abs, scores)) < 5
    assert 0.8 < np.std(scores) < 1.2
    # Count the records at the same position in both: on average one, as for any two permutations.
    same = np.array([(a == b).sum() for a, b in pairs])
    assert abs(same.mean() - 1) < 5 / math.sqrt(len(pairs))


def test_a_billion_records_are_shuffled_in_constant_memory() -> None:
    order = ps.Shuffled(0)
    order.take(10**9, 0, 0, 256)
    tracemalloc.start()
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for position in (0, 5 * 10**8, 10**9 - 256):
            assert len(order.take(10**9, 0, position, position + 256)) == 256
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert grown < 5_000  # in KiB


def test_keys_of_records_hang_on_seed_epoch_and_record_alone() -> None:
    records = np.array([5, 0, 2**40, 5])
    keys = record_keys(3, 4, records)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [reference.key_of(3, 4, record) for record in records.tolist()]
    assert record_keys(3, 4, records[::-1].astype(np.uint64)).tolist() == keys[::-1].tolist()
    assert not set(keys.tolist()) & set(record_keys(3, 5, records).tolist())


def test_keys_have_as_many_ones_as_zeros() -> None:
    bits = np.unpackbits(record_keys(0, 0, np.arange(50_000)).view(np.uint8))
    share = bits.reshape(-1, 64).mean(axis=0)
    assert np.abs(share - 0.5).max() < 5 * 0.5 / math.sqrt(50_000)


@pytest.mark.parametrize("seed", [-1, 2**64, 10**30])
def test_a_seed_of_no_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=r"a seed is from 0 to 2\*\*64 - 1"):
        ps.Shuffled(seed)


def test_a_seed_may_be_a_numpy_integer_but_not_a_fraction() -> None:
    assert ps.Shuffled(np.int64(3)) == ps.Shuffled(3)
    assert type(ps.Shuffled(np.uint64(2**64 - 1)).seed) is int
    with pytest.raises(TypeError, match="a seed is an integer, not float"):
        ps.Shuffled(0.5)  # type: ignore[arg-type]


def test_the_kernel_refuses_arguments_out_of_range() -> None:
    for arguments in [(10, 0, 0, 5, 11), (10, 0, 0, 6, 5), (2**63, 0, 0, 0, 1)]:
        with pytest.raises(ValueError):
            _core.permuted(*arguments)
    with pytest.raises(ValueError):
        _core.buffered(10, 0, 0, 0, 1)
    for weights in [[], [0], [2**40]]:
        with pytest.raises(ValueError, match="weights"):
            _core.mixed(weights, 0, 0, 1, 0, 1)
    one = pa.array([1], pa.uint64())
    with pytest.raises(ValueError, match="a position below it"):
        _core.permuted_each(one, 0, one, one)
    with pytest.raises(TypeError):
        _core.permuted_each(one, 0, one, pa.array([0]))
    with pytest.raises(TypeError):
        _core.record_keys(0, 0, pa.array([0.5]))
