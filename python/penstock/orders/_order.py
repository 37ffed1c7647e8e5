"""The interface of orders, and the two simplest orders: sequential, and exactly shuffled.

An order is a pure function from (number of records, epoch, positions) to record numbers. It stores no list, and its
results are the same on every machine.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from penstock.engine.locks import Lock
from penstock.errors import RecordIndexError
from penstock.orders.keys import Draw, checked_epoch, checked_seed, permuted

Value = TypeVar("Value")
_END = 1 << 63
_FAR = 1 << 62
_RECENT = 2


@runtime_checkable
class Order(Protocol):
    """Determines which record is at which position. The same arguments always give the same numbers.

    `num_records` is the number of records in the dataset, or for a `Mixture`, the number in each of its datasets.
    """

    @property
    def seed(self) -> int | None:
        """The seed, or None if the order is not random."""
        ...

    @property
    def layout(self) -> str | None:
        """The name of another argument that `take` needs: "chunk_lengths" (Blocked), "shard_lengths" (Interleaved), or
        None."""
        ...

    def length(self, num_records: Any) -> int:
        """The number of positions in an epoch."""
        ...

    def take(self, num_records: Any, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of an epoch, as int64[stop - start]."""
        ...

    def spec(self) -> dict[str, Any]:
        """Everything that determines the order, as JSON values. Two orders with equal specs are equal."""
        ...


class EachOnce:
    """Base class of orders in which every record occurs once per epoch."""

    def length(self, num_records: int) -> int:
        """The number of positions, which is the number of records."""
        return checked_records(num_records)


class EqualBySpec:
    """Equality by spec, for orders that hold arrays or dicts."""

    def spec(self) -> dict[str, Any]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash(repr(self.spec()))


class Recent(Generic[Value]):
    """Cache of the tables that an order computes for an epoch and the lengths of chunks or shards. It keeps the two
    most recent tables. Pickling drops it."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, np.ndarray, Value]] = []
        self._lock = Lock()

    def get(self, epoch: int, lengths: np.ndarray, make: Callable[[], Value]) -> Value:
        with self._lock:
            for kept_epoch, kept_lengths, value in self._kept:
                if kept_epoch == epoch and np.array_equal(kept_lengths, lengths):
                    return value
            value = make()
            self._kept.insert(0, (epoch, lengths.copy(), value))
            del self._kept[_RECENT:]
        return value

    def __reduce__(self) -> tuple[type[Recent[Value]], tuple[()]]:
        return Recent, ()


def settle(order: object, **values: Any) -> None:
    """Set attributes of a frozen dataclass that is being initialised."""
    for name, value in values.items():
        object.__setattr__(order, name, value)


def checked_records(num_records: Any) -> int:
    number = operator.index(num_records)
    if not 0 <= number < _END:
        raise ValueError(f"a number of records is 0 to 2**63 - 1, not {number}")
    return number


def checked_lengths(lengths: Any, num_records: int, what: str) -> np.ndarray:
    """Check that the lengths of chunks or shards add up to the number of records, and return them as int64[n]."""
    given = np.asarray(lengths)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"the lengths of the {what} are whole numbers, not {given.dtype}")
    found = given.astype(np.int64)
    total = int(found.sum())
    if found.ndim != 1 or total != num_records or (found < 0).any():
        raise ValueError(
            f"the {what} have {total} records in shape {found.shape}, but the dataset has"
            f" {num_records}"
        )
    return found


def checked_span(length: int, epoch: Any, start: Any, stop: Any) -> tuple[int, int, int]:
    """Check an epoch and a range of its `length` positions, and return them as Python ints."""
    epoch = checked_epoch(epoch)
    start, stop = operator.index(start), operator.index(stop)
    if not 0 <= start <= stop <= length:
        raise RecordIndexError(
            f"an epoch has positions 0 to {length}, not {start} to {stop}",
            hint="0 <= start <= stop <= order.length(num_records)",
        )
    return epoch, start, stop


def endless_span(length: int, epoch: int, start: int, stop: int) -> tuple[int, int]:
    """Convert positions of an epoch to positions counted from the beginning of epoch 0."""
    epoch, start, stop = checked_span(length, epoch, start, stop)
    if epoch * length + stop > _FAR:
        raise ValueError(f"epoch {epoch} of {length} positions is beyond position 2**62")
    return epoch * length + start, epoch * length + stop


@dataclass(frozen=True)
class Sequential(EachOnce):
    """The records in the order of the files, the same in every epoch.

    Example:
        >>> import penstock as ps
        >>> ps.Sequential().take(10, epoch=0, start=2, stop=5)
        array([2, 3, 4])
    """

    seed = layout = None

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The numbers from start to stop, as int64[stop - start]."""
        _, start, stop = checked_span(self.length(num_records), epoch, start, stop)
        return np.arange(start, stop, dtype=np.int64)

    def spec(self) -> dict[str, Any]:
        return {"name": "sequential"}


@dataclass(frozen=True)
class Shuffled(EachOnce):
    """Every record once per epoch, in a random permutation. Any permutation is possible; each epoch has a new one.

    The permutation is computed, not stored. It needs constant memory for any number of records, and takes 10 to 20 ns
    per record at any position.

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
        settle(self, seed=checked_seed(self.seed))

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        length = self.length(num_records)
        epoch, start, stop = checked_span(length, epoch, start, stop)
        return permuted(length, self.seed, epoch, Draw.RECORDS, start, stop)

    def spec(self) -> dict[str, Any]:
        return {"name": "shuffled", "seed": self.seed}
