"""Reports of plans: which rank reads what in an epoch, and how often each record occurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import describe
from penstock.printing.printed import Printed

_MOST_RANKS = 64
"""The most ranks of a printed table."""
_FILLED = {"wrap": "read again", "pad": "masked", "drop": "filled up"}


@dataclass(frozen=True)
class RankPlan:
    """The work of one rank in an epoch."""

    rank: int
    num_batches: int
    num_records: int
    """Records delivered, including records that only fill a batch."""
    num_padding: int
    """Records that only fill a batch: repeated with `uneven="wrap"`, masked with `uneven="pad"`."""
    first_batch: list[int]
    last_batch: list[int]
    """The first three record numbers of the rank's last batch. `first_batch` has those of its first batch."""
    num_shards: int | None = None
    """Number of files that the rank reads from; None if the positions were not counted."""
    num_bytes: int | None = None
    """Bytes that the rank reads, estimated from the mean record size of each file; None if the positions were not
    counted. For more than 16 million positions, this and num_shards are estimates from a sample."""


@dataclass(frozen=True)
class RepeatedRecord:
    """A record that occurs more than once."""

    record: int
    file: str
    record_in_file: int
    count: int
    steps: list[tuple[int, int]]
    """(step, rank) of the first occurrences; steps are counted from the position of the plan."""


@dataclass(frozen=True)
class MissingRecord:
    """A record that does not occur in this epoch."""

    record: int
    file: str
    record_in_file: int


@dataclass(frozen=True, repr=False)
class Coverage(Printed):
    """How often each record occurs, counted over all ranks and steps."""

    num_records: int
    num_once: int
    num_missing: int
    num_repeated: int
    missing: list[MissingRecord]
    repeated: list[RepeatedRecord]
    """The first repeated records; `missing` has the first missing records."""
    explained: bool
    """Whether `drop_last`, `uneven` and the order account for every deviation."""
    num_mixed_steps: int = 0
    """With `buckets=`: how many steps have a record, on any rank, that is not in the bucket of the step."""

    def _page(self) -> list[Any]:
        from rich.text import Text

        how: dict[str, Any] = {"no_wrap": True, "overflow": "ignore"}
        return [Text(describe.escape(line), **how) for line in self._lines()]

    def _lines(self) -> list[str]:
        if self.num_once == self.num_records:
            return [f"every one of {describe.records(self.num_records)} comes exactly once"]
        rows = [self._summary()]
        rows += [f"  missing: {m.file}: record {m.record_in_file}" for m in self.missing]
        for one in self.repeated:
            places = ", ".join(f"step {step} of rank {rank}" for step, rank in one.steps)
            rows.append(f"  {one.count} times: {one.file}: record {one.record_in_file} ({places})")
        if not self.explained:
            rows.append(
                "drop_last, uneven and the order do not explain this: it is a bug in penstock"
            )
        return rows

    def _summary(self) -> str:
        once = f"{describe.count(self.num_once)} of {describe.records(self.num_records)}"
        missing, repeated = describe.count(self.num_missing), describe.count(self.num_repeated)
        return f"{once} come exactly once, {missing} not at all, {repeated} more than once"


@dataclass(frozen=True)
class BucketPlan:
    """One bucket in an epoch, from the position of the plan on."""

    sizes: dict[str, int]
    """The maximum length of its records, by key of `buckets=`. The lists of a column are padded to it."""
    batch_size: int
    """Records in a batch of the bucket, on each rank."""
    num_records: int
    """How many records of the bucket are left in the epoch."""
    num_steps: int
    num_padding: int
    """How many records only fill a batch, on all ranks together."""
    num_dropped: int
    """How many records no rank reads."""


