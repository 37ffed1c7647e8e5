"""penstock's jobs on containers other than TFRecord; listed in `penstock.JOBS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import containers
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

# The name of the payload's column in each container.
FIELDS = {"tar": "bin", "rec": "data", "msgpack": "payload"}


def scan(suffix: str, threads: int, *, raw: bool = False) -> Callable[[Data], Job]:
    """Every record, as columns or as undecoded bytes (views), without an index."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        path, field = str(containers.copy(data, suffix)), "record" if raw else FIELDS[suffix]

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in ps.open(path, index="never", raw=raw).scan(threads=threads):
                count += batch.num_rows
                if check:
                    total += checks.payload_sum(v.as_py() for v in batch.column(field))
            return Outcome(count, "payloads", total & checks.WRAP)

        return Job(work)

    return make


def take(suffix: str, *, mmap: bool) -> Callable[[Data], Job]:
    """Takes records from a dataset that is already open and has its index."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        dataset = ps.open(str(containers.copy(data, suffix)), mmap=mmap)
        batches = checks.take_batches(data)
        len(dataset)

        def work(check: bool) -> Outcome:
            count = 0
            for batch in batches:
                count += dataset.take(batch).num_rows
            return Outcome(count)

        return Job(work)

    return make


def pictures() -> Path:
    """A TFRecord file of JPEGs, and a tar and a .beton of the same images."""
    import numpy as np
    import pyarrow as pa

    import penstock as ps

    folder = Path(os.environ["BENCHMARKS_TMPFS"]) / "pictures"
    if not (folder / "a.beton").exists():
        folder.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)

        def batches() -> Any:
            for first in range(0, 4000, 100):
                pixels = rng.integers(0, 255, (100, 224, 320, 3), np.uint8)
                images = ps.encode_images(pixels, quality=92).storage
                yield pa.record_batch(
                    {"image": images, "label": pa.array(range(first, first + 100))}
                )

        ps.write(batches(), str(folder / "a.tfrecord"), overwrite=True)
        ps.convert(str(folder / "a.tfrecord"), str(folder / "a.tar"), overwrite=True)
        ps.convert(str(folder / "a.tar"), str(folder / "a.beton"), overwrite=True)
    return folder


def convert(source: str, target: str, threads: int, *, mmap: bool = False) -> Callable[[Data], Job]:
    """Converts one file to another format, and writes the index of the result."""

    def make(data: Data) -> Job:
        import penstock as ps

        folder = pictures()
        out = folder / f"out-{threads}.{target}"

        def remove() -> None:
            for path in folder.glob(f"{out.name}*"):
                path.unlink()

        def work(check: bool) -> Outcome:
            remove()
            data = ps.open(str(folder / f"a.{source}"), mmap=mmap)
            made = ps.convert(data, str(out), threads=threads, prove=check)
            return Outcome(made.num_records)

        return Job(work, after=remove)

    return make


THREADS = {"1 thread": 1, "2 threads": 2}
SUFFIXES = {"tar": "tar", "recordio": "rec", "msgpack": "msgpack"}
JOBS = (
    {
        f"{name}-{size}": {row: scan(suffix, n) for row, n in THREADS.items()}
        | ({"1 thread, raw": scan(suffix, 1, raw=True)} if name == "recordio" else {})
        for name, suffix in SUFFIXES.items()
        for size in ("small", "large")
    }
    | {
        f"{name}-take-{size}": {
            row: take(SUFFIXES[name], mmap=row == "mmap") for row in ("pread", "mmap")
        }
        for name in ("recordio", "msgpack")
        for size in ("small", "large")
    }
    | {
        f"convert-{a}-{b}": {row: convert(a, b, n) for row, n in THREADS.items()}
        | {"2 threads, mmap": convert(a, b, 2, mmap=True)}
        for a, b in (("tfrecord", "tar"), ("tar", "beton"), ("beton", "tfrecord"))
    }
)
