"""Hints of the caches of penstock.tf, and of the files that its datasets read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steps import Case, Cases

import penstock as ps
import penstock.tf as tf

TWO = {"a": [[1], [2, 3]]}


def parsed(records: Any) -> Any:
    """Records as sparse tensors of the numbers of `a`."""
    return records.map(
        lambda one: tf.io.parse_single_example(one, {"a": tf.io.VarLenFeature("int64")})
    )


def numbers(dataset: Any) -> list[list[int]]:
    return [one["a"].values.numpy().tolist() for one in dataset]


def sparse_in_a_file() -> Case:
    ps.write(TWO, "a.tfrecord")

    def records() -> Any:
        return tf.data.TFRecordDataset("a.tfrecord")

    def advised() -> None:
        in_memory = parsed(records()).cache()
        assert numbers(in_memory) == numbers(in_memory) == TWO["a"]
        before = parsed(records().cache("after"))
        assert numbers(before) == numbers(before) == TWO["a"]
        assert Path("after.index").exists()

    return Case(lambda: list(parsed(records()).cache("before")), advised)


def of_numbers(dtype: str, name: str) -> list[Any]:
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant([1, 2], dtype))
    return [one.numpy().item() for one in dataset.cache(name)]


def elsewhere_or_deleted(fails: Any) -> Case:
    def advised() -> None:
        assert of_numbers("int64", "another") == [1, 2]
        for path in Path().glob("kept.*"):
            path.unlink()
        assert of_numbers("int64", "kept") == of_numbers("int64", "kept") == [1, 2]

    return Case(fails, advised)


def cache_of_somebody_else() -> Case:
    Path("kept.index").write_bytes(b"\0TensorFlow's")
    Path("kept.data-00000-of-00001").write_bytes(b"")
    return elsewhere_or_deleted(lambda: of_numbers("int64", "kept"))


def cache_of_other_types() -> Case:
    assert of_numbers("float32", "kept") == [1.0, 2.0]
    return elsewhere_or_deleted(lambda: of_numbers("int64", "kept"))


def snappy() -> Case:
    def read(path: str, word: str) -> Any:
        return [one.numpy() for one in tf.data.TFRecordDataset(path, compression_type=word)]

    def advised() -> None:
        for word in ("GZIP", "ZLIB"):
            with tf.io.TFRecordWriter(f"{word}.tfrecord", word) as writer:
                writer.write(b"one")
            assert read(f"{word}.tfrecord", word) == [b"one"]

    return Case(lambda: read("a.tfrecord", "SNAPPY"), advised)


CASES: Cases = {
    "'cache() in memory, or cache the records and parse them after it'": sparse_in_a_file,
    "'delete it, or give cache() another name'": cache_of_somebody_else,
    "'delete the cache, or give another name'": cache_of_other_types,
    "'write them with GZIP or ZLIB'": snappy,
}
