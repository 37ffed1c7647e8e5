"""Assembles features of several keys, which are sparse or ragged, from the tensors of the keys.

The steps are TensorFlow's, so invalid numbers have the same effect: if a record's row lengths are too small, some of its
values go to the next record's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.tf.errors import InvalidArgumentError
from penstock.tf.features import RaggedFeature, SparseFeature
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.row_splits import Numbers, sums
from penstock.tf.sparse import made, reorder, same_length
from penstock.tf.tensor import Tensor

Tensors = Mapping[Any, Any]


def check_size(feature: SparseFeature) -> None:
    """Check that a feature's size is an int, or one int for each index key.

    Raises:
        TypeError: a size is not an int. ValueError: there are too many or too few sizes, or a size is negative.
    """
    kinds = (int, np.integer)
    if isinstance(feature.index_key, str):
        if not isinstance(feature.size, kinds):
            raise TypeError(f"if index_key is a str, size has to be an int; found {feature.size!r}")
        sizes = [feature.size]
    else:
        if isinstance(feature.size, kinds) or not all(isinstance(n, kinds) for n in feature.size):
            raise TypeError(
                f"if index_key is a list, size has to list ints; found {feature.size!r}"
            )
        sizes = list(feature.size)
        if len(sizes) != len(feature.index_key):
            raise ValueError(
                f"index_key and size have to have equal lengths; found {feature.index_key} and {sizes}"
            )
    for size in sizes:
        if size < 0:
            raise ValueError(f"Dimension {size} must be >= 0")


def sparse(feature: SparseFeature, tensors: Tensors) -> Any:
    """A sparse feature from its values and indices.

    As in TensorFlow, only the counts of the whole batch are compared. One index too few in a record and one too many
    in the next is accepted, and the value goes to the record of its index.

    Raises:
        ValueError, InvalidArgumentError: the numbers of indices and of values differ.
    """
    alone = isinstance(feature.index_key, str)
    keys = [feature.index_key] if alone else list(feature.index_key)
    values = tensors[feature.value_key]
    columns = [np.asarray(tensors[key].values) for key in keys]
    if any(len(column) != len(columns[0]) for column in columns):
        counts = {key: len(column) for key, column in zip(keys, columns, strict=True)}
        raise InvalidArgumentError(
            None, None, f"each key needs equally many indices; found {counts}"
        )
    same_length(len(columns[0]), len(values.values))
    first = tensors[keys[0]]
    kept = np.asarray(first.indices)[:, :-1]
    indices = np.concatenate([kept, *(column[:, None] for column in columns)], axis=1).view(Tensor)
    sizes = [feature.size] if alone else list(feature.size)
    shape = np.array([*np.asarray(first.dense_shape)[:-1], *sizes], np.int64).view(Tensor)
    found = made(indices, values.values, shape)
    return found if feature.already_sorted else reorder(found)


def ragged(key: Any, feature: RaggedFeature, tensors: Tensors) -> Any:
    """A ragged feature from its values and partitions."""
    found = tensors[key if feature.value_key is None else feature.value_key]
    if not isinstance(found, RaggedTensor):
        for partition in reversed(feature.partitions):
            found = _cut(found, partition, tensors, feature)
        return found
    outer = None
    if found.ragged_rank > 1:
        outer, found = found.row_splits, found.values
    for partition in reversed(feature.partitions):
        found = _cut_batch(found, partition, tensors, key, feature, outer)
    if outer is not None:
        found = RaggedTensor.from_row_splits(found, outer, validate=feature.validate)
    return found


def _reshaped(values: Any, length: int) -> Tensor:
    """Values reshaped to rows of one length."""
    if not length and not len(values):
        return values.reshape((1, 0, *values.shape[1:]))  # as in TensorFlow
    if length < 1 or len(values) % length:
        raise InvalidArgumentError(
            None,
            None,
            f"Input to reshape is a tensor with {len(values)} values, "
            f"but the requested shape requires a multiple of {length}",
        )
    return values.reshape((-1, length, *values.shape[1:]))


def _cut(values: Any, partition: Any, tensors: Tensors, feature: RaggedFeature) -> Any:
    """The values of one record, divided into rows."""
    validate = feature.validate
    if isinstance(partition, RaggedFeature.UniformRowLength):
        if not isinstance(values, RaggedTensor):
            return _reshaped(values, partition.length)
        return RaggedTensor.from_uniform_row_length(values, partition.length, validate=validate)
    numbers = np.asarray(tensors[partition.key]).astype(feature.row_splits_dtype.dtype)
    return _MAKERS[type(partition)](values, numbers, validate=validate)


_MAKERS: dict[type, Any] = {
    RaggedFeature.RowSplits: RaggedTensor.from_row_splits,
    RaggedFeature.RowLengths: RaggedTensor.from_row_lengths,
    RaggedFeature.RowStarts: RaggedTensor.from_row_starts,
    RaggedFeature.RowLimits: RaggedTensor.from_row_limits,
    RaggedFeature.ValueRowIds: RaggedTensor.from_value_rowids,
}


def _cut_batch(
    found: RaggedTensor,
    partition: Any,
    tensors: Tensors,
    key: Any,
    feature: RaggedFeature,
    outer: Tensor | None,
) -> RaggedTensor:
    """The values of each record or frame, divided into rows."""
    validate = feature.validate
    splits = np.asarray(found.row_splits)
    if isinstance(partition, RaggedFeature.UniformRowLength):
        return _cut_uniform(found, partition.length, validate)
    given = tensors[partition.key]
    if outer is not None:
        if validate and not np.array_equal(outer, given.row_splits):
            raise InvalidArgumentError(
                None, None, f"Feature {key}: values and partitions are not aligned"
            )
        given = given.values
    if isinstance(partition, RaggedFeature.RowSplits):
        given = given[:, 1:]
    numbers = np.asarray(given.values).astype(splits.dtype)
    if isinstance(partition, RaggedFeature.RowLengths):
        return given.with_values(
            RaggedTensor.from_row_lengths(found.values, numbers, validate=validate)
        )
    counts: Numbers = np.diff(np.asarray(given.row_splits))
    if isinstance(partition, RaggedFeature.ValueRowIds):
        num_rows = _num_rows(numbers, counts)
        numbers = numbers + np.repeat(sums(num_rows)[:-1], counts)
        rows = RaggedTensor.from_value_rowids(found.values, numbers, validate=validate)
        return RaggedTensor.from_row_lengths(rows, num_rows, validate=validate)
    numbers = _shifted(numbers, splits[:-1], counts)
    begins = isinstance(partition, RaggedFeature.RowStarts)
    make = RaggedTensor.from_row_starts if begins else RaggedTensor.from_row_limits
    made = make(found.values, numbers, validate=validate)
    same_length(len(given.values), len(made))
    return given.with_values(made)


def _shifted(numbers: Numbers, starts: Numbers, counts: Numbers) -> Numbers:
    """Positions within each row of values, as positions among all values.

    If there is only one row of partitions, it applies to all rows of values.
    """
    if len(counts) != 1:
        same_length(len(starts), len(counts))
    try:
        return numbers + np.repeat(starts, counts)
    except ValueError:
        raise InvalidArgumentError(
            None,
            None,
            f"Incompatible shapes: {len(numbers)} partitions for {len(starts)} rows of values",
        ) from None


def _cut_uniform(found: RaggedTensor, length: int, validate: bool) -> RaggedTensor:
    if not length:
        raise InvalidArgumentError(None, None, "Integer division by zero: rows of no values")
    if isinstance(found.values, RaggedTensor):
        inner: Any = RaggedTensor.from_uniform_row_length(found.values, length, validate=validate)
    else:
        inner = _reshaped(found.values, length)
    splits = found.row_splits // np.asarray(length, found.row_splits.dtype)
    return RaggedTensor.from_row_splits(inner, splits, validate=validate)


def _num_rows(ids: Numbers, counts: Numbers) -> Numbers:
    """The number of rows that the ids of each record need."""
    found = np.zeros(len(counts), ids.dtype)
    np.maximum.at(found, np.repeat(np.arange(len(counts)), counts), ids + np.asarray(1, ids.dtype))
    return found
