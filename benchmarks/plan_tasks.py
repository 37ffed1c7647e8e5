"""Plans the tasks of a million objects that a manifest lists, and prints what that takes: `python -m benchmarks.plan_tasks`.

There is no store, so a plan that opens an object fails.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.manifests.table import GROUP_SHARDS, SCHEMA, Footer
from penstock.storage.manifest_mark import KEY

SHARDS = 1_000_000
OPTIONS = {"aws_endpoint_url": "http://127.0.0.1:1", "aws_allow_http": "true", "aws_region": "r"}
MIB = 1 << 20


def write_manifest(path: Path, num_shards: int = SHARDS) -> None:
    """A manifest of objects of about 1 MB and ten records each, none of which exists."""
    groups = range(0, num_shards, GROUP_SHARDS)
    counts = tuple(10 * min(GROUP_SHARDS, num_shards - first) for first in groups)
    schema = pa.schema([("id", pa.int64())])
    facts = Footer(counts, 10**12, "kept", schema, True, False, False, "", "00")
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", store_schema=False) as writer:
        for first in groups:
            numbers = range(first, min(first + GROUP_SHARDS, num_shards))
            columns: dict[str, list[Any]] = {
                "path": [f"s3://bucket/part-{n:07}.tfrecord" for n in numbers],
                "format": ["tfrecord"] * len(numbers),
                "bytes": [10**6 + n for n in numbers],
                "records": [10] * len(numbers),
                "first_record": [10 * n for n in numbers],
                "etag": [f'"{hash((n, n)):032x}"' for n in numbers],
                "checksum": list(numbers),
            }
            nulls = [None] * len(numbers)
            arrays = [pa.array(columns.get(field.name, nulls), field.type) for field in SCHEMA]
            writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
        writer.add_key_value_metadata({KEY.decode(): facts.to_json().decode()})


def peak_bytes() -> int:
    """The most memory that this process has had. `getrusage` counts that of the process which started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def plan(path: Path, target_bytes: int) -> dict[str, float]:
    """Open the manifest and make the tasks."""
    began, cpu = time.perf_counter(), time.process_time()
    tasks = ps.open(str(path), storage_options=OPTIONS).tasks(target_bytes)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return {
        "tasks": len(tasks),
        "records": sum(task.num_records or 0 for task in tasks),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "pickle_bytes": max(len(pickle.dumps(task)) for task in tasks[:: len(tasks) // 100]),
        "peak_mib": peak_bytes() / (1 << 20),
    }


def main() -> None:
    """Print a line for tasks of 128 MiB, and one for a task an object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_tasks")
    parser.add_argument("--shards", type=int, default=SHARDS, help="objects of the manifest")
    shards = parser.parse_args().shards
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.manifest"
        write_manifest(path, shards)
        for target in (128 * MIB, 1):
            found = plan(path, target)
            print(
                f"{shards:,} objects: {found['tasks']:,.0f} tasks in {found['seconds']:.2f} s "
                f"({found['cpu_seconds']:.2f} s of CPU); a pickle has up to {found['pickle_bytes']:,.0f} bytes; "
                f"the process has {found['peak_mib']:.0f} MiB"
            )


if __name__ == "__main__":
    main()
