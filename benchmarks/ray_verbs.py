"""`verify` of many shards by two workers of one core each, beside two threads of one process.

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


def seconds(call: Callable[[], ps.Report]) -> float:
    begun = time.perf_counter()
    assert call().ok
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--shard-mb", type=float, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    import ray

    from penstock.ray import Cluster

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, given.shards, int(given.shard_mb * 1e6))
        size = sum(map(os.path.getsize, paths))
        calls: dict[str, Callable[[], ps.Report]] = {
            "two threads": lambda: ps.verify(paths, threads=2),
            "two workers": lambda: ps.verify(paths, on=Cluster()),
        }
        for call in (
            calls.values()
        ):  # the files are in the system's cache, and the workers have imported penstock
            call()
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(given.rounds):
            for name, call in calls.items():
                taken[name].append(seconds(call))
        medians = {name: statistics.median(times) for name, times in taken.items()}
        for name, median in medians.items():
            print(f"{name}: {median:.2f} s, {size / median / 1e6:.0f} MB/s")
        threads, workers = medians.values()
        print(
            f"verify of {given.shards} shards, {size / 1e6:.0f} MB: {threads / workers:.2f} (0.85)"
        )
    ray.shutdown()


if __name__ == "__main__":
    main()
