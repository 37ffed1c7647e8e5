"""Placeholders for elements with known specs, and the specs of the tensors that a parser returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.features import in_order
from penstock.tf.nest import map_structure
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.shapes import (
    RaggedTensorSpec,
    SparseTensorSpec,
    TensorShape,
    TensorSpec,
    TypeSpec,
)
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor


def placeholder(spec: Any) -> Any:
    """A placeholder for an element with these specs."""
    return map_structure(_leaf, spec, lists=False)


def _leaf(spec: Any) -> Any:
    if hasattr(spec, "blank"):  # the spec of a dataset
        return spec.blank()
    if not isinstance(spec, TypeSpec):
        raise probing.NoPlaceholder
    if isinstance(spec, SparseTensorSpec):
        return _sparse(spec)
    if isinstance(spec, RaggedTensorSpec) and spec.ragged_rank:
        return _ragged(spec.shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype.dtype)
    return probing.array(spec.shape, spec.dtype).view(Tensor)


def _sparse(spec: SparseTensorSpec) -> SparseTensor:
    count, shape = probing.size(), probing.sizes(spec.shape)
    indices = np.zeros((count, len(shape)), np.int64)
    if shape:
        indices[:, -1] = np.arange(count)
    return SparseTensor(indices, probing.array([count], spec.dtype), shape)


def _ragged(shape: TensorShape, dtype: Any, rank: int, splits: Any) -> RaggedTensor:
    rows, inner = probing.sizes(shape[:1])[0], shape[1:]
    if rank > 1:
        values: Any = _ragged(TensorShape([None, *inner[1:]]), dtype, rank - 1, splits)
    else:
        values = probing.array([None, *inner[1:]], dtype).view(Tensor)
    ends = np.full(rows + 1, len(values), splits)
    ends[0] = 0
    return RaggedTensor(values, ends.view(Tensor))


def of_features(features: Any, batch: list[Any]) -> dict[str, Any]:
    """The specs of the tensors that a parser returns for features, for a batch of this shape or for one record."""
    return {key: _of_feature(features[key], batch) for key in in_order(features)}


def _of_feature(feature: Any, batch: list[Any]) -> Any:
    kind = type(feature).__name__
    if kind == "FixedLenFeature":
        return TensorSpec(TensorShape(batch).concatenate(feature.shape), feature.dtype)
    if kind == "FixedLenSequenceFeature":
        return TensorSpec(TensorShape([*batch, None]).concatenate(feature.shape), feature.dtype)
    if kind == "VarLenFeature":
        return SparseTensorSpec([*batch, None], feature.dtype)
    if kind == "SparseFeature":
        sizes = feature.size if isinstance(feature.size, (list, tuple)) else [feature.size]
        return SparseTensorSpec([*batch, *sizes], feature.dtype)
    return _of_ragged_feature(feature, batch)


def _of_ragged_feature(feature: Any, batch: list[Any]) -> Any:
    shape: list[int | None] = [*batch, None]
    uniform = 0
    for partition in feature.partitions:
        length = getattr(partition, "length", None)
        uniform = uniform + 1 if length is not None else 0
        shape.append(length)
    rank = len(shape) - 1 - uniform
    if not rank:
        return TensorSpec(shape, feature.dtype)
    return RaggedTensorSpec(shape, feature.dtype, rank, feature.row_splits_dtype)


def specs_of_lists(features: Any, batch: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specs of parsed feature lists, and of the numbers of their frames, for a batch of this shape."""
    specs: dict[str, Any] = {}
    lengths: dict[str, Any] = {}
    for key in in_order(features):
        feature = features[key]
        kind = type(feature).__name__
        if kind == "FixedLenSequenceFeature":
            shape = TensorShape([*batch, None]).concatenate(feature.shape)
            specs[key] = TensorSpec(shape, feature.dtype)
            lengths[key] = TensorSpec(batch, "int64")
        elif kind == "VarLenFeature":
            specs[key] = SparseTensorSpec([*batch, None, None], feature.dtype)
        else:
            shape = [*batch, None, None, *(getattr(p, "length", None) for p in feature.partitions)]
            specs[key] = RaggedTensorSpec(
                shape, feature.dtype, len(shape) - 1, feature.row_splits_dtype
            )
    return specs, lengths


def of_parsed(features: Any, batch: list[Any]) -> dict[str, Any]:
    """Placeholders for the tensors that a parser returns for features, for a batch of this shape or for one record."""
    return placeholder(of_features(features, batch))


def of_sequences(serialized: Any, context: Any, lists: Any) -> Any:
    """Placeholders for the context, the lists and the numbers of frames of parsed SequenceExamples."""
    batch = list(np.shape(serialized))
    specs, lengths = specs_of_lists(lists or {}, batch)
    return of_parsed(context or {}, batch), placeholder(specs), placeholder(lengths)
