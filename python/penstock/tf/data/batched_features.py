"""`make_batched_features_dataset`: from file names to batches of features in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.data.dataset import Dataset, TFRecordDataset
from penstock.tf.data.op import AUTOTUNE
from penstock.tf.errors import InvalidArgumentError


def make_batched_features_dataset(
    file_pattern: Any,
    batch_size: Any,
    features: dict[str, Any],
    reader: Any = None,
    label_key: str | None = None,
    reader_args: Any = None,
    num_epochs: Any = None,
    shuffle: bool = True,
    shuffle_buffer_size: Any = 10000,
    shuffle_seed: Any = None,
    prefetch_buffer_size: Any = None,
    reader_num_threads: Any = None,
    parser_num_threads: Any = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Any:
    """Batches of Examples from files.

    Without num_epochs it is infinite: batches cross the boundaries of epochs, and no batch is incomplete.

    Args:
        file_pattern: one or several patterns of `Dataset.list_files`.
        batch_size: records of a batch.
        features: {name: tf.io.FixedLenFeature, tf.io.VarLenFeature, …}.
        reader: function from a file name to a dataset of records; by default TFRecordDataset.
        label_key: the feature that becomes the second component.
        reader_args: further arguments of the reader, such as ["GZIP"].
        num_epochs: number of epochs; None: infinite.
        shuffle: whether files and records come in a random order in each epoch.
        shuffle_buffer_size, shuffle_seed: as for `Dataset.shuffle`.
        prefetch_buffer_size: batches made ahead.
        reader_num_threads: files that are open at the same time, whose records alternate; by default 1.
        parser_num_threads, sloppy_ordering: ignored.
        drop_final_batch: drop a last batch that is not full.

    Returns:
        Dataset of {name: batch}, or of ({name: batch}, labels).

    Raises:
        InvalidArgumentError: no file matches.
        ValueError: the label is not one of the features.

    Example:
        >>> import penstock as ps
        >>> import penstock.tf as tf
        >>> _ = ps.write({"id": [1, 2]}, "ids.tfrecord", overwrite=True)
        >>> features = {"id": tf.io.FixedLenFeature([], tf.int64)}
        >>> dataset = tf.data.experimental.make_batched_features_dataset(
        ...     "ids.tfrecord", 2, features, num_epochs=1, shuffle=False
        ... )
        >>> [batch["id"].numpy().tolist() for batch in dataset]
        [[1, 2]]
    """
    make: Callable[..., Any] = TFRecordDataset if reader is None else reader
    rest = () if reader_args is None else tuple(reader_args)
    files = Dataset.list_files(file_pattern, shuffle, shuffle_seed)
    cycle = 1 if reader_num_threads is None else reader_num_threads
    if cycle == AUTOTUNE:
        cycle = None
    dataset = files.interleave(lambda name: make(name, *rest), cycle, 1)
    if label_key is not None and label_key not in features:
        raise ValueError(
            f"The `label_key` provided ({label_key!r}) must be one of the `features` keys: {list(features)}."
        )
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed)
    if num_epochs != 1:
        dataset = dataset.repeat(num_epochs)
    dataset = dataset.batch(batch_size, drop_final_batch or num_epochs is None)
    dataset = dataset.apply(parse_example_dataset(features))
    if label_key is not None:

        def split(columns: dict[str, Any]) -> tuple[Any, Any]:
            kept = dict(columns)
            return kept, kept.pop(label_key)

        dataset = dataset.map(split)
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def parse_example_dataset(
    features: dict[str, Any], num_parallel_calls: Any = 1, deterministic: bool | None = None
) -> Callable[[Any], Any]:
    """For `Dataset.apply`: batches of serialized Examples parsed by `tf.io.parse_example`.

    Raises:
        ValueError: no features.
    """
    if not isinstance(features, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("Argument `features` should not be None.")
    if num_parallel_calls is not None and num_parallel_calls < 1 and num_parallel_calls != AUTOTUNE:
        raise InvalidArgumentError(None, None, "num_parallel_calls must be greater than zero.")

    def parsed(dataset: Any) -> Any:
        from penstock.tf.parsing import parse_example

        return dataset.map(lambda records: parse_example(records, features))

    return parsed
