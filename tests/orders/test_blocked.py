"""Blocked: an order of whole chunks, shuffled within windows; the loader reads as the windows require."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.none() | st.integers(1, 10),
    st.none() | st.integers(1, 100),
    st.integers(0, 3),
)
def test_windows_cover_an_epoch_and_say_what_to_read(lengths, chunks, records, epoch) -> None:
    order = ps.Blocked(1, chunks, records)
    num_records = sum(lengths)
    windows = order.windows(num_records, epoch, lengths)
    assert windows.edges[-1] == num_records
    position, seen = 0, []
    for number in range(len(windows)):
        window = windows[number]
        assert (window.number, window.first) == (number, position)
        assert window.last > window.first
        assert windows.at(window.first).number == windows.at(window.last - 1).number == number
        # The records that are read are those of the window, in file order.
        ranges = list(zip(window.starts.tolist(), window.stops.tolist(), strict=True))
        read = [record for a, b in ranges for record in range(a, b)]
        came = order.take(num_records, epoch, window.first, window.last, lengths)
        assert sorted(came.tolist()) == read == sorted(set(read))
        assert all(b < c for (_, b), (c, _) in itertools.pairwise(ranges))
        assert [read[row] for row in window.rows(came)] == came.tolist()
        # The bounds hold; chunks without records do not count.
        full = [n for n in window.chunks.tolist() if lengths[n]]
        assert chunks is None or len(full) <= chunks
        assert records is None or len(read) <= records or len(full) == 1
        assert sorted(window.chunks.tolist()) == window.chunks.tolist()
        seen += full
        position = window.last
    assert position == num_records
    assert sorted(seen) == [n for n, length in enumerate(lengths) if length]


def test_windows_are_as_large_as_the_bounds_allow() -> None:
    lengths = [10] * 100
    assert len(ps.Blocked(0, 4).windows(1000, 0, lengths)) == 25
    assert len(ps.Blocked(0, None, 45).windows(1000, 0, lengths)) == 25
    assert len(ps.Blocked(0, 2, 45).windows(1000, 0, lengths)) == 50
    assert len(ps.Blocked(0, None, 5).windows(1000, 0, lengths)) == 100
    assert len(ps.Blocked(0, None, None).windows(1000, 0, lengths)) == 1


def test_chunks_come_in_another_order_each_epoch_and_windows_are_shuffled_separately() -> None:
    order = ps.Blocked(0, window_chunks=10, chunk_records=100)
    found = [order.take(10_000, epoch, 0, 10_000) for epoch in (0, 1)]
    assert not np.array_equal(*found)
    in_window = [np.argsort(np.argsort(found[0][a : a + 1000])) for a in range(0, 10_000, 1000)]
    assert len({tuple(ranks.tolist()) for ranks in in_window}) == 10
    places = np.arange(1000)
    scores = [np.corrcoef(places, ranks)[0, 1] * np.sqrt(999) for ranks in in_window]
    assert max(map(abs, scores)) < 5


def test_a_batch_has_records_of_as_many_chunks_as_a_window() -> None:
    order = ps.Blocked(0, window_chunks=32, chunk_records=1000)
    batch = order.take(1_000_000, 0, 0, 256)
    assert len(set((batch // 1000).tolist())) == 32


def test_a_million_chunks_take_memory_by_chunks_and_not_by_records() -> None:
    lengths = np.full(1_000_000, 1000)
    order = ps.Blocked(0)
    tracemalloc.start()
    try:
        first = order.take(10**9, 0, 0, 256, lengths)
        last = order.take(10**9, 0, 10**9 - 256, 10**9, lengths)
        assert tracemalloc.get_traced_memory()[1] < 250 * len(lengths)
    finally:
        tracemalloc.stop()
    assert len(set(first.tolist()) | set(last.tolist())) == 512


def test_lengths_that_changed_are_not_taken_for_those_before() -> None:
    order = ps.Blocked(0, window_chunks=1)
    lengths = np.array([10, 20, 30])
    before = order.take(60, 0, 0, 60, lengths)
    lengths[:] = [30, 20, 10]
    after = order.take(60, 0, 0, 60, lengths)
    assert not np.array_equal(before, after)
    assert np.array_equal(after, ps.Blocked(0, window_chunks=1).take(60, 0, 0, 60, lengths))


def test_chunks_of_another_dataset_are_refused() -> None:
    for lengths in ([5, 4], [11, -1], [[5, 5]]):
        with pytest.raises(ValueError, match="but the dataset has 10"):
            ps.Blocked(0).take(10, 0, 0, 10, lengths)
    for bad in ({"window_chunks": 0}, {"window_records": -1}, {"chunk_records": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            ps.Blocked(0, **bad)
    with pytest.raises(IndexError):
        ps.Blocked(0).windows(10, 0)[5]
