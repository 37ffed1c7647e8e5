"""Measures where a loader spends its time, and names the bottleneck in one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from penstock import describe
from penstock.engine.pipeline import default_threads
from penstock.framing.read.framed import proving_timed
from penstock.printing.printed import Printed
from penstock.storage.base import Traffic

Item = TypeVar("Item")
STAGES: tuple[str, ...] = ("read", "verify", "columns", "decode", "map")
"""What the threads do: read bytes from files; compare payloads with their checksums; parse records into columns;
decode images and convert columns to NumPy; call the user's functions."""
SAMPLED = 16
"""Each payload is verified and then parsed while it is in the CPU's cache, so timing each step would cost more than
the steps. Therefore one batch in SAMPLED verifies its payloads separately and is timed, and its share of time is
applied to the other batches; also the share of reading, where records are read and parsed in one step. Formats without
frames (Parquet, npy …) verify within `columns`, if at all."""
_IN_ONE_STEP = "in one step"
"""The stage of records that were read, verified and parsed in one step, until their time is divided."""


@dataclass(frozen=True, repr=False)
class LoaderStats(Printed):
    """What a loader has done since it was created. Printed, it is a table. Times are in seconds.

    Attributes:
        num_batches, num_records, num_bytes: what was delivered to the loop; bytes are those of the NumPy arrays.
        num_skipped: records in the damaged regions that were left out; `loader.damage` lists the regions. One whose number
            of records is unknown counts as one record.
        num_threads: threads that make batches.
        wait_seconds: how long the loop waited for batches.
        wait_cpu_seconds: the CPU time during that wait, over all cores, without worker processes. It is less
            than `wait_seconds` if the threads wait for the disk.
        loop_seconds: how long the loop used the batches.
        stage_seconds: the time of all threads together in each stage: "read", "verify", "columns" (parsing records),
            "decode", "map".
        parses_less_with: what to pass to the loader so that records are parsed less often: `cache="memory"` if they fit
            there, an order that reads parts of files once, or one of both. "" if there is neither.
        is_compressed: whether files are decompressed when they are read.
        num_requests, num_fetched_bytes, num_retries: what was asked of object stores in this process, also by others
            that use the same datasets. 0 for files of this machine.
        store_wait_seconds: how long threads waited for the answers of object stores, all threads together.
        num_cache_hits: reads that the cache of `ps.open(cache=)` answered.
    """

    num_batches: int
    num_records: int
    num_bytes: int
    num_skipped: int
    num_threads: int
    wait_seconds: float
    wait_cpu_seconds: float
    loop_seconds: float
    stage_seconds: dict[str, float]
    parses_less_with: str = ""
    num_requests: int = 0
    num_fetched_bytes: int = 0
    num_retries: int = 0
    store_wait_seconds: float = 0.0
    num_cache_hits: int = 0
    is_compressed: bool = False

    @property
    def total_seconds(self) -> float:
        """The time of all epochs, without the time between them."""
        return self.wait_seconds + self.loop_seconds

    @property
    def records_per_second(self) -> float:
        """Records per second of `total_seconds`."""
        return self.num_records / self.total_seconds if self.total_seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second of `total_seconds`."""
        return self.num_bytes / self.total_seconds if self.total_seconds else 0.0

    @property
    def wait_share(self) -> float:
        """The fraction of `total_seconds` in which the loop waited for batches, 0 to 1."""
        return self.wait_seconds / self.total_seconds if self.total_seconds else 0.0

    def to_dict(self) -> dict[str, float]:
        """All figures by name, for a logger: `wandb.log(loader.stats().to_dict())`. A stage's seconds are
        `stage_seconds/read` and so on."""
        others = ("stage_seconds", "parses_less_with", "is_compressed")
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in others}
        for name in ("total_seconds", "records_per_second", "bytes_per_second", "wait_share"):
            found[name] = getattr(self, name)
        return found | {f"stage_seconds/{name}": s for name, s in self.stage_seconds.items()}

    def since(self, before: LoaderStats) -> LoaderStats:
        """The difference from an earlier snapshot."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in found.items():
            if name == "stage_seconds":
                earlier = before.stage_seconds
                found[name] = {s: max(value[s] - earlier.get(s, 0), 0.0) for s in value}
            elif name not in ("num_threads", "parses_less_with", "is_compressed"):
                found[name] = value - getattr(before, name)
        return LoaderStats(**found)

    @property
    def bottleneck(self) -> str:
        """One sentence that names what slows the loop down and what to change."""
        if not self.num_batches:
            return "Nothing has been loaded yet."
        if self.wait_share < 0.1:
            return (
                f"The loader keeps up: the loop waited for data {self.wait_share:.0%} of its time,"
                " so a faster model is the only way to go faster."
            )
        slowest = max(self.stage_seconds, key=self.stage_seconds.__getitem__)
        part = self.stage_seconds[slowest] / (sum(self.stage_seconds.values()) or 1.0)
        advice = _ADVICE[slowest]
        if slowest == "read" and self.wait_cpu_seconds > _BUSY_SHARE * self.wait_seconds:
            advice = _DECOMPRESSING if self.is_compressed else _SCATTERED
        if slowest == "columns" and self.parses_less_with:
            advice = advice.replace("ask for", f"give {self.parses_less_with}, ask for")
        if self.num_threads >= default_threads():
            advice = advice.replace("give more threads=", "use a machine with more cores").replace(
                "Give more threads=", "Use a machine with more cores"
            )
        return (
            f"The loop waited for data {self.wait_share:.0%} of its time, and {part:.0%} of the"
            f" threads' work was {advice}"
        )

    def _page(self) -> list[Any]:
        from penstock.printing import tables

        facts = [
            ("batches", describe.count(self.num_batches)),
            (
                "records",
                f"{describe.count(self.num_records)}, {self.records_per_second:,.0f} a second",
            ),
            (
                "bytes",
                f"{describe.size(self.num_bytes)}, {describe.size(self.bytes_per_second)} a second",
            ),
            (
                "loop waited for data",
                f"{self.wait_seconds:.3f} s, {self.wait_share:.0%} of its time",
            ),
            ("loop used the batches", f"{self.loop_seconds:.3f} s"),
        ]
        if self.num_skipped:
            noun = "record" if self.num_skipped == 1 else "records"
            facts.append(("damaged, skipped", f"{describe.count(self.num_skipped)} {noun}"))
        facts += self._store_facts()
        right = ("seconds", "share")
        shown = tables.table(f"work of {self.num_threads} threads", *right, right=right)
        work = sum(self.stage_seconds.values()) or 1.0
        for stage, seconds in self.stage_seconds.items():
            shown.add_row(stage, f"{seconds:.3f}", f"{seconds / work:.1%}")
        return [tables.facts(facts), "", shown, "", self.bottleneck]

    def _store_facts(self) -> list[tuple[str, str]]:
        """What was asked of object stores; nothing if nothing was."""
        if not self.num_requests and not self.num_cache_hits:
            return []
        retries = f", {describe.count(self.num_retries)} tried again" if self.num_retries else ""
        facts = [
            ("requests to stores", f"{describe.count(self.num_requests)}{retries}"),
            ("bytes from stores", describe.size(self.num_fetched_bytes)),
            ("threads waited for stores", f"{self.store_wait_seconds:.3f} s, all together"),
        ]
        if self.num_cache_hits:
            facts.append(("reads from the cache", describe.count(self.num_cache_hits)))
        return facts

    def _summary(self) -> str:
        rate = f"{self.records_per_second:,.0f} records a second"
        return f"{self.num_batches} batches, {rate}, waited {self.wait_share:.0%} of the time"


