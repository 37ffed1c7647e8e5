"""Arguments that the verbs of datasets refuse, and cases that random chains do not cover, compared with TensorFlow if
possible."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as real  # noqa: ICN001 -- tf is whichever of the two
from test_data_chains import plain

import penstock.tf as ours

Data = ours.data.Dataset
BOTH = pytest.mark.parametrize("tf", [real, ours], ids=["tensorflow", "penstock"])


def numbers(dataset: Any) -> list[int]:
    return [int(x) for x in dataset]


REFUSED: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("shard index", lambda d, tf: d.shard(3, 3)),
    ("shard count", lambda d, tf: d.shard(0, 0)),
    ("batch size", lambda d, tf: d.batch(0)),
    ("padded size", lambda d, tf: d.padded_batch(0)),
    ("shuffle buffer", lambda d, tf: d.shuffle(0)),
    ("prefetch below -1", lambda d, tf: d.prefetch(-2)),
    ("map calls", lambda d, tf: d.map(lambda x: x, num_parallel_calls=0)),
    ("window size", lambda d, tf: d.window(0)),
    ("window shift", lambda d, tf: d.window(1, shift=0)),
    ("window stride", lambda d, tf: d.window(1, stride=0)),
    ("step zero", lambda d, tf: tf.data.Dataset.range(0, 5, 0)),
    ("shapes", lambda d, tf: d.map(lambda x: tf.data.Dataset.range(x).batch(9)).flat_map(lambda w: w).batch(2)),
    ("calls", lambda d, tf: d.interleave(tf.data.Dataset.range, 2, num_parallel_calls=3)),
    ("block", lambda d, tf: d.interleave(tf.data.Dataset.range, 2, block_length=0)),
    ("unbatch scalars", lambda d, tf: d.unbatch()),
    ("no files", lambda d, tf: tf.data.Dataset.list_files("/no/such/file-*")),
    ("missing file", lambda d, tf: tf.data.TFRecordDataset("/no/such/file")),
    ("missing text", lambda d, tf: tf.data.TextLineDataset("/no/such/file")),
    ("reads", lambda d, tf: tf.data.TFRecordDataset("/no/such/file", num_parallel_reads=0)),
    ("names", lambda d, tf: tf.data.TFRecordDataset([1, 2])),
    ("rows", lambda d, tf: tf.data.Dataset.from_tensor_slices(([1, 2], [1, 2, 3]))),
    ("scalar rows", lambda d, tf: tf.data.Dataset.from_tensor_slices(3)),
    ("predicate", lambda d, tf: d.filter(lambda x: x)),
    ("scan pair", lambda d, tf: d.scan(0, lambda s, x: x)),
    ("zip of nothing", lambda d, tf: tf.data.Dataset.zip()),
    ("apply", lambda d, tf: d.apply(lambda d: 3)),
    ("pad too small", lambda d, tf: d.batch(4).padded_batch(2, padded_shapes=[2])),
    ("pad of another type", lambda d, tf: d.padded_batch(2, padding_values="x")),
    ("one element", lambda d, tf: d.get_single_element()),
    ("no element", lambda d, tf: d.take(0).get_single_element()),
    ("length", lambda d, tf: d.filter(lambda x: x > 2).__len__()),
    ("endless length", lambda d, tf: d.repeat().__len__()),
    ("signature", lambda d, tf: tf.data.Dataset.from_generator(lambda: iter([1]))),
    ("generated shape", lambda d, tf: tf.data.Dataset.from_generator(lambda: iter([[1, 2]]), tf.int32, [])),
    ("generated type", lambda d, tf: tf.data.Dataset.from_generator(lambda: iter(["a"]), tf.int32)),
    ("generated structure", lambda d, tf: tf.data.Dataset.from_generator(lambda: iter([3]), (tf.int32, tf.int32))),
    ("too few", lambda d, tf: d.apply(tf.data.experimental.assert_cardinality(9))),
    ("too many", lambda d, tf: d.apply(tf.data.experimental.assert_cardinality(2))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "build"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_tensorflow_refuses_is_refused_by_an_error_of_that_name(text: str, build: Any) -> None:
    def refusal(tf: Any) -> BaseException | None:
        try:
            found = build(tf.data.Dataset.range(5), tf)
            for _ in found:
                pass
        except Exception as error:
            return error
        return None

    expected, found = refusal(real), refusal(ours)
    assert expected is not None, "TensorFlow takes it"
    name = type(expected).__name__
    assert isinstance(found, getattr(ours.errors, name, None) or getattr(builtins, name)), found


MESSAGES = [
    (lambda d: d.shard(3, 3), "Index must be between 0 and 2 (currently index = 3)."),
    (
        lambda d: d.flat_map(lambda n: Data.range(n).batch(9)).batch(2),
        "First element had shape [1] and element 1 had shape [2].",
    ),
    (
        lambda d: d.batch(4).padded_batch(2, padded_shapes=[2]),
        "Attempted to pad to a smaller size than the input element.",
    ),
    (lambda d: Data.list_files("/no/such-*"), "No files matched pattern: /no/such-*"),
]


@pytest.mark.parametrize(("build", "message"), MESSAGES)
def test_messages_equal_the_known_messages(build: Any, message: str) -> None:
    with pytest.raises(ours.errors.OpError) as caught:
        list(build(Data.range(5)))
    assert message in str(caught.value)


SAME: list[Callable[[Any], Any]] = [
    lambda tf: tf.data.Dataset.range(5).padded_batch(2, padding_values=tf.constant(-1, tf.int64)),
    lambda tf: tf.data.Dataset.range(1, 5).flat_map(lambda n: tf.data.Dataset.range(n).batch(9)).padded_batch(3, [None]),
    lambda tf: tf.data.Dataset.range(1, 5).flat_map(lambda n: tf.data.Dataset.range(n).batch(9)).padded_batch(3, [6], tf.constant(7, tf.int64)),
    lambda tf: tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": [[1.0], [2.0]]}).padded_batch(2, {"a": [], "b": [3]}),
    lambda tf: tf.data.Dataset.from_tensor_slices((["a", "b"], [True, False])),
    lambda tf: tf.data.Dataset.from_tensors((1, {"x": [2.5]})),
    lambda tf: tf.data.Dataset.range(3).map(lambda x: [x, x * 2]),
    lambda tf: tf.data.Dataset.range(3).map(lambda x: (x, (x, {"k": x}))).batch(2),
    lambda tf: tf.data.Dataset.zip({"a": tf.data.Dataset.range(3), "b": (tf.data.Dataset.range(9), tf.data.Dataset.range(2))}),
    lambda tf: tf.data.Dataset.zip(tf.data.Dataset.range(3), tf.data.Dataset.range(4)),
    lambda tf: tf.data.Dataset.from_generator(lambda n: iter(range(n)), tf.int64, [], args=(3,)),
    lambda tf: tf.data.Dataset.from_generator(lambda: iter([(1, "a"), (2, "b")]), output_signature=(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string))),
    lambda tf: tf.data.Dataset.range(10, 0, -3),
    lambda tf: tf.data.Dataset.range(4, output_type=tf.float32),
    lambda tf: tf.data.Dataset.range(3).repeat().take(7),
    lambda tf: tf.data.Dataset.range(0).repeat(),
    lambda tf: tf.data.Dataset.range(7).skip(-1),
    lambda tf: tf.data.Dataset.range(6).batch(2).batch(2),
    lambda tf: tf.data.Dataset.range(6).batch(4).unbatch().batch(3),
    lambda tf: tf.data.Dataset.range(7).batch(2).rebatch([3, 1]),
    lambda tf: tf.data.Dataset.range(9, output_type=tf.int32).bucket_by_sequence_length(lambda x: x % 4, [1, 3], [2, 3, 1]),
    lambda tf: tf.data.Dataset.range(1, 6).flat_map(lambda n: tf.data.Dataset.range(n).batch(9)).bucket_by_sequence_length(lambda x: tf.shape(x)[0] if tf is real else len(x), [3, 7], [2, 2, 2], pad_to_bucket_boundary=True),
    lambda tf: tf.data.Dataset.choose_from_datasets([tf.data.Dataset.range(2), tf.data.Dataset.range(5, 9)], tf.data.Dataset.from_tensor_slices(tf.constant([0, 1, 1, 0, 0, 1], tf.int64))),
    lambda tf: tf.data.Dataset.choose_from_datasets([tf.data.Dataset.range(2), tf.data.Dataset.range(5, 9)], tf.data.Dataset.from_tensor_slices(tf.constant([0, 1, 1, 0, 0, 1], tf.int64)), stop_on_empty_dataset=False),
    lambda tf: tf.data.Dataset.range(4).enumerate(start=5),
    lambda tf: tf.data.Dataset.from_tensor_slices([3, 1, 3, 1]).unique(),
    lambda tf: tf.data.Dataset.range(6).shuffle(tf.data.UNKNOWN_CARDINALITY, seed=4),
    lambda tf: tf.data.Dataset.range(6).apply(tf.data.experimental.assert_cardinality(6)),
    lambda tf: tf.data.Dataset.range(6).window(3, shift=2, drop_remainder=False).flat_map(lambda w: w.batch(3)),
    lambda tf: tf.data.Dataset.from_tensor_slices({"a": [1, 2, 3]}).window(2).flat_map(lambda w: w["a"].batch(2)),
    lambda tf: tf.data.Dataset.range(20).interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(x % 3), cycle_length=3, block_length=2, num_parallel_calls=2),
    lambda tf: tf.data.Dataset.range(3).concatenate(tf.data.Dataset.range(2).map(lambda x: x + 1)).batch(2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SAME)))
def test_these_give_what_tensorflow_gives(number: int) -> None:
    mine, theirs = SAME[number](ours), SAME[number](real)
    assert [plain(x) for x in mine] == [plain(x) for x in theirs]
    assert int(mine.cardinality()) == int(theirs.cardinality()) or number in (19, 20, 21, 25)


def test_reduce_gives_the_last_state() -> None:
    for tf in (real, ours):
        total = tf.data.Dataset.range(5).reduce(np.int64(0), lambda s, x: s + x)
        assert int(total) == 10
        pair = tf.data.Dataset.range(3).reduce(
            (np.int64(0), np.int64(1)), lambda s, x: (s[0] + x, s[1] * 2)
        )
        assert [int(x) for x in pair] == [3, 8]


class Point(NamedTuple):
    x: Any
    y: Any


def test_named_tuples_stay_what_they_are() -> None:
    dataset = Data.from_tensor_slices(Point([1, 2], [3, 4])).batch(2)
    (element,) = dataset
    assert type(element).__name__ == "Point"
    assert element.y.numpy().tolist() == [3, 4]


def test_a_dataset_is_an_instance_of_the_class_and_true() -> None:
    dataset = Data.range(3)
    assert isinstance(dataset, ours.data.Dataset)
    assert isinstance(ours.data.TFRecordDataset("x"), ours.data.Dataset)
    assert dataset
    assert len(dataset.batch(2)) == 2


def test_an_iterator_gives_elements_until_the_end() -> None:
    iterator = iter(Data.range(1))
    assert int(iterator.get_next()) == 0
    with pytest.raises(ours.errors.OutOfRangeError):
        iterator.get_next()


def test_numpy_iterators_give_plain_values() -> None:
    (element,) = Data.from_tensors(("a", 1, [1.5])).as_numpy_iterator()
    assert element[0] == b"a"
    assert type(element[1]) is np.int32
    assert type(element[2]) is np.ndarray


def test_the_error_for_a_missing_symbol_names_another_way() -> None:
    with pytest.raises(NotImplementedError, match=r"tf\.data\.Dataset\.sparse_batch"):
        Data.range(3).sparse_batch(2, [3])
    with pytest.raises(AttributeError, match=r"tf\.data\.Dataset\.fingerprint"):
        Data.fingerprint()
    with pytest.raises(NotImplementedError, match="dense_to_sparse_batch"):
        ours.data.experimental.dense_to_sparse_batch(2, [3])
    assert not hasattr(ours.data, "no_such_name")


def test_options_take_what_tensorflow_has_and_nothing_else() -> None:
    names = [n for n in dir(real.data.Options()) if not n.startswith("_")]
    for tf in (real, ours):
        options = tf.data.Options()
        options.deterministic = False
        options.threading.private_threadpool_size = 3
        options.autotune.enabled = True
        options.experimental_optimization.map_fusion = True
        dataset = tf.data.Dataset.range(3).with_options(options)
        assert dataset.options().deterministic is False
        assert dataset.map(lambda x: x).options().threading.private_threadpool_size == 3
        with pytest.raises(AttributeError):
            options.no_such_option = 1
    mine = ours.data.Options()
    for name in names:
        getattr(mine, name)


@pytest.mark.parametrize("tf", [real, ours])
def test_both_names_of_determinism_are_one_option(tf: Any) -> None:
    names = ("deterministic", "experimental_deterministic")
    for written, read in (names, names[::-1]):
        for value in (False, True):
            options = tf.data.Options()
            setattr(options, written, value)
            assert getattr(options, written) is getattr(options, read) is value
            # The later value counts, whatever its name.
            setattr(options, read, not value)
            assert getattr(options, written) is getattr(options, read) is (not value)
            dataset = tf.data.Dataset.range(3).with_options(options)
            assert getattr(dataset.options(), written) is (not value)


def test_ignore_errors_skips_elements_that_fail() -> None:
    def fail_at_two(x: Any) -> Any:
        if x == 2:
            raise ValueError("two")
        return x

    for calls in (None, 2):
        dataset = Data.range(5).map(fail_at_two, num_parallel_calls=calls)
        assert numbers(dataset.ignore_errors()) == [0, 1, 3, 4]
        batches = [x.numpy().tolist() for x in dataset.batch(2).ignore_errors()]
        assert batches in ([[0, 1], [3, 4]], [[0, 1], [4]], [[0, 1], [3, 4]])
    with pytest.warns(UserWarning, match="two"):
        assert numbers(Data.range(3).map(fail_at_two).ignore_errors(log_warning=True)) == [0, 1]
    with pytest.raises(ValueError, match="two"):
        numbers(Data.range(5).map(fail_at_two).shuffle(2).ignore_errors())


def test_operators_in_place_make_other_tensors() -> None:
    def scaled(x: Any) -> Any:
        x /= 2
        x += 1
        return x

    dataset = Data.from_tensor_slices(np.array([[2, 4], [6, 8]], np.float32))
    for _ in range(2):
        found = [x.numpy().tolist() for x in dataset.map(scaled)]
        assert found == [[2.0, 3.0], [4.0, 5.0]]


ROWS: dict[str, Callable[[Any], Any]] = {
    "ragged": lambda tf: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3], []])),
    "ragged twice": lambda tf: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[[1], []], [[2, 3]], []])),
    "sparse": lambda tf: tf.data.Dataset.from_tensor_slices(tf.SparseTensor([[0, 0], [1, 2], [2, 1]], [1, 2, 3], [3, 3])),
    "both": lambda tf: tf.data.Dataset.from_tensor_slices({"r": tf.ragged.constant([[1], [2, 3], []]), "s": tf.SparseTensor([[0, 0], [1, 2]], [1, 2], [3, 3]), "d": [1, 2, 3]}),
}  # fmt: skip


def parts(value: Any) -> Any:
    """The parts of a sparse or ragged tensor, or any other leaf itself."""
    if isinstance(value, dict):
        return [parts(value[key]) for key in sorted(value)]
    if hasattr(value, "dense_shape"):
        return [plain(part) for part in (value.indices, value.values, value.dense_shape)]
    return value.to_list() if hasattr(value, "to_list") else plain(value)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_ragged_and_sparse_tensors_are_batched_again(name: str) -> None:
    def seen(tf: Any) -> list[str]:
        rows = ROWS[name](tf)
        datasets = [rows.shuffle(9, seed=1).batch(2), rows.batch(2), rows.batch(3).unbatch()]
        datasets += [rows.batch(3).unbatch().batch(3)]
        return [str(parts(element)) for dataset in datasets for element in dataset]

    assert seen(ours) == seen(real)


def test_scalar_strings_are_padded_as_bytes() -> None:
    dataset = ours.data.Dataset.range(2).map(lambda x: (ours.range(x), ours.constant("s")))
    ((numbers, strings),) = dataset.padded_batch(2)
    assert numbers.shape == (2, 1)
    assert [type(text) for text in strings.numpy()] == [bytes, bytes]


def test_a_cache_in_no_folder_is_not_found() -> None:
    for tf in (ours, real):
        with pytest.raises(tf.errors.NotFoundError):
            list(tf.data.Dataset.range(2).cache("/no/such/folder/cache"))


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_batch_of_a_window_has_no_known_length_unless_the_rest_is_dropped(
    tf: Any, size: int
) -> None:
    windows = tf.data.Dataset.range(6).window(size, 1, 1, True)
    for drops in (False, True):
        batches = windows.flat_map(lambda w, drops=drops: w.batch(size, drop_remainder=drops))
        assert batches.element_spec.shape.as_list() == [size if drops else None]
        assert next(iter(batches)).numpy().tolist() == list(range(size))


@BOTH
def test_more_indices_than_values_are_an_invalid_argument_in_a_chain(tf: Any) -> None:
    feature = {
        "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2, 3])),
        "v": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0])),
    }
    record = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    spec = {"s": tf.io.SparseFeature("i", "v", tf.float32, 10)}
    with pytest.raises(ValueError, match="not compatible"):
        tf.io.parse_single_example(record, spec)

    def one(value: Any) -> Any:
        return tf.io.parse_single_example(value, spec)

    def several(values: Any) -> Any:
        return tf.io.parse_example(values, spec)

    records = tf.data.Dataset.from_tensors(record)
    for chain in (records.map(one), records.batch(1).map(several)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            list(chain)
