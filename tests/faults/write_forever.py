"""Writes small files until it is killed: the child processes ("victims") of test_kill.

Starting Python is slow, so this process starts once and forks a victim for each line of input; it prints the victim's
process id.
"""

from __future__ import annotations

import os
import sys

import pyarrow as pa

from penstock.verbs.write.write import write


def write_forever(folder: str, number: int) -> None:
    table = pa.table({"id": range(2000), "text": ["some text of a record"] * 2000})
    while True:
        slot = number % 6
        # New names and old ones, plain and compressed, one file and two.
        name = f"{folder}/slot-{slot}.tfrecord" if slot < 4 else f"{folder}/n-{number}.tfrecord"
        options = [{}, {"compression": "gzip", "member_bytes": 8192}, {"num_shards": 2}][number % 3]
        write(table, name, overwrite=True, threads=1 + number % 2, **options)  # type: ignore[arg-type]
        number += 1


def main(folder: str) -> None:
    # Import lazily imported modules now, so that victims spend their time writing. Use one thread,
    # because a process with more must not fork.
    write({"id": [1]}, f"{folder}/slot-0.tfrecord", threads=1, index=False)
    os.unlink(f"{folder}/slot-0.tfrecord")
    for line in sys.stdin:
        victim = os.fork()
        if not victim:
            write_forever(folder, 1000 * int(line))
        print(victim, flush=True)
        os.waitpid(victim, 0)


if __name__ == "__main__":
    main(sys.argv[1])
