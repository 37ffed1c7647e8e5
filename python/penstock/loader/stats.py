"""Measures where a loader's time goes, and names the bottleneck in one sentence."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.framing.read.framed import proving_timed

Item = TypeVar("Item")
STAGES: tuple[str, ...] = ("read", "verify", "records", "decode", "map")
"""The work of the threads: reading bytes from files; comparing payloads with their checksums; making columns of
records; decoding images and converting columns to NumPy; the user's functions."""
SAMPLED = 16
"""Payloads are verified and decoded record by record, while they are in the cache, so timing each
step would cost more than the steps. In one batch of this many, payloads are verified separately and
timed; their share is applied to the other batches. Formats without frames (Parquet, npy …) verify within
`records`, if at all."""


@dataclass(frozen=True)
class LoaderStats:
    """What a loader has done since it was created. Times are in seconds.

    `threads` holds the time that all threads together spent in each stage. `waiting_for_data` is
    how long the consumer waited for batches, `waiting_for_consumer` how long it kept them.
    `busy_while_waiting` is the CPU time used during the wait, over all cores: less than the wait
    if threads wait for the disk. Worker processes are not included.
    """

    batches: int
    records: int
    num_bytes: int
    num_threads: int
    waiting_for_data: float
    waiting_for_consumer: float
    threads: dict[str, float] = field(default_factory=dict[str, float])
    passed_over: int = 0
    busy_while_waiting: float = 0.0

    @property
    def seconds(self) -> float:
        """From the first batch asked for to the last, epochs' pauses left out."""
        return self.waiting_for_data + self.waiting_for_consumer

    @property
    def records_per_second(self) -> float:
        """Over the whole time, waiting included."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Of batches, as NumPy holds them."""
        return self.num_bytes / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """The part of its time that the loop waited for batches."""
        return self.waiting_for_data / self.seconds if self.seconds else 0.0

    def since(self, before: LoaderStats) -> LoaderStats:
        """What has been done since an earlier snapshot."""
        return LoaderStats(
            self.batches - before.batches,
            self.records - before.records,
            self.num_bytes - before.num_bytes,
            self.num_threads,
            self.waiting_for_data - before.waiting_for_data,
            self.waiting_for_consumer - before.waiting_for_consumer,
            {name: max(s - before.threads.get(name, 0), 0.0) for name, s in self.threads.items()},
            self.passed_over - before.passed_over,
            self.busy_while_waiting - before.busy_while_waiting,
        )

    @property
    def bottleneck(self) -> str:
        """One sentence: what holds the loop up, and what to change."""
        if not self.batches:
            return "Nothing has been loaded yet."
        share = self.waiting_share
        if share < 0.1:
            return (
                f"The loader keeps up: the loop waited for data {share:.0%} of its time,"
                " so a faster model is the only way to go faster."
            )
        slowest = max(self.threads, key=lambda stage: self.threads[stage])
        spent = sum(self.threads.values()) or 1.0
        part = self.threads[slowest] / spent
        is_unpacking = (
            slowest == "read" and self.busy_while_waiting > _BUSY_SHARE * self.waiting_for_data
        )
        advice = _UNPACKING if is_unpacking else _ADVICE[slowest]
        work = f"{part:.0%} of the threads' work was {advice}"
        return f"The loop waited for data {share:.0%} of its time, and {work}"

    def __str__(self) -> str:
        rows = [f"{self.batches} batches, {self.records} records, {self.records_per_second:,.0f}/s"]
        spent = sum(self.threads.values()) or 1.0
        for stage, seconds in self.threads.items():
            rows.append(
                f"  {stage:<10} {seconds:9.3f} s {seconds / spent:6.1%} of the threads' work"
            )
        rows.append(f"  loop waited for data {self.waiting_for_data:.3f} s")
        rows.append(f"  loop kept batches    {self.waiting_for_consumer:.3f} s")
        if self.passed_over:
            rows.append(f"  {self.passed_over} damaged records passed over")
        return "\n".join([*rows, self.bottleneck])


_ADVICE = {
    "read": "reading: keep the data on a faster disk, give cache=, or read in runs with"
    " order=penstock.Blocked(seed).",
    "verify": "comparing records with their checksums: give more threads=, or leave payloads"
    ' unverified with open(..., checksums="headers").',
    "records": "making columns of records: ask for fewer columns=, or give more threads=.",
    "decode": "decoding: give more threads=, keep images smaller, or raw (penstock bench images"
    " measures it).",
    "map": "the function given as map: make it work on whole batches in NumPy, or give processes=.",
}


_BUSY_SHARE = 0.25
"""A thread that waits for a disk uses no CPU; one that decompresses does, but other
programs may take part of the CPU time."""
_UNPACKING = (
    "reading, in which the processor was busy, so it is not the disk: files that are compressed have to be"
    " decompressed. Give more threads= or cache=, or penstock convert them to files that are not."
)


class Clock:
    """The time spent on one batch, by stage. Each batch has its own clock, so there is
    no lock that a fork could leave held."""

    def __init__(self, *, is_sample: bool = False) -> None:
        self.spent = dict.fromkeys(STAGES, 0.0)
        self._is_sample = is_sample
        if not is_sample:
            del self.spent["verify"]

    @contextmanager
    def on(self, stage: str) -> Generator[None]:
        """Add the time of the block to a stage."""
        begun = time.perf_counter()
        try:
            if stage == "records" and self._is_sample:
                with proving_timed() as proved:
                    yield
                    self.spent["verify"] += proved()
                    begun += proved()
            else:
                yield
        finally:
            self.spent[stage] += time.perf_counter() - begun

    def reading(self, chunks: Iterable[Item]) -> Iterator[Item]:
        """The same chunks; time spent waiting for them counts as reading, not as work on records."""
        rest = iter(chunks)
        while True:
            begun = time.perf_counter()
            chunk = next(rest, None)
            seconds = time.perf_counter() - begun
            self.spent["read"] += seconds
            self.spent["records"] -= seconds
            if chunk is None:
                return
            yield chunk


class Meter:
    """Sums the costs of batches; used only by the consumer's thread."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self.reset()

    def reset(self) -> None:
        """Reset all counts."""
        self._spent = dict.fromkeys(STAGES, 0.0)
        self._batches = self._records = self._bytes = 0
        self._waited = self._busy = self._kept = 0.0
        self._verified = self._verified_of = 0.0

    def delivered(
        self, records: int, num_bytes: int, spent: dict[str, float], waited: float, busy: float
    ) -> None:
        """Count a batch given to the loop, which waited for it while the CPU was `busy` seconds."""
        self._busy += busy
        self._batches += 1
        self._records += records
        self._bytes += num_bytes
        self._waited += waited
        for stage, seconds in spent.items():
            self._spent[stage] += seconds
        if "verify" in spent:
            self._verified += spent["verify"]
            self._verified_of += spent["verify"] + spent["records"]

    def kept(self, seconds: float) -> None:
        """Count the seconds for which the loop kept a batch."""
        self._kept += seconds

    def stats(self, passed_over: int) -> LoaderStats:
        """The totals so far."""
        threads = dict(self._spent)
        both = threads["verify"] + threads["records"]
        share = self._verified / self._verified_of if self._verified_of else 0.0
        threads |= {"verify": share * both, "records": (1 - share) * both}
        return LoaderStats(
            batches=self._batches,
            records=self._records,
            num_bytes=self._bytes,
            num_threads=self._num_threads,
            waiting_for_data=self._waited,
            waiting_for_consumer=self._kept,
            threads=threads,
            passed_over=passed_over,
            busy_while_waiting=self._busy,
        )
