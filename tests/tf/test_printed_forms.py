"""Datasets and tensors as text: TensorFlow and penstock.tf write the same."""

from __future__ import annotations

from typing import Any

import pytest
from beside_tensorflow import ours, theirs

DATASETS = {
    "range": lambda t: t.data.Dataset.range(4),
    "slices": lambda t: t.data.Dataset.from_tensor_slices({"a": [1], "b": ["x"]}),
    "tensors": lambda t: t.data.Dataset.from_tensors([1.0]),
    "generator": lambda t: t.data.Dataset.from_generator(
        lambda: [1], output_signature=t.TensorSpec((), t.int32)
    ),
    "batch": lambda t: t.data.Dataset.range(4).batch(2),
    "prefetch": lambda t: t.data.Dataset.range(4).batch(2).prefetch(1),
    "map": lambda t: t.data.Dataset.range(4).map(lambda x: (x, {"a": x})),
    "parallel map": lambda t: t.data.Dataset.range(4).map(lambda x: x, num_parallel_calls=2),
    "cache": lambda t: t.data.Dataset.range(4).cache(),
    "shuffle and repeat": lambda t: t.data.Dataset.range(4).shuffle(2).repeat(),
    "zip": lambda t: t.data.Dataset.zip((t.data.Dataset.range(4), t.data.Dataset.range(4))),
    "enumerate": lambda t: t.data.Dataset.range(4).enumerate(),
    "flat map": lambda t: t.data.Dataset.range(4).flat_map(t.data.Dataset.range),
    "interleave": lambda t: t.data.Dataset.range(4).interleave(t.data.Dataset.range),
    "parallel interleave": lambda t: t.data.Dataset.range(4).interleave(
        t.data.Dataset.range, num_parallel_calls=2
    ),
    "window": lambda t: t.data.Dataset.range(4).window(2),
    "filter": lambda t: t.data.Dataset.range(4).filter(lambda x: x > 1),
    "records": lambda t: t.data.TFRecordDataset(["nowhere"]),
    "lines": lambda t: t.data.TextLineDataset(["nowhere"]),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_is_printed_with_its_kind_and_specs(name: str) -> None:
    mine, other = DATASETS[name](ours), DATASETS[name](theirs)
    assert repr(mine) == repr(other)
    assert str(mine) == str(other)


def test_a_dataset_whose_function_fails_is_printed_all_the_same() -> None:
    def fail(x: Any) -> Any:
        raise ZeroDivisionError

    dataset = ours.data.Dataset.range(4).map(fail)
    assert repr(dataset) == "<_MapDataset element_spec=unknown>"


@pytest.mark.parametrize(
    "text",
    [
        lambda t: f"{t.constant([1.0, 2.0])}",
        lambda t: f"{t.constant([[1, 2], [3, 4]])}",
        lambda t: f"{t.constant(7)} {t.constant(2.5):.2f} {t.constant('a')}",
        lambda t: f"{t.constant([1.0])!s} {t.constant(1)!r}",
    ],
)
def test_a_tensor_in_an_f_string_is_its_value(text: Any) -> None:
    assert text(ours) == text(theirs)


def test_parsed_features_have_tensorflows_order() -> None:
    made = theirs.train.Example().SerializeToString()

    def keys(t: Any) -> Any:
        features = {
            "z": t.io.FixedLenFeature([], t.int64, 0),
            "m": t.io.VarLenFeature(t.int64),
            "r": t.io.RaggedFeature(t.int64),
            "a": t.io.FixedLenFeature([], t.int64, 0),
            "b": t.io.VarLenFeature(t.int64),
        }
        lone = t.data.Dataset.from_tensors(made).map(
            lambda x: t.io.parse_single_example(x, features)
        )
        many = t.data.Dataset.from_tensors([made]).map(lambda x: t.io.parse_example(x, features))
        return [
            list(t.io.parse_single_example(made, features)),
            list(t.io.parse_example([made], features)),
            *([list(d.element_spec), list(next(iter(d)))] for d in (lone, many)),
        ]

    assert keys(ours) == keys(theirs)
