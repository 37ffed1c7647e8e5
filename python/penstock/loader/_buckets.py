"""Batches of records of similar length: `buckets=` of `ps.Loader`.

A bucket has the records up to a maximum length that are too long for the bucket before. A length may be that of a list,
or any integer of a record (`_bucket_keys`). Within a bucket, records keep
their order in the epoch, and one batch after another for each rank forms a step. The batches of a bucket have its own
batch size, or that of the loader. Steps are sorted by the position of their last record in the epoch, so the batches of
a bucket are spread over the epoch like its records. The last step of each bucket, if it is not full, comes at the end
of the epoch, and `uneven` determines what it contains.

The order, the lengths, and the number of records of each bucket that were used so far determine the next step. These
numbers are therefore the state of a loader, and they are valid for any number of ranks and any batch sizes.

In this module, every step has `step_records` positions of the loader's plan, those of the largest batch, even if it has
fewer records, so an epoch is a whole number of steps.
An order that repeats or omits records, such as Mixture, may have more records of a bucket in one epoch than in the
next, and so more steps. Such a sequence has positions for the most steps of any epoch, and a shorter epoch begins at a
later position, `begin`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.engine.locks import Lock
from penstock.errors import SchemaError, StateError
from penstock.loader._bucket_keys import KeyValues, values_of
from penstock.loader._bucket_sizes import BucketSizes
from penstock.loader._plan import BatchPart, EpochPlan
from penstock.loader._sequence import RecordSequence
from penstock.loader._sources import Records
from penstock.orders import Balanced, Mixture, Order, Weighted
from penstock.orders.keys import digest

_EPOCHS = 2
"""The number of schedules in memory: for this epoch, and for the next one, whose first batches are made ahead."""


class Buckets:
    """The maximum lengths of the buckets by key, and the bucket of each record."""

    def __init__(self, sizes: BucketSizes, values: KeyValues, *, truncate: bool) -> None:
        self.sizes = sizes.lengths
        self.padded = values.padded
        """The keys whose lists are padded to the bucket's size."""
        self.batch_sizes = sizes.batch_sizes
        """The records in a batch of each bucket; None: those of the loader's plan."""
        self.count = len(next(iter(self.sizes.values())))
        num_records = len(next(iter(values.by_key.values())))
        of_record = np.zeros(num_records, np.uint16)
        for name, edges in self.sizes.items():
            lengths = values.by_key[name]
            found = np.searchsorted(np.asarray(edges), lengths)
            if found.max(initial=0) == self.count:
                if not truncate:
                    raise _too_long(name, lengths, edges[-1], is_list=name in values.lists)
                found = np.minimum(found, self.count - 1)
            np.maximum(of_record, found.astype(np.uint16), out=of_record)
        self.of_record = of_record
        """The number of the bucket of each record, uint16."""
        self.num_records = self.counted(of_record)
        """The number of records in each bucket."""

    def counted(self, buckets: np.ndarray) -> np.ndarray:
        """How often each bucket is among some buckets, int64[buckets]."""
        return np.bincount(buckets, minlength=self.count).astype(np.int64)

    def pad_to(self, bucket: int) -> dict[str, tuple[int, ...]]:
        """The length to which lists are padded in the batches of a bucket, by column."""
        return {name: (self.sizes[name][bucket],) for name in self.sizes if name in self.padded}

    def sizes_of(self, bucket: int) -> dict[str, int]:
        """The maximum length of a bucket, by key."""
        return {name: edges[bucket] for name, edges in self.sizes.items()}

    def spec(self) -> dict[str, Any]:
        """Everything that determines the bucket of each record. Batch sizes do not, so other ones fit a state."""
        return {
            "sizes": {k: list(v) for k, v in self.sizes.items()},
            "lengths": digest(self.of_record),
        }


