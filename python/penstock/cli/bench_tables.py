"""What `penstock bench` prints on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from penstock import bench, describe
from penstock.cli import output

words = bench.words


def formats(report: bench.FormatsReport) -> None:
    """The table of formats, those that cannot hold the records, and what follows."""
    right = ("bytes", "write /s", "scan /s", "random /s", "memory: write", "scan")
    shown = output.table("format", *right, right=right)
    for row in report.measured_rows:
        shown.add_row(
            output.name(row.name),
            words.size((row.num_bytes or 0) + (row.index_bytes or 0)),
            words.rate(row.write),
            words.rate(row.scan),
            words.rate(row.random),
            words.size(row.write_memory_bytes),
            words.size(row.scan_memory_bytes),
        )
    lead = report.sample.sentence(describe.size(report.sample.num_bytes))
    output.show(describe.escape(lead), "", shown)
    _problems([(row.name, row.problem) for row in report.rows if row.problem is not None])
    _end(report, [one for row in report.measured_rows for one in (row.write, row.scan, row.random)])


def images(report: bench.ImagesReport) -> None:
    """The table of codecs, and what follows."""
    right = ("an image", "decode /s", "one thread", "encode /s", "PSNR dB", "worst", "SSIM")
    shown = output.table("kept as", *right, right=right)
    count = report.sample.num_records
    for row in report.measured_rows:
        shown.add_row(
            output.name(row.name),
            words.size(round((row.num_bytes or 0) / count)),
            words.rate(row.decode),
            words.rate(row.decode_alone),
            words.rate(row.encode),
            *_likeness(row),
        )
    lead = (
        f"{count:,} of {report.sample.num_all_records:,} images in column "
        f"{describe.escape(report.column)}, {report.sizes}"
    )
    output.show(lead, "", shown)
    _problems([(row.name, row.problem) for row in report.rows if row.problem is not None])
    _end(report, [one for row in report.measured_rows for one in (row.encode, row.decode)])


def _likeness(row: bench.ImageRow) -> tuple[str, str, str]:
    if row.is_exact:
        return "exact", "exact", "1"
    psnr, worst, ssim = row.psnr or 0, row.worst_psnr or 0, row.ssim or 0
    return f"{psnr:.1f}", f"{worst:.1f}", f"{ssim:.4f}"


def shuffle(report: bench.ShuffleReport) -> None:
    """Two tables, of how orders mix and of what they cost, and what follows."""
    lead = (
        f"{report.num_records:,} records, {describe.size(report.num_bytes)}, in {report.num_shards:,} "
        f"files and {report.num_chunks:,} chunks; batches of {report.batch_size}"
    )
    label = "no labels found; name them with --label"
    if report.label is not None:
        label = f"labels: {describe.escape(report.label)}, {report.num_labels:,} different"
    right = ("moves", "chunks", "shards", "labels", "off balance", "alike")
    mixes = output.table("parts of exact", *right, right=right)
    for row in report.rows:
        mixing = row.mixing
        facts = (
            mixing.moved, mixing.chunks, mixing.shards, mixing.labels, mixing.label_distance,
            mixing.again,
        )  # fmt: skip
        mixes.add_row(output.name(row.name), *map(words.part, facts))
    disks = [disk.name for disk in report.disks]
    right = ("bytes", "seeks", "window", "measured", *disks)
    costs = output.table("an epoch reads", "as", *right, right=right)
    for row in report.rows:
        costs.add_row(
            output.name(row.name),
            "chunks" if row.by_chunks else "records",
            words.size(row.num_bytes),
            describe.count(round(row.seeks)),
            words.size(row.window_bytes),
            words.time(row.seconds),
            *map(words.seconds, row.disk_seconds),
        )
    output.show(lead, label, "", mixes, "", costs)
    _end(report, [row.seconds for row in report.rows])


def _end(report: Any, found: Sequence[bench.Measured | None]) -> None:
    """What follows from the numbers, and how far to believe them."""
    spreads = [one.spread for one in found if one is not None and one.repeats > 1]
    said = [
        Text(sentence, style="bold" if not n else "") for n, sentence in enumerate(report.sentences)
    ]
    output.show("", *said, "", output.dim(report.noise.sentence(spreads)), output.dim(report.how))


def _problems(found: Sequence[tuple[str, str]]) -> None:
    if not found:
        return
    shown = [output.facts((name, describe.escape(problem)) for name, problem in found)]
    output.show("", "not measured", *shown)
