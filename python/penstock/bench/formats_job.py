"""The jobs of `bench formats`: write a sample, or read a written sample."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench.measure import memory_growth_of, seconds_of

BATCH_RECORDS = 256
"""The number of records in one `take`."""
LEAST_SECONDS = 0.1
_MOST_TAKES = 400
_SLOW_SECONDS = 2.0


def format_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job for one format. `side` is "write" or "read"."""
    return _write(job) if job["side"] == "write" else _read(job)


def _convert(job: dict[str, Any], source: str, target: str) -> None:
    options: dict[str, Any] = {"threads": job["threads"]}
    if job["compression"]:
        options["compression"] = job["compression"]
    ps.convert(source, target, format=job["format"], overwrite=True, **options)


def _target(job: dict[str, Any], name: str) -> str:
    return os.path.join(job["folder"], name + job["ending"])


def _write(job: dict[str, Any]) -> dict[str, Any]:
    # Warm up on a few records, so that imports and the start of threads are not timed.
    _convert(job, job["small"], _target(job, "warm"))
    target = _target(job, "sample")

    def write() -> float:
        start = time.perf_counter()
        _convert(job, job["sample"], target)
        return time.perf_counter() - start

    # The first call measures memory. If it was quick, a second call is timed, with warm memory.
    seconds, memory = memory_growth_of(write)
    if seconds < _SLOW_SECONDS:
        seconds = write()
    data, index = _sizes(target)
    return {"seconds": seconds, "memory_bytes": memory, "num_bytes": data, "index_bytes": index}


def _sizes(target: str) -> tuple[int, int]:
    """Return the bytes of the data, and of the indexes next to it."""
    data = index = 0
    for folder, _, names in os.walk(os.path.dirname(target)):
        for name in names:
            path = os.path.join(folder, name)
            top = os.path.relpath(path, os.path.dirname(target)).removeprefix(".")
            if not top.startswith("sample"):
                continue
            size = os.stat(path).st_size
            is_index = name.endswith((".penstock", ".idx"))
            data, index = data + size * (not is_index), index + size * is_index
    return data, index


def _read(job: dict[str, Any]) -> dict[str, Any]:
    warm = ps.open(_target(job, "warm"), format=job["format"])
    for _ in warm.scan(threads=job["threads"]):
        pass
    warm.take([0])
    target = _target(job, "sample")
    start = time.perf_counter()
    ds = ps.open(target, format=job["format"])
    num_records, held = len(ds), [ds]
    del ds
    opening = time.perf_counter() - start
    if num_records != job["num_records"]:
        raise ValueError(f"reads back as {num_records} of {job['num_records']} records")
    numbers = np.random.default_rng(job["round"]).permutation(num_records)
    takes = [numbers[at : at + BATCH_RECORDS] for at in range(0, num_records, BATCH_RECORDS)]
    takes = takes[:_MOST_TAKES]

    def take() -> tuple[int, float]:
        done, passed, begun = 0, 0.0, time.perf_counter()
        while True:
            for some in takes:
                done += held[0].take(some).num_rows
                passed = time.perf_counter() - begun
                if passed > job["most_take_seconds"]:
                    return done, passed
            if passed >= LEAST_SECONDS:
                return done, passed

    def scan() -> None:
        # Open the file again, because some formats keep inflated data.
        fresh = ps.open(target, format=job["format"])
        found = sum(batch.num_rows for batch in fresh.scan(threads=job["threads"]))
        if found != num_records:
            raise ValueError(f"a scan gives {found} of {num_records} records")

    # Measure memory before time, because the first call touches new pages, which later calls reuse.
    _, take_memory = memory_growth_of(lambda: held[0].take(takes[0]))
    taken, passed = take()
    held.clear()
    _, scan_memory = memory_growth_of(scan)
    seconds = seconds_of(scan, LEAST_SECONDS)
    return {
        "open_seconds": opening,
        "scan_seconds": seconds,
        "scan_memory_bytes": scan_memory,
        "take_seconds": passed / taken,
        "take_memory_bytes": take_memory,
    }
