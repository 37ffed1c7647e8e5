"""Helpers for reading in tests: from memory if a thousand variants are opened, and with errors as results."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.framing.index.sidecar import path_for
from penstock.storage import MemoryStorage

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PENSTOCK_SHARED", ROOT.parent / "shared"))
HOSTILE = "cat\x1b[31m\u202etac\x07"
"""A name that would send control sequences to a terminal."""


def shared_path(*parts: str) -> Path:
    """A path in the folder of specifications and files from other projects."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: the tests need the project's shared folder beside the checkout; "
            "set PENSTOCK_SHARED where it lies elsewhere"
        )
    return path


def index_of(path: str | os.PathLike[str]) -> Path:
    """The path of a file's sidecar."""
    return Path(sidecar_of(path))


def sidecar_of(path: str | os.PathLike[str]) -> str:
    """The name of the sidecar of a file or object."""
    return path_for(os.fspath(path), None)


@dataclass
class Delivered:
    """The result of reading: payloads up to the error, the error, and the skipped regions."""

    records: list[bytes]
    error: ps.PenstockError | None
    damage: list[ps.SkippedRegion]


def read_all(source: Any, *, threads: int = 1, **options: Any) -> Delivered:
    """Open raw and scan everything, with the error (of `open`, too) as part of the result."""
    records: list[bytes] = []
    damage: list[ps.SkippedRegion] = []
    try:
        dataset = ps.open(source, raw=True, **{"index": "never", **options})
    except ps.PenstockError as error:
        return Delivered(records, error, damage)
    caught: ps.PenstockError | None = None
    try:
        for batch in dataset.scan(threads=threads):
            records += batch.column("record").to_pylist()
    except ps.PenstockError as error:
        caught = error
    return Delivered(records, caught, dataset.damage)


def read_bytes(data: bytes, *, path: str = "m.tfrecord", **options: Any) -> Delivered:
    """`read_all` of a file that is only in memory."""
    return read_all(path, storage=MemoryStorage({path: data}), **options)


def records_of(dataset: ps.Dataset, **options: Any) -> list[bytes]:
    """All payloads of a dataset opened raw."""
    return [p for batch in dataset.scan(**options) for p in batch.column("record").to_pylist()]


def salvaged(data: bytes, *, path: str = "m.tfrecord", format: str = "tfrecord") -> list[bytes]:
    """The payloads that a repair with salvage keeps of a file that is only in memory."""
    storage, made = MemoryStorage({path: data}), f"whole-{path}"
    ps.repair(path, into=made, salvage=True, format=format, index=False, storage=storage)
    got = read_all(made, format=format, storage=storage)
    assert got.error is None
    return got.records


def run_python(
    code: str, *arguments: str, megabytes: int | None = None, seconds: float = 60
) -> str:
    """Run code in a fresh interpreter, its memory bounded, and return what it printed.

    `megabytes` bounds the address space on top of what importing costs, so that a file which makes
    penstock reserve too much ends in a MemoryError instead of the machine's last page.
    """

    def bound() -> None:
        if megabytes is not None:
            # Threads' stacks and numpy's and pyarrow's libraries take about 2 GiB of addresses.
            limit = (megabytes + 2560) << 20
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        preexec_fn=bound,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
