"""The plan by which the kernel decodes, made once from a dict of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

import penstock.tf.parse_composites as composites
from penstock import _core
from penstock.payloads.example.plans import example_plan
from penstock.tf.decode_raw import core_name
from penstock.tf.dtypes import DType, as_dtype, int64, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
)
from penstock.tf.parse_keys import KINDS, Dense, Key, Ragged, Rows, Sparse
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor

EXAMPLE = (VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature, RaggedFeature)
CONTEXT = (VarLenFeature, FixedLenFeature, RaggedFeature)
LISTS = (VarLenFeature, FixedLenSequenceFeature, RaggedFeature)


class Plan:
    """How records are parsed by some features.

    Args:
        groups: features and the kinds allowed among them: one dict for Examples; context and feature lists for
            SequenceExamples.
        dialect: a dialect of the kernel.

    Raises:
        ValueError, TypeError, InvalidArgumentError: features that TensorFlow rejects.
    """

    def __init__(
        self, groups: Sequence[tuple[Mapping[Any, Any], tuple[type, ...]]], dialect: str
    ) -> None:
        in_lists = [allowed is LISTS for _, allowed in groups]
        keys = [
            _keys(given, kinds, lists)
            for (given, kinds), lists in zip(groups, in_lists, strict=True)
        ]
        self.groups = tuple(
            (found, _composites(given)) for found, (given, _) in zip(keys, groups, strict=True)
        )
        self.keys: list[Key] = [key for found in keys for key in found]
        wires = [key.wire() for key in self.keys]
        encoded = [key.encoded() for key in self.keys]
        self.core: _core.ExamplePlan = example_plan(wires, dialect, encoded)
        self.sparse = [number for number, key in enumerate(self.keys) if key.sparse]


class _Composites:
    """Features made of several keys. Keys that are used only for them are dropped from the result."""

    def __init__(self, features: Mapping[Any, Any]) -> None:
        self.features = set(features)
        self.made: list[tuple[Any, Callable[[Mapping[Any, Any]], Any]]] = []
        for key in sorted(features):
            feature = features[key]
            if isinstance(feature, SparseFeature):
                composites.check_size(feature)
                self.made.append((key, lambda tensors, f=feature: composites.sparse(f, tensors)))
            elif isinstance(feature, RaggedFeature) and (feature.partitions or feature.value_key):
                made = lambda tensors, k=key, f=feature: composites.ragged(k, f, tensors)  # noqa: E731
                self.made.append((key, made))

    def put(self, tensors: dict[Any, Any]) -> dict[Any, Any]:
        """Make the tensors of all features from the tensors of keys."""
        made = [(key, make(tensors)) for key, make in self.made]
        tensors.update(made)
        return {key: tensor for key, tensor in tensors.items() if key in self.features}


def _composites(features: Mapping[Any, Any]) -> _Composites | None:
    found = _Composites(features)
    return found if found.made else None


def _keys(features: Mapping[Any, Any], allowed: tuple[type, ...], in_lists: bool) -> list[Key]:
    """The keys of some features in TensorFlow's order: sparse, dense, ragged, each sorted."""
    found = _Keys(in_lists, sequence=allowed is not EXAMPLE)
    for key in sorted(features):
        feature = features[key]
        if not isinstance(feature, allowed):
            raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key '{key}'")
        found.add(key, feature)
    found.check()
    return [*found.sparse.values(), *found.dense.values(), *found.ragged.values()]


