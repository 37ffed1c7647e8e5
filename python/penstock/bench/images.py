"""`bench images`: the images of a data set in every codec: bytes, images a second, loss."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import describe
from penstock.bench.apart import FailedApartError, run_apart, workplace
from penstock.bench.formats import Progress
from penstock.bench.measure import Listening, Machine, Measured, Noise, machine, measured
from penstock.bench.sample import Sample, name_of, opened, spread_over

HOW = (
    "Images are decoded to RGB, encoded anew by penstock and decoded again, in batches from memory: "
    "what a disk would need comes on top. Encoding and decoding each run in a process of their own, and "
    "candidates take turns, round by round. PSNR and SSIM compare the pixels that come out with the "
    "pixels of the images as they are (PSNR of the mean square error of all; SSIM of the brightness "
    "in windows of 8 by 8). Memory is by how much the resident set rose while batches of 32 were "
    "decoded."
)
_COMPARED = 48
_LOOKED_AT = 16


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One way to keep the images. Rates are images a second; what was not measured is None."""

    name: str
    codec: str | None
    """None: as they are."""
    quality: int | None
    problem: str | None = None
    num_bytes: int | None = None
    encode: Measured | None = None
    decode: Measured | None = None
    """On all threads."""
    decode_alone: Measured | None = None
    """On one thread."""
    decode_memory_bytes: int | None = None
    psnr: float | None = None
    """Decibels; None where every pixel is the same."""
    worst_psnr: float | None = None
    ssim: float | None = None
    worst_ssim: float | None = None
    is_exact: bool = False
    delivered: Measured | None = None
    """Images a second that storage (`ImagesReport.mb_per_s`) and cores, all or one, both sustain."""


@dataclass(frozen=True, slots=True)
class ImagesReport:
    """What `images` found."""

    sample: Sample
    column: str
    sizes: str
    rows: tuple[ImageRow, ...]
    sentences: tuple[str, ...]
    mb_per_s: float
    """What the storage is taken to give, in MB a second."""
    least_psnr: float
    machine: Machine
    noise: Noise
    seconds: float
    how: str = field(default=HOW)

    @property
    def measured_rows(self) -> list[ImageRow]:
        """What could be measured."""
        return [row for row in self.rows if row.problem is None]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
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
) -> ImagesReport:
    """Encode a sample of a dataset's images with every codec, and measure each.

    Args:
        source: as for `open`, or a Dataset.
        column: the column with the images; None finds it by its type, or by the bytes in it.
        records: at most so many images, in runs spread over the data.
        qualities: of JPEG and WebP, 1 to 100.
        rounds: how often each is measured.
        seconds: no new round begins after so many; the first is always completed.
        mb_per_s: what the storage gives, for the rate that storage and cores both sustain.
        least_psnr: decibels that a recommended codec keeps, over all images.
        folder: where temporary files go; None for the system's place.
        threads: how many to use; None for all cores.
        progress: called with what is being measured, and how far the work is.

    Returns:
        An ImagesReport.

    Raises:
        ValueError: no records, or no column of images.
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
    tell = progress or (lambda title, part: None)
    candidates = _candidates(qualities)
    with workplace(folder) as place:
        tell("drawing a sample", 0.0)
        sample, found, sizes, path = _draw(opened(source), column, records, place)
        listening = Listening()
        job = {
            "kind": "image",
            "sample": path,
            "target": os.path.join(place, "encoded.arrow"),
            "num_compared": _COMPARED,
            "threads": threads,
        }
        for number in range(rounds):
            if number and time.monotonic() - begun > seconds:
                break
            for place_of, one in enumerate(candidates):
                tell(one.name, (number + place_of / len(candidates)) / rounds)
                _measure(one, {**job, "compare": number == 0}, max(60.0, seconds))
                listening.listen()
        where = machine(folder or os.path.dirname(place))
    rows = tuple(_row(one, sample.num_records, mb_per_s) for one in candidates)
    good = [row for row in rows if row.problem is None]
    said = tuple(_sentences(good, mb_per_s, least_psnr, sample.num_records))
    return ImagesReport(
        sample, found, sizes, rows, said, mb_per_s, least_psnr, where, listening.heard(),
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
    """The sample, the column, the sizes of its images in words, and the path of its file."""
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
                raise ps.FormatError("the value is no image", record=record, field=name)
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
    batch = ds.take(range(min(_LOOKED_AT, len(ds))))
    for name in names:
        values = batch.column(names.index(name))
        storage = values.storage if isinstance(values, pa.ExtensionArray) else values
        if not (pa.types.is_binary(storage.type) or pa.types.is_large_binary(storage.type)):
            continue
        some = [value for value in storage.to_pylist() if value]
        if some and all(
            value[:2] in (b"P6", b"P5") or describe.image_header(value) for value in some
        ):
            return name
    raise ValueError(
        f"no column of {name_of(ds)} holds encoded images; there are: {', '.join(names)}; name one "
        "if that is wrong"
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
            encoding = run_apart({**job, **about, "side": "encode"}, most_seconds)
        decoding = run_apart({**job, **about, "side": "decode"}, most_seconds)
        one.answers.append({**encoding, **decoding})
    except FailedApartError as error:
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


# -- what follows from the numbers ----------------------------------------------------------------


def bounded(found: Measured, most: float) -> Measured:
    """A rate that cannot be above another."""
    median, least, greatest = (min(rate, most) for rate in (found.median, found.least, found.most))
    return Measured(median, least, greatest, found.repeats)


def _sentences(rows: list[ImageRow], mb_per_s: float, least_psnr: float, count: int) -> list[str]:
    now = next((row for row in rows if row.codec is None), None)
    if now is None or now.delivered is None or now.decode is None:
        return ["The images could not be decoded as they are."]
    good = [row for row in rows if row.is_exact or (row.psnr or 0) >= least_psnr]
    best = max(good, key=lambda row: row.delivered.median if row.delivered else 0)
    said = [_recommended(best, now, mb_per_s, least_psnr)]
    smallest = min(good, key=lambda row: row.num_bytes or 0)
    share = (smallest.num_bytes or 0) / max(now.num_bytes or 0, 1)
    each = describe.size(round((smallest.num_bytes or 0) / count))
    said.append(
        f"Smallest of those that keep {least_psnr:g} dB: {smallest.name}, {each} an image, "
        f"{share:.0%} of what they have now."
    )
    from_storage = mb_per_s * 1e6 * count / max(now.num_bytes or 0, 1)
    bound = "the storage is" if now.delivered.median >= from_storage else "the cores are"
    rate = describe.count(round(now.delivered.median))
    said.append(f"As they are, {bound} the limit: {rate} images/s.")
    return said


def _recommended(best: ImageRow, now: ImageRow, mb_per_s: float, least_psnr: float) -> str:
    assert best.delivered is not None
    assert now.delivered is not None
    rule = f"storage that gives {mb_per_s:g} MB/s, and at least {least_psnr:g} dB"
    rate = describe.count(round(best.delivered.median))
    if best is now:
        return f"Keep the images as they are: nothing is quicker with {rule} ({rate} images/s)."
    gain = best.delivered.median / max(now.delivered.median, 1e-9)
    if best.delivered.least <= now.delivered.most:
        return (
            f"Keep the images as they are: with {rule}, {best.name} would be {gain:.2f} times as "
            "quick, but its repeats and those of the images as they are overlap."
        )
    size = (best.num_bytes or 0) / max(now.num_bytes or 0, 1)
    return (
        f"With {rule}, {best.name} is quickest: {rate} images/s, {gain:.2f} times what they are "
        f"now, in {size:.2f} times the bytes."
    )
