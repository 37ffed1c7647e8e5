"""`python -m benchmarks.ray_loader`: epochs of `ps.Loader` beside those of `ray.data`'s iterators, on the same files.

Both read the same Parquet files, on this machine, with as many threads as Ray has workers. One epoch of each row warms
up: Ray's workers are started then. The timed rows take turns, and each figure is the median of the rounds. Every epoch
is checked: all records, each once. Ratios are to the first row, the order for Parquet: `Shuffled` unpacks pages of it for
each record.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Ray stays on loopback. It looks when it is imported.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import ray
import ray.data

SIZES = {"200 B": (400_000, 200), "100 KB": (2_000, 100_000)}
"""Records, and bytes of one."""
SHARDS, BATCH, BUFFER, CORES = 20, 256, 10_000, 2

Epoch = Callable[[list[str]], Iterable[dict[str, Any]]]


def loader(order: Any) -> Epoch:
    """Epochs of penstock."""
    return lambda files: ps.Loader(ps.open(files), BATCH, order=order, threads=CORES)


def loader_torch(files: list[str]) -> Iterable[dict[str, Any]]:
    """The same as tensors."""
    return ps.Loader(ps.open(files), BATCH, order=ps.Blocked(seed=0), threads=CORES).torch()


def in_order(files: list[str]) -> Iterable[dict[str, Any]]:
    """Ray without any shuffling."""
    return ray.data.read_parquet(files).iter_batches(batch_size=BATCH)


def by_buffer(files: list[str]) -> Iterable[dict[str, Any]]:
    """Ray's local shuffling, as its documentation recommends it: files in random order, and a buffer."""
    data = ray.data.read_parquet(files, shuffle="files")
    return data.iter_batches(
        batch_size=BATCH, local_shuffle_buffer_size=BUFFER, local_shuffle_seed=0
    )


def by_buffer_torch(files: list[str]) -> Iterable[dict[str, Any]]:
    """The same as tensors, of the columns that can be tensors."""
    data = ray.data.read_parquet(files, shuffle="files", columns=["id", "vector"])
    return data.iter_torch_batches(
        batch_size=BATCH, local_shuffle_buffer_size=BUFFER, local_shuffle_seed=0
    )


def all_of_them(files: list[str]) -> Iterable[dict[str, Any]]:
    """Ray's shuffling of all records, in its object store."""
    return ray.data.read_parquet(files).random_shuffle(seed=0).iter_batches(batch_size=BATCH)


ROWS: dict[str, tuple[Epoch, str]] = {
    "ps.Loader, Blocked": (loader(ps.Blocked(seed=0)), "blocks, and the records of 32 blocks"),
    "ps.Loader, Shuffled": (loader(ps.Shuffled(seed=0)), "all records, uniformly"),
    "ps.Loader, Sequential": (loader(ps.Sequential()), "nothing"),
    "ps.Loader.torch, Blocked": (loader_torch, "blocks, and the records of 32 blocks"),
    "ray random_shuffle": (all_of_them, "all records, uniformly"),
    "ray local shuffle": (by_buffer, f"files, and a buffer of {BUFFER:,} records"),
    "ray iter_batches": (in_order, "nothing"),
    "ray iter_torch_batches": (by_buffer_torch, f"files, and a buffer of {BUFFER:,} records"),
}


def write(folder: Path, count: int, num_bytes: int) -> list[str]:
    """The files: a number, a vector of 16, and as many bytes as are left."""
    rng = np.random.default_rng(0)

    def batches() -> Iterable[pa.RecordBatch]:
        step = max(1, min(10_000, (16 << 20) // num_bytes))
        for first in range(0, count, step):
            ids = np.arange(first, min(first + step, count))
            vectors = rng.random((len(ids), 16), np.float32)
            blobs = [rng.bytes(num_bytes - 72) for _ in ids]
            yield pa.record_batch(
                {
                    "id": ids,
                    "vector": pa.FixedShapeTensorArray.from_numpy_ndarray(vectors),
                    "blob": pa.array(blobs, pa.binary()),
                }
            )

    made = ps.write(batches(), folder / "x.parquet", num_shards=SHARDS, compression="none")
    return list(made.paths)


def timed(epoch: Epoch, files: list[str], count: int) -> float:
    """Seconds of one epoch, opening included."""
    began = time.perf_counter()
    found = [np.asarray(batch["id"]) for batch in epoch(files)]
    seconds = time.perf_counter() - began
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(count))
    return seconds


def main() -> None:
    """Run the rows, and print a table of each size of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_loader", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1: a tenth of the records")
    parser.add_argument("--data", type=Path, help="a folder for 200 MB")
    given = parser.parse_args()
    ray.init(
        address="local",
        num_cpus=CORES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    for size in given.size or SIZES:
        count, num_bytes = SIZES[size]
        count = max(SHARDS, int(count * given.scale))
        with tempfile.TemporaryDirectory(dir=given.data) as name:
            files = write(Path(name), count, num_bytes)
            seconds: dict[str, list[float]] = {row: [] for row in ROWS}
            for epoch, _ in ROWS.values():
                timed(epoch, files, count)
            for _ in range(given.rounds):
                for row, (epoch, _) in ROWS.items():
                    seconds[row].append(timed(epoch, files, count))
        first = median(seconds[next(iter(ROWS))])
        print(f"\n| {count:,} records of {size} | records/s | MB/s | ratio | shuffles |")
        print("|---|---|---|---|---|")
        for row, (_, shuffles) in ROWS.items():
            took = median(seconds[row])
            rate = count / took
            print(
                f"| {row} | {rate:,.0f} | {rate * num_bytes / 1e6:,.0f} | {first / took:.2f} | {shuffles} |"
            )
    ray.shutdown()


if __name__ == "__main__":
    main()
