"""Runs one row of the table in a separate process, in the environment of its library.

Reads one word per line, "check" or "run", and answers each with one line of JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import data as benchmark_data
from benchmarks.job import Job


def busy_seconds() -> float:
    """CPU seconds that the whole machine has worked so far, or lost to its host."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = (int(f) for f in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of this process, its threads and the children that it waited for."""
    t = os.times()
    return time.process_time() + t.children_user + t.children_system


def peak_megabytes() -> float:
    """The peak memory of this process. (getrusage would include its parent's, too.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


ROUND_SECONDS = 1.0
"""A round repeats its work for at least this long, for every row: in the first moments, the speed depends mostly on
what other processes left in the caches and the memory."""


def timed(job: Job) -> dict[str, Any]:
    """Runs the work on the clock, again and again; returns the means of one run."""
    gc.collect()
    wall = own = others = seconds = 0.0
    repeats = num_records = 0
    while wall < ROUND_SECONDS:
        job.before()
        busy, cpu, start = busy_seconds(), own_seconds(), time.perf_counter()
        outcome = job.work(False)
        passed = time.perf_counter() - start
        cpu = own_seconds() - cpu
        others += busy_seconds() - busy - cpu
        job.after()
        wall += passed
        own += cpu
        seconds += passed if outcome.measured is None else outcome.measured
        num_records = outcome.num_records
        repeats += 1
    return {
        "seconds": seconds / repeats,
        "cores": own / wall,
        "others_cores": max(0.0, others / wall),
        "num_records": num_records,
        "megabytes": peak_megabytes(),
    }


def checked(job: Job, data: benchmark_data.Data | None) -> dict[str, Any]:
    """Runs the work once without timing it, and compares what it read with the facts."""
    job.before()
    outcome = job.work(True)
    job.after()
    if outcome.kind and data:
        from benchmarks.checks import expected

        want = expected(outcome.kind, data, outcome.num_records)
        found = (outcome.num_records, outcome.checksum)
        if found != want:
            return {"error": f"read {found} where the data has {want} (records, checksum)"}
    return {"num_records": outcome.num_records, "checked": bool(outcome.kind)}


def main(engine: str, case: str, row: str, folder: str, size: str) -> None:
    """Serves one job until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    data = benchmark_data.load(Path(folder), size) if size else None
    jobs = importlib.import_module(f"benchmarks.engines.{engine}").JOBS
    job: Job = jobs[case][row](data)
    for line in sys.stdin:
        answer = checked(job, data) if line.strip() == "check" else timed(job)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:6])
