"""Which rank reads what in an epoch, and a check that nothing is lost or read twice.

`plan` is arithmetic: no record is read. Its audit goes through every step of every rank in blocks of about
a million positions, and keeps one byte for each record of the dataset. `audit` runs a loader and
compares what it delivers with the same arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.pipeline import in_order
from penstock.loader._plan import Part
from penstock.orders import Balanced, Mixture, Weighted

if TYPE_CHECKING:
    from penstock.loader.loader import Loader

BLOCK_POSITIONS = 1 << 20
WALKED = 1 << 24
"""Epochs of up to this many positions are always counted in full, which takes about a second; in longer epochs
the files of this many positions, evenly spread, are counted."""
SHOWN = 10
"""The most records of each kind that are named; the rest are only counted."""


@dataclass(frozen=True)
class RankPlan:
    """The work of one rank in an epoch."""

    rank: int
    num_batches: int
    num_records: int
    """Records delivered, including those that only fill a batch."""
    num_filled: int
    """Of these, the records that `uneven="wrap"` repeats or `uneven="pad"` masks."""
    first_batch: list[int]
    """The first record numbers of its first batch."""
    last_batch: list[int]
    """The first record numbers of its last batch."""
    num_shards: int | None = None
    """Number of files it reads from; None if the positions were not counted."""
    num_bytes: int | None = None
    """Bytes it reads, estimated from the mean record size of each file; None if the positions were not counted. For
    more than 16 million positions, this and num_shards are estimated from 16 million of them."""


@dataclass(frozen=True)
class Twice:
    """A record that occurs more than once."""

    record: int
    file: str
    record_in_file: int
    times: int
    where: list[tuple[int, int]]
    """(step, rank) of the first occurrences, with steps counted from the position of the plan."""


@dataclass(frozen=True)
class Missing:
    """A record that does not occur in this epoch."""

    record: int
    file: str
    record_in_file: int


@dataclass(frozen=True)
class Coverage:
    """How often each record occurs, counted over all ranks and steps."""

    num_records: int
    num_once: int
    num_missing: int
    num_repeated: int
    missing: list[Missing]
    """The first few."""
    repeated: list[Twice]
    explained: bool
    """Whether `drop_last`, `uneven` and the order account for every deviation."""

    def __str__(self) -> str:
        if self.num_once == self.num_records:
            return f"every one of {self.num_records} records comes exactly once"
        counted = f"{self.num_once} of {self.num_records} records come exactly once"
        rows = [f"{counted}, {self.num_missing} not at all, {self.num_repeated} more than once"]
        rows += [f"  not: {m.file}: record {m.record_in_file}" for m in self.missing]
        for one in self.repeated:
            places = ", ".join(f"step {step} of rank {rank}" for step, rank in one.where)
            rows.append(f"  {one.times} times: {one.file}: record {one.record_in_file} ({places})")
        if not self.explained:
            rows.append("that is not what drop_last, uneven and the order say: a fault of penstock")
        return "\n".join(rows)


@dataclass(frozen=True)
class PlanReport:
    """Which rank reads what in an epoch. Printed, it is a summary; `penstock plan` shows it as tables."""

    num_records: int
    length: int
    """Positions of the epoch: the number of records, except for orders that select records."""
    order: dict[str, Any]
    epoch: int
    position: int
    batch_size: int
    num_steps: int
    """Steps on every rank, from the position on."""
    uneven: str
    dropped: tuple[int, int]
    """The positions that no rank reads, [start, stop)."""
    ranks: list[RankPlan] = field(default_factory=list[RankPlan])
    coverage: Coverage | None = None

    @property
    def ok(self) -> bool:
        """Whether everything lost or repeated was asked for; also True if there was no audit."""
        return self.coverage is None or self.coverage.explained

    def __str__(self) -> str:
        lost = self.dropped[1] - self.dropped[0]
        filled = sum(rank.num_filled for rank in self.ranks)
        line = (
            f"epoch {self.epoch} from position {self.position}: {self.num_steps} steps on each of"
            f" {len(self.ranks)} ranks, {lost} positions dropped, {filled} filled up"
        )
        return line if self.coverage is None else f"{line}\n{self.coverage}"


def plan(loader: Loader, *, audit: bool = False) -> PlanReport:
    """Which rank reads what in the rest of the loader's current epoch, on all ranks. Reads no records.

    Args:
        loader: the loader of any rank; `load_state_dict` and `set_epoch` choose where the plan begins.
        audit: count how often each record occurs, over all ranks and all steps. Takes about a second
            for 10^7 records, and one byte of memory for each.

    Returns:
        A PlanReport.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(10)}, "ten.tfrecord", overwrite=True)
        >>> loader = ps.Loader(ps.open("ten.tfrecord"), 2, order=ps.Shuffled(0), world_size=2)
        >>> print(ps.plan(loader, audit=True))
        epoch 0 from position 0: 3 steps on each of 2 ranks, 0 positions dropped, 0 filled up
        every one of 10 records comes exactly once
    """
    epoch, position = loader.standing
    walk = _Walk(loader, epoch, position)
    shares = walk.shares()
    if audit or loader.plan.length - position <= WALKED:
        walk.walk(audit=audit)
        shares = walk.with_files(shares)
    steps = loader.plan.num_steps(position)
    end = loader.plan.length if not steps else walk.end_of(steps - 1)
    return PlanReport(
        len(loader.source),
        loader.plan.length,
        loader.order.spec(),
        epoch,
        position,
        loader.plan.batch_size,
        steps,
        loader.plan.uneven,
        (end if steps else position, loader.plan.length),
        shares,
        walk.coverage(end if steps else position) if audit else None,
    )


def audit(loader: Loader) -> PlanReport:
    """Read the rest of an epoch, and compare every batch with the plan: the number of batches, their records, and
    the order of these. The loader's next `for` is the next epoch.

    Damaged records that the loader skips (`damage="skip"`) are listed in `loader.damage`, and
    count as missing here.

    Returns:
        The PlanReport of this rank alone; its `coverage` counts the records actually delivered.

    Raises:
        AssertionError: the batches delivered differ from the plan.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(10)}, "ten.tfrecord", overwrite=True)
        >>> print(ps.audit(ps.Loader(ps.open("ten.tfrecord"), 4, order=ps.Shuffled(0))))
        epoch 0 from position 0: 3 steps on each of 1 ranks, 0 positions dropped, 0 filled up
        every one of 10 records comes exactly once
    """
    report = plan(loader)
    counts = np.zeros(len(loader.source), np.int64)
    parts = list(loader.plan.parts(report.position, loader.rank))
    done = 0
    for numbers in loader.delivered():
        wanted = _numbers(loader, report.epoch, parts[done]) if done < len(parts) else numbers[:0]
        whole = np.array_equal(numbers, wanted)
        if not whole and not (loader.damage and _in_order(numbers, wanted)):
            raise AssertionError(
                f"batch {done} of rank {loader.rank} has other records than planned:"
                f" {numbers[:5].tolist()} … instead of {wanted[:5].tolist()} …"
            )
        np.add.at(counts, numbers, 1)
        done += 1
    stopped = loader.source.damage_mode == "stop" and bool(loader.damage)
    if done != len(parts) and not stopped:
        raise AssertionError(f"{done} batches were delivered, and {len(parts)} planned")
    coverage = _counted(loader, counts, explained=True, where={})
    return replace(report, ranks=[report.ranks[loader.rank]], coverage=coverage)


def _in_order(some: np.ndarray, of: np.ndarray) -> bool:
    """Whether `some` is `of` with elements left out."""
    rest = iter(of.tolist())
    return all(number in rest for number in some.tolist())


def _numbers(loader: Loader, epoch: int, part: Part) -> np.ndarray:
    ranges = [loader.numbers(epoch, a, b) for a, b in loader.plan.positions(part)]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)


def _counted(
    loader: Loader, counts: np.ndarray, *, explained: bool, where: dict[int, list[tuple[int, int]]]
) -> Coverage:
    missing = np.flatnonzero(counts == 0)
    repeated = np.flatnonzero(counts > 1)
    return Coverage(
        len(counts),
        len(counts) - len(missing) - len(repeated),
        len(missing),
        len(repeated),
        [Missing(int(n), *loader.place_of(int(n))) for n in missing[:SHOWN]],
        [
            Twice(int(n), *loader.place_of(int(n)), int(counts[n]), where.get(int(n), []))
            for n in repeated[:SHOWN]
        ],
        explained,
    )


class _Walk:
    """All steps of all ranks from a position on, in blocks."""

    def __init__(self, loader: Loader, epoch: int, position: int) -> None:
        self._loader = loader
        self._plan = loader.plan
        self._epoch = epoch
        self._position = position
        self._firsts, self._mean_bytes = _files(loader)
        self._from_file = np.zeros((self._plan.world_size, len(self._mean_bytes)), np.int64)
        self._counts = np.zeros(0, np.uint8)
        self._every = max((self._plan.length - position) // WALKED, 1)
        self._lock = threading.Lock()

    def end_of(self, step: int) -> int:
        """The position up to which all ranks together have read after a step."""
        last = self._plan.part(self._position, step, self._plan.world_size - 1)
        return min(last.first + last.num_real, self._plan.length)

    def shares(self) -> list[RankPlan]:
        """The computed plan of each rank."""
        steps = self._plan.num_steps(self._position)
        found = []
        for rank in range(self._plan.world_size):
            if not steps:
                found.append(RankPlan(rank, 0, 0, 0, [], []))
                continue
            first = self._plan.part(self._position, 0, rank)
            last = self._plan.part(self._position, steps - 1, rank)
            records = (steps - 1) * self._plan.batch_size + last.num_records
            filled = last.num_records - self._firsthand(last)
            begins, ends = self._shown(first), self._shown(last)
            found.append(RankPlan(rank, steps, records, filled, begins, ends))
        return found

    def with_files(self, shares: list[RankPlan]) -> list[RankPlan]:
        """The same plans, with the files that each rank reads from."""
        return [
            replace(
                share,
                num_shards=int(np.count_nonzero(files)),
                num_bytes=int(files @ self._mean_bytes / max(files.sum(), 1) * share.num_records),
            )
            for share, files in zip(shares, self._from_file, strict=True)
        ]

    def walk(self, *, audit: bool) -> None:
        """Ask the order for every position of every rank, on all cores."""
        if audit:
            self._counts = np.zeros(len(self._loader.source), np.uint8)
        blocks = [self._blocks]
        for _ in in_order(blocks, self._do, lambda _: 0, max(self._loader.threads, 1)):
            pass

    def coverage(self, end: int) -> Coverage:
        """How often each record came. A first count says only whether: if as many different
        records came as positions were read, none came twice. Else they are counted one by one."""
        counts = self._counts
        # Records read before the position count, too: a resumed run loses nothing.
        for a, b in _cut(0, self._position):
            counts[self._loader.numbers(self._epoch, a, b)] = 1
        steps = self._plan.num_steps(self._position)
        again = [
            (int(number), place, (steps - 1, rank))
            for rank in range(self._plan.world_size)
            for place, number in self._again(steps, rank)
        ]
        where: dict[int, list[tuple[int, int]]] = {}
        distinct = int(np.count_nonzero(counts))
        chosen = distinct != end
        if chosen or len(counts) < BLOCK_POSITIONS:  # a byte is enough for one more
            counts = counts.astype(np.uint32)
        if chosen:
            counts[:] = 0
            for a, b in _cut(0, end):
                np.add.at(counts, self._loader.numbers(self._epoch, a, b), 1)
        if chosen:
            self._find(np.flatnonzero(counts > 1)[:SHOWN], end, where)
        for number, before, place in again:
            counts[number] += 1
            if number not in where:
                where[number] = [self._place(before)] if before >= self._position else []
            where[number].append(place)
        is_permutation = self._plan.length == len(counts) and not chosen
        return _counted(
            self._loader,
            counts,
            explained=is_permutation or not _promises_each_once(self._loader),
            where=where,
        )

    # -- blocks of steps ------------------------------------------------------------------------

    def _blocks(self) -> Iterator[tuple[int, int]]:
        steps = self._plan.num_steps(self._position)
        size = max(BLOCK_POSITIONS // self._plan.step_records, 1)
        for first in range(0, steps, size):
            yield first, min(first + size, steps)

    def _do(self, block: tuple[int, int]) -> Iterator[None]:
        """The records of some steps, rank by rank; each batch where `Plan.part` puts it."""
        ranks, size = self._plan.world_size, self._plan.batch_size
        start: int | None = None
        expected = 0
        whole = 0
        for step in range(*block):
            parts = [self._plan.part(self._position, step, rank) for rank in range(ranks)]
            if start is None:
                start = expected = parts[0].first
            is_whole = all(part.num_records == part.num_real == size for part in parts)
            if not is_whole or parts[-1].first + size > self._plan.length:
                for rank, part in enumerate(parts):
                    numbers = _numbers(self._loader, self._epoch, part)
                    self._note(rank, numbers)
                    if len(self._counts):
                        self._counts[numbers] = 1
                continue
            for part in parts:
                if part.first != expected:
                    raise AssertionError(f"step {step}: {part.first} follows {expected}")
                expected += size
            whole += 1
        if whole:
            assert start is not None
            numbers = self._loader.numbers(self._epoch, start, start + whole * ranks * size)
            if len(self._counts):
                self._counts[numbers] = 1
            if (block[0] // (block[1] - block[0])) % self._every == 0:
                shaped = numbers.reshape(whole, ranks, size)
                for rank in range(ranks):
                    self._note(rank, shaped[:, rank])
        yield

    def _note(self, rank: int, numbers: np.ndarray) -> None:
        """Count the files of some records of a rank."""
        if len(self._mean_bytes) == 1:
            found = np.array([numbers.size])
        else:
            files = np.searchsorted(self._firsts, numbers.ravel(), "right") - 1
            found = np.bincount(files, minlength=len(self._mean_bytes))
        with self._lock:
            self._from_file[rank] += found

    # -- what is odd ----------------------------------------------------------------------------

    def _firsthand(self, part: Part) -> int:
        """Records of a batch that no other batch of the epoch has."""
        return min(max(self._plan.length - part.first, 0), part.num_real)

    def _again(self, steps: int, rank: int) -> list[tuple[int, int]]:
        """The first positions of the epoch that fill the last batch of a rank up, unless a mask
        leaves them out, and their records."""
        if not steps or self._plan.uneven == "pad":
            return []
        part = self._plan.part(self._position, steps - 1, rank)
        fresh = self._firsthand(part)
        numbers = _numbers(self._loader, self._epoch, part)[fresh:].tolist()
        begin = part.first + fresh
        return [((begin + n) % self._plan.length, number) for n, number in enumerate(numbers)]

    def _place(self, position: int) -> tuple[int, int]:
        """The step and rank that read a position."""
        step, within = divmod(position - self._position, self._plan.step_records)
        return step, within // max(self._plan.part(self._position, step, 0).num_records, 1)

    def _find(self, wanted: np.ndarray, end: int, where: dict[int, list[tuple[int, int]]]) -> None:
        """The steps and ranks at which some records come."""
        for a, b in _cut(self._position, end):
            numbers = self._loader.numbers(self._epoch, a, b)
            for place in np.flatnonzero(np.isin(numbers, wanted)):
                places = where.setdefault(int(numbers[place]), [])
                if len(places) < SHOWN:
                    places.append(self._place(a + int(place)))
        for places in where.values():
            places.sort()

    def _shown(self, part: Part) -> list[int]:
        few = Part(part.first, min(part.num_records, 3), min(part.num_real, 3), part.end)
        return _numbers(self._loader, self._epoch, few).tolist()


def _cut(start: int, stop: int) -> Iterator[tuple[int, int]]:
    yield from pairwise([*range(start, stop, BLOCK_POSITIONS), stop] if stop > start else [])


def _promises_each_once(loader: Loader) -> bool:
    """Whether an order promises every record exactly once; orders that select records do not."""
    chooses = isinstance(loader.order, (Balanced, Mixture, Weighted))
    return loader.plan.length == len(loader.source) and not chooses


def _files(loader: Loader) -> tuple[np.ndarray, np.ndarray]:
    """The number of each file's first record, and the mean bytes of its records."""
    shards = [shard for one in loader.source.datasets for shard in one.shards]
    counts = np.array([shard.num_records for shard in shards], np.int64)
    sizes = np.array([shard.num_bytes for shard in shards], np.float64)
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return firsts, sizes / np.maximum(counts, 1)
