"""The process that runs one row once: it prepares, works, and prints what that took."""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

from benchmarks.remote.where import Where


def cpu_seconds() -> float:
    """The processor time of this process and of its children that have ended."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in both]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_megabytes() -> float:
    """The most memory that this process had. `ru_maxrss` would include that of the process which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(engine: str, job: str) -> None:
    """Run a job. It returns the function to time; that returns the bytes that were read, and perhaps more figures."""
    module = importlib.import_module(f"benchmarks.remote.{engine}")
    timed = module.JOBS[job](Where.from_environment())
    gc.collect()  # what the imports left, which Python would look through at some moment of the work
    cpu, begun = cpu_seconds(), time.perf_counter()
    found = timed()
    seconds = time.perf_counter() - begun
    count, more = found if isinstance(found, tuple) else (found, {})
    facts = {
        "seconds": seconds,
        "cpu": cpu_seconds() - cpu,
        "bytes": count,
        "megabytes": peak_megabytes(),
        **more,
    }
    print(json.dumps(facts), flush=True)
    os._exit(0)  # some rivals leave threads that end late


if __name__ == "__main__":
    main(*sys.argv[1:3])