@dataclass(frozen=True, repr=False)
class PlanReport(Printed):
    """Which rank reads what in an epoch. Printed, it is the table that `penstock plan` shows."""

    num_records: int
    length: int
    """The number of positions in the epoch. It is the number of records, except for orders that repeat or omit
    records."""
    order: dict[str, Any]
    epoch: int
    position: int
    batch_size: int
    """Records in a batch, on each rank. If buckets have batch sizes of their own, the largest of them."""
    num_steps: int
    """Steps from the position on, the same on every rank."""
    uneven: str
    dropped: tuple[int, int]
    """The positions that no rank reads, [start, stop), at the end of the epoch. With buckets, the records that no rank
    reads are the last ones of each bucket, and only the number of these positions has a meaning."""
    ranks: list[RankPlan]
    coverage: Coverage | None = None
    buckets: list[BucketPlan] | None = None
    """The buckets of a loader with `buckets=`, the shortest first."""

    @property
    def ok(self) -> bool:
        """Whether the arguments of the loader explain all missing and repeated records, and each step has records of
        one bucket only. True without an audit."""
        return self.coverage is None or (
            self.coverage.explained and not self.coverage.num_mixed_steps
        )

    def _summary(self) -> str:
        lost = self.dropped[1] - self.dropped[0]
        padding = sum(rank.num_padding for rank in self.ranks)
        return (
            f"epoch {self.epoch} from position {self.position}: {self.num_steps} steps on each of"
            f" {len(self.ranks)} ranks, {lost} positions dropped, {padding} filled up"
        )

    def _page(self) -> list[Any]:
        from penstock.printing import tables

        parts: list[Any] = [tables.facts(self._facts())]
        if self.buckets is not None:
            parts += ["", _buckets(self.buckets, _FILLED[self.uneven])]
        right = ("rank", "batches", "records", "files", "bytes")
        shown = tables.table(*right, "begins", "ends", right=right)
        for rank in self.ranks[:_MOST_RANKS]:
            shown.add_row(*_row(rank))
        parts += ["", shown]
        if len(self.ranks) > _MOST_RANKS:
            more = len(self.ranks) - _MOST_RANKS
            parts.append(tables.dim(f"and {more} more ranks: `ranks`, or --json, has all"))
        if self.coverage is not None:
            parts += ["", self.coverage]
        if self.coverage is not None and self.buckets is not None:
            mixed = self.coverage.num_mixed_steps
            said = f"{describe.count(mixed) if mixed else 'no'} {'steps have' if mixed > 1 else 'step has'}"
            parts.append(f"{said} records of two buckets, on all ranks together")
        return parts

    def _batch(self) -> str:
        sizes = {bucket.batch_size for bucket in self.buckets or ()} or {self.batch_size}
        most = describe.records(max(sizes))
        return most if len(sizes) == 1 else f"{describe.count(min(sizes))} to {most}"

    def _facts(self) -> list[tuple[str, str]]:
        start, stop = self.dropped
        filled = sum(rank.num_padding for rank in self.ranks)
        words = [f"{name} {value}" for name, value in self.order.items() if name != "name"]
        ranks = "1 rank" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"
        dropped = describe.records(stop - start) if stop > start else "none"
        if stop > start and self.buckets is None:
            dropped += f", at positions {start} to {stop - 1}"
        return [
            ("records", describe.count(self.num_records)),
            ("order", ", ".join([str(self.order["name"]), *words])),
            ("epoch", f"{self.epoch}, from position {describe.count(self.position)}"),
            ("steps", f"{describe.count(self.num_steps)} on every rank"),
            ("a step", f"{ranks} of {self._batch()}"),
            ("dropped", dropped),
            (_FILLED[self.uneven], describe.count(filled) if filled else "none"),
        ]


def _buckets(buckets: list[BucketPlan], filled: str) -> Any:
    from penstock.printing import tables

    names = [describe.escape(name) for name in buckets[0].sizes]
    headings = [f"bucket of {name}" for name in names]
    numbers = ("a batch", "records", "steps", filled, "dropped")
    shown = tables.table(*headings, *numbers, right=(*headings, *numbers))
    for one in buckets:
        figures = (one.batch_size, one.num_records, one.num_steps, one.num_padding, one.num_dropped)
        shown.add_row(*map(describe.count, (*one.sizes.values(), *figures)))
    return shown


def _row(rank: RankPlan) -> list[str]:
    return [
        str(rank.rank),
        describe.count(rank.num_batches),
        describe.count(rank.num_records),
        "–" if rank.num_shards is None else describe.count(rank.num_shards),
        "–" if rank.num_bytes is None else "~" + describe.size(rank.num_bytes),
        *(", ".join(map(str, few)) + " …" for few in (rank.first_batch, rank.last_batch)),
    ]
