"""The contents of a report for both a terminal and a page: its lead and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock import describe
from penstock.bench import words
from penstock.bench.formats import FormatRow, FormatsReport
from penstock.bench.images import ImageRow, ImagesReport
from penstock.bench.measure import Measured
from penstock.bench.shuffle import ShuffleReport

Report = FormatsReport | ImagesReport | ShuffleReport

_PLUS_MINUS = "± is half of the distance between the smallest and the largest repeat."


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, with one cell for each row."""

    title: str
    cells: Sequence[str]
    values: Sequence[float | None] = ()
    """The numbers in the cells; empty for text."""
    best: str = ""
    """The better end, "high" or "low"; "" if neither is better."""
    page_only: bool = False
    """Whether the column is left out on a terminal, which is narrower."""


@dataclass(frozen=True, slots=True)
class Table:
    """A comparison. The first column names the compared items."""

    title: str
    columns: Sequence[TableColumn]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """The whole report, except its sentences and how it was measured."""

    title: str
    source: str
    lead: str
    tables: Sequence[Table]
    facts: Sequence[tuple[str, str]]
    """Names and values of other facts about the data."""
    problems: Sequence[tuple[str, str]]
    """The measurements that were not possible, and the reasons."""
    spreads: Sequence[float]
    """The spread of the repeats of each measurement."""


def contents(report: Report) -> Contents:
    """Return the contents to show for a report."""
    if isinstance(report, FormatsReport):
        return _formats(report)
    return _images(report) if isinstance(report, ImagesReport) else _shuffle(report)


def _formats(report: FormatsReport) -> Contents:
    rows = report.measured_rows
    columns = [
        TableColumn("format", _of(rows, "name")),
        _sizes("bytes", [(row.num_bytes or 0) + (row.index_bytes or 0) for row in rows]),
        _sizes("index", [row.index_bytes or None for row in rows], page_only=True),
        _rates("write /s", _of(rows, "write")),
        _rates("scan /s", _of(rows, "scan")),
        _rates("random /s", _of(rows, "random")),
        _times("open", _of(rows, "open_seconds"), page_only=True),
        _sizes("write memory", _of(rows, "write_memory_bytes")),
        _sizes("scan memory", _of(rows, "scan_memory_bytes")),
    ]
    note = (
        "Rates are records a second. Bytes include the index. Memory is the growth of the resident "
        f"set of the process, in the highest of all rounds. {_PLUS_MINUS}"
    )
    return Contents(
        "Which format?",
        report.sample.source,
        report.sample.sentence(describe.size(report.sample.num_bytes)),
        [Table("Formats", columns, note)],
        [("fields", ", ".join(f"{name}: {kind}" for name, kind in report.sample.fields))],
        _problems(report.rows),
        _spreads(rows, "write", "scan", "random"),
    )


def _images(report: ImagesReport) -> Contents:
    rows = report.measured_rows
    count = report.sample.num_records
    psnr, worst, ssim = zip(*map(_quality, rows), strict=True) if rows else ((), (), ())
    columns = [
        TableColumn("kept as", _of(rows, "name")),
        _sizes("an image", [round((row.num_bytes or 0) / count) for row in rows]),
        _rates("decode /s", _of(rows, "decode")),
        _rates("one thread", _of(rows, "decode_alone")),
        _rates("encode /s", _of(rows, "encode")),
        TableColumn("PSNR dB", psnr, _of(rows, "psnr")),
        TableColumn("worst", worst, _of(rows, "worst_psnr")),
        TableColumn("SSIM", ssim, _of(rows, "ssim")),
        _rates("delivered /s", _of(rows, "delivered"), page_only=True),
        _sizes("decode memory", _of(rows, "decode_memory_bytes"), page_only=True),
    ]
    note = (
        "Rates are images a second. Delivered is the smaller of two rates: decoding as measured (on "
        f"all threads or on one, whichever is quicker), and {report.mb_per_s:g} MB/s (given, not "
        f"measured) divided by the bytes of an image. {_PLUS_MINUS}"
    )
    return Contents(
        "Which image codec?",
        report.sample.source,
        f"{count:,} of {report.sample.num_all_records:,} images in column {report.column}, {report.sizes}",
        [Table("Encodings", columns, note)],
        [],
        _problems(report.rows),
        _spreads(rows, "encode", "decode"),
    )


