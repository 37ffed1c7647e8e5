"""Helpers for the stress tests of the loader: small datasets in every format, and child processes."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

CONTAINERS: dict[str, dict[str, Any]] = {
    "plain.tfrecord": {},
    "gzip.tfrecord": {"compression": "gzip"},
    "deflated.npz": {"compression": "deflate"},
    "stored.npz": {},
    "x.tar": {},
    "x.parquet": {},
    "x.arrow": {},
    "x.h5": {},
    "x.beton": {},
    "x.rec": {},
    "x.msgpack": {},
    "shards-{shard}.tfrecord": {"num_shards": 3},
    "shards-{shard}.tar": {"num_shards": 3},
}


def write(name: str, folder: Path, count: int, *, reverse: bool = False) -> str:
    """Write a dataset of this many records, whose `id` is their number; returns a function that opens it."""
    ids = np.arange(count, dtype=np.int64)
    ids = ids[::-1].copy() if reverse else ids
    columns: dict[str, Any] = {"id": ids, "half": ids.astype(np.float32) / 2}
    if name.endswith(".tar"):
        columns = {"__key__": [f"k{n:07}" for n in ids], "id": [str(n) for n in ids]}
    elif name.endswith(".rec"):
        columns = {"data": [str(n).encode() for n in ids]}
    ps.write(pa.table(columns), str(folder / name), overwrite=True, **CONTAINERS.get(name, {}))
    return str(folder / name.replace("{shard}", "*"))


def ids_of(batch: dict[str, Any]) -> list[int]:
    """The numbers of the records of a batch."""
    return [int(value) for value in batch["id" if "id" in batch else "data"]]


def in_child(work: Callable[[], bool]) -> int:
    """Run a function in a forked child, which ends without running any exit code of the parent."""
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        code = 0 if work() else 2
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int, seconds: float = 10) -> int | None:
    """The exit status of a child. If it hangs, it is killed, and the result is None."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
