"""Reports which rank reads what in an epoch, and checks that no record is lost or read twice.

`plan` computes this and reads no records. With `audit=True` it goes through every step of every rank, in blocks of
about a million positions, and counts each record. `audit` runs a loader and compares its batches with the plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.engine.pipeline import in_order
from penstock.loader._bucket_walk import BucketWalk
from penstock.loader._buckets import BucketSequence
from penstock.loader._plan import BatchPart
from penstock.loader.loader import Loader
from penstock.loader.reports import Coverage, MissingRecord, PlanReport, RankPlan, RepeatedRecord
from penstock.orders import Balanced, Mixture, Weighted

BLOCK_POSITIONS = 1 << 20
WALKED = 1 << 24
"""Without an audit, a plan counts the files that each rank reads only in epochs of up to this many positions, which
takes about a second. With an audit, the files of about this many positions, evenly spread, are counted."""
_MOST_WRAPPERS = 4
"""How many loaders of other libraries may be around a loader."""
SHOWN = 10
"""How many missing and repeated records are listed; the rest are only counted."""


def plan(loader: Any, *, audit: bool = False) -> PlanReport:
    """Compute which rank reads what in the rest of the loader's current epoch, for all ranks. Reads no records.

    With `buckets=`, the report also has the steps of each bucket, and an audit checks that each step has one bucket on
    all ranks. This takes about 2 seconds for 10^6 records in batches of 64.

    Args:
        loader: the loader of any rank, or its `torch()`, `jax()` or `keras()`, or a DataLoader of it; `load_state_dict` and
            `set_epoch` choose where the plan begins.
        audit: count how often each record occurs, over all ranks and steps. This takes about a second for 10^7
            records, and one byte of memory per record, or four bytes if the order repeats records.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(10)}, "ten.tfrecord", overwrite=True)
        >>> loader = ps.Loader(ps.open("ten.tfrecord"), 2, order=ps.Shuffled(0), world_size=2)
        >>> report = ps.plan(loader, audit=True)
        >>> report.num_steps, [rank.num_records for rank in report.ranks]
        (3, [5, 5])
        >>> print(report.coverage)
        every one of 10 records comes exactly once
    """
    loader = _beneath(loader)[0]
    if loader.buckets is not None:
        return _bucket_plan(loader, loader.buckets, audit=audit)
    walk = _Walk(loader, audit=audit)
    ranks = walk.ranks()
    if audit or loader.plan.length - loader.position <= WALKED:
        walk.walk()
        ranks = _with_files(ranks, walk.from_file, walk.mean_bytes)
    return PlanReport(
        len(loader.source),
        loader.plan.length,
        loader.order.spec(),
        loader.epoch,
        loader.position,
        loader.plan.batch_size,
        walk.steps,
        loader.plan.uneven,
        (walk.end, loader.plan.length),
        ranks,
        walk.coverage() if audit else None,
    )


def _bucket_plan(loader: Loader, sequence: BucketSequence, *, audit: bool) -> PlanReport:
    """The plan of a loader with buckets. It goes through every step, with or without an audit."""
    firsts, mean_bytes = _files(loader)
    walk = BucketWalk(loader, sequence)
    walk.walk(firsts)
    buckets = walk.buckets()
    lost = sum(bucket.num_dropped for bucket in buckets)
    length = sequence.num_records
    coverage = None
    if audit:
        steps = walk.steps_of(np.flatnonzero(walk.counts > 1)[:SHOWN])
        found = _counted(loader, walk.counts, explained=walk.is_explained(), steps=steps)
        coverage = replace(found, num_mixed_steps=walk.num_mixed_steps)
    return PlanReport(
        len(loader.source),
        length,
        loader.order.spec(),
        loader.epoch,
        walk.position,
        loader.plan.batch_size,
        walk.steps,
        loader.plan.uneven,
        (length - lost, length),
        _with_files(walk.ranks, walk.from_file, mean_bytes),
        coverage,
        buckets,
    )


def audit(loader: Any) -> PlanReport:
    """Read what the next `for` loop over a loader would read, and compare every batch with the plan: the number of
    batches, their records, and the order of the records. The loader's next `for` is the epoch after that.

    `loader` may also be its `torch()`, `jax()` or `keras()`, or a DataLoader of it. Then the loader beneath is audited, in
    this process and not in DataLoader's workers.

    Damaged records that the loader skips (`damage="skip"`) count as missing. `loader.damage` lists them.

    Returns:
        The PlanReport of this rank only. Its `coverage` counts the records that were delivered.

    Raises:
        AssertionError: the batches differ from the plan.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(10)}, "ten.tfrecord", overwrite=True)
        >>> report = ps.audit(ps.Loader(ps.open("ten.tfrecord"), 4, order=ps.Shuffled(0)))
        >>> print(report.coverage)
        every one of 10 records comes exactly once
    """
    loader, view = _beneath(loader)
    # After a `for` loop that was left early, the loader is still in that epoch, and the next `for` is the next one.
    loader.load_state_dict(loader.state_at(*loader.next_start))
    report = plan(loader)
    counts = np.zeros(len(loader.source), np.int64)
    parts = list(loader.plan.parts(loader.place[1], loader.rank))
    done = 0
    for numbers in loader.iter_numbers():
        wanted = _numbers(loader, report.epoch, parts[done]) if done < len(parts) else numbers[:0]
        is_whole = np.array_equal(numbers, wanted)
        if not is_whole and not (loader.damage and _is_subsequence(numbers, wanted)):
            raise AssertionError(
                f"batch {done} of rank {loader.rank} has other records than planned:"
                f" {numbers[:5].tolist()} … instead of {wanted[:5].tolist()} …"
            )
        if done < len(parts):
            np.add.at(counts, _real(loader, report.epoch, parts[done], numbers, wanted), 1)
        done += 1
    stopped = loader.source.damage_mode == "stop" and bool(loader.damage)
    if done != len(parts) and not stopped:
        raise AssertionError(f"{done} batches were delivered, and {len(parts)} planned")
    if view is not None:
        view.set_epoch(loader.next_start[0])
    coverage = _counted(loader, counts, explained=True, steps={})
    return replace(report, ranks=[report.ranks[loader.rank]], coverage=coverage)


def _beneath(given: Any) -> tuple[Loader, Any]:
    """The loader itself, or that of a view of it, such as `loader.torch()`, which may be the dataset of a DataLoader. Also
    returns the view, or None."""
    view = given
    for _ in range(_MOST_WRAPPERS):
        if isinstance(view, Loader):
            return view, None
        if isinstance(loader := getattr(view, "loader", None), Loader):
            return loader, view
        view = getattr(view, "dataset", None)
    raise TypeError(
        "plan and audit take a penstock.Loader, its torch(), jax() or keras(), or a DataLoader of these, not"
        f" {type(given).__name__}"
    )


def _real(
    loader: Loader, epoch: int, part: BatchPart, numbers: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """The records of a batch without those that only fill it. `wanted` are those of the plan."""
    sequence = loader.buckets
    if sequence is not None:
        mask = sequence.mask(loader.plan, part, epoch)
    else:
        mask = loader.plan.mask(part) if loader.plan.uneven == "pad" else None
    if mask is None:
        return numbers
    return numbers[mask] if len(numbers) == len(mask) else numbers[np.isin(numbers, wanted[mask])]


def _is_subsequence(some: np.ndarray, of: np.ndarray) -> bool:
    rest = iter(of.tolist())
    return all(number in rest for number in some.tolist())


def _numbers(loader: Loader, epoch: int, part: BatchPart) -> np.ndarray:
    if loader.buckets is not None:
        return loader.buckets.numbers(loader.plan, part, epoch)
    ranges = [loader.numbers(epoch, a, b) for a, b in loader.plan.positions(part)]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)


Steps = dict[int, list[tuple[int, int]]]


def _counted(loader: Loader, counts: np.ndarray, *, explained: bool, steps: Steps) -> Coverage:
    missing = np.flatnonzero(counts == 0)
    repeated = np.flatnonzero(counts > 1)
    return Coverage(
        len(counts),
        len(counts) - len(missing) - len(repeated),
        len(missing),
        len(repeated),
        [MissingRecord(int(n), *loader.locate(int(n))) for n in missing[:SHOWN]],
        [
            RepeatedRecord(int(n), *loader.locate(int(n)), int(counts[n]), steps.get(int(n), []))
            for n in repeated[:SHOWN]
        ],
        explained,
    )


def _with_files(
    ranks: list[RankPlan], from_file: Sequence[np.ndarray] | np.ndarray, mean_bytes: np.ndarray
) -> list[RankPlan]:
    """Add the number of files that each rank reads from, and their bytes."""
    return [
        replace(
            rank,
            num_shards=int(np.count_nonzero(files)),
            num_bytes=int(files @ mean_bytes / max(files.sum(), 1) * rank.num_records),
        )
        for rank, files in zip(ranks, from_file, strict=True)
    ]


class _Walk:
    """All steps of all ranks from the loader's position on, in blocks."""

    def __init__(self, loader: Loader, *, audit: bool) -> None:
        self._loader = loader
        self._plan = loader.plan
        self._position = loader.position
        self.steps = self._plan.num_steps(self._position)
        self._last = (
            [self._part(self.steps - 1, rank) for rank in self._ranks] if self.steps else []
        )
        """The batch of each rank in the last step, which may be shorter."""
        last = max((part.first + part.num_real for part in self._last), default=self._position)
        self.end = min(last, self._plan.length)
        """The position at which all ranks together stop reading."""
        self._firsts, self.mean_bytes = _files(loader)
        self.from_file = np.zeros((self._plan.world_size, len(self.mean_bytes)), np.int64)
        # A byte is enough if each record occurs once or twice. A faulty order that overflows it also misses records.
        is_small = _promises_each_once(loader) and self._plan.length >= self._plan.world_size
        self._counts = np.zeros(
            len(loader.source) if audit else 0, np.uint8 if is_small else np.uint32
        )

    @property
    def _ranks(self) -> range:
        return range(self._plan.world_size)

    def _part(self, step: int, rank: int) -> BatchPart:
        return self._plan.part(self._position, step, rank)

    def _records(self, part: BatchPart) -> np.ndarray:
        return _numbers(self._loader, self._loader.epoch, part)

    def ranks(self) -> list[RankPlan]:
        if not self.steps:
            return [RankPlan(rank, 0, 0, 0, [], []) for rank in self._ranks]
        return [
            RankPlan(
                rank,
                self.steps,
                (self.steps - 1) * self._plan.batch_size + last.num_records,
                last.num_records - self._num_new(last),
                self._shown(self._part(0, rank)),
                self._shown(last),
            )
            for rank, last in enumerate(self._last)
        ]

    def walk(self) -> None:
        """Compute and count the records of every step on every rank, on all threads of the loader."""
        every = max((self._plan.length - self._position) // WALKED, 1)
        threads = max(self._loader.threads, 1)
        blocks = in_order([self._blocks], self._block, lambda numbers: numbers.nbytes, threads)
        for number, numbers in enumerate(blocks):
            self._count(numbers.ravel())
            if number % every == 0:
                for rank in self._ranks:
                    self._count_files(rank, numbers[:, rank].ravel())
        for rank, part in enumerate(self._last):
            numbers = self._records(part)
            self._count(numbers[: part.num_real])
            self._count_files(rank, numbers)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """The steps before the last one, which are all full, as ranges [first, stop)."""
        size = max(BLOCK_POSITIONS // self._plan.step_records, 1)
        for first in range(0, self.steps - 1, size):
            yield first, min(first + size, self.steps - 1)

    def _block(self, steps: tuple[int, int]) -> Iterator[np.ndarray]:
        """The records of some full steps, int64[steps, ranks, batch_size]."""
        size = self._plan.batch_size
        start = expected = self._part(steps[0], 0).first
        for step in range(*steps):
            for rank in self._ranks:
                part = self._part(step, rank)
                if (part.first, part.num_records, part.num_real) != (expected, size, size):
                    raise AssertionError(f"step {step} of rank {rank} does not begin at {expected}")
                expected += size
        numbers = self._loader.numbers(self._loader.epoch, start, expected)
        yield numbers.reshape(-1, self._plan.world_size, size)

    def _count(self, numbers: np.ndarray) -> None:
        if len(self._counts):
            np.add.at(self._counts, numbers, self._counts.dtype.type(1))

    def _count_files(self, rank: int, numbers: np.ndarray) -> None:
        if len(self.mean_bytes) == 1:
            self.from_file[rank] += len(numbers)
        else:
            files = np.searchsorted(self._firsts, numbers, "right") - 1
            self.from_file[rank] += np.bincount(files, minlength=len(self.mean_bytes))

    def coverage(self) -> Coverage:
        """The counts of each record from the beginning of the epoch up to its last step."""
        for a, b in _cut(0, self._position):  # the positions before the run was resumed
            self._count(self._loader.numbers(self._loader.epoch, a, b))
        explained = not _promises_each_once(self._loader)
        explained = explained or np.count_nonzero(self._counts) == self.end
        steps = self._steps_of(np.flatnonzero(self._counts > 1)[:SHOWN])
        return _counted(self._loader, self._counts, explained=explained, steps=steps)

    # -- repeated records -----------------------------------------------------------------------

    def _num_new(self, part: BatchPart) -> int:
        """The number of records of a batch that are neither repeated nor masked."""
        return min(max(self._plan.length - part.first, 0), part.num_real)

    def _wrapped(self) -> Iterator[tuple[int, int, int]]:
        """Yield record, position and rank of the records from the beginning of the epoch that fill up the last step."""
        for rank, part in enumerate(self._last):
            new = self._num_new(part)
            for n, number in enumerate(self._records(part)[new : part.num_real].tolist(), new):
                yield number, (part.first + n) % self._plan.length, rank

    def _steps_of(self, repeated: np.ndarray) -> Steps:
        found: Steps = defaultdict(list)
        again = [one for one in self._wrapped() if one[0] in repeated]
        times = Counter(number for number, _, _ in again)
        if all(self._counts[number] == 1 + times[number] for number in repeated.tolist()):
            places = {position: number for number, position, _ in again}
        else:
            places = self._positions_of(repeated)
        for position, number in sorted(places.items()):
            if position >= self._position:
                found[number].append(self._place(position))
        for number, _, rank in again:
            found[number].append((self.steps - 1, rank))
        return {number: places[:SHOWN] for number, places in found.items()}

    def _positions_of(self, records: np.ndarray) -> dict[int, int]:
        """Find some records among the positions that are read; return {position: record}."""
        found: dict[int, int] = {}
        for a, b in _cut(self._position, self.end):
            numbers = self._loader.numbers(self._loader.epoch, a, b)
            places = np.flatnonzero(np.isin(numbers, records))
            found |= {a + n: int(numbers[n]) for n in places.tolist()}
        return found

    def _place(self, position: int) -> tuple[int, int]:
        step, within = divmod(position - self._position, self._plan.step_records)
        return step, within // max(self._part(step, 0).num_records, 1)

    def _shown(self, part: BatchPart) -> list[int]:
        few = BatchPart(part.first, min(part.num_records, 3), min(part.num_real, 3), part.end)
        return self._records(few).tolist()


def _cut(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, BLOCK_POSITIONS):
        yield first, min(first + BLOCK_POSITIONS, stop)


def _promises_each_once(loader: Loader) -> bool:
    """Whether the order promises every record exactly once. Orders that repeat or omit records do not."""
    selects = isinstance(loader.order, (Balanced, Mixture, Weighted))
    return loader.plan.length == len(loader.source) and not selects


def _files(loader: Loader) -> tuple[np.ndarray, np.ndarray]:
    """For each file, the number of its first record and the mean size of its records in bytes."""
    shards = [shard for one in loader.source.datasets for shard in one.shards]
    counts = np.array([shard.num_records for shard in shards], np.int64)
    sizes = np.array([shard.num_bytes for shard in shards], np.float64)
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return firsts, sizes / np.maximum(counts, 1)