class _Keys:
    """The keys of features, with TensorFlow's checks."""

    def __init__(self, in_lists: bool, *, sequence: bool) -> None:
        self.in_lists = in_lists
        self.where = ("feature_list_" if in_lists else "context_") if sequence else ""
        self.sparse: dict[Any, Sparse] = {}
        self.dense: dict[Any, Dense | Rows] = {}
        self.ragged: dict[Any, Ragged] = {}

    def add(self, key: Any, feature: Any) -> None:
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}. Received feature={feature}.")
        if isinstance(feature, VarLenFeature):
            self._add_sparse(key, feature.dtype)
        elif isinstance(feature, SparseFeature):
            self._add_sparse_feature(feature)
        elif isinstance(feature, RaggedFeature):
            self._add_ragged_feature(key, feature)
        elif feature.shape is None and (self.in_lists or isinstance(feature, FixedLenFeature)):
            raise ValueError(f"Missing shape for feature {key}. Received feature={feature}.")
        elif isinstance(feature, FixedLenFeature):
            self.dense[key] = self._fixed(key, feature)
        else:
            self.dense[key] = self._rows(key, feature)

    def _add_sparse_feature(self, feature: SparseFeature) -> None:
        for part in ("index_key", "value_key"):
            if not getattr(feature, part):
                raise ValueError(f"Missing {part} for SparseFeature {feature}.")
        index = feature.index_key
        for name in [index] if isinstance(index, str) else sorted(index):
            self._add_sparse(name, int64)
        self._add_sparse(feature.value_key, feature.dtype)

    def _add_ragged_feature(self, key: Any, feature: RaggedFeature) -> None:
        value_key = key if feature.value_key is None else feature.value_key
        self._add_ragged(value_key, feature.dtype, feature.row_splits_dtype)
        for partition in feature.partitions:
            if not isinstance(partition, RaggedFeature.UniformRowLength):
                self._add_ragged(partition.key, int64, feature.row_splits_dtype)

    def _dtype(self, key: Any, dtype: Any, attribute: str) -> DType:
        if not isinstance(key, (str, bytes)):
            raise TypeError(f"Cannot convert [{key!r}] to EagerTensor of dtype string")
        found = as_dtype(dtype)
        if found.name not in KINDS:
            _refuse(
                f"Value for attr '{attribute}' of {core_name(found)} is not in the list of allowed values: float, int64, "
                f"string (feature {key!r})"
            )
        return found

    def _add_sparse(self, key: Any, dtype: Any) -> None:
        attribute = f"{self.where}sparse_types"
        made = Sparse(key, self._dtype(key, dtype, attribute), self.in_lists)
        known = self.sparse.setdefault(key, made)
        if known.dtype != made.dtype:
            raise ValueError(f"Conflicting type {known.dtype} vs {made.dtype} for feature {key}.")

    def _add_ragged(self, key: Any, dtype: Any, splits: DType) -> None:
        made = Ragged(key, self._dtype(key, dtype, "ragged_value_types"), self.in_lists, splits)
        known = self.ragged.setdefault(key, made)
        if known.dtype != made.dtype:
            raise ValueError(f"Conflicting type {known.dtype} vs {made.dtype} for feature {key}.")
        if known.splits != made.splits:
            raise ValueError(
                f"Conflicting partition type {known.splits} vs {made.splits} for feature {key}."
            )

    def _fixed(self, key: Any, feature: FixedLenFeature) -> Dense:
        sizes = TensorShape(feature.shape)
        if sizes.rank and sizes[0] is None:
            if feature.shape == -1 or -1 in tuple(feature.shape):
                raise ValueError("Dimension -1 must be >= 0")
            raise ValueError(
                f"First dimension of shape for feature {key} unknown. "
                f"Consider using FixedLenSequenceFeature. Received feature={feature}."
            )
        if not sizes.is_fully_defined():
            raise ValueError(
                f"All dimensions of shape for feature {key} need to be known but received {feature.shape!s}."
            )
        dtype = self._dtype(key, feature.dtype, _dense_attribute(self.where))
        shape = tuple(int(size) for size in sizes if size is not None)
        default = _values(feature.default_value, dtype, shape)
        return Dense(key, dtype, self.in_lists, shape, default)

    def _rows(self, key: Any, feature: FixedLenSequenceFeature) -> Rows:
        if self.in_lists:
            if feature.default_value is not None:
                raise ValueError(f"Value feature_list.dense_defaults[{key}] must be None")
        elif not feature.allow_missing:
            raise ValueError(
                "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
            )
        sizes = TensorShape(feature.shape if self.in_lists else list(feature.shape))
        dtype = self._dtype(key, feature.dtype, _dense_attribute(self.where))
        if not sizes.is_fully_defined():
            _refuse(
                f"dense shape of {key!r} has unknown inner dimensions: {sizes} is not fully defined"
            )
        shape = tuple(int(size) for size in sizes if size is not None)
        if not prod(shape):
            # TensorFlow divides by the number of values in an element, and crashes if it is 0.
            _refuse(f"elements of {key!r} have no values, so they cannot be counted: {sizes}")
        default = _values(feature.default_value, dtype, ())
        fill = default[0] if default else b"" if dtype is string else 0
        return Rows(
            key, dtype, self.in_lists, shape, fill, self.in_lists and not feature.allow_missing
        )

    def check(self) -> None:
        """Raise ValueError if a key would be read in two ways."""
        groups = {"Dense": self.dense, "Sparse": self.sparse, "Ragged": self.ragged}
        for a, b in (("Dense", "Sparse"), ("Dense", "Ragged"), ("Ragged", "Sparse")):
            if both := groups[a].keys() & groups[b].keys():
                raise ValueError(
                    f"{a} and {b.lower()} keys must not intersect; {a.lower()}_keys: {list(groups[a])}, "
                    f"{b.lower()}_keys: {list(groups[b])}, intersection: {both}"
                )


def _dense_attribute(where: str) -> str:
    return {"": "Tdense", "context_": "Tcontext_dense"}.get(where, "feature_list_dense_types")


def _refuse(message: str) -> None:
    raise InvalidArgumentError(None, None, message)


def _values(value: Any, dtype: DType, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """A default as flat values, exactly as many as the shape needs."""
    if value is None:
        return None
    if isinstance(value, Tensor) and value.dtype != dtype:
        _refuse(
            f"a default_value of type {as_dtype(value.dtype).name} for a feature of {dtype.name}"
        )
    if (
        isinstance(value, (np.ndarray, np.generic))
        and value.dtype.kind in "iufb"
        and dtype is not string
    ):
        value = np.asarray(value).astype(dtype.dtype)
    if isinstance(value, int) and dtype is int64 and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"Can't convert out-of-range integer {value} to a default_value of int64")
    made = convert_to_tensor(value, dtype)
    if made.size != prod(shape):
        _refuse(
            f"Input to reshape is a tensor with {made.size} values, but the requested shape has {prod(shape)}: "
            f"a default_value for the shape {list(shape)}"
        )
    return tuple(made.reshape(-1).tolist())
