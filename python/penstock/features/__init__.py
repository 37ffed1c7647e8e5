"""Schemas in TensorFlow's terms: what each feature of an Example is to become.

    schema = {"label": FixedLen([], "int64"), "tokens": VarLen("int64")}

A key of the mapping is the name of the column and, unless the feature says otherwise, the key on
the wire. In a schema for SequenceExamples, features of the context are given as they are and
feature lists are wrapped: `{"id": FixedLen([], "int64"), "frames": Sequence(VarLen("float32"))}`.
Where one key is in both, the columns are named `context/key` and `feature_lists/key`, as they are
when a schema is inferred.

What becomes of a feature, and of a record that lacks it:

| feature | Arrow type | missing, protobuf | missing, TensorFlow |
|---|---|---|---|
| FixedLen([]) | T, not nullable | default or SchemaError | the same |
| FixedLen(shape) | arrow.fixed_shape_tensor, not nullable | default or SchemaError | the same |
| VarLen | list<T> | null | empty list |
| FixedLenSequence([]) | list<T> | null; SchemaError unless allow_missing | empty list |
| FixedLenSequence(shape) | list of nested fixed_size_list | the same | empty list |
| Ragged | list, nested once more for each partition | null | empty list |
| Sparse | struct<indices: list<int64>, values: list<T>> | null | empty lists |
| Sequence(FixedLenSequence) | as FixedLenSequence | the same | empty list |
| Sequence(VarLen or Ragged) | list<list<T>> | null | empty list |

The dialect also decides what misfits do: protobuf's checks partitions and the range of sparse
indices, TensorFlow's passes them on, as TensorFlow does. Lists are never padded here.

Features keep what they were given in one form: `shape` and `size` as tuples of ints, `dtype` as
an Arrow type, `default` as a tuple of values.

T is int64, float32, binary, or string if that was asked for: the wire knows no other types.
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
