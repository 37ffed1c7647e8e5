"""`tf.data.experimental`: older and rarer functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.tf.data.base import Base
from penstock.tf.data.batched_features import make_batched_features_dataset, parse_example_dataset
from penstock.tf.data.csv_files import CsvDataset, make_csv_dataset
from penstock.tf.data.dataset import Dataset
from penstock.tf.data.op import AUTOTUNE, INFINITE, UNKNOWN, Op, Stream, elements, whole
from penstock.tf.data.options import (
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ThreadingOptions,
)
from penstock.tf.errors import FailedPreconditionError
from penstock.tf.lookup import (
    KeyValueTensorInitializer,
    StaticHashTable,
    StaticVocabularyTable,
)
from penstock.tf.missing import absent_from
from penstock.tf.tensor import Tensor
from penstock.tf.writing import TFRecordWriter as _Writer

INFINITE_CARDINALITY = INFINITE
UNKNOWN_CARDINALITY = UNKNOWN
Transformation = Callable[[Any], Any]


class Asserted(Op):
    """The same elements, whose number is checked."""

    def __init__(self, source: Op, number: Any) -> None:
        self.source = source
        self.number = whole(number, "expected_cardinality")

    def open(self) -> Stream:
        return self._run(elements(self.source.open()))

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        count = 0
        for element in values:
            count += 1
            if 0 <= self.number < count:
                raise FailedPreconditionError(
                    None,
                    None,
                    f"Input dataset was expected to contain {self.number} elements but contained at "
                    f"least {count} elements.",
                )
            yield element
        if count < self.number or self.number == INFINITE:
            wanted = "an infinite number of" if self.number == INFINITE else self.number
            raise FailedPreconditionError(
                None,
                None,
                f"Input dataset was expected to contain {wanted} elements but contained only {count} elements.",
            )

    def cardinality(self) -> int:
        return self.number

    def spec(self) -> Any:
        return self.source.spec()


def assert_cardinality(expected_cardinality: Any) -> Transformation:
    """For `Dataset.apply`: declare the number of elements, which is checked when they are read.

    Example:
        >>> import penstock.tf as tf
        >>> dataset = tf.data.Dataset.range(9).filter(lambda x: x < 4)
        >>> len(dataset.apply(tf.data.experimental.assert_cardinality(4)))
        4
    """
    return lambda dataset: Dataset.of(Asserted(dataset.op, expected_cardinality))


def cardinality(dataset: Base) -> Tensor:
    """`dataset.cardinality()`."""
    return dataset.cardinality()


def ignore_errors(log_warning: bool = False) -> Transformation:
    """For `Dataset.apply`: `Dataset.ignore_errors`."""
    return lambda dataset: dataset.ignore_errors(log_warning)


def shuffle_and_repeat(buffer_size: Any, count: Any = None, seed: Any = None) -> Transformation:
    """For `Dataset.apply`: shuffle, then repeat."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: Any,
    num_parallel_batches: Any = None,
    drop_remainder: bool = False,
    num_parallel_calls: Any = None,
) -> Transformation:
    """For `Dataset.apply`: map, then batch."""
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError(
            "`map_and_batch` allows only one of `num_parallel_batches` and `num_parallel_calls` to be set, but "
            "both were set."
        )
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(
        batch_size, drop_remainder
    )


def unbatch() -> Transformation:
    """For `Dataset.apply`: `Dataset.unbatch`."""
    return lambda dataset: dataset.unbatch()


def unique() -> Transformation:
    """For `Dataset.apply`: `Dataset.unique`."""
    return lambda dataset: dataset.unique()


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """For `Dataset.apply`: `Dataset.take_while`."""
    return lambda dataset: dataset.take_while(predicate)


def scan(initial_state: Any, scan_func: Callable[..., Any]) -> Transformation:
    """For `Dataset.apply`: `Dataset.scan`."""
    return lambda dataset: dataset.scan(initial_state, scan_func)


def enumerate_dataset(start: Any = 0) -> Transformation:
    """For `Dataset.apply`: `Dataset.enumerate`."""
    return lambda dataset: dataset.enumerate(start)


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: Any,
    block_length: Any = 1,
    sloppy: bool = False,
    buffer_output_elements: Any = None,
    prefetch_input_elements: Any = None,
) -> Transformation:
    """For `Dataset.apply`: `Dataset.interleave`."""
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length)


def dense_to_ragged_batch(
    batch_size: Any, drop_remainder: bool = False, row_splits_dtype: Any = "int64"
) -> Transformation:
    """For `Dataset.apply`: `Dataset.ragged_batch`."""
    return lambda dataset: dataset.ragged_batch(batch_size, drop_remainder, row_splits_dtype)


