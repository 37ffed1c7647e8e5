"""The jobs of `bench images`: encode a sample of images with one codec, or decode it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.bench.image_metrics import mean_square_error, psnr, ssim
from penstock.bench.measure import memory_growth_of, seconds_of

BATCH_IMAGES = 32
_LEAST_SECONDS = 0.05


def image_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job for one codec. `side` is "encode" (into `target`) or "decode" (from `target`)."""
    originals = _column(job["sample"])
    if job["side"] == "encode":
        encoded, seconds = _encode(originals, job)
        ps.write({"image": encoded}, job["target"], overwrite=True)
        return {"encode_seconds": seconds}
    encoded = _column(job["target"])
    threads = job["threads"]
    _decoded(encoded.slice(0, 2), threads)  # start threads and fill tables before anything is timed
    _, memory = memory_growth_of(lambda: _decode(encoded, threads))
    answer: dict[str, Any] = {
        "num_bytes": sum(len(image) for image in encoded.to_pylist()),
        "decode_seconds": seconds_of(lambda: _decode(encoded, threads), _LEAST_SECONDS),
        "decode_alone_seconds": seconds_of(lambda: _decode(encoded, 1), _LEAST_SECONDS),
        "decode_memory_bytes": memory,
    }
    if job["compare"]:
        answer |= _quality(originals, encoded, job["num_compared"])
    return answer


def _column(path: str) -> pa.Array:
    ds = ps.open(path)
    return _storage(ds.take(range(len(ds))).column(0))


def _storage(column: Any) -> pa.Array:
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    return storage.cast(pa.large_binary())


def _parts(images: pa.Array) -> Iterator[pa.Array]:
    for at in range(0, len(images), BATCH_IMAGES):
        yield images.slice(at, BATCH_IMAGES)


def _decoded(images: pa.Array, threads: int | None) -> list[np.ndarray]:
    return list(ps.decode_images(images, threads=threads))


def _decode(images: pa.Array, threads: int | None) -> None:
    for part in _parts(images):
        ps.decode_images(part, threads=threads)


def _encode(originals: pa.Array, job: dict[str, Any]) -> tuple[pa.Array, float]:
    seconds = 0.0
    made: list[pa.Array] = []
    for part in _parts(originals):
        pixels = _decoded(part, job["threads"])
        found: list[pa.Array] = []

        def encode(pixels: list[np.ndarray] = pixels, found: list[pa.Array] = found) -> None:
            found[:] = [
                ps.encode_images(
                    pixels,
                    job["codec"],
                    quality=job["quality"],
                    lossless=job["lossless"],
                    threads=job["threads"],
                )
            ]

        seconds += seconds_of(encode)
        made.append(_storage(found[0]))
    return pa.concat_arrays(made), seconds


def _quality(originals: pa.Array, encoded: pa.Array, most: int) -> dict[str, Any]:
    """Return PSNR and SSIM over all images and for the worst image. At most `most` images, spread evenly, are used."""
    chosen = pa.array(np.linspace(0, len(originals) - 1, min(most, len(originals))).astype(int))
    before = _decoded(originals.take(chosen), None)
    after = _decoded(encoded.take(chosen), None)
    errors = [mean_square_error(a, b) for a, b in zip(before, after, strict=True)]
    weights = [a.size for a in before]
    similar = [ssim(a, b) for a, b in zip(before, after, strict=True)]
    decibels = psnr(float(np.average(errors, weights=weights)))
    worst = psnr(max(errors))
    return {
        "psnr": None if np.isinf(decibels) else decibels,
        "worst_psnr": None if np.isinf(worst) else worst,
        "ssim": float(np.mean(similar)),
        "worst_ssim": min(similar),
        "is_exact": max(errors) == 0,
    }
