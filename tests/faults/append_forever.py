"""Appends to a file until it is killed: the child processes ("victims") of test_append_kill.

Like write_forever, it starts once and forks a victim for each line of input. The line has a path, and the number of
the system call at which the victim kills itself, or -1 if another process kills it.
"""

from __future__ import annotations

import os
import signal
import sys

import penstock as ps
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls

STEP = 200
"""The number of records in one append."""
PAD = b"so that an append takes a while" * 100


class KillingCalls(Calls):
    """The real calls. The process is killed in the N-th call; a write is half done then."""

    def __init__(self, last: int) -> None:
        self._left = last

    def _count(self) -> None:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        self._count()
        return super().open(path, flags, mode)

    def write(self, fd: int, parts: list[memoryview]) -> int:
        if not self._left:
            super().write(fd, [parts[0][: len(parts[0]) // 2]])
        self._count()
        return super().write(fd, parts)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def append_forever(path: str, last: int) -> None:
    storage = LocalStorage(KillingCalls(last))
    first = len(ps.open(path, index="never"))
    while True:
        data = {"id": range(first, first + STEP), "pad": [PAD] * STEP}
        ps.append(data, path, threads=1, level=1, storage=storage)
        first += STEP


def main(folder: str) -> None:
    # Import lazily imported modules now. Use one thread, because a process with more must not fork.
    path = f"{folder}/warm.tfrecord.gz"
    os.mkdir(folder)
    ps.write({"id": [0], "pad": [PAD]}, path, threads=1)
    ps.append({"id": [1], "pad": [PAD]}, path, threads=1)
    len(ps.open(path))
    for line in sys.stdin:
        victim = os.fork()
        if not victim:
            last, path = line.rstrip("\n").split(" ", 1)
            append_forever(path, int(last))
        print(victim, flush=True)
        os.waitpid(victim, 0)


if __name__ == "__main__":
    main(sys.argv[1])
