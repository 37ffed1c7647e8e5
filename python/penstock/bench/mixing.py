"""Computes how well an order mixes, from the record at each position. All figures are compared with those of exact
shuffles with other seeds.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_POSITIONS = 1_000_000
"""The most positions to use. In longer epochs, only some batches are used, spread over the epoch."""


def numbers_of(order: Any, layout: Layout, epoch: int, start: int, stop: int) -> np.ndarray:
    """Return the record numbers at some positions. `take` gets the keywords about the data that the order accepts."""
    known = {"chunk_lengths": layout.chunk_lengths, "shard_lengths": layout.shard_lengths}
    asked = inspect.signature(order.take).parameters
    words = {word: value for word, value in known.items() if word in asked}
    found: np.ndarray = order.take(layout.num_records, epoch, start, stop, **words)
    return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Chunks, shards and labels of the records. All arrays are int64."""

    num_records: int
    chunk_lengths: np.ndarray
    shard_firsts: np.ndarray
    """The first record of each shard."""
    labels: np.ndarray | None
    """The label of each record, numbered from 0."""

    def chunks_of(self, records: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.cumsum(self.chunk_lengths), records, "right")

    @property
    def shard_lengths(self) -> np.ndarray:
        return np.diff(self.shard_firsts, append=self.num_records)

    def shards_of(self, records: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.shard_firsts, records, "right") - 1


@dataclass(frozen=True, slots=True)
class Mix:
    """How an order mixes, in absolute figures. `Mixing` has them relative to an exact shuffle."""

    moved: float
    """The mean of |position - record|, divided by the number of records. It is 1/3 for an exact shuffle."""
    neighbours: float
    """The fraction of records whose successor in the files is in the same batch."""
    chunks: float
    """The mean number of different chunks in a batch."""
    shards: float
    labels: float | None
    """The mean number of different labels in a batch."""
    label_distance: float | None
    """The mean total variation distance between the labels of a batch and those of all records."""
    again: float | None
    """The fraction of pairs of records in a batch that also share a batch in the next epoch."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Batches of an epoch: the positions and the record at each, both int64[batches, batch_size]. A smaller last batch
    is left out."""

    places: np.ndarray
    records: np.ndarray
    is_whole: bool


def positions_of(
    order: Any, layout: Layout, epoch: int, batch_size: int, most: int = MOST_POSITIONS
) -> Positions:
    """Return batches of an order, spread over the epoch, with at most `most` positions."""
    length = order.length(layout.num_records)
    batches = max(length // batch_size, 1)
    batch_size = min(batch_size, length)
    wanted = min(batches, max(most // batch_size, 1))
    chosen = np.unique(np.linspace(0, batches - 1, wanted).astype(np.int64))
    places = chosen[:, None] * batch_size + np.arange(batch_size)
    if wanted == batches:
        flat = numbers_of(order, layout, epoch, 0, batches * batch_size)
        return Positions(places, flat.reshape(batches, batch_size), True)
    parts = [
        numbers_of(order, layout, epoch, at, at + batch_size)
        for at in (chosen * batch_size).tolist()
    ]
    return Positions(places, np.stack(parts), False)


def mix_of(order: Any, layout: Layout, epoch: int, batch_size: int) -> Mix:
    """Measure how an order mixes in one epoch."""
    found = positions_of(order, layout, epoch, batch_size)
    labels, distance = _labels(found.records, layout)
    return Mix(
        float(np.mean(np.abs(found.places - found.records))) / layout.num_records,
        _neighbours(found.records),
        _distinct(layout.chunks_of(found.records)),
        _distinct(layout.shards_of(found.records)),
        labels,
        distance,
        _again(found, order, layout, epoch, batch_size),
    )


def _distinct(groups: np.ndarray) -> float:
    ordered = np.sort(groups, axis=1)
    return float(np.mean(1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)))


def _neighbours(records: np.ndarray) -> float:
    ordered = np.sort(records, axis=1)
    return float(np.count_nonzero(np.diff(ordered, axis=1) == 1) / records.size)


def _labels(records: np.ndarray, layout: Layout) -> tuple[float | None, float | None]:
    if layout.labels is None:
        return None, None
    kinds = int(layout.labels.max()) + 1
    whole = np.bincount(layout.labels, minlength=kinds) / len(layout.labels)
    distances: list[float] = []
    distinct: list[int] = []
    for batch in records:
        counts = np.bincount(layout.labels[batch], minlength=kinds)
        distinct.append(int(np.count_nonzero(counts)))
        distances.append(0.5 * float(np.abs(counts / len(batch) - whole).sum()))
    return float(np.mean(distinct)), float(np.mean(distances))


def _again(
    found: Positions, order: Any, layout: Layout, epoch: int, batch_size: int
) -> float | None:
    """Return the fraction of pairs of records that share a batch both in this epoch and in the next."""
    batches, size = found.records.shape
    if not found.is_whole or size < 2:
        return None
    after = positions_of(order, layout, epoch + 1, batch_size)
    batch_of = np.full(layout.num_records, -1, np.int64)
    batch_of[after.records.ravel()] = np.repeat(np.arange(len(after.records)), size)
    place = batch_of[found.records]
    keys = np.repeat(np.arange(batches), size) * (batches + 1) + place.ravel() + 1
    _, together = np.unique(keys[place.ravel() >= 0], return_counts=True)
    pairs = batches * size * (size - 1)
    return float(np.sum(together * (together - 1)) / pairs)


@dataclass(frozen=True, slots=True)
class Mixing:
    """An order relative to an exact shuffle, whose figures are all 1."""

    moved: float
    """How far records move; 0 if they do not move."""
    chunks: float
    shards: float | None
    """The number of different shards in a batch; None if there is only one."""
    labels: float | None
    """The number of different labels in a batch."""
    label_distance: float | None
    """The distance between the labels of a batch and those of all records; larger is worse."""
    again: float | None
    """How often records that share a batch do so again in the next epoch; larger is worse."""

    @property
    def is_exact(self) -> bool:
        """Whether every figure is at most 1.1 times worse than an exact shuffle's."""
        return self._is_within(1.1)

    @property
    def is_near(self) -> bool:
        """Whether every figure is at most 2 times worse than an exact shuffle's."""
        return self._is_within(2)

    def _is_within(self, factor: float) -> bool:
        low = [self.moved, self.chunks, self.shards, self.labels]
        high = [self.label_distance, self.again]
        enough = all(value is None or value * factor >= 1 for value in low)
        return enough and all(value is None or value <= factor for value in high)


def compared(mix: Mix, exact: Mix, num_shards: int) -> Mixing:
    """Divide the figures of a mix by those of exact shuffles."""
    return Mixing(
        mix.moved / exact.moved,
        mix.chunks / exact.chunks,
        mix.shards / exact.shards if num_shards > 1 else None,
        _ratio(mix.labels, exact.labels),
        _ratio(mix.label_distance, exact.label_distance),
        _ratio(mix.again, exact.again),
    )


def mean_of(mixes: Sequence[Mix]) -> Mix:
    """Return the mean of each figure."""
    facts: dict[str, Any] = {}
    for name in Mix.__slots__:
        values = [getattr(mix, name) for mix in mixes]
        facts[name] = None if None in values else float(np.mean(values))
    return Mix(**facts)


def _ratio(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole
