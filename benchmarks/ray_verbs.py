"""`verify` and `convert` of many shards by two workers of one core each, beside two threads of one process.

    python -m benchmarks.ray_verbs [--shards 100] [--shard-mb 16] [--rounds 5]

The cluster of Ray is started before, and its workers are warm. Rounds alternate, and the ratio is that of the medians:
threads / Ray, which must reach 0.85.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import penstock as ps

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
RECORD_BYTES = 200


def write(folder: str, num_shards: int, shard_bytes: int) -> list[str]:
    """Examples of 200 bytes in plain TFRecord files."""
    count = num_shards * shard_bytes // RECORD_BYTES
    rng = np.random.default_rng(1)

    def batches() -> object:
        for first in range(0, count, 50_000):
            rows = min(50_000, count - first)
            yield {
                "id": np.arange(first, first + rows),
                "label": rng.integers(0, 1000, rows),
                "x": rng.random((rows, 32), np.float32),
            }

    made = ps.write(batches(), os.path.join(folder, "x.tfrecord"), num_shards=num_shards)
    return list(made.paths)


def compare(title: str, size: int, calls: list[Callable[[], object]], rounds: int) -> None:
    """Time two calls in turns, after one of each: the files are in the system's cache, and the workers are warm."""
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, times in zip(calls, taken, strict=True):
            begun = time.perf_counter()
            call()
            if number:
                times.append(time.perf_counter() - begun)
    threads, workers = map(statistics.median, taken)
    print(
        f"{title}, {size / 1e6:.0f} MB: two threads {threads:.2f} s ({size / threads / 1e6:.0f} MB/s),"
        f" two workers {workers:.2f} s ({size / workers / 1e6:.0f} MB/s): {threads / workers:.2f} (0.85)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=100, help="of verify; a fifth for convert")
    parser.add_argument("--shard-mb", type=float, default=16, help="five times that for convert")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    import ray

    from penstock.ray import Cluster

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    num_bytes = int(given.shard_mb * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, given.shards, num_bytes)
        size = sum(map(os.path.getsize, paths))
        verify = [partial(ps.verify, paths, threads=2), partial(ps.verify, paths, on=Cluster())]
        compare(f"verify {len(paths)} shards", size, verify, given.rounds)
    for ending in ("tfrecord", "parquet"):
        with tempfile.TemporaryDirectory() as folder:
            paths = write(folder, given.shards // 5, num_bytes * 5)
            size = sum(map(os.path.getsize, paths))
            target = os.path.join(folder, "out", "")
            # Records are parsed, and written in the same number of files.
            how = {"columns": ["id", "label", "x"], "format": ending, "overwrite": True}
            convert = [
                partial(ps.convert, paths, target, threads=2, **how),
                partial(ps.convert, paths, target, on=Cluster(), **how),
            ]
            compare(f"convert {len(paths)} shards to {ending}", size, convert, given.rounds)
    ray.shutdown()


if __name__ == "__main__":
    main()
