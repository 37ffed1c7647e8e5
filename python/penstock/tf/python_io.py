"""`tf.python_io`: TensorFlow 1's names for reading and writing records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import penstock as ps
from penstock.tf.data.records import ends_between_records
from penstock.tf.errors import DataLossError, of_system
from penstock.tf.files import path_of
from penstock.tf.missing import absent_from
from penstock.tf.writing import TFRecordCompressionType, TFRecordOptions, TFRecordWriter

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "tf_record_iterator",
]


def tf_record_iterator(path: Any, options: Any = None) -> Iterator[bytes]:
    """The records of a file, as bytes; compression is detected from its content.

    Args:
        path: the file.
        options: ignored.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it is damaged.

    Example:
        >>> import penstock.tf as tf
        >>> with tf.python_io.TFRecordWriter("two.tfrecord") as writer:
        ...     writer.write(b"a")
        ...     writer.write(b"b")
        >>> list(tf.python_io.tf_record_iterator("two.tfrecord"))
        [b'a', b'b']
    """
    path = path_of(path)
    try:
        for batch in ps.open(path, format="tfrecord", raw=True, index="never").scan():
            yield from batch.column(0).to_pylist()
    except ps.FormatError as error:
        if isinstance(error, ps.TruncatedError) and ends_between_records(error, path):
            return
        raise DataLossError(None, None, error.message, **_place(error)) from error
    except OSError as error:
        raise of_system(error, path) from error


def _place(error: ps.PenstockError) -> dict[str, Any]:
    return {"file": error.file, "record": error.record, "byte": error.byte}


__getattr__ = absent_from("tf.python_io")
