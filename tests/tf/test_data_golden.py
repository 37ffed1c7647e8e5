"""TensorFlow's results for shuffles, interleaving and batched features, number by number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.tf as tf
from penstock.tf.features import FixedLenFeature, VarLenFeature
from penstock.tf.parsing import parse_single_example
from penstock.tf.seeds import Philox


@pytest.fixture
def answers(golden: Path) -> Any:
    return lambda name: json.loads((golden / "tf_data" / f"{name}.expected.json").read_text())


@pytest.fixture(autouse=True)
def no_global_seed() -> Any:
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def numbers(dataset: Any) -> list[int]:
    return [int(x) for x in dataset]


def as_elements(dataset: Any) -> Any:
    """The same dataset, but its elements are not in columns any more."""
    return dataset.map(lambda x: x + 0)


def test_philox_gives_the_numbers_of_its_paper(answers: Any) -> None:
    for case in answers("shuffle")["philox4x32_10"]:
        assert Philox(case["seed"], case["seed2"]).take(8).tolist() == case["first_8_u32"]


def test_philox_continues_where_it_was_whatever_is_drawn() -> None:
    whole = Philox(3, 5).take(100).tolist()
    parts = Philox(3, 5)
    assert [n for size in (1, 2, 3, 7, 20, 67) for n in parts.take(size).tolist()] == whole


@pytest.mark.parametrize("lies", [lambda d: d, as_elements], ids=["columns", "elements"])
def test_shuffle_gives_tensorflows_order(answers: Any, lies: Any) -> None:
    found = answers("shuffle")
    for case in found["fixed"]:
        dataset = lies(tf.data.Dataset.range(case["n"]))
        shuffled = dataset.shuffle(
            case["buffer_size"], case["seed"], reshuffle_each_iteration=False
        )
        assert numbers(shuffled) == case["order"]
        assert numbers(shuffled) == case["order"]
    for case in found["reshuffled"]:
        dataset = lies(tf.data.Dataset.range(case["n"]))
        shuffled = dataset.shuffle(case["buffer_size"], case["seed"])
        assert [numbers(shuffled) for _ in case["epochs"]] == case["epochs"]
        again = dataset.shuffle(case["buffer_size"], case["seed"]).repeat(len(case["epochs"]))
        assert numbers(again) == [n for epoch in case["epochs"] for n in epoch]
    case = found["repeat_then_shuffle"]
    dataset = lies(tf.data.Dataset.range(case["n"])).repeat(case["repeat"])
    shuffled = dataset.shuffle(case["buffer_size"], case["seed"], reshuffle_each_iteration=False)
    reshuffled = dataset.shuffle(case["buffer_size"], case["seed"])
    assert case["order"] in (numbers(shuffled), numbers(reshuffled))


def test_the_global_seed_seeds_operations_that_are_made_later(answers: Any) -> None:
    for case in answers("shuffle")["global_seed"]:
        tf.random.set_seed(case["global_seed"])
        dataset = tf.data.Dataset.range(case["n"])
        shuffled = dataset.shuffle(
            case["buffer_size"], case["op_seed"], reshuffle_each_iteration=False
        )
        tf.random.set_seed(99)
        assert numbers(shuffled) == case["order"]


def test_without_any_seed_orders_differ() -> None:
    orders = {tuple(numbers(tf.data.Dataset.range(50).shuffle(50))) for _ in range(3)}
    assert len(orders) == 3


def test_interleave_takes_turns_as_tensorflow(answers: Any) -> None:
    for case in answers("interleave")["cases"]:
        lengths = case["lengths"]

        def inner(i: Any, lengths: list[int] = lengths) -> Any:
            return tf.data.Dataset.range(100 * i, 100 * i + lengths[int(i)])

        def listed(i: Any, lengths: list[int] = lengths) -> Any:
            return as_elements(inner(i, lengths))

        files = tf.data.Dataset.range(len(lengths))
        for made in (inner, listed):
            turns = files.interleave(
                made, cycle_length=case["cycle_length"], block_length=case["block_length"]
            )
            assert numbers(turns) == case["order"], case


def test_stateless_uniform_gives_tensorflows_numbers(answers: Any) -> None:
    for case in answers("stateless_uniform"):
        floats = tf.random.stateless_uniform(case["shape"], case["seed"])
        assert floats.numpy().tolist() == case["float32"]
        whole = tf.random.stateless_uniform(case["shape"], case["seed"], 0, 2147483647, tf.int32)
        assert whole.numpy().tolist() == case["int32_below_2147483647"]


FEATURES = {
    "id": FixedLenFeature([], tf.int64),
    "lab": FixedLenFeature([], tf.int64),
    "kw": VarLenFeature(tf.string),
}


def test_batched_features_come_in_tensorflows_order(answers: Any, golden: Path) -> None:
    found = answers("make_batched_features")
    pattern = str(golden / "tf_data" / found["pattern"])
    tf.random.set_seed(1234)  # this was set when the answers were made
    for case in found["cases"]:
        dataset = tf.data.experimental.make_batched_features_dataset(
            pattern, features=FEATURES, **case["args"]
        )
        if "take" in case:
            dataset = dataset.take(case["take"])
        assert [batch["id"].numpy().tolist() for batch in dataset] == case["ids"], case["args"]


def test_parallel_reads_take_turns_between_files(answers: Any, golden: Path) -> None:
    files = sorted(str(p) for p in (golden / "tf_data" / "shards").iterdir())
    for case in answers("make_batched_features")["num_parallel_reads"]:
        dataset = tf.data.TFRecordDataset(files, num_parallel_reads=case["n"])
        ids = [int(parse_single_example(record, FEATURES)["id"]) for record in dataset]
        assert ids == case["ids"]


def test_a_label_becomes_the_second_component(golden: Path) -> None:
    pattern = str(golden / "tf_data" / "shards" / "s-*")
    dataset = tf.data.experimental.make_batched_features_dataset(
        pattern, 4, FEATURES, label_key="lab", shuffle=False, num_epochs=1
    )
    columns, label = next(iter(dataset))
    assert sorted(columns) == ["id", "kw"]
    assert label.dtype == np.int64
    with pytest.raises(ValueError, match="label_key"):
        tf.data.experimental.make_batched_features_dataset(pattern, 4, FEATURES, label_key="no")
