"""Assigns positions of an order to the batches of each rank. Arithmetic only.

A step is one batch on every rank. It takes `batch_size * world_size` consecutive positions of the order: the first
`batch_size` go to rank 0, the next to rank 1, and so on. After a step, all ranks together have therefore seen a
prefix of the order, whose length is called the position. This is why a run can resume with a different number of ranks.

At the end of an epoch, fewer positions may be left than a step takes. They are divided evenly among the ranks. If
that is not possible, `uneven` decides:

| uneven | the last step |
|---|---|
| `drop` | shares are rounded down; up to `world_size - 1` records are left out |
| `wrap` | shares are rounded up; the first records of the epoch fill the gaps, as in torch |
| `pad` | every rank has `batch_size` records, and a mask marks the real ones |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.limits import checked_count

UNEVEN = ("drop", "wrap", "pad")


class BatchPart(NamedTuple):
    """The positions of one batch of one rank."""

    first: int
    """The first position; positions after the end of the epoch wrap around to 0."""
    num_records: int
    num_real: int
    """The first `num_real` records are real, the others only fill the batch."""
    end: int
    """The position after this step."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The steps of an epoch.

    Example:
        >>> from penstock.loader._plan import EpochPlan
        >>> plan = EpochPlan(length=10, batch_size=2, world_size=2)
        >>> [plan.part(0, step, rank=1)[:2] for step in range(plan.num_steps())]
        [(2, 2), (6, 2), (9, 1)]
    """

    length: int
    batch_size: int
    world_size: int = 1
    uneven: str = "wrap"
    drop_last: bool = False

    def __post_init__(self) -> None:
        for word in ("batch_size", "world_size"):
            object.__setattr__(self, word, checked_count(word, getattr(self, word), 1))
        if self.uneven not in UNEVEN:
            raise ValueError(f"uneven={self.uneven!r} is not one of {', '.join(UNEVEN)}")

    @property
    def step_records(self) -> int:
        return self.batch_size * self.world_size

    def num_steps(self, position: int = 0) -> int:
        """The number of steps from a position to the end of the epoch, the same on every rank."""
        whole, rest = divmod(max(self.length - position, 0), self.step_records)
        return whole + bool(self._share(rest))

    def part(self, position: int, step: int, rank: int) -> BatchPart:
        """The batch of a rank in a step, counted from a position."""
        start = position + step * self.step_records
        rest = self.length - start
        last = step == self.num_steps(position) - 1
        if rest >= self.step_records:
            end = self.length if last else start + self.step_records
            return BatchPart(start + rank * self.batch_size, self.batch_size, self.batch_size, end)
        share = self._share(rest)
        first = start + rank * share
        num_real = min(max(self.length - first, 0), share)
        if self.uneven == "pad":
            return BatchPart(first, self.batch_size, num_real, self.length)
        return BatchPart(first, share, share, self.length)

    def parts(self, position: int, rank: int) -> Iterator[BatchPart]:
        for step in range(self.num_steps(position)):
            yield self.part(position, step, rank)

    def batch_lengths(self, position: int = 0) -> set[int]:
        """The different numbers of records in the batches from a position on. Only the last may differ."""
        steps = self.num_steps(position)
        return {self.part(position, step, 0).num_records for step in {0, steps - 1} if steps}

    def positions(self, part: BatchPart) -> Iterator[tuple[int, int]]:
        """The positions of a batch as ranges [start, stop), in order."""
        first, left = part.first % self.length, part.num_records
        while left:
            stop = min(first + left, self.length)
            yield first, stop
            left -= stop - first
            first = 0

    def mask(self, part: BatchPart) -> np.ndarray:
        """Which records of a batch are real, bool[num_records]."""
        return np.arange(part.num_records) < part.num_real

    def _share(self, rest: int) -> int:
        """The records of each rank in the last step, if `rest` records are left for it."""
        if self.drop_last:
            return 0
        whole, more = divmod(rest, self.world_size)
        return whole if self.uneven == "drop" else whole + bool(more)
