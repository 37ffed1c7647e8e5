"""The limits of the machine for other containers: a read and a copy, and `cat`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks import containers
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "limit"
VENV = "penstock"
PIECE_BYTES = 2 << 20


def read_and_copy(suffix: str) -> Callable[[Data], Job]:
    """The whole file in pieces, each copied to fresh memory."""

    def make(data: Data) -> Job:
        path = containers.copy(data, suffix)
        piece = memoryview(bytearray(PIECE_BYTES))

        def work(check: bool) -> Outcome:
            with open(path, "rb", buffering=0) as file:
                while count := file.readinto(piece):
                    bytes(piece[:count])
            return Outcome(data.num_records)

        return Job(work)

    return make


def cat(suffix: str) -> Callable[[Data], Job]:
    """The file copied by cat."""

    def make(data: Data) -> Job:
        from benchmarks.engines.containers_penstock import pictures

        folder = pictures()
        out = Path(folder / "out-cat")

        def work(check: bool) -> Outcome:
            out.unlink(missing_ok=True)
            subprocess.run(
                ["sh", "-c", 'cat "$1" > "$2"', "sh", folder / f"a.{suffix}", out], check=True
            )
            return Outcome(4000)

        return Job(work, after=lambda: out.unlink(missing_ok=True))

    return make


JOBS = {
    f"{name}-{size}": {"read(), then a copy": read_and_copy(suffix)}
    for name, suffix in (("tar", "tar"), ("recordio", "rec"), ("msgpack", "msgpack"))
    for size in ("small", "large")
} | {
    f"convert-{a}-{b}": {"cat in > out": cat(a)}
    for a, b in (("tfrecord", "tar"), ("tar", "beton"), ("beton", "tfrecord"))
}
