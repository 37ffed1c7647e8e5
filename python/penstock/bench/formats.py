"""`bench formats`: writes a sample in every format, and compares size, speed and memory."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from penstock import describe
from penstock import formats as known_formats
from penstock.bench.formats_job import BATCH_RECORDS
from penstock.bench.jobs import FailedJobError, run_job, workplace
from penstock.bench.measure import Machine, Measured, Noise, Progress, in_turns, machine, measured
from penstock.bench.sample import Sample, draw, opened
from penstock.storage import Storage

HOW = (
    "Each candidate is written with ps.convert from one Arrow file in the page cache, with default "
    "options, its index, and the fsync that makes the file durable. It is read with ps.open and "
    "default options, which verify every checksum. Reads come from the page cache, so they show the "
    "cost of decoding, not of the disk. A scan opens the file again and returns all columns as Arrow. "
    f"Random access takes batches of {BATCH_RECORDS} records in random order. Writing and reading run "
    "in separate processes, after a warm-up on a few records and one call that is not timed. Memory "
    "is the growth of the resident set during that call (for random access, of one batch). Candidates "
    "take turns, round by round."
)


_SMALL_BYTES = 1 << 20
_ONE_ROUND = (
    "Measured in one round, which cannot distinguish a difference from noise, so no format is called the "
    "quickest. Use more --rounds, or more --seconds."
)


@dataclass(frozen=True, slots=True)
class FormatRow:
    """The results for one format. Rates are in records per second. A value that was not measured is None, and `problem`
    gives the reason."""

    name: str
    format: str
    compression: str | None
    problem: str | None = None
    num_bytes: int | None = None
    """Bytes of the data without the index."""
    index_bytes: int | None = None
    write: Measured | None = None
    scan: Measured | None = None
    random: Measured | None = None
    open_seconds: Measured | None = None
    write_memory_bytes: int | None = None
    scan_memory_bytes: int | None = None
    random_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FormatsReport:
    """The result of `formats`."""

    sample: Sample
    rows: tuple[FormatRow, ...]
    sentences: tuple[str, ...]
    machine: Machine
    noise: Noise
    seconds: float
    """The total time."""
    how: str = field(default=HOW)

    @property
    def measured_rows(self) -> list[FormatRow]:
        return [row for row in self.rows if row.problem is None]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Candidate:
    name: str
    format: str
    compression: str | None
    ending: str
    problem: str | None = None
    writes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    reads: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def formats(
    source: Any,
    *,
    records: int = 50_000,
    most_bytes: int = 64 << 20,
    rounds: int = 5,
    seconds: float = 60,
    only: Sequence[str] | None = None,
    folder: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FormatsReport:
    """Write a sample of a dataset in every format, and measure each.

    Args:
        source: as for `open`, or a Dataset.
        records: the most records in the sample, which consists of runs spread over the data.
        most_bytes: the most bytes in the sample, approximately.
        rounds: how often each format is measured.
        seconds: no new round begins after this time; the first is always completed.
        only: names of formats, such as ["tfrecord", "parquet"]; None for all.
        folder: where temporary files are written and removed; None for the system's folder. The speed of its disk
            determines the cost of writing.
        threads: the number of threads; None for all cores.
        progress: called with the name of the current measurement and the finished fraction.
        storage, storage_options: as for `open`.

    Returns:
        A FormatsReport. It also lists the formats that cannot hold the records, with the reason.

    Raises:
        ValueError: there are no records, or `only` has an unknown name.
        PenstockError: the data is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(100)}, "hundred.tfrecord", overwrite=True)
        >>> report = ps.bench.formats("hundred.tfrecord", only=["arrow"], rounds=1)
        >>> [row.name for row in report.measured_rows]
        ['arrow', 'arrow zstd']
    """
    begun = time.monotonic()
    candidates = _candidates(only)
    progress = progress or (lambda title, part: None)
    with workplace(folder) as place:
        progress("drawing a sample", 0.0)
        sample, path, small = draw(
            opened(source, storage, storage_options), place, records, most_bytes
        )
        job = {
            "kind": "format",
            "sample": path,
            "small": small,
            "num_records": sample.num_records,
            "threads": threads,
            "most_take_seconds": max(0.5, seconds / 60),
        }

        def measure(one: _Candidate, number: int) -> None:
            _measure(one, {**job, "round": number}, place, max(60.0, seconds))

        noise = in_turns(candidates, rounds, seconds, progress, measure)
        where = machine(folder or os.path.dirname(place))
    rows = tuple(_row(one, sample.num_records) for one in candidates)
    sentences = tuple(_sentences([row for row in rows if row.problem is None], sample.num_bytes))
    return FormatsReport(sample, rows, sentences, where, noise, time.monotonic() - begun)


def _candidates(only: Sequence[str] | None) -> list[_Candidate]:
    """Return every format with its default options, and again with compression if the format supports it."""
    kinds = {kind.info.name: kind for kind in known_formats.FORMATS}
    unknown = [name for name in only or () if name not in kinds]
    if unknown:
        raise ValueError(f"unknown format {unknown[0]!r}; known: {', '.join(kinds)}")
    chosen = [kind for name, kind in kinds.items() if only is None or name in only]
    return [one for kind in chosen for one in _candidates_of(kind)]


def _candidates_of(fmt: Any) -> list[_Candidate]:
    info = fmt.info
    ending = "" if info.is_folder else info.extensions[0]
    plain = _Candidate(info.name, info.name, None, ending)
    if not info.can_write:
        plain.problem = "penstock does not write this format"
    if not info.can_write or not info.compressions:
        return [plain]
    others = [kind for kind in info.compressions if kind != _default(fmt)]
    kind = "zstd" if "zstd" in others else others[0]
    packed = ending + ".gz" if info.name in ("tfrecord", "webdataset") else ending
    return [plain, _Candidate(f"{info.name} {kind}", info.name, kind, packed)]


def _default(fmt: Any) -> Any:
    return next(
        (word.default for word in fields(fmt.write_options) if word.name == "compression"), None
    )


def _measure(one: _Candidate, job: dict[str, Any], place: str, most_seconds: float) -> None:
    if one.problem is not None:
        return
    inside = os.path.join(place, "candidate")
    os.mkdir(inside)
    about = {
        "folder": inside, "format": one.format, "compression": one.compression, "ending": one.ending,
    }  # fmt: skip
    try:
        one.writes.append(run_job({**job, **about, "side": "write"}, most_seconds))
        one.reads.append(run_job({**job, **about, "side": "read"}, most_seconds))
    except FailedJobError as error:
        one.problem = str(error)
    finally:
        shutil.rmtree(inside, ignore_errors=True)


def _row(one: _Candidate, num_records: int) -> FormatRow:
    if one.problem is not None:
        return FormatRow(one.name, one.format, one.compression, one.problem)

    def rate(found: list[dict[str, Any]], name: str, each: int = 1) -> Measured:
        return measured([each / max(one[name], 1e-9) for one in found])

    return FormatRow(
        one.name,
        one.format,
        one.compression,
        None,
        one.writes[0]["num_bytes"],
        one.writes[0]["index_bytes"],
        rate(one.writes, "seconds", num_records),
        rate(one.reads, "scan_seconds", num_records),
        rate(one.reads, "take_seconds"),
        measured([found["open_seconds"] for found in one.reads]),
        max(found["memory_bytes"] for found in one.writes),
        max(found["scan_memory_bytes"] for found in one.reads),
        max(found["take_memory_bytes"] for found in one.reads),
    )


# -- conclusions ----------------------------------------------------------------------------------


def _sentences(rows: list[FormatRow], arrow_bytes: int) -> list[str]:
    if not rows:
        return ["No format could hold these records."]
    said: list[str] = []
    is_once = any(row.scan is None or row.scan.repeats < 2 for row in rows)
    if len(rows) > 1:
        said.append(_ONE_ROUND if is_once else _all_in_all(rows))
    smallest = min(rows, key=lambda row: row.num_bytes or 0)
    num_bytes = smallest.num_bytes or 0
    share = num_bytes / max(arrow_bytes, 1)
    said.append(
        f"Smallest: {smallest.name}, {describe.size(num_bytes)}, {share:.0%} of the Arrow file."
    )
    if not is_once:
        said.append(f"Quickest to scan: {_winner(rows, 'scan')}.")
        said.append(f"Quickest at random: {_winner(rows, 'random')}.")
    if len(rows) > 1:
        said.append(_beyond_speed(rows))
    if arrow_bytes < _SMALL_BYTES:
        said.append(
            f"The sample is small ({describe.size(arrow_bytes)}): the cost per call matters more than "
            "the cost per record, and writing mostly waits for the disk."
        )
    return said


def _all_in_all(rows: list[FormatRow]) -> str:
    """Return a sentence on the best compromise, the formats that may be as good, and their drawbacks."""
    middle, best_case, worst_case = (
        {row.name: _mean_ratio(row, rows, word) for row in rows}
        for word in ("median", "most", "least")
    )
    best = max(rows, key=lambda row: middle[row.name])
    alike = [
        row for row in rows if best_case[row.name] >= worst_case[best.name] and row is not best
    ]
    said = (
        f"All in all: {best.name}, by the geometric mean of its ratios to the best in size, scan "
        f"and random access ({middle[best.name]:.2f} of 1)"
    )
    if alike:
        said += f"; as good within the spread of repeats: {', '.join(row.name for row in alike)}"
    against = [f"{row.name} {cannot}" for row in (best, *alike) if (cannot := _cannot(row))]
    return f"{said}. {'; '.join(against)}." if against else f"{said}."


_STREAMED = ("tfrecord", "webdataset", "recordio", "msgpack", "arrow")
"""Formats that can be read front to back, because they have no footer or table at the end."""
_RANDOM = ("parquet", "arrow", "npy", "hdf5", "beton", "imagefolder")
"""Formats that contain the positions of their records. The others need an index."""


def _cannot(row: FormatRow) -> str:
    if row.format not in _infos():
        return ""
    lacks = [] if _infos()[row.format].can_append else ["appended to"]
    lacks += [] if row.format in _STREAMED else ["read as a stream"]
    return f"cannot be {' or '.join(lacks)}" if lacks else ""


def _infos() -> dict[str, Any]:
    return {kind.info.name: kind.info for kind in known_formats.FORMATS}


_ABILITIES: dict[str, Callable[[Any], bool]] = {
    "can be appended to": lambda info: info.can_append,
    "can be read as a stream": lambda info: info.name in _STREAMED,
    "find a record without a separate index": lambda info: info.name in _RANDOM,
    "can be compressed": lambda info: bool(info.compressions),
    "have checksums": lambda info: info.has_checksums,
}


def _beyond_speed(rows: list[FormatRow]) -> str:
    infos = _infos()
    found = [infos[name] for name in dict.fromkeys(row.format for row in rows) if name in infos]
    said: list[str] = []
    for ability, has in _ABILITIES.items():
        able = [info.name for info in found if has(info)]
        said.append(f"{', '.join(able) or 'none'} {ability}")
    return f"Beyond speed: {'; '.join(said)}. All can be split into shards."


def _winner(rows: list[FormatRow], word: str) -> str:
    """Return the quickest format, and the formats that are as quick within the spread of the repeats."""
    ranked: list[tuple[FormatRow, Measured]] = [(row, getattr(row, word)) for row in rows]
    ranked.sort(key=lambda pair: -pair[1].median)
    row, top = ranked[0]
    said = f"{row.name}, {describe.count(round(top.median))} records/s"
    alike = [other.name for other, found in ranked[1:] if found.most >= top.least]
    if alike:
        return f"{said}; as quick within the spread of repeats: {', '.join(alike)}"
    if len(ranked) > 1:
        other, found = ranked[1]
        said += f", {top.median / max(found.median, 1e-9):.1f} times {other.name}"
    return said


def _mean_ratio(row: FormatRow, rows: list[FormatRow], word: str = "median") -> float:
    """Return the geometric mean of a row's ratios to the best size, scan and random access, at most 1. `word` names the
    statistic of the repeats."""
    assert row.scan is not None
    assert row.random is not None
    least = min(max(other.num_bytes or 0, 1) for other in rows)
    scan = max(other.scan.median for other in rows if other.scan is not None)
    random = max(other.random.median for other in rows if other.random is not None)
    ratios = (
        least / max(row.num_bytes or 0, 1),
        getattr(row.scan, word) / scan,
        getattr(row.random, word) / random,
    )
    return math.prod(ratios) ** (1 / 3)
