"""penstock's rows, and those of its client alone."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import penstock as ps
from benchmarks.remote.where import BATCH, NUM_RECORDS, SHARDS, Where, repeated
from penstock import _core

Timed = Callable[[], Any]
RANGE_BYTES = 8 << 20


def load_modules(where: Where) -> None:
    """Import what penstock imports at first use. The rivals' imports are not timed either."""
    importlib.import_module("penstock.storage.objects")
    for format in ("tfrecord", "tar", "parquet"):
        file = f"{where.scratch}/small.{format}"
        ps.write({"data": [b"x"]}, file)
        for _ in ps.Loader(ps.open(file), 1, order=ps.Blocked(seed=0)):
            pass


def requests(dataset: Any) -> dict[str, Any]:
    """The requests that a dataset has made."""
    return {"requests": dataset.files.storage.traffic().num_requests}


def prepared(job: Callable[[Where], Timed]) -> Callable[[Where], Timed]:
    """A job that has its modules."""

    def job_of(where: Where) -> Timed:
        load_modules(where)
        return job(where)

    return job_of


def shards(where: Where, format: str) -> list[str]:
    """The URLs of all shards."""
    return [f"s3://{where.bucket}/{name}" for name in where.names(format)]


def scan(format: str, column: str = "data", **how: Any) -> Callable[[Where], Timed]:
    """Open all shards, and read all records in order."""

    def job(where: Where) -> Timed:
        def timed() -> Any:
            dataset = ps.open(shards(where, format), **how)
            count = sum(batch.column(column).nbytes for batch in dataset.scan())
            return count, requests(dataset)

        return timed

    return job


def scan_one(where: Where) -> Timed:
    """The same records in one large file."""

    def timed() -> Any:
        dataset = ps.open(f"s3://{where.bucket}/one/one.parquet")
        return sum(batch.column("data").nbytes for batch in dataset.scan()), requests(dataset)

    return timed


def take(where: Where) -> Timed:
    """Random records of an open dataset."""
    dataset = ps.open(shards(where, "tfrecord"))
    assert len(dataset) == NUM_RECORDS
    dataset.take([0])
    numbers = np.random.default_rng(7).choice(NUM_RECORDS, BATCH, replace=False)
    before = requests(dataset)["requests"]

    def timed() -> Any:
        count = dataset.take(numbers).column("data").nbytes
        return count, {"requests": requests(dataset)["requests"] - before}

    return timed


def first_batch(where: Where) -> Timed:
    """Open all shards, and read the first batch of a shuffled epoch."""

    def timed() -> Any:
        dataset = ps.open(shards(where, "tfrecord"))
        loader = ps.Loader(dataset, BATCH, order=ps.Shuffled(seed=3), ragged="list")
        batch = next(iter(loader))
        return sum(len(one) for one in batch["data"]), requests(dataset)

    return timed


def blocked(format: str) -> Callable[[Where], Timed]:
    """An epoch in the order that suits remote data."""

    def job(where: Where) -> Timed:
        def timed() -> Any:
            dataset = ps.open(shards(where, format))
            loader = ps.Loader(dataset, BATCH, order=ps.Blocked(seed=3), ragged="list")
            count = sum(len(one) for batch in loader for one in batch["data"])
            return count, requests(dataset)

        return timed

    return job


def client(where: Where) -> Timed:
    """The bytes of all shards, eight requests at a time, by the client in Rust and nothing else."""

    def timed() -> Any:
        store = _core.RemoteStore(f"s3://{where.bucket}", {})
        count = 0
        coming: deque[Any] = deque()
        for shard in range(SHARDS):
            coming.append(store.first(where.name(shard, "tfrecord"), 0, 2 * RANGE_BYTES))
            if len(coming) == 8:
                count += len(coming.popleft().wait())
        count += sum(len(one.wait()) for one in coming)
        return count, {"requests": store.stats()["requests"]}

    return timed


JOBS = {
    "scan tfrecord": scan("tfrecord"),
    "scan tar": scan("tar"),
    "scan parquet": scan("parquet"),
    "scan parquet, one file": scan_one,
    "take": take,
    "first batch": first_batch,
    "epoch tfrecord": blocked("tfrecord"),
    "epoch parquet": blocked("parquet"),
    "client": client,
}
JOBS["cpu"] = repeated(JOBS["scan tfrecord"])
JOBS["cpu, bytes only"] = repeated(scan("tfrecord", "record", raw=True, checksums="none"))
JOBS["client"] = repeated(JOBS["client"])
JOBS = {name: prepared(job) for name, job in JOBS.items()}
