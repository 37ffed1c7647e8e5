"""An order that mixes several datasets by weights.

All epochs together form one endless order. In the next epoch, a dataset continues at the record where it stopped, so
no record repeats before all records of its dataset were used, also where the weights change. If an epoch ends with one of the datasets
("first_exhausted", "all_exhausted"), every epoch has the same number of records of each dataset.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

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
_UNTIL = ("first_exhausted", "all_exhausted")


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


def _counts(whole: Sequence[int], length: int) -> list[int]:
    """How many of the first positions of a mixture belong to each dataset."""
    return list(_core.mixed(list(whole), 0, 0, length, length, length)[1])


@lru_cache(maxsize=16)
def _until(sizes: tuple[int, ...], whole: tuple[int, ...], word: str) -> int:
    """The most positions that have no record twice ("first_exhausted"), or the fewest that have every record. Shares
    decide; counts, which are whole numbers within two of them, may move it by a few positions."""
    total = sum(whole)
    used = [n for n, weight in enumerate(whole) if weight]
    margin = 3 * total // min(whole[n] for n in used) + 1

    def repeats(length: int) -> bool:
        return any(count > size for count, size in zip(_counts(whole, length), sizes, strict=True))

    def has_all(length: int) -> bool:
        counts = _counts(whole, length)
        return all(counts[n] >= sizes[n] for n in used)

    if word == "first_exhausted":
        most = min(sizes[n] * total // whole[n] for n in used)
        near = range(max(most - margin, 0), most + 1)
        return near.start + bisect_left(near, True, key=repeats) - 1
    fewest = max(-(-sizes[n] * total // whole[n]) for n in used)
    near = range(fewest, fewest + margin)
    return near.start + bisect_left(near, True, key=has_all)


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
            "first_exhausted": an epoch ends when the first dataset has no more records, so no record repeats in it.
            "all_exhausted": an epoch ends when every record of every dataset was used.
        later: weights that hold from an epoch on, by that epoch: `{3: {"a": 0.5, "b": 0.5}}`. Each dataset goes on
            where it was. `num_records` is then a number or None.

    Example:
        >>> import penstock as ps
        >>> order = ps.Mixture({"a": 0.75, "b": 0.25}, seed=0)
        >>> order.length([6, 2]), order.take([6, 2], epoch=0, start=0, stop=8)
        (8, array([2, 7, 0, 3, 6, 4, 5, 1]))
    """

    weights: Mapping[str, float]
    seed: int
    num_records: int | Literal["first_exhausted", "all_exhausted"] | None = None
    later: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])

    layout = None

    def __post_init__(self) -> None:
        settle(self, weights=_checked_weights(self.weights), seed=checked_seed(self.seed))
        settle(self, later=_checked_later(self.later, self.weights))
        if isinstance(self.num_records, str):
            if self.num_records not in _UNTIL:
                raise ValueError(
                    f"num_records is a number, None, {' or '.join(map(repr, _UNTIL))}, not {self.num_records!r}"
                )
            if self.later:
                raise ValueError(
                    f"with later=, num_records is a number or None, not {self.num_records!r}: all epochs have the"
                    " same length"
                )
        elif self.num_records is not None:
            settle(self, num_records=checked_records(self.num_records))

    @cached_property
    def _phases(self) -> list[tuple[int, list[int]]]:
        """The epoch from which on weights hold, and the weights as whole numbers."""
        phases = {0: self.weights, **self.later}
        return [(first, _whole_weights(list(each.values()))) for first, each in phases.items()]

    @property
    def _whole(self) -> list[int]:
        return self._phases[0][1]

    @cached_property
    def _is_used(self) -> list[bool]:
        """Whether each dataset ever has a weight above 0."""
        return [any(each) for each in zip(*(whole for _, whole in self._phases), strict=True)]

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
        for name, size, is_used in zip(names, sizes, self._is_used, strict=True):
            if is_used and not size:
                raise ValueError(f"dataset {name!r} has a weight above 0, but no records")
        return sizes

    def length(self, num_records: Any) -> int:
        """The number of positions in an epoch. `num_records`: as in `take`."""
        sizes = self._sizes(num_records)
        if isinstance(self.num_records, str):
            return _until(tuple(sizes), tuple(self._whole), self.num_records)
        if self.num_records is not None:
            return self.num_records
        return sum(size for size, is_used in zip(sizes, self._is_used, strict=True) if is_used)

    def take(self, num_records: Any, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start].

        `num_records` has the number of records of each dataset, by name or in the order of the weights. The result
        numbers the records of all datasets consecutively, in the order of the weights.
        """
        sizes = self._sizes(num_records)
        length = self.length(num_records)
        epoch, start, stop = checked_span(length, epoch, start, stop)
        if isinstance(self.num_records, str):
            origin, key, whole = 0, _core.key_of([self.seed, Draw.SETS, epoch]), self._whole
            begins = self._begins(sizes, length, epoch)
        else:
            endless_span(length, epoch, 0, length)  # checks the range
            key = _core.key_of([self.seed, Draw.SETS])
            begins, whole, epochs = self._phase(key, length, epoch)
            origin = epochs * length
        mixed, before = _core.mixed(whole, key, origin, length, start, stop)
        sets = as_numpy(mixed)
        found = np.empty(stop - start, np.int64)
        first = 0
        for number, size in enumerate(sizes):
            places = np.flatnonzero(sets == number)
            what = _core.key_of([Draw.SETS, number])
            done = begins[number] + before[number]
            found[places] = first + _passes(size, self.seed, what, done, done + len(places))
            first += size
        return found

    def _phase(self, key: int, length: int, epoch: int) -> tuple[list[int], list[int], int]:
        """Return the weights of an epoch, the number of epochs before it that have them, too, and the positions in the
        shuffles of the datasets at which the first of these begins."""
        begins, phases = [0] * len(self.weights), self._phases
        until = [first for first, _ in phases[1:]]
        for (first, whole), end in zip(phases, [*until, epoch + 1], strict=True):
            if epoch < end:
                return begins, whole, epoch - first
            _, counts = _core.mixed(whole, key, (end - first) * length, length, 0, 0)
            begins = [begin + count for begin, count in zip(begins, counts, strict=True)]
        raise AssertionError("the last phase has no end")

    def _begins(self, sizes: Sequence[int], length: int, epoch: int) -> list[int]:
        """The positions in the shuffles of each dataset at which an epoch begins, if it ends with a dataset. Within an
        epoch, every record is used at most once, or every record at least once."""
        found: list[int] = []
        for size, count in zip(sizes, _counts(self._whole, length), strict=True):
            if count > size:
                found.append(epoch * -(-count // size) * size)
            else:
                # Several epochs use disjoint records of one shuffle.
                shuffle, part = divmod(epoch, size // max(count, 1) or 1)
                found.append(shuffle * size + part * count)
        return found

    def spec(self) -> dict[str, Any]:
        """All parameters. The weights are a list, because their order matters."""
        return {
            "name": "mixture",
            "weights": [[name, weight] for name, weight in self.weights.items()],
            "seed": self.seed,
            "num_records": self.num_records,
            **(
                {"later": [[n, list(map(list, w.items()))] for n, w in self.later.items()]}
                if self.later
                else {}
            ),
        }


def spec_until(spec: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    """A spec of an order without what changes only after an epoch: the positions up to there mean the same."""
    known = dict(spec)
    later = [phase for phase in known.pop("later", ()) if phase[0] <= epoch]
    return {**known, "later": later} if later else known


def _checked_weights(given: Mapping[str, float]) -> dict[str, float]:
    weights = {str(name): float(weight) for name, weight in given.items()}
    bad = {n: w for n, w in weights.items() if not (0 <= w < math.inf)}
    if bad or not any(weights.values()):
        raise ValueError(f"weights must be 0 or more, and one above 0: {bad or weights}")
    return weights


def _checked_later(
    given: Mapping[int, Mapping[str, float]], names: Mapping[str, float]
) -> dict[int, dict[str, float]]:
    """The later weights in the order of their epochs, and of the names."""
    found: dict[int, dict[str, float]] = {}
    for epoch in sorted(given):
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            raise ValueError(
                f"later= has weights by the epoch from which on they hold, from 1, not {epoch!r}"
            )
        weights = _checked_weights(given[epoch])
        if weights.keys() != names.keys():
            raise ValueError(
                f"later= mixes {list(weights)} from epoch {epoch} on, and the order mixes {list(names)}"
            )
        found[epoch] = {name: weights[name] for name in names}
    return found
