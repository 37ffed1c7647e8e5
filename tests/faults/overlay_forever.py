"""Child processes ("victims") of test_overlay_faults, which replace an overlay until they are killed. For each line
of input, this program forks a victim, prints its process id, and reports when it has ended."""

from __future__ import annotations

import os
import random
import sys

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.verbs.fields.overlays import write_overlay

SCHEMA = pa.schema([("score", pa.int64())])


def keep(paths: list[str], factor: int) -> None:
    def columns_of_shard(shard: int) -> list[pa.RecordBatch]:
        values = np.arange(100 * shard, 100 * shard + 100) * factor
        return [pa.record_batch([pa.array(values)], schema=SCHEMA)]

    write_overlay(ps.open(paths), "score", SCHEMA, columns_of_shard, overwrite=True)


def main(paths: list[str]) -> None:
    keep(paths, 1)  # imports lazily imported modules now
    for _ in sys.stdin:
        victim = os.fork()
        if not victim:
            while True:
                keep(paths, random.randrange(1, 1000))
        print(victim, flush=True)
        os.waitpid(victim, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
