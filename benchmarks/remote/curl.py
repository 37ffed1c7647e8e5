"""The limit: curl, eight processes that each fetch some of the shards."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.remote.where import Where

STREAMS = 8


def fetch(format: str) -> Callable[[Where], Callable[[], int]]:
    """Fetch all shards, and keep nothing."""

    def job(where: Where) -> Callable[[], int]:
        commands: list[list[str]] = []
        for stream in range(STREAMS):
            lines = [
                f'url = "{address}"\noutput = "/dev/null"\n'
                for address in where.addresses[format][stream::STREAMS]
            ]
            file = Path(where.scratch, f"{stream}.curl")
            file.write_text("".join(lines))
            commands.append(["curl", "-sf", "-w", "%{size_download}\n", "--config", str(file)])

        def timed() -> int:
            running = [subprocess.Popen(one, stdout=subprocess.PIPE) for one in commands]
            counts = [one.communicate()[0].split() for one in running]
            return sum(int(float(count)) for some in counts for count in some)

        return timed

    return job


JOBS = {f"scan {name}": fetch(name) for name in ("tfrecord", "tar", "parquet", "one")}
