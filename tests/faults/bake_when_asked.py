"""Bakes overlays in place, in a child process for each line of input. The tests kill the children."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import penstock as ps


def bake(folder: str) -> None:
    """The job that is killed and then called again."""
    shards = sorted(str(path) for path in Path(folder).glob("*.tfrecord"))
    ps.bake_fields(shards, in_place=True, threads=2)


def main(folder: str) -> None:
    """Forks once per line of input and prints the child's process id."""
    # Import lazily imported modules now, so that the children spend their time on the job.
    with tempfile.TemporaryDirectory() as warm:
        ps.write({"id": range(50)}, f"{warm}/a.tfrecord")
        ps.add_fields(f"{warm}/a.tfrecord", {"score": range(50)})
        ps.bake_fields(f"{warm}/a.tfrecord", in_place=True, threads=1)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            bake(folder)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1])