def _too_long(name: str, lengths: np.ndarray, most: int, *, is_list: bool) -> SchemaError:
    record = int(np.argmax(lengths > most))
    what = "length" if is_list else "value"
    return SchemaError(
        f"{int((lengths > most).sum())} records are longer than the largest bucket ({most}); the first is record "
        f"{record}, with {what} {int(lengths[record])}",
        field=name,
        hint=f"a bucket of {int(lengths.max())}, or truncate=True",
    )


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The steps of an epoch, or of the rest of an epoch that was resumed."""

    records: np.ndarray
    """The records of the epoch, bucket by bucket. Within a bucket they have their order in the epoch."""
    firsts: np.ndarray
    """The index at which each bucket begins in `records`, and the number of all records: int64[buckets + 1]."""
    done: np.ndarray
    """How many records of each bucket come before the first step: int64[buckets]."""
    bucket: np.ndarray
    """The bucket of each step."""
    start: np.ndarray
    """For each step, how many records of its bucket come before it: int64[steps]."""

    def records_of(self, bucket: int) -> np.ndarray:
        return self.records[self.firsts[bucket] : self.firsts[bucket + 1]]


class BucketSequence(RecordSequence):
    """The records at each position of an epoch, with the records of one bucket in each step.

    `plan` has the largest batch size, the ranks, and the rules for steps that are not full.
    """

    def __init__(self, order: Order, records: Records, buckets: Buckets, plan: EpochPlan) -> None:
        super().__init__(order, records)
        selects = isinstance(order, (Balanced, Mixture, Weighted))
        self._records = records
        self.has_each_once = self.num_records == len(records) and not selects
        self.buckets = buckets
        sizes = buckets.batch_sizes or [plan.batch_size] * buckets.count
        self.plans = [replace(plan, batch_size=size) for size in sizes]
        """The batch size and the rules for steps of each bucket."""
        self._plan = plan
        self._lock = Lock()
        self._schedules: OrderedDict[int, _Schedule] = OrderedDict()
        self._resumed: tuple[int, np.ndarray] | None = None
        """The epoch that was resumed from a state, and how many records of each bucket came before."""
        if self.has_each_once:
            self._steps = self._all_steps(buckets.num_records)
        else:
            smallest = min(one.step_records for one in self.plans)
            self._steps = self.num_records // smallest + buckets.count
        self.length = self._steps * plan.step_records

    def divided(self, plan: EpochPlan) -> BucketSequence:
        return BucketSequence(self.order, self._records, self.buckets, plan)

    def batch_lengths(self, plan: EpochPlan, epoch: int, position: int) -> set[int]:
        left = self.totals(epoch) - np.array(self.counts(epoch, position))
        found = (self._plan_of(*one).batch_lengths() for one in enumerate(left.tolist()))
        return set[int]().union(*found)

    def _plan_of(self, bucket: int, num_records: int) -> EpochPlan:
        """The steps of some records of a bucket."""
        return replace(self.plans[bucket], length=num_records)

    def _all_steps(self, counts: np.ndarray) -> int:
        """The number of steps of an epoch, or of the rest of one, with `counts` records of each bucket."""
        return sum(self._plan_of(*one).num_steps() for one in enumerate(counts.tolist()))

    def totals(self, epoch: int) -> np.ndarray:
        """The number of records of each bucket in an epoch, int64[buckets]."""
        if self.has_each_once:
            return self.buckets.num_records
        return np.diff(self._schedule(epoch).firsts)

    def begin(self, epoch: int) -> int:
        if self.has_each_once:
            return 0
        return (self._steps - self._all_steps(self.totals(epoch))) * self._plan.step_records

    # -- the schedule ---------------------------------------------------------------------------

    def _schedule(self, epoch: int) -> _Schedule:
        with self._lock:
            found = self._schedules.get(epoch)
            if found is None:
                while len(self._schedules) >= _EPOCHS:
                    self._schedules.popitem(last=False)
                found = self._schedules[epoch] = self._scheduled(epoch)
            self._schedules.move_to_end(epoch)
            return found

    def _scheduled(self, epoch: int) -> _Schedule:
        numbers = super().at(epoch, 0, self.num_records)
        of_position = self.buckets.of_record[numbers]
        by_bucket = np.argsort(of_position, kind="stable")
        totals = self.buckets.counted(of_position)
        firsts = np.concatenate([[0], np.cumsum(totals)])
        done = np.zeros(self.buckets.count, np.int64)
        if self._resumed is not None and self._resumed[0] == epoch:
            done = self._resumed[1]
        steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for bucket in range(self.buckets.count):
            plan = self._plan_of(bucket, int(totals[bucket] - done[bucket]))
            size = plan.step_records
            starts = done[bucket] + size * np.arange(plan.num_steps())
            last = np.minimum(starts + size, totals[bucket]) - 1
            comes = by_bucket[firsts[bucket] + last]
            comes[starts + size > totals[bucket]] = len(numbers) + bucket
            steps.append((comes, np.full(len(starts), bucket), starts))
        comes, bucket_of, starts = (np.concatenate(each) for each in zip(*steps, strict=True))
        order = np.argsort(comes, kind="stable")
        return _Schedule(numbers[by_bucket], firsts, done, bucket_of[order], starts[order])

    # -- for the loader -------------------------------------------------------------------------

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "buckets": self.buckets.spec()}

    def numbers(self, plan: EpochPlan, part: BatchPart, epoch: int) -> np.ndarray:
        _, records, share, start = self._share(part, epoch)
        places = start + share.first + np.arange(share.num_records)
        return records[places % len(records)]

    def mask(self, plan: EpochPlan, part: BatchPart, epoch: int) -> np.ndarray | None:
        return None if plan.uneven != "pad" else plan.mask(self._share(part, epoch)[2])

    def longest(self) -> dict[str, tuple[int, ...]]:
        return self.buckets.pad_to(-1)

    def pad_to(self, part: BatchPart, epoch: int) -> dict[str, tuple[int, ...]]:
        return self.buckets.pad_to(self._share(part, epoch)[0])

    def bucket_and_new(self, part: BatchPart, epoch: int) -> tuple[int, int]:
        """The bucket of a batch, and how many of its records are neither repeated nor masked."""
        bucket, records, share, start = self._share(part, epoch)
        left = min(self.plans[bucket].step_records, len(records) - start)
        return bucket, min(max(left - share.first, 0), share.num_real)

    def before(self, epoch: int, counts: np.ndarray) -> np.ndarray:
        """The first records of each bucket in an epoch, as many as `counts` says."""
        schedule = self._schedule(epoch)
        found = [schedule.records_of(bucket)[:count] for bucket, count in enumerate(counts)]
        return np.concatenate(found)

    def _share(self, part: BatchPart, epoch: int) -> tuple[int, np.ndarray, BatchPart, int]:
        """Return a step's bucket, the records of the bucket, the rank's share of the step, and the step's first index in
        the records."""
        schedule = self._schedule(epoch)
        step = self._step(schedule, part.first)
        bucket, start = int(schedule.bucket[step]), int(schedule.start[step])
        records = schedule.records_of(bucket)
        rank = part.first % self._plan.step_records // self._plan.batch_size
        left = min(self.plans[bucket].step_records, len(records) - start)
        return bucket, records, self._plan_of(bucket, left).part(0, 0, rank), start

    def _step(self, schedule: _Schedule, position: int) -> int:
        """Return the index of a step in a schedule, which may have only the rest of an epoch."""
        step = position // self._plan.step_records - (self._steps - len(schedule.bucket))
        if step < 0:
            raise IndexError("this batch is before the position of the loaded state")
        return step

    def at(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The record numbers at some positions of an epoch, int64; -1 for positions without a record."""
        size, found = self._plan.batch_size, []
        for first in range(start // size * size, stop, size):
            part = BatchPart(first, size, size, first + size)
            numbers = self.numbers(self._plan, part, epoch)
            found.append(np.pad(numbers, (0, size - len(numbers)), constant_values=-1))
        if not found:
            return np.zeros(0, np.int64)
        skipped = start % size
        return np.concatenate(found)[skipped : skipped + stop - start]

    def windows(self, epoch: int) -> None:
        """None, because the records of a batch come from the whole epoch."""

    # -- state ----------------------------------------------------------------------------------

    def counts(self, epoch: int, position: int) -> list[int]:
        """How many records of each bucket come before a position of an epoch."""
        if position <= self.begin(epoch) and (self._resumed is None or self._resumed[0] != epoch):
            return [0] * self.buckets.count
        schedule = self._schedule(epoch)
        step = self._step(schedule, position)
        done = schedule.done.copy()
        for bucket in range(self.buckets.count):
            mine = schedule.start[:step][schedule.bucket[:step] == bucket]
            if len(mine):
                total = schedule.firsts[bucket + 1] - schedule.firsts[bucket]
                done[bucket] = min(mine.max() + self.plans[bucket].step_records, total)
        return done.tolist()

    def state(self, epoch: int, position: int) -> dict[str, Any]:
        counts = self.counts(epoch, position)
        return {"position": sum(counts), "buckets": counts}

    def resume(self, epoch: int, state: Mapping[str, Any]) -> int:
        counts: Any = state.get("buckets")
        totals = self.totals(epoch).tolist()
        is_list = isinstance(counts, list) and len(counts) == len(totals)
        if not is_list or any(
            type(n) is not int or not 0 <= n <= t for n, t in zip(counts, totals, strict=True)
        ):
            raise StateError(
                "the state is from a loader with other buckets",
                expected=f"at most {totals} records",
                found=counts,
            )
        with self._lock:
            self._schedules.pop(epoch, None)
            self._resumed = (epoch, np.array(counts, np.int64)) if any(counts) else None
        left = self._all_steps(np.array(totals) - np.array(counts))
        return (self._steps - left) * self._plan.step_records

    def restart(self) -> None:
        with self._lock:
            if self._resumed is not None:
                self._schedules.pop(self._resumed[0], None)
                self._resumed = None


def sequence_of(
    order: Order,
    records: Records,
    plan: EpochPlan,
    sizes: BucketSizes | None,
    decode: Mapping[str, Any] | None,
    truncate: bool,
) -> RecordSequence:
    """The records in an order, in buckets if there are `sizes`. Then what decides the buckets is read.

    Raises:
        SchemaError: see `values_of`; or a record is too long for the largest bucket.
    """
    if sizes is None:
        return RecordSequence(order, records)
    values = values_of(records, list(sizes.lengths), decode or ())
    return BucketSequence(order, records, Buckets(sizes, values, truncate=truncate), plan)
