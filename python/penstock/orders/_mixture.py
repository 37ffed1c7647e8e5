"""Several sets mixed by shares.

Epochs are stretches of one endless order, so a set goes on in the next epoch where it stood: none
of its records comes again before all have come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.orders._order import checked_records, checked_span, endless_span
from penstock.orders.keys import Draw, checked_seed, permuted

_SHARES = 1 << 39


def _passes(num_records: int, seed: int, what: int, start: int, stop: int) -> np.ndarray:
    """Positions start to stop of one shuffle of a set behind the other."""
    parts: list[np.ndarray] = []
    while start < stop:
        turn, first = divmod(start, num_records)
        last = min(num_records, first + stop - start)
        parts.append(permuted(num_records, seed, turn, what, first, last))
        start += last - first
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _whole_weights(weights: Sequence[float]) -> list[int]:
    """Weights as whole numbers in the same proportions, as far as 39 bits hold them."""
    # The shortest decimal: 0.7 is meant as seven tenths, and not as the nearest binary fraction.
    exact = [Fraction(repr(weight)) for weight in weights]
    scale = math.lcm(*(share.denominator for share in exact))
    whole = [int(share * scale) for share in exact]
    divisor = math.gcd(*whole)
    whole = [weight // divisor for weight in whole]
    total = sum(whole)
    if total <= _SHARES:
        return whole
    return [max(1, round(Fraction(w * _SHARES, total))) if w else 0 for w in whole]


@dataclass(frozen=True)
class Mixture:
    """Records of several sets in given proportions, which hold everywhere and not only on average.

    In every prefix each set has its share within one record (with more than four sets: within two),
    and at the end of an epoch it has its share itself, where that is a whole number.
    Each set comes in an exact shuffle of its own; when it has ended it begins again in another one,
    and the next epoch goes on where the last one stood.

    Args:
        weights: By the names of the sets; scaled to a sum of 1. Zero: no record of this set.
        seed: 0 to 2^64 - 1.
        num_records: Positions of an epoch; None: the sum over the sets with a weight.

    Example:
        >>> import penstock as ps
        >>> order = ps.Mixture({"a": 0.75, "b": 0.25}, seed=0)
        >>> order.length([6, 2]), order.take([6, 2], epoch=0, start=0, stop=8)
        (8, array([2, 7, 0, 3, 6, 4, 5, 1]))
    """

    weights: Mapping[str, float]
    seed: int
    num_records: int | None = None
    _whole: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    layout = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", checked_seed(self.seed))
        weights = {str(name): float(weight) for name, weight in self.weights.items()}
        bad = {n: w for n, w in weights.items() if not (0 <= w < math.inf)}
        if bad or not any(weights.values()):
            raise ValueError(f"weights are 0 or more, and one is above 0: {bad or weights}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "_whole", _whole_weights(list(weights.values())))
        if self.num_records is not None:
            object.__setattr__(self, "num_records", checked_records(self.num_records))

    def __hash__(self) -> int:
        return hash((tuple(self.weights.items()), self.seed, self.num_records))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixture) and self.spec() == other.spec()

    def _sizes(self, num_records: Any) -> list[int]:
        names = list(self.weights)
        if isinstance(num_records, Mapping):
            if set(num_records) != set(names):
                raise ValueError(f"the order mixes {names}, and the sets are {list(num_records)}")
            num_records = [num_records[name] for name in names]
        sizes = [checked_records(size) for size in num_records]
        if len(sizes) != len(names):
            raise ValueError(f"the order mixes {len(names)} sets, not {len(sizes)}")
        for name, size, weight in zip(names, sizes, self._whole, strict=True):
            if weight and not size:
                raise ValueError(f"set {name!r} has a weight and no records")
        return sizes

    def length(self, num_records: Any) -> int:
        """How many positions an epoch has, for the numbers of records of the sets."""
        sizes = self._sizes(num_records)
        if self.num_records is not None:
            return self.num_records
        return sum(size for size, weight in zip(sizes, self._whole, strict=True) if weight)

    def take(self, num_records: Any, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch.

        Args:
            num_records: Of each set, in the order of the weights or by name.
            epoch, start, stop: Positions of the epoch.

        Returns:
            int64[stop - start], numbers in the sets laid end to end in the order of the weights.
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
        """All parameters; the weights as a list, because their order counts."""
        return {
            "name": "mixture",
            "weights": [[name, weight] for name, weight in self.weights.items()],
            "seed": self.seed,
            "num_records": self.num_records,
        }
