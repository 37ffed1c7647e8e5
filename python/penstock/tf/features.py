"""The kinds of features that a record is parsed to: `tf.io.FixedLenFeature` and others.

Named tuples of their arguments. As in TensorFlow, most arguments are checked only when records are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.tf.dtypes import as_dtype, float32, int32, int64, string


class VarLenFeature(NamedTuple):
    """Any number of values: a SparseTensor, [batch, longest] or [values].

    Args:
        dtype: tf.int64, tf.float32 or tf.string.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import VarLenFeature
        >>> VarLenFeature(tf.int64)
        VarLenFeature(dtype=tf.int64)
    """

    dtype: Any


class FixedLenFeature(NamedTuple):
    """A dense tensor of the same shape in every record, [batch] + shape or shape.

    Args:
        shape: sizes of the dimensions, or one int; [] for a scalar. No size may be unknown.
        dtype: tf.int64, tf.float32 or tf.string.
        default_value: the values if a record lacks the feature, as many as the shape has; None makes such a record an
            error. A feature with an empty list of values is always an error.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import FixedLenFeature
        >>> FixedLenFeature([2], tf.float32)._replace(default_value=[0, 1])
        FixedLenFeature(shape=[2], dtype=tf.float32, default_value=[0, 1])
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A dense tensor of any number of elements of one shape, [batch, longest] + shape or [n] + shape.

    Args:
        shape: sizes of the dimensions of one element, a list.
        dtype: tf.int64, tf.float32 or tf.string.
        allow_missing: must be True for Examples. In a SequenceExample's feature lists, False makes a record without
            the list an error.
        default_value: the value that pads rows in `parse_example`; None: zero or "".

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import FixedLenSequenceFeature
        >>> FixedLenSequenceFeature([], tf.string, allow_missing=True).default_value is None
        True
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class SparseFeature(NamedTuple):
    """A SparseTensor from one key with values and others with their indices, [batch] + size or size.

    As in TensorFlow, indices may be out of range or repeated.

    Args:
        index_key: the key of the indices, or a list of keys, one for each dimension: lists of int64.
        value_key: the key of the values.
        dtype: tf.int64, tf.float32 or tf.string.
        size: the size of the dimension, or a list of sizes if index_key is a list.
        already_sorted: keep the order of the record; else entries are sorted by index.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import SparseFeature
        >>> SparseFeature("column", "value", tf.float32, size=100).already_sorted
        False
    """

    index_key: Any
    value_key: Any
    dtype: Any
    size: Any
    already_sorted: bool = False


class _Ragged(NamedTuple):
    """The fields of a RaggedFeature. `RaggedFeature.__new__` checks them; a NamedTuple cannot define it."""

    dtype: Any
    value_key: str | None
    partitions: tuple[Any, ...]
    row_splits_dtype: Any
    validate: bool


class RaggedFeature(_Ragged):
    """A RaggedTensor: flat values under one key, and their partition into rows under other keys.

    Args:
        dtype: tf.int64, tf.float32 or tf.string.
        value_key: the key of the values; None for the key of the feature.
        partitions: RaggedFeature.RowLengths(key), RowSplits(key), RowStarts(key), RowLimits(key),
            ValueRowIds(key) or UniformRowLength(length), outermost first. Without any, a record is one
            row.
        row_splits_dtype: tf.int32 or tf.int64.
        validate: whether rows that do not fit the values are an error. Otherwise, as in TensorFlow, they may be
            truncated, lost, or extend into the values of other records.

    Raises:
        ValueError: another dtype, or a value_key that is not text.
        TypeError: invalid partitions, or a validate that is not a bool.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import RaggedFeature
        >>> RaggedFeature(tf.int64, partitions=[RaggedFeature.RowLengths("n")]).partitions
        (RowLengths(key='n'),)
    """

    __slots__ = ()

    class RowSplits(NamedTuple):
        """The start of each row, and the end of the last row."""

        key: str

    class RowLengths(NamedTuple):
        """The length of each row."""

        key: str

    class RowStarts(NamedTuple):
        """The start of each row."""

        key: str

    class RowLimits(NamedTuple):
        """The end of each row."""

        key: str

    class ValueRowIds(NamedTuple):
        """The row number of each element."""

        key: str

    class UniformRowLength(NamedTuple):
        """Rows of one length."""

        length: int

    def __new__(  # noqa: PYI034 -- it has no subclasses
        cls,
        dtype: Any,
        value_key: str | None = None,
        partitions: Sequence[Any] = (),
        row_splits_dtype: Any = int32,
        validate: bool = False,
    ) -> RaggedFeature:
        if value_key is not None and not isinstance(value_key, str):
            raise ValueError(f"Argument `value_key` must be a string; got {value_key}")
        if value_key == "":
            raise ValueError("Argument `value_key` must not be empty")
        dtype = as_dtype(dtype)
        if dtype not in (int64, float32, string):
            raise ValueError(f"Argument `dtype` must be int64, float32, or bytes; got {dtype!r}")
        row_splits_dtype = as_dtype(row_splits_dtype)
        if row_splits_dtype not in (int32, int64):
            raise ValueError(
                f"Argument `row_splits_dtype` must be int32 or int64; got {row_splits_dtype!r}"
            )
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"Argument `partitions` must be a list or tuple; got {partitions!r}")
        for partition in partitions:
            if not isinstance(partition, PARTITIONS):
                raise TypeError(
                    f"Argument `partitions` must hold partitions such as RowLengths(key); got {partition!r}"
                )
        if not isinstance(validate, bool):
            raise TypeError(f"Argument `validate` must be a bool; got {validate!r}")
        return super().__new__(cls, dtype, value_key, tuple(partitions), row_splits_dtype, validate)


PARTITIONS = (
    RaggedFeature.RowSplits,
    RaggedFeature.RowLengths,
    RaggedFeature.RowStarts,
    RaggedFeature.RowLimits,
    RaggedFeature.ValueRowIds,
    RaggedFeature.UniformRowLength,
)
FEATURES = (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
)


def in_order(features: Any) -> list[Any]:
    """The keys of features in the order of TensorFlow's results: sparse, dense and ragged ones, each sorted, and at the
    end those made of several keys."""
    return sorted(features, key=lambda key: (_place(key, features[key]), key))


def _place(key: Any, feature: Any) -> int:
    if isinstance(feature, RaggedFeature):
        return 2 if feature.value_key in {None, key} else 3
    return {"VarLenFeature": 0, "SparseFeature": 3}.get(type(feature).__name__, 1)
