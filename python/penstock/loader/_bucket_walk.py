"""Goes through the steps of an epoch with `buckets=`, on all ranks. `plan` and `audit` use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.loader._buckets import BucketSequence
from penstock.loader.reports import BucketPlan, RankPlan

if TYPE_CHECKING:
    from penstock.loader.loader import Loader


class _Batch(NamedTuple):
    step: int
    rank: int
    bucket: int
    numbers: np.ndarray
    num_real: int
    """The first `num_real` records are not masked."""
    num_new: int
    """The first `num_new` records are neither repeated nor masked; the others only fill the batch."""


class BucketWalk:
    """Counts the steps, records and padding of all ranks, from the loader's position to the end of the epoch."""

    def __init__(self, loader: Loader, sequence: BucketSequence) -> None:
        self._loader = loader
        self._sequence = sequence
        self._epoch, position = loader.place
        self._start = position
        self._done = np.array(sequence.counts(self._epoch, position))
        self.steps = loader.plan.num_steps(position)
        self.position = int(self._done.sum())
        """How many records, of all buckets together, come before the loader's position."""
        self.num_mixed_steps = 0
        self.counts = np.zeros(len(loader.source), np.uint32)
        """How often each record occurs in the whole epoch."""
        self.ranks: list[RankPlan] = []
        self.from_file: list[np.ndarray] = []
        """How many records each rank takes from each file."""
        self._steps_of = np.zeros(sequence.buckets.count, np.int64)
        self._padding_of = np.zeros(sequence.buckets.count, np.int64)

    def _batches(self) -> Iterator[_Batch]:
        plan, sequence = self._loader.plan, self._sequence
        for step in range(self.steps):
            for rank in range(plan.world_size):
                part = plan.part(self._start, step, rank)
                numbers = sequence.numbers(plan, part, self._epoch)
                mask = sequence.mask(plan, part, self._epoch)
                num_real = len(numbers) if mask is None else int(mask.sum())
                bucket, num_new = sequence.bucket_and_new(part, self._epoch)
                yield _Batch(step, rank, bucket, numbers, num_real, num_new)

    def walk(self, firsts: np.ndarray) -> None:
        """Go through the batches and count. `firsts` has the number of each file's first record, and at the end the
        number of all records."""
        ranks = range(self._loader.plan.world_size)
        records, padding = [0 for _ in ranks], [0 for _ in ranks]
        begins: list[list[int]] = [[] for _ in ranks]
        ends: list[list[int]] = [[] for _ in ranks]
        self.from_file = [np.zeros(len(firsts) - 1, np.int64) for _ in ranks]
        in_step: set[int] = set()
        for batch in self._batches():
            rank, num = batch.rank, len(batch.numbers)
            if not rank:
                in_step = set()
                self._steps_of[batch.bucket] += 1
            # Look up the bucket of each record: `batch.bucket` is only the bucket that the schedule
            # gives for this step, and this checks it.
            in_step |= set(self._sequence.buckets.of_record[batch.numbers].tolist())
            if rank == ranks[-1]:
                self.num_mixed_steps += in_step != {batch.bucket}
            np.add.at(self.counts, batch.numbers[: batch.num_real], np.uint32(1))
            records[rank] += num
            padding[rank] += num - batch.num_new
            self._padding_of[batch.bucket] += num - batch.num_new
            ends[rank] = batch.numbers[:3].tolist()
            if not batch.step:
                begins[rank] = ends[rank]
            places = np.searchsorted(firsts, batch.numbers, "right") - 1
            self.from_file[rank] += np.bincount(places, minlength=len(firsts) - 1)
        self.ranks = [
            RankPlan(r, self.steps, records[r], padding[r], begins[r], ends[r]) for r in ranks
        ]
        np.add.at(self.counts, self._sequence.before(self._epoch, self._done), np.uint32(1))

    def buckets(self) -> list[BucketPlan]:
        found = self._sequence.buckets
        left = self._sequence.totals(self._epoch) - self._done
        return [
            BucketPlan(
                found.sizes_of(bucket),
                self._sequence.plans[bucket].batch_size,
                int(left[bucket]),
                int(self._steps_of[bucket]),
                int(self._padding_of[bucket]),
                self._num_dropped(bucket, int(left[bucket])),
            )
            for bucket in range(found.count)
        ]

    def _num_dropped(self, bucket: int, num_records: int) -> int:
        """How many of a bucket's records `drop_last` and `uneven` leave out. It is computed from what these arguments
        promise, not from the schedule, so that it checks the schedule."""
        plan = self._sequence.plans[bucket]
        rest = num_records % plan.step_records
        return rest if plan.drop_last else rest % plan.world_size if plan.uneven == "drop" else 0

    def is_explained(self) -> bool:
        """Whether the loader's `drop_last` and `uneven` account for the numbers of missing and of repeated records."""
        dropped = sum(bucket.num_dropped for bucket in self.buckets())
        again = 0 if self._loader.plan.uneven == "pad" else int(self._padding_of.sum())
        wanted = self._sequence.num_records - dropped
        once = not self._sequence.has_each_once or np.count_nonzero(self.counts) == wanted
        return bool(once) and int(self.counts.sum()) == wanted + again

    def steps_of(self, records: np.ndarray) -> dict[int, list[tuple[int, int]]]:
        """For each of some records, the steps and ranks that deliver it."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for batch in self._batches() if len(records) else ():
            for number in batch.numbers[: batch.num_real].tolist():
                if number in records:
                    found[number].append((batch.step, batch.rank))
        return found
