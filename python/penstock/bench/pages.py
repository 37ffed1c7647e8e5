"""The page of each report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock import describe
from penstock.bench.formats import FormatsReport
from penstock.bench.images import ImagesReport
from penstock.bench.measure import Measured
from penstock.bench.page import Figure, Table, machine_facts, page
from penstock.bench.plots import Bars, Point, bars, paths, points
from penstock.bench.shuffle import ShuffleReport
from penstock.bench.words import NOTHING, part, rate, seconds, short, size, time


def rates(title: str, found: Sequence[Measured | None], is_better: str = "high") -> Bars:
    """A panel of rates, with the range of their repeats."""
    return Bars(
        title,
        [None if one is None else one.median for one in found],
        [short(None if one is None else one.median) for one in found],
        [None if one is None else (one.least, one.most) for one in found],
        is_better,
    )


def sizes(title: str, found: Sequence[float | None], is_better: str = "low") -> Bars:
    """A panel of bytes."""
    return Bars(title, list(found), [size(one) for one in found], (), is_better)


# -- formats --------------------------------------------------------------------------------------


def format_spreads(report: FormatsReport) -> list[float]:
    """How far the repeats of each row lay apart."""
    rows = report.measured_rows
    found = [one for row in rows for one in (row.write, row.scan, row.random)]
    return [one.spread for one in found if one is not None and one.repeats > 1]


def formats_page(report: FormatsReport) -> str:
    """See FormatsReport.html."""
    rows = report.measured_rows
    names = [row.name for row in rows]
    parts: list[Figure | Table] = []
    if rows:
        all_bytes = [(row.num_bytes or 0) + (row.index_bytes or 0) for row in rows]
        speed = bars(
            names,
            [
                rates("write, records/s", [row.write for row in rows]),
                rates("scan, records/s", [row.scan for row in rows]),
                rates("at random, records/s", [row.random for row in rows]),
            ],
        )
        cost = bars(
            names,
            [
                sizes("bytes, with the index", all_bytes),
                sizes("memory of a scan", [row.scan_memory_bytes for row in rows]),
                sizes("memory of writing", [row.write_memory_bytes for row in rows]),
            ],
        )
        repeats = rows[0].scan.repeats if rows[0].scan else 0
        parts = [
            Figure(
                "How fast",
                speed,
                f"Medians of {repeats} {'round' if repeats == 1 else 'rounds'}, with the least and the greatest as whiskers; longer is "
                "better, and the best of each panel stands out. " + report.how,
            ),
            Figure(
                "What it takes",
                cost,
                "Shorter is better. Bytes are those of the files; memory is by how much the resident "
                "set of a process rose while it worked, the highest of all rounds. Files that are "
                "mapped or whole in memory count there.",
            ),
        ]
    parts.append(
        Table(
            "All formats",
            ["format", "bytes", "index", "write /s", "scan /s", "random /s", "open", "remark"],
            [
                [
                    row.name,
                    size(row.num_bytes),
                    size(row.index_bytes) if row.index_bytes else NOTHING,
                    rate(row.write),
                    rate(row.scan),
                    rate(row.random),
                    seconds(row.open_seconds.median if row.open_seconds else None),
                    row.problem or "",
                ]
                for row in report.rows
            ],
            ["bytes", "index", "write /s", "scan /s", "random /s", "open"],
            "± is half of the distance between the least and the greatest repeat.",
        )
    )
    facts = [
        ("sample", report.sample.sentence(describe.size(report.sample.num_bytes))),
        ("fields", ", ".join(f"{name}: {kind}" for name, kind in report.sample.fields)),
        ("noise", report.noise.sentence(format_spreads(report))),
        *machine_facts(report.machine, report.seconds),
    ]
    lead = (
        f"{report.sample.source}: {report.sample.sentence(describe.size(report.sample.num_bytes))}"
    )
    return page("Which format?", lead, report.sentences, parts, facts)


# -- images ---------------------------------------------------------------------------------------


def image_spreads(report: ImagesReport) -> list[float]:
    """How far the repeats of each row lay apart."""
    found = [one for row in report.measured_rows for one in (row.encode, row.decode)]
    return [one.spread for one in found if one is not None and one.repeats > 1]


_KINDS = {None: "", "jpeg": "a", "webp": "b", "png": "c", "ppm": "d"}


def images_page(report: ImagesReport) -> str:
    """See ImagesReport.html."""
    rows = report.measured_rows
    names = [row.name for row in rows]
    count = report.sample.num_records
    lossy = [row for row in rows if row.psnr is not None]
    parts: list[Figure | Table] = []
    if rows:
        speed = bars(
            names,
            [
                sizes("bytes an image", [round((row.num_bytes or 0) / count) for row in rows]),
                rates("decode, images/s", [row.decode for row in rows]),
                rates("decode, one thread", [row.decode_alone for row in rows]),
                rates("encode, images/s", [row.encode for row in rows]),
            ],
        )
        delivered = bars(
            names,
            [
                rates(
                    f"images/s from storage of {report.mb_per_s:g} MB/s",
                    [row.delivered for row in rows],
                ),
                sizes("memory of decoding", [row.decode_memory_bytes for row in rows]),
            ],
        )
        parts = [
            Figure(
                "How large, and how fast",
                speed,
                "The best of each panel stands out; whiskers are the least and the greatest of the "
                "repeats. " + report.how,
            ),
            Figure(
                "What arrives",
                delivered,
                f"The smaller of two rates: decoding, as measured (on all threads or on one, what is quicker), and "
                f"{report.mb_per_s:g} MB/s (a figure given, not measured) by the bytes of an image.",
            ),
        ]
    if lossy:
        plane = points(
            [
                Point(
                    (row.num_bytes or 1) / count / 1000, row.psnr or 0, row.name, _KINDS[row.codec]
                )
                for row in lossy
            ],
            "kB an image",
            "PSNR, dB",
            report.least_psnr,
        )
        parts.insert(
            1,
            Figure(
                "What is lost",
                plane,
                "Up and to the left is better. Lossless ways to keep images are not shown: they lose "
                f"nothing. PSNR is of the pixels, against the images as they are; the dashed line is at the "
                f"{report.least_psnr:g} dB that are asked for.",
            ),
        )
    parts.append(
        Table(
            "All ways to keep them",
            [
                "kept as",
                "an image",
                "decode /s",
                "one thread",
                "encode /s",
                "PSNR",
                "worst",
                "SSIM",
                "remark",
            ],
            [
                [
                    row.name,
                    size(None if row.num_bytes is None else round(row.num_bytes / count)),
                    rate(row.decode),
                    rate(row.decode_alone),
                    rate(row.encode),
                    *likeness(row.problem, row.is_exact, row.psnr, row.worst_psnr, row.ssim),
                    row.problem or "",
                ]
                for row in report.rows
            ],
            ["an image", "decode /s", "one thread", "encode /s", "PSNR", "worst", "SSIM"],
        )
    )
    lead = (
        f"{report.sample.source}, column {report.column}: {count:,} of "
        f"{report.sample.num_all_records:,} images, {report.sizes}"
    )
    facts = [
        ("sample", lead),
        ("noise", report.noise.sentence(image_spreads(report))),
        *machine_facts(report.machine, report.seconds),
    ]
    return page("Which image codec?", lead, report.sentences, parts, facts)


def likeness(
    problem: str | None,
    is_exact: bool,
    psnr: float | None,
    worst: float | None,
    ssim: float | None,
) -> tuple[str, str, str]:
    """PSNR, the worst PSNR and SSIM, for people."""
    if problem is not None or ssim is None:
        return NOTHING, NOTHING, NOTHING
    if is_exact:
        return ("exact", "exact", "1")
    decibels = [NOTHING if value is None else f"{value:.1f}" for value in (psnr, worst)]
    return decibels[0], decibels[1], f"{ssim:.4f}"


# -- shuffle --------------------------------------------------------------------------------------


def shuffle_spreads(report: ShuffleReport) -> list[float]:
    """How far the repeats of each row lay apart."""
    return [row.seconds.spread for row in report.rows if row.seconds.repeats > 1]


def shuffle_page(report: ShuffleReport) -> str:
    """See ShuffleReport.html."""
    rows = report.rows
    names = [row.name for row in rows]

    def against(title: str, values: Sequence[float | None]) -> Bars:
        return Bars(title, values, [part(value) for value in values], (), "", 1.0)

    def counted(title: str, values: Sequence[float]) -> Bars:
        return Bars(title, values, [short(round(value)) for value in values], (), "low")

    mixes = [against("how far records move", [row.mixing.moved for row in rows])]
    if report.num_shards > 1:
        mixes.append(against("shards in a batch", [row.mixing.shards for row in rows]))
    else:
        mixes.append(against("chunks in a batch", [row.mixing.chunks for row in rows]))
    if report.label is not None:
        mixes.append(against("labels off balance", [row.mixing.label_distance for row in rows]))
    mixes.append(against("batches alike next epoch", [row.mixing.again for row in rows]))
    costs = bars(
        names,
        [
            sizes("bytes read an epoch", [row.num_bytes for row in rows]),
            counted("seeks an epoch", [row.seeks for row in rows]),
            sizes("memory for the window", [row.window_bytes for row in rows]),
        ],
    )
    lasting = [
        Bars(
            "measured, page cache",
            [row.seconds.median for row in rows],
            [seconds(row.seconds.median) for row in rows],
            [(row.seconds.least, row.seconds.most) for row in rows],
            "low",
        )
    ]
    for number, disk in enumerate(report.disks):
        values = [row.disk_seconds[number] for row in rows]
        shown = [seconds(value) for value in values]
        lasting.append(Bars(disk.name, values, shown, (), "low"))
    dots = [
        (row.name, np.array([x for x, _ in row.path]), np.array([y for _, y in row.path]))
        for row in rows
    ]
    given = "; ".join(
        f"{disk.name}: {disk.seek_ms:g} ms a seek, {disk.mb_per_s:g} MB/s" for disk in report.disks
    )
    parts: list[Figure | Table] = [
        Figure(
            "Where an order goes",
            paths(dots),
            "Across, the position in the epoch; up, the record that comes there, by its place in the "
            "files. An exact shuffle fills the square evenly. Computed from the orders.",
        ),
        Figure(
            "How well it mixes",
            bars(names, mixes),
            "Against exact shuffles, whose figures are 1 (dashed line). More is better in how far "
            "records move and what a batch comes from; less is better in how far the labels of a "
            f"batch of {report.batch_size} are from those of all records, and in how often two "
            "records share a batch in this epoch and the next. Computed from the orders.",
        ),
        Figure("What is read", costs, report.how),
        Figure(
            "How long an epoch takes",
            bars(names, lasting),
            "At the left, seconds as measured: reading from the page cache and decoding, with the least "
            "and the greatest round. The others are a model, of reading alone: seeks by the time of "
            f"one, and the blocks of 4,096 bytes touched by the bandwidth, one after another. {given}. "
            "These figures are given, not measured.",
        ),
        Table(
            "All orders",
            ["order", "moves", "chunks", "shards", "labels", "off balance", "alike", "read as", "bytes",
             "reads", "seeks", "seconds"],
            [
                [
                    row.name,
                    *map(part, (row.mixing.moved, row.mixing.chunks, row.mixing.shards)),
                    *map(part, (row.mixing.labels, row.mixing.label_distance, row.mixing.again)),
                    "chunks" if row.by_chunks else "records",
                    size(row.num_bytes),
                    short(row.reads),
                    short(row.seeks),
                    time(row.seconds),
                ]
                for row in rows
            ],
            ["moves", "chunks", "shards", "labels", "off balance", "alike", "bytes", "reads", "seeks", "seconds"],
            "From moves to alike: parts of what an exact shuffle has. Chunks, shards and labels are "
            "different ones in a batch.",
        ),
    ]  # fmt: skip
    lead = (
        f"{report.source}: {report.num_records:,} records, {describe.size(report.num_bytes)}, "
        f"in {report.num_shards:,} files and {report.num_chunks:,} chunks; batches of {report.batch_size}"
    )
    labels = f"{report.label}, {report.num_labels:,} different" if report.label else "none found"
    facts = [
        ("data", lead),
        ("labels", labels),
        ("noise", report.noise.sentence(shuffle_spreads(report))),
        *machine_facts(report.machine, report.seconds),
    ]
    return page("Which order?", lead, report.sentences, parts, facts)


def html(report: FormatsReport | ImagesReport | ShuffleReport) -> str:
    """A report as one HTML page with plots, which needs no other file."""
    if isinstance(report, FormatsReport):
        return formats_page(report)
    return images_page(report) if isinstance(report, ImagesReport) else shuffle_page(report)
