"""Schemas in TensorFlow's terms, which define how each feature of an Example becomes a column.

    schema = {"label": FixedLen([], "int64"), "tokens": VarLen("int64")}

A key of the dict is the name of the column. It is also the key in the Example, unless the feature names another key. In
a schema for SequenceExamples, features of the context are given directly, and feature lists are wrapped: `{"id":
FixedLen([], "int64"), "frames": Sequence(VarLen("float32"))}`. If the context and the feature lists have the same key,
the key becomes two columns, `context/key` and `feature_lists/key`, as in an inferred schema.

The type of each column, and its value for a record without the feature:

| feature | Arrow type | missing, protobuf | missing, TensorFlow |
|---|---|---|---|
| FixedLen([]) | T, not nullable | default or SchemaError | the same |
| FixedLen(shape) | arrow.fixed_shape_tensor, not nullable | default or SchemaError | the same |
| VarLen | list<T> | null | empty list |
| FixedLenSequence([]) | list<T> | null, or SchemaError unless allow_missing | empty list |
| FixedLenSequence(shape) | list of nested fixed_size_list | the same | empty list |
| Ragged | list, nested once more for each partition | null | empty list |
| Sparse | struct<indices: list<int64>, values: list<T>> | null | empty lists |
| Sequence(FixedLenSequence) | as FixedLenSequence | the same | empty list |
| Sequence(VarLen or Ragged) | list<list<T>> | null | empty list |

T is int64, float32 or binary, or string if requested. An Example has no other types. The protobuf dialect checks
partitions and the range of sparse indices. The TensorFlow dialect, like TensorFlow itself, does not. Lists are never
padded.

The attributes of a feature are normalised: `shape` and `size` are tuples of ints, `dtype` is an Arrow type, and
`default` is a tuple of values.
"""

from __future__ import annotations

from penstock.features._types import (
    Feature,
    FixedLen,
    FixedLenSequence,
    Partition,
    Ragged,
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    Sequence,
    Sparse,
    UniformRowLength,
    ValueRowIds,
    VarLen,
    value_type,
)
from penstock.features.plans import describe, kernel_dialect, plan_fields

__all__ = [
    "Feature",
    "FixedLen",
    "FixedLenSequence",
    "Partition",
    "Ragged",
    "RowLengths",
    "RowLimits",
    "RowSplits",
    "RowStarts",
    "Sequence",
    "Sparse",
    "UniformRowLength",
    "ValueRowIds",
    "VarLen",
    "describe",
    "kernel_dialect",
    "plan_fields",
    "value_type",
]
