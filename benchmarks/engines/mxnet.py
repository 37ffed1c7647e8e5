"""MXNet 1.9.1 itself on RecordIO: a Python loop over its reader, and its reads by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import containers
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "mxnet"


def recordio() -> Any:
    """MXNet's RecordIO module."""
    import numpy as np

    np.bool = bool  # type: ignore[misc]  # MXNet asks for it while it is imported
    from mxnet import recordio

    return recordio


def scan(data: Data) -> Job:
    """Every payload, one by one, as the bytearrays that MXNet returns."""
    from benchmarks import checks

    path, module = str(containers.copy(data, "rec")), recordio()

    def records() -> Iterator[bytearray]:
        reader = module.MXRecordIO(path, "r")
        while (record := reader.read()) is not None:
            yield record
        reader.close()

    def work(check: bool) -> Outcome:
        if check:
            kept = list(records())
            return Outcome(len(kept), "payloads", checks.payload_sum(kept))
        return Outcome(sum(1 for _ in records()))

    return Job(work)


def take(data: Data) -> Job:
    """256 random payloads, each by its key in a text index, which is made before the clock starts."""
    from benchmarks import checks

    path, module = containers.copy(data, "rec"), recordio()
    index = path.with_suffix(".mxnet-idx")
    reader = module.MXRecordIO(str(path), "r")
    with index.open("w") as lines:
        for key in range(data.num_records):
            lines.write(f"{key}\t{reader.tell()}\n")
            reader.read()
    reader.close()
    keyed = module.MXIndexedRecordIO(str(index), str(path), "r")
    batches = [batch.tolist() for batch in checks.take_batches(data)]

    def work(check: bool) -> Outcome:
        return Outcome(sum(len([keyed.read_idx(n) for n in batch]) for batch in batches))

    return Job(work)


SIZES = ("small", "large")
JOBS = {
    **{f"recordio-{size}": {"MXRecordIO.read": scan} for size in SIZES},
    **{f"recordio-take-{size}": {"MXIndexedRecordIO.read_idx": take} for size in SIZES},
}