class TFRecordWriter:
    """Writes a dataset of scalar strings to a TFRecord file.

    Args:
        filename: the file.
        compression_type: "GZIP", "ZLIB" or None.

    Example:
        >>> import penstock.tf as tf
        >>> writer = tf.data.experimental.TFRecordWriter("some.tfrecord")
        >>> writer.write(tf.data.Dataset.from_tensor_slices([b"a", b"b"]))
        >>> [record.numpy() for record in tf.data.TFRecordDataset("some.tfrecord")]
        [b'a', b'b']
    """

    def __init__(self, filename: Any, compression_type: str | None = None) -> None:
        self._facts = filename, compression_type

    def write(self, dataset: Any) -> None:
        """Write all elements.

        Raises:
            TypeError: not a dataset, or elements that are not scalar strings.
        """
        if not isinstance(dataset, Base):
            raise TypeError(f"`dataset` must be a `tf.data.Dataset`, not {type(dataset)}")
        filename, compression_type = self._facts
        with _Writer(filename, compression_type or "") as writer:
            for element in dataset:
                record = element.numpy() if isinstance(element, Tensor) else element
                if not isinstance(record, bytes):
                    raise TypeError(f"`dataset` must produce scalar strings, not {element!r}")
                writer.write(record)


def group_by_window(
    key_func: Any, reduce_func: Any, window_size: Any = None, window_size_func: Any = None
) -> Any:
    """`Dataset.group_by_window`, for `Dataset.apply`."""
    return lambda dataset: dataset.group_by_window(
        key_func, reduce_func, window_size, window_size_func
    )


def bucket_by_sequence_length(*args: Any, **kwargs: Any) -> Transformation:
    """For `Dataset.apply`: `Dataset.bucket_by_sequence_length`."""
    return lambda dataset: dataset.bucket_by_sequence_length(*args, **kwargs)


def prefetch_to_device(device: Any, buffer_size: Any = None) -> Transformation:
    """For `Dataset.apply`: `Dataset.prefetch`; the framework decides about devices."""
    return lambda dataset: dataset.prefetch(AUTOTUNE if buffer_size is None else buffer_size)


def get_single_element(dataset: Base) -> Any:
    """`dataset.get_single_element()`."""
    return dataset.get_single_element()


def rejection_resample(
    class_func: Any, target_dist: Any, initial_dist: Any = None, seed: Any = None
) -> Transformation:
    """For `Dataset.apply`: `Dataset.rejection_resample`."""
    return lambda dataset: dataset.rejection_resample(class_func, target_dist, initial_dist, seed)


def snapshot(path: Any, compression: str = "AUTO", **_: Any) -> Transformation:
    """For `Dataset.apply`: `Dataset.snapshot`."""
    return lambda dataset: dataset.snapshot(path, compression)


def save(dataset: Any, path: Any, compression: str | None = None, shard_func: Any = None) -> None:
    """`dataset.save(path)`."""
    dataset.save(path, compression)


def table_from_dataset(
    dataset: Any,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: Any = None,
    hasher_spec: Any = None,
    key_dtype: Any = "string",
    name: str | None = None,
) -> Any:
    """A table of `tf.lookup` from the pairs of key and value of a dataset."""
    pairs = list(dataset)
    keys = np.stack([key for key, _ in pairs]).view(Tensor)
    values = np.stack([value for _, value in pairs]).view(Tensor)
    entries = KeyValueTensorInitializer(keys, values)
    if num_oov_buckets:
        return StaticVocabularyTable(entries, num_oov_buckets)
    return StaticHashTable(entries, -1 if default_value is None else default_value)


def enable_debug_mode() -> None:
    """Has no effect, because functions of datasets always run as plain Python, as in TensorFlow's debug mode."""


load = Dataset.load
Counter = Dataset.counter
choose_from_datasets = Dataset.choose_from_datasets
sample_from_datasets = Dataset.sample_from_datasets

__getattr__ = absent_from("tf.data.experimental")

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Counter",
    "CsvDataset",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "TFRecordWriter",
    "ThreadingOptions",
    "assert_cardinality",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "dense_to_ragged_batch",
    "enable_debug_mode",
    "enumerate_dataset",
    "get_single_element",
    "group_by_window",
    "ignore_errors",
    "load",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "map_and_batch",
    "parallel_interleave",
    "parse_example_dataset",
    "prefetch_to_device",
    "rejection_resample",
    "sample_from_datasets",
    "save",
    "scan",
    "shuffle_and_repeat",
    "snapshot",
    "table_from_dataset",
    "take_while",
    "unbatch",
    "unique",
]