_ADVICE = {
    "read": "reading: keep the data on a faster disk, give cache=, or read in runs with"
    " order=penstock.Blocked(seed).",
    "verify": "comparing records with their checksums: give more threads=, or leave payloads"
    ' unverified with open(..., checksums="headers").',
    "columns": "parsing records into columns: ask for fewer columns=, or give more threads=.",
    "decode": "decoding: give more threads=, or store images smaller or as raw pixels (penstock bench images"
    " measures this).",
    "map": "the function given as map: make it work on whole batches in NumPy, or give processes=.",
}
_DECOMPRESSING = (
    "reading, and the CPU was busy decompressing files. Give more threads= or cache=,"
    " or make uncompressed files with penstock convert."
)
_SCATTERED = (
    "reading, and the CPU was busy copying many small pieces of files. Give more threads=,"
    ' cache="memory", or order=penstock.Blocked(seed), which reads in runs.'
)
_BUSY_SHARE = 0.25
"""Reading was not slowed down by a disk if it uses more than this share of a CPU; waiting for a disk uses none."""


class Clock:
    """The time spent on one batch, by stage. Each batch has its own clock, so no lock is needed."""

    def __init__(self, *, is_sample: bool = False) -> None:
        self.spent = dict.fromkeys(STAGES, 0.0)
        self.is_sample = is_sample
        self._has_chunks = False
        if not is_sample:
            del self.spent["verify"]

    @contextmanager
    def on(self, stage: str) -> Generator[None]:
        """Add the time that a `with` block takes to a stage."""
        begun = time.perf_counter()
        read = self.spent["read"]
        try:
            if stage == "columns" and self.is_sample:
                with proving_timed() as proved:
                    yield
                    self.spent["verify"] += proved()
                    begun += proved()
            else:
                yield
        finally:
            seconds = time.perf_counter() - begun
            # Files of an object store are read by threads side by side, whose waiting counts once.
            twice = max(self.spent["read"] - read - seconds, 0.0)
            self.spent["read"] -= twice
            self.spent[stage] += seconds
            if stage == "columns":
                self.spent[stage] += twice

    @contextmanager
    def taking(self) -> Generator[None]:
        """Add the time of a `with` block to the stage "columns", and the time that `reading` waits in it to "read". Without
        chunks to wait for, records are read and parsed in one step."""
        self._has_chunks = False
        before = self.spent["columns"]
        with self.on("columns"):
            yield
        if not self._has_chunks and not self.is_sample:
            seconds = self.spent["columns"] - before
            self.spent["columns"] = before
            self.spent[_IN_ONE_STEP] = self.spent.get(_IN_ONE_STEP, 0.0) + seconds

    def reading(self, chunks: Iterable[Item]) -> Iterator[Item]:
        """Yield the chunks unchanged, and count the time spent waiting for them as reading instead of parsing."""
        self._has_chunks = True
        rest = iter(chunks)
        while True:
            begun = time.perf_counter()
            chunk = next(rest, None)
            seconds = time.perf_counter() - begun
            self.spent["read"] += seconds
            self.spent["columns"] -= seconds
            if chunk is None:
                return
            yield chunk


