"""Orders that repeat records: according to weights, or so that every class occurs equally often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.orders._order import (
    EqualBySpec,
    checked_records,
    checked_span,
    endless_span,
    settle,
)
from penstock.orders.keys import Draw, checked_seed, digest, permuted, record_keys


def _array(values: Any) -> np.ndarray:
    """Convert a column without nulls to a read-only NumPy array."""
    if isinstance(values, (str, bytes)):
        raise TypeError(
            "an order takes one value for each record, not the name of a column; to read them:"
            f" ds.to_table(columns=[{values!r}])[{values!r}]"
        )
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        _refuse_missing(
            values.is_null().to_numpy(zero_copy_only=False) if values.null_count else ()
        )
        values = values.to_numpy(zero_copy_only=False)
    array = np.array(values)
    _refuse_missing([value is None for value in array.flat] if array.dtype == object else ())
    if array.ndim != 1:
        raise ValueError(
            f"there must be one value for each record, not an array of shape {array.shape}"
        )
    array.flags.writeable = False
    return array


def _refuse_missing(is_missing: Any) -> None:
    places = np.flatnonzero(is_missing)
    if len(places):
        raise ValueError(
            f"{len(places)} of {len(is_missing)} records have no value, the first of them record {places[0]}; give each"
            " one, with .fill_null(0) of Arrow for example"
        )


@dataclass(frozen=True, eq=False)
class Weighted(EqualBySpec):
    """Each record as often as its weight says, rounded up or down in each epoch, in random order.

    A record with a weight above the mean occurs at least once per epoch, and other records only in some epochs, chosen
    at random. Draws are spread evenly over the weights (systematic sampling), so shares are exact, unlike with
    independent draws. It needs 16 bytes of memory per record.

    Args:
        weights: one for each record, 0 or more: a NumPy or Arrow array, or a list.
        seed: 0 to 2^64 - 1.
        num_records: positions in an epoch; None for the number of records.

    Example:
        >>> import penstock as ps
        >>> order = ps.Weighted([2, 1, 1, 0], seed=0)
        >>> sorted(order.take(4, epoch=0, start=0, stop=4).tolist())
        [0, 0, 1, 2]
    """

    weights: np.ndarray = field(repr=False)
    seed: int
    num_records: int | None = None
    _sums: np.ndarray = field(init=False, repr=False)
    _digest: str = field(init=False, repr=False)

    layout = None

    def __post_init__(self) -> None:
        weights = _array(self.weights).astype(np.float64)
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise ValueError("weights must be 0 or more, and at least one above 0")
        # Scaled by a power of two, so that sums are exact even for very small and very large numbers.
        scaled = np.ldexp(weights, -np.frexp(weights.max())[1])
        settle(
            self,
            weights=weights,
            seed=checked_seed(self.seed),
            _sums=np.cumsum(scaled),
            _digest=digest(weights),
        )
        if self.num_records is not None:
            settle(self, num_records=checked_records(self.num_records))

    def length(self, num_records: int) -> int:
        """The number of positions in an epoch."""
        if checked_records(num_records) != len(self.weights):
            raise ValueError(f"there are {len(self.weights)} weights for {num_records} records")
        return len(self.weights) if self.num_records is None else self.num_records

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        length = self.length(num_records)
        epoch, start, stop = checked_span(length, epoch, start, stop)
        # The points divide the sum of the weights into equal parts, one for each position, and are shuffled.
        points = permuted(length, self.seed, epoch, Draw.WEIGHTS, start, stop)
        offset = (_core.key_of([self.seed, epoch, Draw.WEIGHTS]) >> 11) * 2.0**-53
        total = self._sums[-1]
        found = np.searchsorted(self._sums, (points + offset) * (total / length), side="right")
        # Rounding may move the last point beyond the last record that has a weight.
        last = np.searchsorted(self._sums, total)
        return np.minimum(found, last).astype(np.int64)

    def spec(self) -> dict[str, Any]:
        """All parameters; the weights as a digest."""
        return {
            "name": "weighted",
            "weights": self._digest,
            "seed": self.seed,
            "num_records": self.num_records,
        }


@dataclass(frozen=True, eq=False)
class Balanced(EqualBySpec):
    """Every class equally often, whatever its size.

    With n classes, each group of n positions has every class once, in random order. In any prefix of the order, the
    counts of the classes therefore differ by at most one. Each class is shuffled separately, and starts a new shuffle
    when all its records were used. The next epoch continues where the last one stopped. It needs memory for the
    labels, and 8 bytes per record.

    Args:
        labels: the class of each record, as numbers or strings: a NumPy or Arrow array, such as
            `ds.to_table(columns=["label"])["label"]`, or a list.
        seed: 0 to 2^64 - 1.
        num_records: positions in an epoch; None for the number of records.

    Example:
        >>> import penstock as ps
        >>> order = ps.Balanced(["cat", "dog", "dog", "dog"], seed=0)
        >>> order.take(4, epoch=0, start=0, stop=4)
        array([3, 0, 0, 1])
    """

    labels: np.ndarray = field(repr=False)
    seed: int
    num_records: int | None = None
    _records: np.ndarray = field(init=False, repr=False)
    _firsts: np.ndarray = field(init=False, repr=False)
    _digest: str = field(init=False, repr=False)

    layout = None

    def __post_init__(self) -> None:
        labels = _array(self.labels)
        _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        settle(
            self,
            labels=labels,
            seed=checked_seed(self.seed),
            # The records sorted by class, and the index at which each class begins.
            _records=np.argsort(classes, kind="stable"),
            _firsts=np.concatenate(([0], np.cumsum(sizes))),
            _digest=digest(classes.astype(np.int64)),
        )
        if self.num_records is not None:
            settle(self, num_records=checked_records(self.num_records))

    def length(self, num_records: int) -> int:
        """The number of positions in an epoch."""
        if checked_records(num_records) != len(self.labels):
            raise ValueError(f"there are {len(self.labels)} labels for {num_records} records")
        return len(self.labels) if self.num_records is None else self.num_records

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        start, stop = endless_span(self.length(num_records), epoch, start, stop)
        if start == stop:
            return np.empty(0, np.int64)
        num_classes = len(self._firsts) - 1
        first, last = start // num_classes, -(-stop // num_classes)
        # One row for each group of all classes. Sorting by keys puts the classes in random order.
        rows = np.arange(first * num_classes, last * num_classes)
        key = _core.key_of([self.seed, Draw.CLASSES])
        keys = record_keys(key, 0, rows)
        classes = np.argsort(keys.reshape(-1, num_classes), axis=1, kind="stable").ravel()
        runs = rows // num_classes
        wanted = slice(start - first * num_classes, stop - first * num_classes)
        classes, runs = classes[wanted], runs[wanted]
        sizes = np.diff(self._firsts)[classes]
        turns, places = np.divmod(runs, sizes)
        # Each pass over a class has its own shuffle.
        shuffles = record_keys(key, 1, turns * num_classes + classes)
        columns = (sizes.astype(np.uint64), shuffles, places.astype(np.uint64))
        lengths, keys, places = (pa.array(column) for column in columns)
        picked = as_numpy(_core.permuted_each(lengths, 0, keys, places))
        return self._records[self._firsts[classes] + picked]

    def spec(self) -> dict[str, Any]:
        """All parameters; the labels as a digest."""
        return {
            "name": "balanced",
            "labels": self._digest,
            "seed": self.seed,
            "num_records": self.num_records,
        }
