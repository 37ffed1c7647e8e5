"""Hints of penstock.tf about records of files."""

from __future__ import annotations

from steps import Case, Cases

import penstock.tf as tf


def _compressed(actual: str, given: str) -> Case:
    """A TFRecord file that is read with another compression than its own."""
    with tf.io.TFRecordWriter("a.tfrecord", actual) as writer:
        writer.write(b"one")

    def read(kind: str) -> list[bytes]:
        return list(tf.data.TFRecordDataset("a.tfrecord", kind).as_numpy_iterator())

    def advised() -> None:
        assert read(actual) == [b"one"]

    hint = f'compression_type="{actual}"' if actual else "leave out compression_type"
    return Case(lambda: read(given), advised, hint)


CASES: Cases = {
    "_argument(found)": (
        lambda: _compressed("GZIP", ""),
        lambda: _compressed("ZLIB", "GZIP"),
        lambda: _compressed("", "ZLIB"),
    ),
}
