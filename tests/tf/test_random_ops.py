"""`tf.random` compared with TensorFlow's: the same seed gives the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

EVEN = {
    "floats": lambda t: t.random.uniform([3, 2]),
    "doubles": lambda t: t.random.uniform([3], dtype=t.float64),
    "halves": lambda t: t.random.uniform([5], dtype=t.float16),
    "a range": lambda t: t.random.uniform([4], -1, 1, seed=9),
    "a scalar": lambda t: t.random.uniform((), maxval=10, dtype=t.int32),
    "integers": lambda t: t.random.uniform([5], -5, 5, t.int32, seed=1),
    "large integers": lambda t: t.random.uniform([3], maxval=1 << 40, dtype=t.int64),
    "negative large integers": lambda t: t.random.uniform([5], -5, 5, t.int64, seed=3),
    "no numbers": lambda t: t.random.uniform([0]),
    "limits of tensors": lambda t: t.random.uniform([], t.constant(2.0), t.constant(3.0), seed=1),
    "a shape of a tensor": lambda t: t.random.uniform(t.shape(t.zeros([2, 3]))),
    "shuffled": lambda t: t.random.shuffle(t.range(10)),
    "shuffled rows": lambda t: t.random.shuffle(t.reshape(t.range(14), [7, 2]), seed=4),
    "shuffled five": lambda t: t.random.shuffle(t.range(5), seed=4),
    "shuffled nine": lambda t: t.random.shuffle(t.range(9), seed=4),
    "shuffled one": lambda t: t.random.shuffle([5]),
    "stateless": lambda t: t.random.stateless_uniform([4], [1, 2], 0, 1 << 50, t.int64),
    "of all integers": lambda t: t.random.stateless_uniform([4], [1, 2], None, None, t.int32),
    "seeds of a seed": lambda t: t.random.split([1, 2], 3),
    "seeds of 64 bits": lambda t: t.random.experimental.stateless_split(
        t.constant([1, 2], t.int64), 3
    ),
}
NORMAL = {
    "floats": lambda t: t.random.normal([7]),
    "spread": lambda t: t.random.normal([2, 3], 1.0, 2.0, seed=3),
    "doubles": lambda t: t.random.normal([5], dtype=t.float64),
    "halves": lambda t: t.random.normal([5], dtype=t.float16),
    "truncated": lambda t: t.random.truncated_normal([40], seed=2),
    "stateless": lambda t: t.random.stateless_normal([5], [1, 2]),
    "stateless doubles": lambda t: t.random.stateless_normal([5], [1, 2], dtype=t.float64),
}


def drawn(t: Any, program: Any) -> list[np.ndarray]:
    """What three calls return after setting a seed."""
    t.random.set_seed(42)
    try:
        return [np.asarray(program(t).numpy()) for _ in range(3)]
    finally:
        t.random.set_seed(None)


@pytest.mark.parametrize("name", EVEN)
def test_the_numbers_of_a_seed_are_tensorflows(name: str) -> None:
    for mine, theirs in zip(drawn(tf, EVEN[name]), drawn(tensorflow, EVEN[name]), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_numbers_are_tensorflows_but_for_rounding(name: str) -> None:
    for mine, theirs in zip(drawn(tf, NORMAL[name]), drawn(tensorflow, NORMAL[name]), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=2e-3 if mine.itemsize == 2 else 1e-5)


@pytest.mark.parametrize(
    ("error", "program"),
    [
        (ValueError, lambda t: t.random.uniform([2], dtype=t.int32)),
        ("InvalidArgumentError", lambda t: t.random.uniform([2], 3, 3, dtype=t.int32)),
    ],
)
def test_invalid_random_requests_are_refused_as_in_tensorflow(error: Any, program: Any) -> None:
    for t in (tf, tensorflow):
        with pytest.raises(getattr(t.errors, error) if isinstance(error, str) else error):
            program(t)


def test_datasets_are_sampled_as_tensorflow_samples_them() -> None:
    def samples(t: Any) -> list[Any]:
        make = t.data.Dataset
        sets = [make.range(10), make.range(100, 105), make.range(50, 70)]
        t.random.set_seed(7)
        found = []
        for arguments in (
            {"seed": 2},
            {"weights": [0.7, 0.2, 0.1], "seed": 2},
            {"weights": [0.0, 0.5, 0.5], "stop_on_empty_dataset": True},
            {"weights": np.array([0.2, 0.2, 0.6])},
            {"seed": 5, "rerandomize_each_iteration": True},
        ):
            dataset = make.sample_from_datasets(sets, **arguments)
            found += [[int(x) for x in dataset] for _ in range(3)]
        numbers = make.random(seed=4, rerandomize_each_iteration=True).take(5)
        found += [[int(x) for x in numbers] for _ in range(3)]
        t.random.set_seed(None)
        return found

    assert samples(tf) == samples(tensorflow)
