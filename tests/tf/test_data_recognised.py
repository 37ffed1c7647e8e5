"""Functions that only parse are run by columns, with the same result as record by record."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as real  # noqa: ICN001 -- tf is whichever of the two

import penstock.tf as tf
from penstock.tf.data.blocks import Blocks
from penstock.tf.data.op import as_leaf, looking
from penstock.tf.features import FixedLenFeature, FixedLenSequenceFeature, VarLenFeature
from penstock.tf.parsing import parse_example, parse_single_example
from penstock.tf.probing import NotRecorded
from penstock.tf.recognised import Recorded

FEATURES = {
    "id": FixedLenFeature([], tf.int64),
    "name": FixedLenFeature([], tf.string, b"none"),
    "pair": FixedLenFeature([2], tf.float32),
    "tags": VarLenFeature(tf.string),
    "sizes": VarLenFeature(tf.int64),
}


def examples(count: int, damaged: frozenset[int] = frozenset()) -> list[bytes]:
    rng = random.Random(count)
    made = []
    for number in range(count):
        feature = {
            "id": real.train.Feature(int64_list=real.train.Int64List(value=[number])),
            "pair": real.train.Feature(
                float_list=real.train.FloatList(value=[number, rng.random()])
            ),
            "sizes": real.train.Feature(
                int64_list=real.train.Int64List(value=range(rng.randint(0, 4)))
            ),
        }
        if number % 3:
            name = real.train.BytesList(value=[b"n" * (number % 5)])
            feature["name"] = real.train.Feature(bytes_list=name)
        if number % 2:
            tags = real.train.BytesList(value=[b"t"] * rng.randint(0, 3))
            feature["tags"] = real.train.Feature(bytes_list=tags)
        if number in damaged:
            del feature["id"]
        example = real.train.Example(features=real.train.Features(feature=feature))
        made.append(example.SerializeToString())
    return made


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("records")
    paths = []
    for number, count in enumerate((150, 7, 0, 350)):
        paths.append(str(folder / f"{number}"))
        with real.io.TFRecordWriter(paths[-1]) as writer:
            for example in examples(count):
                writer.write(example)
    return paths


def flat(value: Any) -> Any:
    """A leaf as Python values."""
    if hasattr(value, "dense_shape"):
        parts = (value.indices, value.values, value.dense_shape)
        return [np.asarray(part).tolist() for part in parts]
    return str(value.dtype), np.shape(value), np.asarray(value).tolist()


def elements(dataset: Any) -> list[Any]:
    return [tf.nest.map_structure(flat, element) for element in dataset]


def is_columnar(dataset: Any) -> bool:
    with looking():
        return isinstance(dataset.op.open(), Blocks)


def slow(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but it reads its argument, so it is not run by columns."""

    def run(*args: Any) -> Any:
        for each in tf.nest.flatten(args):
            np.shape(each.numpy() if isinstance(each, tf.Tensor) else each.values)
        return function(*args)

    return run


def single(record: Any) -> Any:
    return parse_single_example(record, FEATURES)


def batch(strings: Any) -> Any:
    return parse_example(strings, FEATURES)


def pair(record: Any) -> Any:
    parsed = parse_single_example(record, FEATURES)
    return parsed["pair"], {"id": parsed["id"], "record": record, "tags": parsed["tags"]}


CHAINS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "map": lambda d, f: d.map(f(single)),
    "pair": lambda d, f: d.map(f(pair)),
    "batch": lambda d, f: d.map(f(single)).batch(7),
    "parallel": lambda d, f: d.map(f(single), num_parallel_calls=tf.data.AUTOTUNE).batch(64, True),
    "shuffled": lambda d, f: d.map(f(single)).shuffle(100, 3).batch(16).prefetch(2),
    "repeated": lambda d, f: d.shuffle(50, 1).repeat(2).map(f(single)).batch(100),
    "batches": lambda d, f: d.batch(32).map(f(batch)),
    "shuffled batches": lambda d, f: d.batch(9).shuffle(10, 2).map(f(batch)).take(50),
    "some batches": lambda d, f: d.skip(5).take(600).shard(2, 1).batch(32).map(f(batch)).cache(),
    "chosen": lambda d, f: d.map(f(single)).map(f(lambda e: (e["id"], e["sizes"]))).batch(5),
    "filtered": lambda d, f: d.map(f(single)).filter(lambda e: e["id"] % 3 == 0).batch(5),
    "unbatched": lambda d, f: d.batch(32).map(f(batch)).unbatch().batch(10),
    "twice": lambda d, f: d.map(f(single)).concatenate(d.map(f(single)).skip(3)).batch(8),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_columns_give_what_records_give(records: list[str], name: str) -> None:
    dataset = tf.data.TFRecordDataset(records)
    fast = CHAINS[name](dataset, lambda f: f)
    by_record = CHAINS[name](dataset, slow)
    # If rows have the length of their batch, they must not be treated as columns.
    assert is_columnar(fast) or name == "unbatched"
    for _ in range(2):
        assert elements(fast) == elements(by_record)


