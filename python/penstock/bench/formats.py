"""`bench formats`: a sample in every container, and what that costs to keep and to read."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from penstock import describe
from penstock import formats as known_formats
from penstock.bench.apart import FailedApartError, run_apart, workplace
from penstock.bench.formats_job import BATCH_RECORDS
from penstock.bench.measure import Listening, Machine, Measured, Noise, machine, measured
from penstock.bench.sample import Sample, draw, opened

Progress = Callable[[str, float], None]
"""Called with what is being measured, and how far the work is, from 0 to 1."""

HOW = (
    "Each candidate is written with ps.convert from one Arrow file in the page cache, with its "
    "default options and its index, and with the waiting for the disk (fsync) that keeps a file "
    "whole. It is read with ps.open in its default way: every checksum that it has is verified. "
    "Reads come from the page cache, so they tell what decoding costs, not what the disk does. A "
    "scan opens the file anew and gives all columns as Arrow; random access takes batches of "
    f"{BATCH_RECORDS} records in a random order. Writing and reading each run in a process of "
    "their own, after a warm-up on a few records and one call that is not timed; memory is by how much its resident set rose above "
    "what it was before in that call (at random: of one batch). Candidates take turns, round by round."
)


_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One container. Rates are records a second; what was not measured is None, and `problem`
    says why."""

    name: str
    format: str
    compression: str | None
    problem: str | None = None
    num_bytes: int | None = None
    """Of the data, without the index that penstock keeps beside it."""
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
    """What `formats` found."""

    sample: Sample
    rows: tuple[FormatRow, ...]
    sentences: tuple[str, ...]
    machine: Machine
    noise: Noise
    seconds: float
    """What all of it took."""
    how: str = field(default=HOW)

    @property
    def measured_rows(self) -> list[FormatRow]:
        """The containers that could hold the sample."""
        return [row for row in self.rows if row.problem is None]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
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
) -> FormatsReport:
    """Write a sample of a dataset in every container, and measure each.

    Args:
        source: as for `open`, or a Dataset.
        records: at most so many records, in runs spread over the data.
        most_bytes: and at most about so many bytes.
        rounds: how often each is measured.
        seconds: no new round begins after so many; the first is always completed.
        only: names of formats, such as ["tfrecord", "parquet"]; None for all.
        folder: where temporary files go, in a folder of their own that is removed; None for the
            system's place. What it lies on decides what writing costs.
        threads: how many to use; None for all cores.
        progress: called with what is being measured, and how far the work is.

    Returns:
        A FormatsReport; formats that cannot hold the records are in it, with the reason.

    Raises:
        ValueError: no records, or an unknown name in `only`.
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
    tell = progress or (lambda title, part: None)
    with workplace(folder) as place:
        tell("drawing a sample", 0.0)
        sample, path, small = draw(opened(source), place, records, most_bytes)
        listening = Listening()
        job = {
            "kind": "format",
            "sample": path,
            "small": small,
            "num_records": sample.num_records,
            "threads": threads,
            "most_take_seconds": max(0.5, seconds / 60),
        }
        for number in range(rounds):
            if number and time.monotonic() - begun > seconds:
                break
            for place_of, one in enumerate(candidates):
                done = (number + place_of / len(candidates)) / rounds
                tell(one.name, max(done, min((time.monotonic() - begun) / seconds, 1.0)))
                _measure(one, {**job, "round": number}, place, max(60.0, seconds))
                listening.listen()
        where = machine(folder or os.path.dirname(place))
    rows = tuple(_row(one, sample.num_records) for one in candidates)
    said = tuple(_sentences([row for row in rows if row.problem is None], sample.num_bytes))
    passed = time.monotonic() - begun
    return FormatsReport(sample, rows, said, where, listening.heard(), passed)


def _candidates(only: Sequence[str] | None) -> list[_Candidate]:
    """Every format as it is by default, and once compressed where it can be."""
    kinds = {kind.info.name: kind for kind in known_formats.FORMATS}
    unknown = [name for name in only or () if name not in kinds]
    if unknown:
        raise ValueError(f"unknown format {unknown[0]!r}; known: {', '.join(kinds)}")
    found: list[_Candidate] = []
    for name, fmt in kinds.items():
        info = fmt.info
        if only is not None and name not in only:
            continue
        ending = "" if info.is_folder else info.extensions[0]
        one = _Candidate(name, name, None, ending)
        found.append(one)
        if not info.can_write:
            one.problem = "penstock reads this format, and does not write it"
        elif info.compressions:
            others = [kind for kind in info.compressions if kind != _default(fmt)]
            kind = "zstd" if "zstd" in others else others[0]
            packed = ending + ".gz" if name in ("tfrecord", "webdataset") else ending
            found.append(_Candidate(f"{name} {kind}", name, kind, packed))
    return found


def _default(fmt: Any) -> Any:
    """How a format compresses where nobody says."""
    return next(
        (word.default for word in fields(fmt.write_options) if word.name == "compression"), None
    )


def _measure(one: _Candidate, job: dict[str, Any], place: str, most_seconds: float) -> None:
    """One round of one candidate, whose files are gone afterwards."""
    if one.problem is not None:
        return
    inside = os.path.join(place, "candidate")
    os.mkdir(inside)
    about = {
        "folder": inside, "format": one.format, "compression": one.compression, "ending": one.ending,
    }  # fmt: skip
    try:
        one.writes.append(run_apart({**job, **about, "side": "write"}, most_seconds))
        one.reads.append(run_apart({**job, **about, "side": "read"}, most_seconds))
    except FailedApartError as error:
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


# -- what follows from the numbers ----------------------------------------------------------------


def _sentences(rows: list[FormatRow], arrow_bytes: int) -> list[str]:
    if not rows:
        return ["No format could hold these records."]
    said: list[str] = []
    is_once = any(row.scan is None or row.scan.repeats < 2 for row in rows)
    if len(rows) > 1 and is_once:
        said.append(
            "Measured in one round, which cannot tell a difference from noise: no format is called the"
            " quickest. More --rounds, or --seconds for them, can."
        )
    elif len(rows) > 1:
        said.append(_all_in_all(rows))
    smallest = min(rows, key=lambda row: row.num_bytes or 0)
    share = (smallest.num_bytes or 0) / max(arrow_bytes, 1)
    said.append(
        f"Smallest: {smallest.name}, {describe.size(smallest.num_bytes or 0)}, {share:.0%} of the "
        "Arrow file."
    )
    if not is_once:
        for word, name in (("scan", "Quickest to scan"), ("random", "Quickest at random")):
            said.append(f"{name}: {_winner(rows, word)}.")
    if len(rows) > 1:
        said.append(_beyond_speed(rows))
    if arrow_bytes < _SMALL_BYTES:
        said.append(
            f"The sample is small, {describe.size(arrow_bytes)}: what a call costs counts for more "
            "than what a record costs, and writing is mostly waiting for the disk."
        )
    return said


def _all_in_all(rows: list[FormatRow]) -> str:
    """The format that is nearest to the best in all, and those that may be as near, with what speaks against them."""
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
        said += f"; within the repeats' spread as good: {', '.join(row.name for row in alike)}"
    against = [f"{row.name} {cannot}" for row in (best, *alike) if (cannot := _cannot(row))]
    return f"{said}. {'; '.join(against)}." if against else f"{said}."


_STREAMED = ("tfrecord", "webdataset", "recordio", "msgpack", "arrow")
"""Formats that are read from front to back while they come in, without a footer or a table at the end."""
_RANDOM = ("parquet", "arrow", "npy", "hdf5", "beton", "imagefolder")
"""Formats that say themselves where a record is; for the others an index beside the data does."""


def _cannot(row: FormatRow) -> str:
    """What speaks against a format however quick it is."""
    if row.format not in _infos():
        return ""
    lacks = [] if _infos()[row.format].can_append else ["appended to"]
    lacks += [] if row.format in _STREAMED else ["read as a stream"]
    return f"cannot be {' or '.join(lacks)}" if lacks else ""


def _infos() -> dict[str, Any]:
    return {kind.info.name: kind.info for kind in known_formats.FORMATS}


def _beyond_speed(rows: list[FormatRow]) -> str:
    """What the formats of some rows can do, which no rate shows."""
    infos = _infos()
    names = [name for name in dict.fromkeys(row.format for row in rows) if name in infos]
    abilities = {
        "can be appended to": [name for name in names if infos[name].can_append],
        "can be read as a stream": [name for name in names if name in _STREAMED],
        "find a record without an index beside them": [name for name in names if name in _RANDOM],
        "can be compressed": [name for name in names if infos[name].compressions],
        "have checksums": [name for name in names if infos[name].has_checksums],
    }
    said = [f"{', '.join(able) or 'none'} {word}" for word, able in abilities.items()]
    return f"Beyond speed: {'; '.join(said)}. All can be cut into shards."


def _winner(rows: list[FormatRow], word: str) -> str:
    """The quickest, and those that are as quick as far as the repeats can tell."""
    ranked: list[tuple[FormatRow, Measured]] = [(row, getattr(row, word)) for row in rows]
    ranked.sort(key=lambda pair: -pair[1].median)
    row, top = ranked[0]
    said = f"{row.name}, {describe.count(round(top.median))} records/s"
    alike = [other.name for other, found in ranked[1:] if found.most >= top.least]
    if alike:
        return f"{said}; within the repeats' spread as quick: {', '.join(alike)}"
    if len(ranked) > 1:
        other, found = ranked[1]
        said += f", {top.median / max(found.median, 1e-9):.1f} times {other.name}"
    return said


def _mean_ratio(row: FormatRow, rows: list[FormatRow], word: str = "median") -> float:
    """How near a row is to the best of each kind: the geometric mean of three ratios of at most 1; `word` says
    which of its repeats counts."""
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
