"""`tf.io`: reading, writing and parsing under TensorFlow's names."""

import penstock.tf.gfile as gfile  # noqa: PLR0402 - the other form imports the package, which imports this
from penstock.tf.files import matching_files, read_file, write_file
from penstock.tf.missing import missing as _missing
from penstock.tf.tensor_proto import parse_tensor, serialize_tensor
from penstock.tf.writing import TFRecordOptions, TFRecordWriter

__all__ = [
    "TFRecordOptions",
    "TFRecordWriter",
    "gfile",
    "matching_files",
    "parse_tensor",
    "read_file",
    "serialize_tensor",
    "write_file",
]


def __getattr__(name: str) -> object:
    raise _missing(f"tf.io.{name}")