def test_interleaved_files_stay_in_columns(records: list[str]) -> None:
    files = tf.data.Dataset.from_tensor_slices(records)
    for cycle, block in ((1, 1), (3, 2), (4, 16), (9, 1)):
        turns = files.interleave(tf.data.TFRecordDataset, cycle, block)
        assert is_columnar(turns.map(single).shuffle(20, 1).batch(4))
        listed = files.interleave(
            lambda f: tf.data.TFRecordDataset(f).map(lambda r: r + b""), cycle, block
        )
        assert elements(turns) == elements(listed)
        parsed = files.interleave(lambda f: tf.data.TFRecordDataset(f).map(single), cycle, block)
        assert elements(parsed) == elements(turns.map(slow(single)))


def test_a_function_that_only_parses_is_called_once(records: list[str]) -> None:
    calls = []

    def counted(record: Any) -> Any:
        calls.append(1)
        return single(record)

    dataset = tf.data.TFRecordDataset(records).map(counted)
    assert len(list(dataset)) == 507
    assert len(list(dataset.batch(10))) == 51
    assert len(calls) == 1


NOT_ONLY_PARSING: list[Callable[[Any], Any]] = [
    lambda r: {**single(r), "one": 1},
    lambda r: single(r)["id"] + 1,
    lambda r: (single(r)["id"], len(r.numpy())),
    lambda r: single(r)["pair"][0],
    lambda r: {} if r == b"no" else single(r),
    lambda r: np.asarray(single(r)["pair"]),
    lambda r: np.add(single(r)["id"], 1),
    lambda r: tf.cast(single(r)["id"], tf.int32),
    lambda r: (single(r)["id"], None),
    lambda r: {"seq": parse_single_example(r, {"sizes": FixedLenSequenceFeature([], tf.int64, True)})["sizes"]},
    lambda r: parse_single_example(r, {"id": FEATURES["id"]}, example_names="x"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(NOT_ONLY_PARSING)))
def test_any_other_function_runs_as_it_is(records: list[str], number: int) -> None:
    function = NOT_ONLY_PARSING[number]
    mapped = tf.data.TFRecordDataset(records[1]).map(function)
    assert not is_columnar(mapped)
    strings = [record.numpy() for record in tf.data.TFRecordDataset(records[1])]
    expected = [function(tf.constant(s)) for s in strings]
    found = list(mapped)
    for mine, wanted in zip(found, expected, strict=True):
        leaves = [x for x in tf.nest.flatten(mine) if x is not None]
        others = [as_leaf(x) for x in tf.nest.flatten(wanted) if x is not None]
        assert [flat(x) for x in leaves] == [flat(x) for x in others]


def test_a_function_that_hides_that_it_read_a_value_is_still_detected(records: list[str]) -> None:
    def hiding(record: Any) -> Any:
        try:
            record.numpy()
        except BaseException:
            pass
        return single(record)

    assert not is_columnar(tf.data.TFRecordDataset(records).map(hiding))


@pytest.mark.parametrize("chain", ["map", "batch", "batches", "shuffled batches", "pair"])
def test_an_error_comes_in_its_place_and_with_the_same_words(chain: str) -> None:
    strings = examples(40, frozenset({23}))
    dataset = tf.data.Dataset.from_tensor_slices(strings)

    def outcome(f: Callable[..., Any]) -> tuple[list[Any], str]:
        seen: list[Any] = []
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            seen.extend(tf.nest.map_structure(flat, e) for e in CHAINS[chain](dataset, f))
        return seen, str(caught.value)

    assert is_columnar(CHAINS[chain](dataset, lambda f: f))
    assert outcome(lambda f: f) == outcome(slow)


def test_errors_can_be_skipped(records: list[str]) -> None:
    strings = examples(400, frozenset({0, 7, 8, 399}))
    dataset = tf.data.Dataset.from_tensor_slices(strings).map(single).ignore_errors()
    assert [int(e["id"]) for e in dataset] == [n for n in range(400) if n not in (0, 7, 8, 399)]


def test_specs_are_known_without_reading_data(records: list[str]) -> None:
    missing = tf.data.TFRecordDataset("/no/such/file")
    mine = missing.map(single).batch(4, drop_remainder=True).element_spec
    assert mine["pair"] == tf.TensorSpec([4, 2], tf.float32)
    assert mine["tags"] == tf.SparseTensorSpec([4, None], tf.string)
    batched = missing.batch(4).map(batch).element_spec
    assert batched["id"] == tf.TensorSpec([None], tf.int64)


def test_large_records_and_small_ones_give_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    sizes = [0, 10, 5000, 3, 200_000, 1, 70] * 30
    with real.io.TFRecordWriter(path) as writer:
        for size in sizes:
            writer.write(bytes(size))
    dataset = tf.data.TFRecordDataset(path)
    assert [len(r.numpy()) for r in dataset] == sizes
    again = tf.data.TFRecordDataset([path, path]).shuffle(31, 5).batch(4).unbatch()
    assert sorted(len(r.numpy()) for r in again) == sorted(sizes * 2)


def test_a_stand_in_allows_only_parsing() -> None:
    from penstock.tf.recognised import record

    for use in (
        bool,
        len,
        iter,
        str,
        float,
        np.asarray,
        lambda r: r == 1,
        lambda r: r.shape,
        lambda r: r[0],
        lambda r: 1 + r,
    ):

        def tried(given: Any, use: Any = use) -> Any:
            assert type(given) is Recorded
            with pytest.raises(NotRecorded):
                use(given)
            return given

        assert record(tried, None, lambda f, e: f(e), [False]) is None
