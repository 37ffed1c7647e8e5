"""penstock.ray.read beside Ray's own readers, on a cluster of two nodes of one core each.

    python -m benchmarks.ray_read [--bytes 2e9] [--own-bytes 5e7] [--rounds 3] [--folder DIR]

`--bytes` is the size of the data, `--own-bytes` that for Ray's own `read_tfrecords`, which would take minutes. Each
figure is the best of the rounds, in which the readers take turns, after one round that is not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import numpy as np
import pyarrow as pa

import penstock as ps

BLOCK_BYTES = 128 << 20
SHARD_BYTES = 128 << 20


def cluster(object_bytes: int) -> Any:
    """Start a cluster, and connect to it."""
    import ray
    from ray.cluster_utils import Cluster

    own = {
        "num_cpus": 1,
        "node_ip_address": "127.0.0.1",
        "object_store_memory": object_bytes,
    }
    made = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    made.add_node(**own)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = BLOCK_BYTES
    return made


def examples(folder: Path, num_bytes: int) -> list[str]:
    """TFRecords of Examples of about 200 bytes."""
    rng = np.random.default_rng(0)
    per_shard = max(1, min(SHARD_BYTES, num_bytes // 2) // 220)
    paths: list[str] = []
    while sum(map(os.path.getsize, paths)) < num_bytes:
        path = str(folder / f"x-{len(paths):05d}.tfrecord")
        text = rng.integers(97, 123, (per_shard, 100), np.uint8).view("S100").ravel()
        values = rng.random((per_shard, 16), np.float32)
        ps.write({"id": np.arange(per_shard), "text": text, "value": values}, path)
        paths.append(path)
    return paths


def images(folder: Path, num_bytes: int) -> list[str]:
    """Tars of images of 100 KB: random bytes, since nothing decodes them."""
    rng = np.random.default_rng(0)
    per_shard = max(1, min(SHARD_BYTES, num_bytes // 2) // 100_000)
    paths: list[str] = []
    while sum(map(os.path.getsize, paths)) < num_bytes:
        path = str(folder / f"x-{len(paths):05d}.tar")
        files = [rng.bytes(100_000) for _ in range(per_shard)]
        keys = [f"{len(paths):05d}{n:06d}" for n in range(per_shard)]
        ps.write(pa.table({"__key__": keys, "jpg": pa.array(files, pa.binary())}), path)
        paths.append(path)
    return paths


def ready_made(num_bytes: int) -> Any:
    """A dataset whose blocks cost nothing to make: Ray's own rate."""
    import ray
    from ray.data import Datasource
    from ray.data.block import BlockMetadata
    from ray.data.datasource import ReadTask

    def blocks() -> Iterator[pa.Table]:
        size = BLOCK_BYTES - (1 << 20)
        yield pa.table({"x": pa.array(np.zeros(size // 8, np.int64))})

    class Source(Datasource):
        def estimate_inmemory_data_size(self) -> int:
            return num_bytes

        def get_read_tasks(self, *_: Any, **__: Any) -> list[ReadTask]:
            facts = BlockMetadata(None, BLOCK_BYTES, None, None)
            return [ReadTask(blocks, facts) for _ in range(max(2, num_bytes // BLOCK_BYTES))]

    return ray.data.read_datasource(Source())


def consumed(data: Any) -> int:
    """Make all blocks, leave them in the object store, and return their bytes."""
    return sum(bundle.size_bytes() for bundle in data.iter_internal_ref_bundles())


def large(paths: list[str], num_bytes: int) -> Any:
    """A dataset whose blocks are as large as those that are ready."""
    import penstock.ray

    count = max(2, num_bytes // BLOCK_BYTES)
    return penstock.ray.read(paths, shared_paths=True, override_num_blocks=count)


def scanned(paths: list[str]) -> int:
    return sum(batch.nbytes for batch in ps.open(paths).scan(threads=2))


def best(rounds: int, calls: dict[str, Callable[[], int]]) -> dict[str, tuple[float, int]]:
    """The least seconds of each call, and the bytes that it returned. A call that fails is left out, with its error."""
    found: dict[str, tuple[float, int]] = {}
    for count in range(rounds + 1):
        for name, call in list(calls.items()):
            begin = time.perf_counter()
            try:
                num_bytes = call()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[-1][:100]}")
                del calls[name]
                continue
            seconds = time.perf_counter() - begin
            if count and (name not in found or seconds < found[name][0]):
                found[name] = seconds, num_bytes
    return found


def row(name: str, seconds: float, num_bytes: int, more: str = "") -> None:
    print(f"{name:45} {seconds:8.3f} s {num_bytes / seconds / 1e6:9.1f} MB/s  {more}", flush=True)


def counting(folder: Path, rounds: int) -> None:
    import ray

    import penstock.ray

    ps.write({"id": np.zeros(100_000, np.int64)}, folder / "first.tfrecord")
    paths = [str(folder / f"n-{n:03d}.tfrecord") for n in range(100)]
    for path in paths:
        os.link(folder / "first.tfrecord", path)
        ps.index(path)
    dataset = ps.open(paths, index="beside")
    calls = {
        "count 10^7 records: penstock.ray.read": lambda: penstock.ray.read(dataset).count(),
        "count 10^7 records: open and read": lambda: penstock.ray.read(paths).count(),
        "count 10^5 records: read_tfrecords": lambda: ray.data.read_tfrecords(paths[:1]).count(),
    }
    for name, (seconds, _) in best(rounds, calls).items():
        print(f"{name:45} {seconds:8.3f} s", flush=True)


def of_examples(folder: Path, num_bytes: int, own_bytes: int, rounds: int) -> None:
    import ray

    import penstock.ray

    paths = examples(folder, num_bytes)
    few_folder = folder / "few"
    few_folder.mkdir()
    few = examples(few_folder, own_bytes)
    stored, few_stored = (sum(map(os.path.getsize, each)) for each in (paths, few))
    found = best(
        rounds,
        {
            "penstock": lambda: consumed(large(paths, num_bytes)),
            "few": lambda: consumed(penstock.ray.read(few, shared_paths=True)),
            "ready": lambda: consumed(ready_made(num_bytes)),
            "threads": lambda: scanned(paths),
            "own": lambda: consumed(ray.data.read_tfrecords(few)),
        },
    )
    seconds, made = found["penstock"]
    row("Examples: penstock.ray.read, stored bytes", seconds, stored)
    row("Examples: penstock.ray.read, bytes of blocks", seconds, made)
    ready_seconds, ready_bytes = found["ready"]
    ratio = made / seconds / (ready_bytes / ready_seconds)
    row("blocks that are ready", ready_seconds, ready_bytes, f"penstock has {ratio:.2f} of it")
    threads = found["threads"][0]
    row("Examples: two threads, stored bytes", threads, stored, f"{threads / seconds:.2f}")
    row("Examples, few: penstock.ray.read", found["few"][0], few_stored)
    if "own" in found:
        times = found["own"][0] / found["few"][0]
        row(
            "Examples, few: read_tfrecords",
            found["own"][0],
            few_stored,
            f"{times:.1f} times as long",
        )


def of_images(folder: Path, num_bytes: int, rounds: int) -> None:
    import ray

    paths = images(folder, num_bytes)
    stored = sum(map(os.path.getsize, paths))
    found = best(
        rounds,
        {
            "penstock": lambda: consumed(large(paths, num_bytes)),
            # With decoder=False, Ray 2.60 decodes images all the same.
            "own": lambda: consumed(ray.data.read_webdataset(paths, decoder=None)),
        },
    )
    row("images of 100 KB: penstock.ray.read", found["penstock"][0], stored)
    if "own" in found:
        times = found["own"][0] / found["penstock"][0]
        row(
            "images of 100 KB: read_webdataset",
            found["own"][0],
            stored,
            f"{times:.1f} times as long",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, default=2 << 30)
    parser.add_argument("--own-bytes", type=float, default=50e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    num_bytes, own_bytes = int(given.bytes), int(given.own_bytes)
    made = cluster(max(2 * num_bytes, 512 << 20))
    try:
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            for part in ("count", "examples", "images"):
                (Path(name) / part).mkdir()
            counting(Path(name) / "count", given.rounds)
            of_examples(Path(name) / "examples", num_bytes, own_bytes, given.rounds)
            of_images(Path(name) / "images", num_bytes, given.rounds)
    finally:
        import ray

        ray.shutdown()
        made.shutdown()


if __name__ == "__main__":
    main()
