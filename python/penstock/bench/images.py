"""`bench images`: encodes images with every codec, and compares bytes, speed and loss."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import describe
from penstock.bench.jobs import FailedJobError, run_job, workplace
from penstock.bench.measure import Machine, Measured, Noise, Progress, in_turns, machine, measured
from penstock.bench.sample import Sample, name_of, opened, spread_over
from penstock.storage import Storage

HOW = (
    "Images are decoded to RGB, encoded again by penstock and decoded again, in batches from memory, "
    "without the cost of a disk. Encoding and decoding run in separate processes, and candidates "
    "take turns, round by round. PSNR and SSIM compare the resulting pixels with those of the stored "
    "images (PSNR of the mean square error of all images, SSIM of the brightness in windows of 8 by "
    "8). Memory is the growth of the resident set while batches of 32 are decoded."
)
_COMPARED = 48
_FIRST_RECORDS = 16


@dataclass(frozen=True, slots=True)
class ImageRow:
    """The results for one encoding of the images. Rates are in images per second. Values not measured are None."""

    name: str
    codec: str | None
    """None for the stored images."""
    quality: int | None
    problem: str | None = None
    num_bytes: int | None = None
    encode: Measured | None = None
    decode: Measured | None = None
    """Images per second on all threads."""
    decode_alone: Measured | None = None
    """Images per second on one thread."""
    decode_memory_bytes: int | None = None
    psnr: float | None = None
    """Decibels; None if all pixels are equal."""
    worst_psnr: float | None = None
    ssim: float | None = None
    worst_ssim: float | None = None
    is_exact: bool = False
    delivered: Measured | None = None
    """Images per second that both the storage (`ImagesReport.mb_per_s`) and decoding sustain."""


@dataclass(frozen=True, slots=True)
class ImagesReport:
    """The result of `images`."""

    sample: Sample
    column: str
    sizes: str
    rows: tuple[ImageRow, ...]
    sentences: tuple[str, ...]
    mb_per_s: float
    """The assumed bandwidth of the storage, in MB per second."""
    least_psnr: float
    machine: Machine
    noise: Noise
    seconds: float
    how: str = field(default=HOW)

    @property
    def measured_rows(self) -> list[ImageRow]:
        return [row for row in self.rows if row.problem is None]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Candidate:
    name: str
    codec: str | None
    quality: int | None = None
    lossless: bool = False
    problem: str | None = None
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def images(
    source: Any,
    *,
    column: str | None = None,
    records: int = 200,
    qualities: Sequence[int] = (75, 90, 95),
    rounds: int = 5,
    seconds: float = 60,
    mb_per_s: float = 500,
    least_psnr: float = 38,
    folder: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ImagesReport:
    """Encode a sample of a dataset's images with every codec, and measure each.

    Args:
        source: as for `open`, or a Dataset.
        column: the column of images; None detects it by its type or contents.
        records: the most images in the sample, which consists of runs spread over the data.
        qualities: the qualities of JPEG and WebP, 1 to 100.
        rounds: how often each encoding is measured.
        seconds: no new round begins after this time; the first is always completed.
        mb_per_s: the bandwidth of the storage, from which the rate that storage and decoding sustain is computed.
        least_psnr: the decibels that a recommended codec must reach over all images.
        folder: where temporary files are written and removed; None for the system's folder.
        threads: the number of threads; None for all cores.
        progress: called with the name of the current measurement and the finished fraction.
        storage, storage_options: as for `open`.

    Raises:
        ValueError: there are no records, or no column of images.
        PenstockError: the data is damaged.

    Example:
        >>> import numpy as np, penstock as ps
        >>> pixels = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), np.uint8)
        >>> _ = ps.write({"image": ps.encode_images(pixels, "png")}, "noise.arrow", overwrite=True)
        >>> report = ps.bench.images("noise.arrow", qualities=[90], rounds=1)
        >>> [row.name for row in report.rows]
        ['as it is', 'JPEG 90', 'WebP 90', 'WebP lossless', 'PNG', 'raw']
    """
    begun = time.monotonic()
    if not all(1 <= quality <= 100 for quality in qualities):
        raise ValueError(f"qualities are from 1 to 100, not {list(qualities)}")
    progress = progress or (lambda title, part: None)
    candidates = _candidates(qualities)
    with workplace(folder) as place:
        progress("drawing a sample", 0.0)
        sample, found, sizes, path = _draw(
            opened(source, storage, storage_options), column, records, place
        )
        job = {
            "kind": "image",
            "sample": path,
            "target": os.path.join(place, "encoded.arrow"),
            "num_compared": _COMPARED,
            "threads": threads,
        }

        def measure(one: _Candidate, number: int) -> None:
            _measure(one, {**job, "compare": number == 0}, max(60.0, seconds))

        noise = in_turns(candidates, rounds, seconds, progress, measure)
        where = machine(folder or os.path.dirname(place))
    rows = tuple(_row(one, sample.num_records, mb_per_s) for one in candidates)
    good = [row for row in rows if row.problem is None]
    sentences = tuple(_sentences(good, mb_per_s, least_psnr, sample.num_records))
    return ImagesReport(
        sample, found, sizes, rows, sentences, mb_per_s, least_psnr, where, noise,
        time.monotonic() - begun,
    )  # fmt: skip


def _candidates(qualities: Sequence[int]) -> list[_Candidate]:
    ordered = sorted(set(qualities))
    return [
        _Candidate("as it is", None),
        *(_Candidate(f"JPEG {quality}", "jpeg", quality) for quality in ordered),
        *(_Candidate(f"WebP {quality}", "webp", quality) for quality in ordered),
        _Candidate("WebP lossless", "webp", lossless=True),
        _Candidate("PNG", "png"),
        _Candidate("raw", "ppm"),
    ]


# -- the sample -----------------------------------------------------------------------------------


def _draw(
    ds: ps.Dataset, column: str | None, records: int, place: str
) -> tuple[Sample, str, str, str]:
    """Return the sample, its column, the sizes of its images as text, and the path of its file."""
    if not len(ds):
        raise ValueError(f"{name_of(ds)} has no records, so there is nothing to measure")
    name = _column_of(ds, column)
    found: list[bytes] = []
    sides: list[tuple[int, int]] = []
    for start, end in spread_over(len(ds), records):
        values = ds.take(np.arange(start, end)).column(name)
        storage = values.storage if isinstance(values, pa.ExtensionArray) else values
        for record, value in enumerate(storage.to_pylist(), start):
            if not value:
                continue
            head = describe.image_header(value) if isinstance(value, bytes) else None
            if head is None:
                raise ps.FormatError("the value is not an image", record=record, field=name)
            found.append(value)
            sides.append((head.width, head.height))
    path = os.path.join(place, "sample.arrow")
    written = ps.write({"image": pa.array(found, pa.large_binary())}, path)
    fields = ((name, str(ds.schema.field(name).type)),)
    sample = Sample(name_of(ds), len(found), len(ds), written.num_bytes, fields)
    return sample, name, _sizes(sides), path


def _sizes(sides: list[tuple[int, int]]) -> str:
    if not sides:
        return "of unknown size"
    width, height = (round(float(np.median([side[axis] for side in sides]))) for axis in (0, 1))
    same = len(set(sides)) == 1
    return f"{width} x {height} pixels" if same else f"about {width} x {height} pixels (medians)"


def _column_of(ds: ps.Dataset, column: str | None) -> str:
    names = ds.schema.names
    if column is not None:
        if column not in names:
            raise ValueError(f"there is no column {column!r}; there are: {', '.join(names)}")
        return column
    batch = ds.take(range(min(_FIRST_RECORDS, len(ds))))
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if _are_images(values):
            return name
    raise ValueError(
        f"no column of {name_of(ds)} was found to hold encoded images; there are: {', '.join(names)}; name the "
        "column if one does"
    )


def _are_images(values: pa.Array) -> bool:
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    if not (pa.types.is_binary(storage.type) or pa.types.is_large_binary(storage.type)):
        return False
    some = [value for value in storage.to_pylist() if value]
    return bool(some) and all(
        value[:2] in (b"P6", b"P5") or describe.image_header(value) for value in some
    )


def _measure(one: _Candidate, job: dict[str, Any], most_seconds: float) -> None:
    if one.problem is not None:
        return
    about = {"codec": one.codec, "quality": one.quality, "lossless": one.lossless}
    encoding: dict[str, Any] = {"encode_seconds": None}
    try:
        if one.codec is None:
            job = {**job, "target": job["sample"]}
        else:
            encoding = run_job({**job, **about, "side": "encode"}, most_seconds)
        decoding = run_job({**job, **about, "side": "decode"}, most_seconds)
        one.answers.append({**encoding, **decoding})
    except FailedJobError as error:
        one.problem = str(error)


def _row(one: _Candidate, count: int, mb_per_s: float) -> ImageRow:
    if one.problem is not None:
        return ImageRow(one.name, one.codec, one.quality, one.problem)

    def rate(word: str) -> Measured | None:
        found = [answer[word] for answer in one.answers]
        return None if None in found else measured([count / max(s, 1e-9) for s in found])

    first = one.answers[0]
    decode, alone = rate("decode_seconds"), rate("decode_alone_seconds")
    assert decode is not None
    assert alone is not None
    from_storage = mb_per_s * 1e6 * count / max(first["num_bytes"], 1)
    return ImageRow(
        one.name,
        one.codec,
        one.quality,
        None,
        first["num_bytes"],
        rate("encode_seconds"),
        decode,
        alone,
        max(answer["decode_memory_bytes"] for answer in one.answers),
        first["psnr"],
        first["worst_psnr"],
        first["ssim"],
        first["worst_ssim"],
        first["is_exact"],
        bounded(max(decode, alone, key=lambda found: found.median), from_storage),
    )


# -- conclusions ----------------------------------------------------------------------------------


def bounded(found: Measured, most: float) -> Measured:
    """Return a rate limited to `most`."""
    median, least, greatest = (min(rate, most) for rate in (found.median, found.least, found.most))
    return Measured(median, least, greatest, found.repeats)


def _sentences(rows: list[ImageRow], mb_per_s: float, least_psnr: float, count: int) -> list[str]:
    now = next((row for row in rows if row.codec is None), None)
    if now is None or now.delivered is None:
        return ["The stored images could not be decoded."]
    good = [row for row in rows if row.is_exact or (row.psnr or 0) >= least_psnr]
    best = max(good, key=_delivered)
    smallest = min(good, key=lambda row: row.num_bytes or 0)
    from_storage = mb_per_s * 1e6 * count / max(now.num_bytes or 0, 1)
    limit = "the storage" if now.delivered.median >= from_storage else "decoding"
    rate = describe.count(round(now.delivered.median))
    return [
        _recommended(best, now, mb_per_s, least_psnr),
        f"Smallest of the encodings that keep {least_psnr:g} dB: {_size_beside(smallest, now, count)}.",
        f"The current rate, {rate} images/s, is limited by {limit}.",
    ]


def _delivered(row: ImageRow) -> float:
    return row.delivered.median if row.delivered else 0.0


def _size_beside(row: ImageRow, now: ImageRow, count: int) -> str:
    num_bytes = row.num_bytes or 0
    share = num_bytes / max(now.num_bytes or 0, 1)
    each = describe.size(round(num_bytes / count))
    return f"{row.name}, {each} an image, {share:.0%} of the current size"


def _recommended(best: ImageRow, now: ImageRow, mb_per_s: float, least_psnr: float) -> str:
    assert best.delivered is not None
    assert now.delivered is not None
    rule = f"storage that gives {mb_per_s:g} MB/s, and at least {least_psnr:g} dB"
    rate = describe.count(round(best.delivered.median))
    if best is now:
        return f"Keep the images as they are: no encoding is quicker with {rule} ({rate} images/s)."
    gain = best.delivered.median / max(now.delivered.median, 1e-9)
    if best.delivered.least <= now.delivered.most:
        return (
            f"Keep the images as they are: with {rule}, {best.name} would be {gain:.2f} times as "
            "quick, but its repeats overlap with those of the stored images."
        )
    size = (best.num_bytes or 0) / max(now.num_bytes or 0, 1)
    return (
        f"With {rule}, {best.name} is quickest: {rate} images/s, {gain:.2f} times the "
        f"current rate, with {size:.2f} times the bytes."
    )
