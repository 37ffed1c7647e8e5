"""Executes recognised functions on columns: one call parses a block, and its columns are chosen and renamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.tf.data.blocks import Column, Varying
from penstock.tf.nest import pack_sequence_as
from penstock.tf.recognised import Parsing, Recorded, Recording
from penstock.tf.shapes import SparseTensorSpec, TensorShape, TensorSpec

_COLUMNAR = ("FixedLenFeature", "VarLenFeature")
"""Features whose tensors can be parsed together, and then divided into rows."""


class Plan:
    """Applies a recording to the columns of blocks."""

    def __init__(self, recording: Recording) -> None:
        self.result = recording.result
        self._leaves = recording.leaves
        used = [leaf.parsing for leaf in recording.leaves]
        # A parser whose results are not used still reports faulty records.
        self._parsings = recording.parsings
        self._places = [None if p is None else self._parsings.index(p) for p in used]

    @property
    def num_leaves(self) -> int:
        return len(self._leaves)

    @property
    def parses(self) -> bool:
        """Whether threads are worthwhile."""
        return bool(self._parsings)

    @property
    def is_varying(self) -> bool:
        """Whether the result has sparse columns."""
        return any(
            type(feature).__name__ == "VarLenFeature"
            for parsing in self._parsings
            for feature in parsing.features.values()
        )

    def columns(self, given: Sequence[Column]) -> list[Column]:
        """The columns of the result."""
        parsed = [_parsed(given[p.source.leaf], p) for p in self._parsings]
        return [
            given[leaf.leaf] if place is None else parsed[place][leaf.key or ""]
            for leaf, place in zip(self._leaves, self._places, strict=True)
        ]

    def is_string(self, leaf: int, given: Sequence[bool]) -> bool:
        """Whether a leaf of the result is a string, or a batch of strings, that can be parsed."""
        return self._leaves[leaf].parsing is None and given[self._leaves[leaf].leaf]

    def specs(self, given: Sequence[Any]) -> Any:
        """The specs of an element of the result, from those of the source."""
        flat = [_spec(leaf, given) for leaf in self._leaves]
        return pack_sequence_as(self.result, flat, lists=False)


def plan_of(recording: Recording) -> Plan | None:
    """The function as operations on columns, or None if the result could differ."""
    for parsing in recording.parsings:
        for feature in parsing.features.values():
            if type(feature).__name__ not in _COLUMNAR:
                return None
    return Plan(recording)


def _parsed(strings: Column, parsing: Parsing) -> dict[str, Column]:
    from penstock.tf.parsing import parse_batch

    if not isinstance(strings, pa.Array):
        strings = pa.array(np.asarray(strings), pa.large_binary())
    found = parse_batch(strings, parsing.features)
    return {name: _column(value, len(strings)) for name, value in found.items()}


def _column(value: Any, num_rows: int) -> Column:
    if not hasattr(value, "dense_shape"):
        return np.asarray(value)
    rows = np.asarray(value.indices)[:, 0]
    splits = np.searchsorted(rows, np.arange(num_rows + 1)).astype(np.int64)
    return Varying(np.asarray(value.values), splits)


def _spec(leaf: Recorded, given: Sequence[Any]) -> Any:
    if leaf.parsing is None:
        return given[leaf.leaf]
    assert leaf.key is not None
    feature = leaf.parsing.features[leaf.key]
    batch = [] if leaf.parsing.single else list(given[leaf.parsing.source.leaf].shape)
    if type(feature).__name__ == "VarLenFeature":
        return SparseTensorSpec([*batch, None], feature.dtype)
    return TensorSpec(TensorShape(batch).concatenate(feature.shape), feature.dtype)