class Meter:
    """Sums the costs of batches. Only the thread of the loop uses it."""

    def __init__(
        self,
        num_threads: int,
        parses_less_with: Callable[[], str],
        traffic: Callable[[], Traffic],
        is_compressed: Callable[[], bool],
    ) -> None:
        self._num_threads = num_threads
        self._parses_less_with = parses_less_with
        self._less_with: str | None = None
        self._is_compressed = is_compressed
        self._traffic = traffic
        self._before = traffic()
        self._spent = dict.fromkeys((*STAGES, _IN_ONE_STEP), 0.0)
        self._batches = self._records = self._bytes = 0
        self._waited = self._busy = self._kept = 0.0
        self._sampled = dict.fromkeys(("read", "verify", "columns"), 0.0)

    def delivered(
        self, records: int, num_bytes: int, spent: dict[str, float], waited: float, busy: float
    ) -> None:
        """Count a batch. The loop waited for it `waited` seconds, in which this process used `busy` seconds of CPU."""
        self._batches += 1
        self._records += records
        self._bytes += num_bytes
        self._waited += waited
        self._busy += busy
        for stage, seconds in spent.items():
            self._spent[stage] += seconds
        if "verify" in spent:
            for stage in self._sampled:
                self._sampled[stage] += spent[stage]

    def kept(self, seconds: float) -> None:
        """Count the seconds for which the loop used a batch."""
        self._kept += seconds

    def stats(self, num_skipped: int) -> LoaderStats:
        """The totals so far."""
        stages = dict(self._spent)
        in_one_step, all_of = stages.pop(_IN_ONE_STEP), sum(self._sampled.values())
        read = in_one_step * self._sampled["read"] / all_of if all_of else 0.0
        both = stages["verify"] + stages["columns"] + in_one_step - read
        parsed = all_of - self._sampled["read"]
        share = self._sampled["verify"] / parsed if parsed else 0.0
        stages["read"] += read
        stages |= {"verify": share * both, "columns": (1 - share) * both}
        if self._less_with is None:  # once, because it asks for the free memory
            self._less_with = self._parses_less_with()
        return LoaderStats(
            num_batches=self._batches,
            num_records=self._records,
            num_bytes=self._bytes,
            num_skipped=num_skipped,
            num_threads=self._num_threads,
            wait_seconds=self._waited,
            wait_cpu_seconds=self._busy,
            loop_seconds=self._kept,
            stage_seconds=stages,
            parses_less_with=self._less_with,
            is_compressed=self._batches > 0 and self._is_compressed(),
            **self._since_begin(),
        )

    def _since_begin(self) -> dict[str, Any]:
        now = self._traffic()
        if now.num_requests < self._before.num_requests:
            self._before = Traffic()  # a child of a fork counts for itself
        before = self._before._asdict()
        return {name: value - before[name] for name, value in now._asdict().items()}
