"""`tf.data.Dataset`, and the datasets of files, which are separate classes in TensorFlow, too."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from penstock.tf.data.base import PLAIN, Base
from penstock.tf.data.interleaving import Interleave
from penstock.tf.data.making import Making
from penstock.tf.data.op import AUTOTUNE, Op, parallel_calls, positive
from penstock.tf.data.records import (
    Files,
    container_of,
    names_of,
    read_fixed,
    read_lines,
    read_records,
    size_argument,
)
from penstock.tf.data.sources import TensorSlices
from penstock.tf.data.verbs_of_batches import BatchVerbs
from penstock.tf.data.verbs_of_functions import FunctionVerbs
from penstock.tf.data.verbs_of_keeping import KeepingVerbs
from penstock.tf.data.verbs_of_order import OrderVerbs
from penstock.tf.missing import missing
from penstock.tf.tensor import Tensor


class _Missing:
    """A method that TensorFlow's Dataset has and penstock lacks. Access to it raises an error."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._symbol = f"tf.data.Dataset.{name}"

    def __get__(self, dataset: object, owner: object = None) -> Any:
        raise missing(self._symbol)


class Dataset(Making, FunctionVerbs, BatchVerbs, OrderVerbs, KeepingVerbs):
    """A sequence of elements: tensors in tuples and dicts. Each pass starts from the beginning.

    Made by `from_tensor_slices`, `range`, `list_files` … and by `TFRecordDataset`; verbs make new datasets from it.
    Keras takes a dataset of (x, y) batches directly.

    Example:
        >>> import penstock.tf as tf
        >>> dataset = tf.data.Dataset.range(6).filter(lambda x: x % 3 != 0).batch(2)
        >>> [batch.numpy().tolist() for batch in dataset]
        [[1, 2], [4, 5]]
    """

    def __init__(self, variant_tensor: Any = None) -> None:
        raise TypeError("a Dataset is made by Dataset.range, from_tensor_slices and the like")

    fingerprint = _Missing()
    sparse_batch = _Missing()

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Any:
        """The elements without those that raise an error.

        Args:
            log_warning: warn about each.
            name: ignored.

        Raises:
            PenstockError and others: when read: an error after which nothing more can be read.
        """
        from penstock.tf.data.failures import IgnoreErrors

        return self.of(IgnoreErrors(self.op, log_warning))


PLAIN[:] = [Dataset]


def _named(filenames: Any) -> Op:
    return filenames.op if isinstance(filenames, Base) else TensorSlices(names_of(filenames))


def _one(name: Any, read: Any) -> Files:
    return Files(TensorSlices(np.reshape(name, 1).view(Tensor)), read)


class _OfFiles(Dataset):
    """The contents of several files, one file after another, or several files in turns."""

    def _set(self, filenames: Any, read: Any, num_parallel_reads: Any) -> None:
        names = _named(filenames)
        reads = parallel_calls(num_parallel_reads)
        if reads is None:
            self.op = Files(names, read)
        else:
            cycle = AUTOTUNE if reads == AUTOTUNE else reads
            made = partial(_one, read=read)
            self.op = Interleave(names, made, cycle, 1, reads)


class TFRecordDataset(_OfFiles):
    """The verified records of TFRecord files, each a scalar of bytes.

    Args:
        filenames: a name, several, a tensor or a dataset of them.
        compression_type: the compression of the files: "GZIP", "ZLIB" or None.
        buffer_size: ignored.
        num_parallel_reads: files read at the same time, whose records then alternate; None: one file after another.
        name: ignored.

    Raises:
        TypeError: names that are not strings.
        InvalidArgumentError: an invalid num_parallel_reads.
        NotFoundError: when read: no such file.
        DataLossError: when read: a damaged record, with its file and number; or a different compression.

    Example:
        >>> import penstock as ps
        >>> import penstock.tf as tf
        >>> _ = ps.write(
        ...     {"record": [b"one", b"two"]}, "two.tfrecord", payload="raw", overwrite=True
        ... )
        >>> [record.numpy() for record in tf.data.TFRecordDataset("two.tfrecord")]
        [b'one', b'two']
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        container = container_of(compression_type)

        def read(path: str) -> Any:
            return read_records(path, container)

        self._set(filenames, read, num_parallel_reads)


class TextLineDataset(_OfFiles):
    """The lines of text files without their line ends, each a scalar of bytes.

    Args:
        filenames, compression_type, buffer_size, num_parallel_reads, name: as for TFRecordDataset.

    Raises:
        NotFoundError: when read: no such file.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        container = container_of(compression_type)
        self._set(filenames, lambda path: read_lines(path, container), num_parallel_reads)


class FixedLengthRecordDataset(_OfFiles):
    """Records of one size, each a scalar of bytes.

    Args:
        filenames, compression_type, buffer_size, num_parallel_reads, name: as for TFRecordDataset.
        record_bytes: the size.
        header_bytes, footer_bytes: bytes before and after the records of a file.

    Raises:
        InvalidArgumentError: an invalid size; when read: a file has an incomplete record at its end.
        NotFoundError: when read: no such file.
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        size = positive(record_bytes, "record_bytes", "must be > 0.")
        around = (
            size_argument(header_bytes, "header_bytes"),
            size_argument(footer_bytes, "footer_bytes"),
        )
        container = container_of(compression_type)

        def read(path: str) -> Any:
            return read_fixed(path, container, size, *around)

        self._set(filenames, read, num_parallel_reads)
