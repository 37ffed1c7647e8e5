"""`python -m benchmarks.second_epoch`: epochs from `ps.open(cache=)` beside the same epochs from local files.

The objects are served by nginx on loopback. One epoch fills the cache; the timed ones make no request. The rows take
turns, and each figure is the median of the rounds. The goal is 0.9 of local files, for scans.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from remote.servers.nginx import nginx  # noqa: E402

RECORDS, BLOB_BYTES, SHARDS = 4000, 100_000, 50
GOAL = 0.9


def scan(ds: ps.Dataset) -> int:
    """One scan, in file order."""
    return sum(batch.num_rows for batch in ds.scan())


def epoch(order: Any) -> Callable[[ps.Dataset], int]:
    """A function for one epoch of a loader."""

    def run(ds: ps.Dataset) -> int:
        return sum(len(batch["id"]) for batch in ps.Loader(ds, batch_size=256, order=order))

    return run


WORK = {
    "scan": scan,
    "Sequential": epoch(ps.Sequential()),
    "Blocked": epoch(ps.Blocked(seed=0)),
    "Shuffled": epoch(ps.Shuffled(seed=0)),
}


def write(folder: Path, ending: str) -> list[Path]:
    """Shards of records of 100 KB."""
    rng = np.random.default_rng(0)

    def batches() -> Any:
        for first in range(0, RECORDS, 100):
            blobs = [rng.bytes(BLOB_BYTES) for _ in range(100)]
            yield pa.record_batch({"id": pa.array(range(first, first + 100)), "blob": blobs})

    ps.write(batches(), folder / f"x.{ending}", num_shards=SHARDS)
    return sorted(folder.glob(f"x-*.{ending}"))


def timed(run: Callable[[ps.Dataset], int], ds: ps.Dataset) -> float:
    """Seconds of one epoch."""
    began = time.perf_counter()
    assert run(ds) == RECORDS
    return time.perf_counter() - began


def filled(ds: ps.Dataset) -> None:
    """Wait until nothing is fetched any more."""
    while ds.files.storage.cached.num_missing:  # type: ignore[attr-defined]
        time.sleep(0.05)


def main() -> None:
    """Run the rows, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_epoch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--format", action="append", choices=("tfrecord", "tar", "parquet"))
    parser.add_argument("--data", type=Path, help="a folder for 1.2 GB, of a local disk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.data) as name, nginx(Path(name)) as server:
        print(
            f"{'work':24}{'local MB/s':>12}{'cached MB/s':>13}{'ratio':>7}   goal {GOAL} for scans"
        )
        for ending in given.format or ("tfrecord", "tar", "parquet"):
            files = write(server.files, ending)
            urls = [f"{server.endpoint}/strong/{file.name}" for file in files]
            cache = ps.Cache(Path(name) / f"blocks-{ending}", max_bytes=1 << 30)
            local = ps.open([str(file) for file in files])
            cached = ps.open(urls, storage_options={"allow_http": True}, cache=cache)
            for run in WORK.values():
                run(cached)
                run(local)
            filled(cached)
            for work, run in WORK.items():
                pairs = [(timed(run, local), timed(run, cached)) for _ in range(given.rounds)]
                here, there = (median(seconds) for seconds in zip(*pairs, strict=True))
                rate = RECORDS * BLOB_BYTES / 1e6
                print(
                    f"{ending + ' ' + work:24}{rate / here:12.0f}{rate / there:13.0f}{here / there:7.2f}"
                )
            cache.clear()


if __name__ == "__main__":
    main()
