"""penstock's jobs on images for training; listed in `penstock.JOBS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome


def batches(threads: int, **how: Any) -> Callable[[Data], Job]:
    """Batches from the kernel that a Loader calls, written into memory that is reused."""

    def make(data: Data) -> Job:
        import numpy as np
        import pyarrow as pa

        import penstock as ps
        from penstock import _core
        from penstock.loader.images import decode_into

        images = pictures.jpegs()
        starts = range(0, len(images), pictures.BATCH)
        arrays = [pa.array(images[at : at + pictures.BATCH], pa.binary()) for at in starts]
        spec, pool = ps.Image(**how), _core.BufferPool(1 << 30)

        def work(check: bool) -> Outcome:
            count = 0
            for start, array in zip(starts, arrays, strict=True):
                keys = np.arange(start, start + len(array), dtype=np.uint64)
                batch, _ = decode_into(array, spec, keys, threads=threads, pool=pool)
                count += len(batch)
            return Outcome(count)

        return Job(work)

    return make


def load(suffix: str, threads: int) -> Callable[[Data], Job]:
    """A Loader over a file, one epoch."""

    def make(data: Data) -> Job:
        import penstock as ps

        dataset = ps.open(pictures.container(suffix))
        image = "jpg" if suffix == ".tar" else "image"
        loader = ps.Loader(
            dataset,
            pictures.BATCH,
            order=ps.Shuffled(seed=0),
            decode={image: ps.Image(**CROP)},
            threads=threads,
        )

        def work(check: bool) -> Outcome:
            return Outcome(sum(len(batch[image]) for batch in loader))

        return Job(work)

    return make


def pairs(threads: int, same: dict[str, str]) -> Callable[[Data], Job]:
    """A Loader over images and their masks, one epoch; the images and masks that it makes are counted."""

    def make(data: Data) -> Job:
        import penstock as ps

        loader = ps.Loader(
            ps.open(pictures.paired()),
            pictures.BATCH,
            order=ps.Shuffled(seed=0),
            columns=["image", *same],
            decode={"image": ps.Image(**CROP, same=same)},
            threads=threads,
        )

        def work(check: bool) -> Outcome:
            return Outcome(sum(sum(map(len, batch.values())) for batch in loader))

        return Job(work)

    return make


def kernels(suffix: str, threads: int) -> Callable[[Data], Job]:
    """The kernels that a Loader calls, in a plain loop: each batch is read and then decoded."""

    def make(data: Data) -> Job:
        import numpy as np

        import penstock as ps
        from penstock import _core
        from penstock.loader.images import decode_into

        dataset = ps.open(pictures.container(suffix))
        image = "jpg" if suffix == ".tar" else "image"
        spec, pool = ps.Image(**CROP), _core.BufferPool(1 << 30)
        numbers = ps.Shuffled(seed=0).take(len(dataset), 0, 0, len(dataset))

        def work(check: bool) -> Outcome:
            count = 0
            for start in range(0, len(numbers), pictures.BATCH):
                asked = numbers[start : start + pictures.BATCH]
                column = dataset.take(asked)[image]
                keys = asked.astype(np.uint64)
                batch, _ = decode_into(column, spec, keys, threads=threads, pool=pool)
                count += len(batch)
            return Outcome(count)

        return Job(work)

    return make


def raw(data: Data) -> Job:
    """Unchanged pixels, copied into memory that is reused."""
    import numpy as np

    import penstock as ps
    from penstock.loader.images import decode_into

    side, batch = pictures.SIDE, pictures.BATCH
    pixels = np.random.default_rng(0).integers(0, 256, (4000, side, side, 3), np.uint8)
    out, spec = np.zeros((batch, side, side, 3), np.uint8), ps.Image()
    keys = np.arange(batch, dtype=np.uint64)

    def work(check: bool) -> Outcome:
        for start in range(0, len(pixels), batch):
            part = pixels[start : start + batch]
            decode_into(part, spec, keys[: len(part)], out[: len(part)], threads=1)
        return Outcome(len(pixels))

    return Job(work)


CROP = {"size": pictures.SIDE, "crop": "random", "flip": True}
JOBS = {
    "images-crop": {
        "1 thread": batches(1, **CROP),
        "2 threads": batches(2, **CROP),
        "2 threads, exact": batches(2, exact=True, **CROP),
        "2 threads, float16 NCHW": batches(2, dtype="float16", layout="nchw", mean=0.5, **CROP),
    },
    **{
        f"images-load-{suffix[1:]}": {
            "1 thread": load(suffix, 1),
            "2 threads": load(suffix, 2),
            "2 threads, kernels in a loop": kernels(suffix, 2),
        }
        for suffix in (".tfrecord", ".tar", ".beton")
    },
    "images-raw": {"1 thread": raw},
    "images-pairs": {
        f"{threads} thread{'s' * (threads > 1)}, {name}": pairs(threads, same)
        for threads in (1, 2)
        for name, same in (
            ("image", {}),
            ("image and mask", {"mask": "nearest"}),
        )
    },
}
