"""Interleaved and Buffered compute, for any position, what stream readers do without an index."""

from __future__ import annotations

import random

import numpy as np
import pytest

import penstock as ps


def by_hand(num_records: int, size: int, slots: list[int], last: list[int]) -> list[int]:
    """The output of a shuffle buffer as in tf.data that draws these slots."""
    stream = iter(range(num_records))
    buffer = [next(stream) for _ in range(min(size, num_records))]
    out = []
    for slot, record in zip(slots, stream, strict=True):
        out.append(buffer[slot])
        buffer[slot] = record
    return out + [buffer[slot] for slot in last]


@pytest.mark.parametrize("size", [1, 2, 10, 99, 100, 500])
def test_the_buffer_is_one_that_is_filled_and_drawn_from(size: int) -> None:
    """The slots are computed from the output; a real buffer that draws these slots gives the same output."""
    num_records = 400
    for seed in range(5):
        found = ps.Buffered(seed, size).take(num_records, 0, 0, num_records).tolist()
        room = min(size, num_records)
        buffer, slots, last = list(range(room)), [], []
        for step, record in enumerate(found):
            assert record in buffer, "a record came that was not in the buffer"
            slot = buffer.index(record)
            if step < num_records - room:
                slots.append(slot)
                buffer[slot] = room + step
            else:
                last.append(slot)
        assert sorted(last) == list(range(room))
        assert by_hand(num_records, size, slots, last) == found
        if size in (10, 99):
            # Every slot is drawn about equally often.
            counts = np.bincount(slots, minlength=size)
            expected = len(slots) / size
            assert ((counts - expected) ** 2 / expected).sum() < size + 5 * np.sqrt(2 * size)


def test_records_move_as_in_a_simulated_buffer() -> None:
    num_records, size = 20_000, 400
    drawn = random.Random(0)

    def simulated() -> np.ndarray:
        slots = [drawn.randrange(size) for _ in range(num_records - size)]
        last = drawn.sample(range(size), size)
        return np.array(by_hand(num_records, size, slots, last))

    levels = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
    places = np.arange(num_records)
    ours = np.array(
        [
            np.quantile(places - ps.Buffered(s, size).take(num_records, 0, 0, num_records), levels)
            for s in range(30)
        ]
    )
    theirs = np.array([np.quantile(places - simulated(), levels) for _ in range(30)])
    error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / 30)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 5 * error).all()


def test_a_far_position_takes_no_longer_than_a_near_one() -> None:
    """Simulating the buffer from the start would take an hour and gigabytes of memory here."""
    order = ps.Buffered(0, 1000)
    late = order.take(10**12, 0, 10**12 - 5000, 10**12)
    assert len(set(late.tolist())) == 5000
    assert late.max() == 10**12 - 1
    assert late.min() > 10**12 - 5000 - 30_000


def test_shards_are_taken_in_turns() -> None:
    order = ps.Interleaved(2, 2, shard_lengths=[5, 3, 4])
    assert order.take(12, 0, 0, 12).tolist() == [0, 1, 5, 6, 2, 3, 7, 4, 8, 9, 10, 11]


def test_the_order_of_shards_is_shuffled_in_each_epoch() -> None:
    order = ps.Interleaved(1, 1, seed=0, shard_lengths=[10] * 50)
    found = [order.take(500, epoch, 0, 500) for epoch in range(3)]
    assert len({tuple(records.tolist()) for records in found}) == 3
    for records in found:
        assert (np.diff(records.reshape(50, 10)) == 1).all()


def test_a_buffer_runs_over_the_interleaved_stream() -> None:
    below = ps.Interleaved(4, 1, seed=3, shard_lengths=[100] * 10)
    order = ps.Buffered(5, 30, over=below)
    stream = below.take(1000, 2, 0, 1000)
    positions = ps.Buffered(5, 30).take(1000, 2, 0, 1000)
    assert order.take(1000, 2, 0, 1000).tolist() == stream[positions].tolist()
    assert order.spec()["over"] == below.spec()


def test_long_shards_make_few_stretches() -> None:
    """Rounds are computed, not simulated: 10^12 records of ten shards take hardly any time."""
    order = ps.Interleaved(4, 1, seed=1, shard_lengths=[10**11] * 10)
    found = order.take(10**12, 0, 10**12 - 100, 10**12)
    assert len(set(found.tolist())) == 100


def test_missing_or_wrong_arguments_are_reported() -> None:
    with pytest.raises(ValueError, match="give shard_lengths="):
        ps.Interleaved().take(10, 0, 0, 10)
    with pytest.raises(ValueError, match=r"the shards have 9 records .* but the dataset has 10"):
        ps.Interleaved().take(10, 0, 0, 10, shard_lengths=[4, 5])
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        ps.Buffered(0, 0)
    with pytest.raises(ValueError, match="cycle_length must be at least 1, not 0"):
        ps.Interleaved(0)
    with pytest.raises(TypeError, match="over is Interleaved or None, not Shuffled"):
        ps.Buffered(0, 5, ps.Shuffled(0))  # type: ignore[arg-type]
