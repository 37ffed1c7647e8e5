"""`penstock bench`: three commands that measure with the user's own data."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import click

from penstock.cli import bench_tables, output
from penstock.cli.options import (
    NAMES,
    Function,
    json_option,
    misuse,
    opened,
    reading,
    source_argument,
)

_READING = ("format", "read", "columns", "index", "overlays", "dialect", "infer", "missing_shards")


@click.group(
    "bench",
    epilog="""\b
Examples:
  penstock bench formats 'train-*.tfrecord' --html formats.html
  penstock bench images train.beton
  penstock bench shuffle 'train-*.tfrecord' --label class
""",
)
def command() -> None:
    """Measure on your own data which format, image codec and order suit it.

    Each command reports how it measured, how much repeats differed, and what follows from the
    numbers. --html writes a page.
    """


def _measuring(function: Function) -> Function:
    options = [
        click.option(
            "--rounds", type=click.IntRange(min=1), default=5, show_default=True,
            help="Number of measurements of each candidate; the median counts.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(min=0), default=60, show_default=True,
            help="Time limit, approximately: no new round begins after it.",
        ),
        click.option(
            "--html", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
            help="Also write a self-contained HTML page.",
        ),
        json_option,
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


_temporary = click.option(
    "--temporary", "folder", type=click.Path(exists=True, file_okay=False, writable=True),
    metavar="FOLDER",
    help="Folder for the files to measure, which are removed at the end. [default: the system's]",
)  # fmt: skip
_threads = reading("threads")


@command.command(
    "formats",
    epilog="""\b
Examples:
  penstock bench formats train.tfrecord
  penstock bench formats 'train-*.tfrecord' --records 10000 --only tfrecord,parquet,arrow
  penstock bench formats train.tar --temporary /mnt/fast --html formats.html
  penstock bench formats train.parquet --json > formats.json
""",
)
@source_argument
@click.option(
    "--records", type=click.IntRange(min=1), default=50_000, show_default=True,
    help="Size of the sample, at most.",
)  # fmt: skip
@click.option(
    "--megabytes", type=click.FloatRange(min=0.001), default=64, show_default=True,
    help="Size of the sample in megabytes, at most (approximately).",
)  # fmt: skip
@click.option("--only", type=NAMES, metavar="NAME,…", help="Only these formats. [default: all]")
@_temporary
@reading(*_READING)
@_threads
@_measuring
def formats(
    source: tuple[str, ...],
    megabytes: float,
    html: str | None,
    as_json: bool,
    records: int,
    only: list[str] | None,
    rounds: int,
    seconds: float,
    folder: str | None,
    threads: int | None,
    **options: Any,
) -> None:
    """Write a sample in every format, and compare size, writing, scanning, random access, memory.

    Formats that cannot hold the records are listed with the reason. Every format is measured in
    separate processes. All files are removed at the end, even after Ctrl-C.
    """
    import penstock as ps

    ds = opened(source, **options)
    with _progress() as progress, misuse():
        report = ps.bench.formats(
            ds,
            records=records,
            most_bytes=int(megabytes * 1e6),
            only=only,
            rounds=rounds,
            seconds=seconds,
            folder=folder,
            threads=threads,
            progress=progress,
        )
    _show(report, html, as_json)


@command.command(
    "images",
    epilog="""\b
Examples:
  penstock bench images train.tfrecord
  penstock bench images imagenet/train --quality 80,90 --mb-per-s 200
  penstock bench images train.tar --column jpg --psnr 40 --html images.html