def _shuffle(report: ShuffleReport) -> Contents:
    rows = report.rows
    mixing = _of(rows, "mixing")
    names = _of(rows, "name")
    mixes = [
        TableColumn("parts of exact", names),
        _ratios("moves", _of(mixing, "moved")),
        _ratios("chunks", _of(mixing, "chunks")),
        _ratios("shards", _of(mixing, "shards")),
        _ratios("labels", _of(mixing, "labels")),
        _ratios("off balance", _of(mixing, "label_distance")),
        _ratios("alike", _of(mixing, "again")),
    ]
    seeks, reads = _of(rows, "seeks"), _of(rows, "reads")
    costs = [
        TableColumn("an epoch reads", names),
        TableColumn("as", ["chunks" if row.by_chunks else "records" for row in rows]),
        _sizes("bytes", _of(rows, "num_bytes")),
        TableColumn("reads", [words.short(found) for found in reads], reads, "low", page_only=True),
        TableColumn("seeks", [describe.count(round(found)) for found in seeks], seeks, "low"),
        _sizes("window", _of(rows, "window_bytes")),
        _times("measured", _of(rows, "seconds")),
    ]
    for number, disk in enumerate(report.disks):
        needed = [row.disk_seconds[number] for row in rows]
        costs.append(
            TableColumn(disk.name, [words.seconds(found) for found in needed], needed, "low")
        )
    disks = "; ".join(
        f"{disk.name}: {disk.seek_ms:g} ms a seek, {disk.mb_per_s:g} MB/s" for disk in report.disks
    )
    lead = (
        f"{report.num_records:,} records, {describe.size(report.num_bytes)}, in {report.num_shards:,} "
        f"files and {report.num_chunks:,} chunks; batches of {report.batch_size}"
    )
    label = "no labels found; name them with --label"
    if report.label is not None:
        label = f"labels: {report.label}, {report.num_labels:,} different"
    mix_note = (
        "Each figure is divided by that of an exact shuffle, so 1 is exact. More is better in how far "
        "records move, and in how many different chunks, shards and labels a batch has. Less is "
        "better in how far the labels of a batch are off the balance of all records, and in how "
        "often two records share a batch in this epoch and the next. Computed from the orders."
    )
    cost_note = (
        "Measured: reading from the page cache and decoding. The disks are a model of reading "
        "only: the number of seeks times the time per seek, plus the touched blocks of 4,096 bytes "
        f"divided by the bandwidth. {disks}: given, not measured. {_PLUS_MINUS}"
    )
    return Contents(
        "Which order?",
        report.source,
        f"{lead}\n{label}",
        [Table("How well it mixes", mixes, mix_note), Table("What it costs", costs, cost_note)],
        [],
        [],
        _spreads(rows, "seconds"),
    )


def _of(rows: Iterable[Any], name: str) -> list[Any]:
    return [getattr(row, name) for row in rows]


def _problems(rows: Iterable[FormatRow | ImageRow]) -> list[tuple[str, str]]:
    return [(row.name, row.problem) for row in rows if row.problem is not None]


def _rates(title: str, found: Sequence[Measured | None], *, page_only: bool = False) -> TableColumn:
    return TableColumn(
        title, [words.rate(one) for one in found], _medians(found), "high", page_only
    )


def _times(title: str, found: Sequence[Measured | None], *, page_only: bool = False) -> TableColumn:
    return TableColumn(title, [words.time(one) for one in found], _medians(found), "low", page_only)


def _sizes(title: str, found: Sequence[float | None], *, page_only: bool = False) -> TableColumn:
    return TableColumn(title, [words.size(one) for one in found], found, "low", page_only)


def _ratios(title: str, found: Sequence[float | None]) -> TableColumn:
    return TableColumn(title, [words.ratio(one) for one in found], found)


def _medians(found: Sequence[Measured | None]) -> list[float | None]:
    return [None if one is None else one.median for one in found]


def _spreads(rows: Iterable[Any], *names: str) -> list[float]:
    found: list[Measured | None] = [one for name in names for one in _of(rows, name)]
    return [one.spread for one in found if one is not None and one.repeats > 1]


def _quality(row: ImageRow) -> tuple[str, str, str]:
    if row.is_exact:
        return "exact", "exact", "1"
    return f"{row.psnr or 0:.1f}", f"{row.worst_psnr or 0:.1f}", f"{row.ssim or 0:.4f}"
