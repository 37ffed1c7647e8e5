"""An order that mixes several datasets by weights.

All epochs together form one endless order. In the next epoch, a dataset continues at the record where it stopped, so
no record repeats before all records of its dataset were used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.orders._order import (
    EqualBySpec,
    checked_records,
    checked_span,
    endless_span,
    settle,
)
from penstock.orders.keys import Draw, checked_seed, permuted

_SHARES = 1 << 39


def _passes(num_records: int, seed: int, what: int, start: int, stop: int) -> np.ndarray:
    """The records at positions start to stop of the shuffles of one dataset, one shuffle after another."""
    parts: list[np.ndarray] = []
    while start < stop:
        turn, first = divmod(start, num_records)
        last = min(num_records, first + stop - start)
        parts.append(permuted(num_records, seed, turn, what, first, last))
        start += last - first
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _whole_weights(weights: Sequence[float]) -> list[int]:
    """Convert weights to whole numbers in the same proportions. If their sum has more than 39 bits, they are rounded."""
    # The shortest decimal text is exact: 0.7 means seven tenths, not the nearest binary fraction.
    exact = [Fraction(repr(weight)) for weight in weights]
    scale = math.lcm(*(share.denominator for share in exact))
    whole = [int(share * scale) for share in exact]
    divisor = math.gcd(*whole)
    whole = [weight // divisor for weight in whole]
    total = sum(whole)
    if total <= _SHARES:
        return whole
    return [max(1, round(Fraction(w * _SHARES, total))) if w else 0 for w in whole]


@dataclass(frozen=True, eq=False)
class Mixture(EqualBySpec):
    """Records of several datasets in given proportions, which hold in every part of an epoch, not only on average.

    In every prefix of an epoch, the count of each dataset is within one record of its share (within two for more than
    four datasets). At the end of an epoch it is exact, if the share is a whole number. Each dataset is shuffled
    separately, and starts a new shuffle when all its records were used. The next epoch continues where the last one
    stopped.

    Args:
        weights: the weight of each dataset, by name. They are scaled to a sum of 1. A dataset with weight zero is not
            used.
        seed: 0 to 2^64 - 1.
        num_records: positions in an epoch; None for the number of records in all datasets with a weight above zero.

    Example:
        >>> import penstock as ps
        >>> order = ps.Mixture({"a": 0.75, "b": 0.25}, seed=0)
        >>> order.length([6, 2]), order.take([6, 2], epoch=0, start=0, stop=8)
        (8, array([2, 7, 0, 3, 6, 4, 5, 1]))
    """

    weights: Mapping[str, float]
    seed: int
    num_records: int | None = None

    layout = None

    def __post_init__(self) -> None:
        weights = {str(name): float(weight) for name, weight in self.weights.items()}
        bad = {n: w for n, w in weights.items() if not (0 <= w < math.inf)}
        if bad or not any(weights.values()):
            raise ValueError(f"weights must be 0 or more, and one above 0: {bad or weights}")
        settle(self, weights=weights, seed=checked_seed(self.seed))
        if self.num_records is not None:
            settle(self, num_records=checked_records(self.num_records))

    @cached_property
    def _whole(self) -> list[int]:
        return _whole_weights(list(self.weights.values()))

    def _sizes(self, num_records: Any) -> list[int]:
        names = list(self.weights)
        if isinstance(num_records, Mapping):
            if set(num_records) != set(names):
                raise ValueError(
                    f"the order mixes {names}, but the datasets are {list(num_records)}"
                )
            num_records = [num_records[name] for name in names]
        sizes = [checked_records(size) for size in num_records]
        if len(sizes) != len(names):
            raise ValueError(f"the order mixes {len(names)} datasets, not {len(sizes)}")
        for name, size, weight in zip(names, sizes, self._whole, strict=True):
            if weight and not size:
                raise ValueError(f"dataset {name!r} has a weight above 0, but no records")
        return sizes

    def length(self, num_records: Any) -> int:
        """The number of positions in an epoch. `num_records`: as in `take`."""
        sizes = self._sizes(num_records)
        if self.num_records is not None:
            return self.num_records
        return sum(size for size, weight in zip(sizes, self._whole, strict=True) if weight)

    def take(self, num_records: Any, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start].

        `num_records` has the number of records of each dataset, by name or in the order of the weights. The result
        numbers the records of all datasets consecutively, in the order of the weights.
        """
        sizes = self._sizes(num_records)
        length = self.length(num_records)
        epoch, start, stop = checked_span(length, epoch, start, stop)
        origin, _ = endless_span(length, epoch, 0, length)
        key = _core.key_of([self.seed, Draw.SETS])
        mixed, before = _core.mixed(self._whole, key, origin, length, start, stop)
        sets = as_numpy(mixed)
        found = np.empty(stop - start, np.int64)
        first = 0
        for number, size in enumerate(sizes):
            places = np.flatnonzero(sets == number)
            what = _core.key_of([Draw.SETS, number])
            done = before[number]
            found[places] = first + _passes(size, self.seed, what, done, done + len(places))
            first += size
        return found

    def spec(self) -> dict[str, Any]:
        """All parameters. The weights are a list, because their order matters."""
        return {
            "name": "mixture",
            "weights": [[name, weight] for name, weight in self.weights.items()],
            "seed": self.seed,
            "num_records": self.num_records,
        }
