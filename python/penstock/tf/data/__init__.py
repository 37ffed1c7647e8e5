"""`tf.data`: datasets with TensorFlow's interface."""

from penstock.tf.data import experimental
from penstock.tf.data.base import Iterator
from penstock.tf.data.dataset import (
    Dataset,
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
)
from penstock.tf.data.op import AUTOTUNE
from penstock.tf.data.op import INFINITE as INFINITE_CARDINALITY
from penstock.tf.data.op import UNKNOWN as UNKNOWN_CARDINALITY
from penstock.tf.data.options import Options, ThreadingOptions
from penstock.tf.data.windows import DatasetSpec
from penstock.tf.missing import absent_from

__getattr__ = absent_from("tf.data")

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "DatasetSpec",
    "FixedLengthRecordDataset",
    "Iterator",
    "Options",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
    "experimental",
]
