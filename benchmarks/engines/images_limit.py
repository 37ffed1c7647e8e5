"""The limits of the machine for images: decoding whole JPEGs and discarding the pixels, and copying pixels."""

from __future__ import annotations

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.engines.images_penstock import batches
from benchmarks.job import Job, Outcome

ROLE = "limit"
VENV = "penstock"


def copy(data: Data) -> Job:
    """NumPy's copy of the same pixels, batch after batch."""
    import numpy as np

    side, batch = pictures.SIDE, pictures.BATCH
    pixels = np.random.default_rng(0).integers(0, 256, (4000, side, side, 3), np.uint8)
    out = np.zeros((batch, side, side, 3), np.uint8)

    def work(check: bool) -> Outcome:
        for start in range(0, len(pixels), batch):
            part = pixels[start : start + batch]
            np.copyto(out[: len(part)], part)
        return Outcome(len(pixels))

    return Job(work)


JOBS = {
    "images-crop": {
        # libjpeg-turbo decodes the whole image directly into memory that is reused, except that
        # penstock decodes the Huffman codes.
        "full decode, 1 thread": batches(1),
        "full decode, 2 threads": batches(2),
    },
    **{
        f"images-load-{name}": {"full decode, 2 threads": batches(2)}
        for name in ("tfrecord", "tar", "beton")
    },
    "images-raw": {"a copy": copy},
}
