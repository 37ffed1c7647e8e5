"""Orders that tf.data has too: they are equal if they are deterministic, and equally distributed if they are
random."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps


@pytest.fixture(scope="module")
def tf():
    import tensorflow as tf

    return tf


def interleaved(tf, lengths: list[int], cycle: int, block: int) -> list[int]:
    firsts = np.cumsum(lengths) - lengths
    shards = tf.data.Dataset.from_tensor_slices((firsts, np.array(lengths)))
    records = shards.interleave(
        lambda first, length: tf.data.Dataset.range(first, first + length),
        cycle_length=cycle,
        block_length=block,
    )
    return [int(record) for record in records.as_numpy_iterator()]


CASES = [
    ([3, 3], 2, 1),
    ([5, 1, 7, 2, 9], 3, 1),
    ([5, 1, 7, 2, 9], 3, 2),
    ([4, 4, 4, 4, 4], 2, 2),
    ([4, 4, 4, 4, 4], 2, 4),
    ([0, 3, 0, 0, 8, 1], 2, 3),
    ([6], 4, 2),
    ([10, 3], 8, 5),
    ([100, 90, 80, 7, 6, 5], 3, 16),
]


@pytest.mark.parametrize(("lengths", "cycle", "block"), CASES)
def test_interleaving_is_that_of_tf_data(tf, lengths, cycle, block) -> None:
    order = ps.Interleaved(cycle, block, shard_lengths=lengths)
    expected = interleaved(tf, lengths, cycle, block)
    assert order.take(sum(lengths), 0, 0, sum(lengths)).tolist() == expected


def test_interleaving_is_that_of_tf_data_for_any_shards(tf) -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        lengths = random.integers(0, 12, random.integers(1, 9)).tolist()
        cycle, block = random.integers(1, 6, 2).tolist()
        order = ps.Interleaved(cycle, block, shard_lengths=lengths)
        expected = interleaved(tf, lengths, cycle, block)
        assert order.take(sum(lengths), 0, 0, sum(lengths)).tolist() == expected, (
            lengths,
            cycle,
            block,
        )


def test_the_buffer_moves_records_as_that_of_tf_data(tf) -> None:
    num_records, size = 20_000, 300

    def moves(records: np.ndarray) -> np.ndarray:
        """How many positions after its own place each record comes, at some quantiles. The ends of the epoch are left
        out."""
        late = np.arange(num_records) - records
        middle = late[2000:-2000]
        return np.quantile(middle, [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])

    ours, theirs = [], []
    for seed in range(20):
        ours.append(moves(ps.Buffered(seed, size).take(num_records, 0, 0, num_records)))
        data = tf.data.Dataset.range(num_records).shuffle(size, seed=seed)
        theirs.append(moves(np.fromiter(data.as_numpy_iterator(), np.int64, num_records)))
    scatter = np.std(theirs, axis=0) + np.std(ours, axis=0)
    difference = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
    # Compare the means of 20 runs each; allow five standard errors.
    assert (np.abs(difference) < 5 * scatter / np.sqrt(20)).all(), (ours, theirs)
    # Compare with theory, too: in each step, a record leaves the buffer with probability 1 / size.
    law = np.log(1 - np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])) * -size - size
    assert np.abs(np.mean(ours, axis=0) - law).max() < 0.1 * size
