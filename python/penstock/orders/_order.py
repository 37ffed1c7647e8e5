"""What an order is, and the two simplest: as the records lie, and shuffled exactly.

An order is a pure function: (number of records, epoch, positions) to record numbers. It keeps no
list, so that any position can be asked for first, on any machine, and costs the same.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock.errors import RecordIndexError
from penstock.orders.keys import Draw, checked_epoch, checked_seed, permuted

_END = 1 << 63
_FAR = 1 << 62


@runtime_checkable
class Order(Protocol):
    """Which record comes when.

    `num_records` is the number of records of the dataset; of several sets (`Mixture`), their
    numbers. The same arguments give the same numbers for ever.
    """

    @property
    def seed(self) -> int | None:
        """What all chance comes from; None where there is none."""
        ...

    @property
    def layout(self) -> str | None:
        """What `take` has to be told of the data besides, as a keyword: "chunk_lengths" (Blocked),
        "shard_lengths" (Interleaved), or None."""
        ...

    def length(self, num_records: Any) -> int:
        """How many positions an epoch has."""
        ...

    def take(self, num_records: Any, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of an epoch, as int64[stop - start]."""
        ...

    def spec(self) -> dict[str, Any]:
        """All that decides the order, in terms of JSON: equal specs are equal orders."""
        ...


def checked_records(num_records: Any) -> int:
    """A number of records as a Python number."""
    number = operator.index(num_records)
    if not 0 <= number < _END:
        raise ValueError(f"{number} is no number of records: 0 to 2**63 - 1 have an order")
    return number


def checked_span(length: int, epoch: Any, start: Any, stop: Any) -> tuple[int, int, int]:
    """Epoch, start and stop as Python numbers.

    Raises:
        RecordIndexError: The epoch, which has `length` positions, does not have these.
        ValueError: The epoch is negative.
    """
    epoch = checked_epoch(epoch)
    start, stop = operator.index(start), operator.index(stop)
    if not 0 <= start <= stop <= length:
        raise RecordIndexError(
            f"an epoch has positions 0 to {length}, and not {start} to {stop}",
            hint="0 <= start <= stop <= order.length(num_records)",
        )
    return epoch, start, stop


def endless_span(length: int, epoch: int, start: int, stop: int) -> tuple[int, int]:
    """Positions of an epoch as positions of an order that goes on through all epochs."""
    epoch, start, stop = checked_span(length, epoch, start, stop)
    if epoch * length + stop > _FAR:
        raise ValueError(f"epoch {epoch} of {length} positions is too far away")
    return epoch * length + start, epoch * length + stop


@dataclass(frozen=True)
class Sequential:
    """The records as they lie, in every epoch.

    Example:
        >>> import penstock as ps
        >>> ps.Sequential().take(10, epoch=0, start=2, stop=5)
        array([2, 3, 4])
    """

    seed = layout = None

    def length(self, num_records: int) -> int:
        """As many positions as records."""
        return checked_records(num_records)

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The numbers start to stop."""
        _, start, stop = checked_span(self.length(num_records), epoch, start, stop)
        return np.arange(start, stop, dtype=np.int64)

    def spec(self) -> dict[str, Any]:
        """The name alone."""
        return {"name": "sequential"}


@dataclass(frozen=True)
class Shuffled:
    """Every record once an epoch, in an order that any of all permutations may be.

    The permutation is computed, not stored: constant memory for any number of records, any position
    at the same cost (about 10 to 20 ns a record), another one in each epoch.

    Args:
        seed: 0 to 2^64 - 1.

    Source: a Feistel network (Luby, Rackoff 1988) with cycle walking (Black, Rogaway 2002).

    Example:
        >>> import penstock as ps
        >>> order = ps.Shuffled(seed=0)
        >>> order.take(10, epoch=0, start=4, stop=7)
        array([8, 9, 5])
        >>> sorted(order.take(10, epoch=1, start=0, stop=10).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    seed: int

    layout = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", checked_seed(self.seed))

    def length(self, num_records: int) -> int:
        """As many positions as records."""
        return checked_records(num_records)

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        length = self.length(num_records)
        epoch, start, stop = checked_span(length, epoch, start, stop)
        return permuted(length, self.seed, epoch, Draw.RECORDS, start, stop)

    def spec(self) -> dict[str, Any]:
        """The name and the seed."""
        return {"name": "shuffled", "seed": self.seed}