""",
)
@source_argument
@click.option("--column", metavar="NAME", help="The column of images. [default: detected]")
@click.option(
    "--records", type=click.IntRange(min=1), default=200, show_default=True,
    help="Size of the sample in images, at most.",
)  # fmt: skip
@click.option(
    "--quality", "qualities", type=NAMES, metavar="N,N,…", default="75,90,95", show_default=True,
    help="Qualities of JPEG and WebP to measure.",
)  # fmt: skip
@click.option(
    "--psnr", type=float, default=38, show_default=True,
    help="PSNR, in decibels, that a recommended codec must reach.",
)  # fmt: skip
@click.option(
    "--mb-per-s", type=click.FloatRange(min=0.001), default=500, show_default=True,
    help="Bandwidth of your storage, for the recommendation.",
)  # fmt: skip
@_temporary
@reading(*_READING)
@_threads
@_measuring
def images(
    source: tuple[str, ...],
    column: str | None,
    records: int,
    qualities: list[str],
    psnr: float,
    mb_per_s: float,
    html: str | None,
    as_json: bool,
    rounds: int,
    seconds: float,
    folder: str | None,
    threads: int | None,
    **options: Any,
) -> None:
    """Encode a sample of the images as JPEG, PNG, WebP and raw; compare bytes, speed and loss.

    Among the encodings that keep the required quality, the recommended one delivers the most
    images per second, as limited by the storage and by decoding.
    """
    import penstock as ps

    try:
        numbers = [int(word) for word in qualities]
    except ValueError:
        raise click.BadParameter(f"{','.join(qualities)!r} are not numbers") from None
    ds = opened(source, **options)
    with _progress() as progress, misuse():
        report = ps.bench.images(
            ds,
            column=column,
            records=records,
            qualities=numbers,
            least_psnr=psnr,
            mb_per_s=mb_per_s,
            rounds=rounds,
            seconds=seconds,
            folder=folder,
            threads=threads,
            progress=progress,
        )
    _show(report, html, as_json)


@command.command(
    "shuffle",
    epilog="""\b
Examples:
  penstock bench shuffle 'train-*.tfrecord'
  penstock bench shuffle train.parquet --label class --batch-size 512 --columns image,class
  penstock bench shuffle 'train-*.tar' --seek-ms 5 --mb-per-s 180 --html shuffle.html
""",
)
@source_argument
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=256, show_default=True,
    help="Records per batch.",
)  # fmt: skip
@click.option(
    "--label", metavar="NAME",
    help="The column whose values should be mixed in a batch. [default: detected]",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the orders."
)
@click.option(
    "--window-mb", type=click.FloatRange(min=0.001), default=256, show_default=True,
    help="Megabytes of records that may wait in memory after their chunk was read.",
)  # fmt: skip
@click.option("--seek-ms", type=click.FloatRange(min=0), help="Time of a seek on your disk.")
@click.option("--mb-per-s", type=click.FloatRange(min=0.001), help="Bandwidth of your disk.")
@reading(*_READING)
@_measuring
def shuffle(
    source: tuple[str, ...],
    window_mb: float,
    seek_ms: float | None,
    mb_per_s: float | None,
    html: str | None,
    as_json: bool,
    batch_size: int,
    label: str | None,
    seed: int,
    rounds: int,
    seconds: float,
    **options: Any,
) -> None:
    """Compare orders on your data: how well they mix, what they read, how long an epoch takes.

    Reading is timed from the page cache, and its bytes and seeks are counted. From these, the times for three typical
    disks are calculated, or for your disk with --seek-ms and --mb-per-s.
    """
    import penstock as ps

    if (seek_ms is None) != (mb_per_s is None):
        raise click.UsageError("--seek-ms and --mb-per-s describe a disk together; give both")
    given: dict[str, Any] = {}
    if seek_ms is not None and mb_per_s is not None:
        given["disks"] = [ps.bench.Disk("your disk", seek_ms, mb_per_s)]
    ds = opened(source, **options)
    with _progress() as progress, misuse():
        report = ps.bench.shuffle(
            ds,
            batch_size=batch_size,
            label=label,
            seed=seed,
            window_bytes=int(window_mb * 1e6),
            rounds=rounds,
            seconds=seconds,
            progress=progress,
            **given,
        )
    _show(report, html, as_json)


def _show(report: Any, html: str | None, as_json: bool) -> None:
    if html is not None:
        import penstock as ps

        with open(html, "w", encoding="utf-8") as file:
            file.write(ps.bench.html(report))
    if as_json:
        output.emit(report.to_dict())
        return
    bench_tables.show(report)
    if html is not None:
        click.echo(f"page: {html}")


@contextmanager
def _progress() -> Generator[Callable[[str, float], None] | None]:
    """Show progress on the terminal, and clean up after SIGTERM as after Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with output.shares() as progress:
            yield progress
    finally:
        signal.signal(signal.SIGTERM, before)
