"""penstock's loader."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import TAKE_BATCHES, TAKE_RECORDS, Data
from benchmarks.job import Job, Outcome


def load(threads: int, *, mmap: bool) -> Callable[[Data], Job]:
    """A number of batches of decoded columns; the loader makes the next batches ahead of the loop."""

    def make(data: Data) -> Job:
        import penstock as ps

        dataset = ps.open(str(data.plain), mmap=mmap)
        len(dataset)
        order = ps.Shuffled(seed=0)
        loader = ps.Loader(dataset, TAKE_RECORDS, order=order, threads=threads)

        def work(check: bool) -> Outcome:
            count = sum(
                len(batch["label"]) for batch in islice(loader, 5 * TAKE_BATCHES[data.size])
            )
            return Outcome(count)

        return Job(work)

    return make


RESUME_RECORDS = 10**9


def resume(position: int) -> Callable[[Data | None], Job]:
    """Open a billion records (a sparse file of 8 GB), continue from a position, and get a batch."""

    def make(data: Data | None) -> Job:
        import penstock as ps

        folder = tempfile.TemporaryDirectory()
        path = os.path.join(folder.name, "numbers.npy")
        head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({RESUME_RECORDS},), }}"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little"))
            file.write(head.ljust(117).encode() + b"\n")
            file.truncate(128 + 8 * RESUME_RECORDS)

        def loader() -> ps.Loader:
            return ps.Loader(ps.open(path), TAKE_RECORDS, order=ps.Shuffled(seed=0), threads=2)

        state = {**loader().state_dict(), "position": position}

        def work(check: bool) -> Outcome:
            one = loader()
            one.load_state_dict(state)
            batches = iter(one)
            next(batches)
            batches.close()
            assert folder.name, "kept until the last round"
            return Outcome(TAKE_RECORDS)

        return Job(work)

    return make


LISTS = 100_000


def padded(**options: Any) -> Callable[[Data | None], Job]:
    """Batches of lists of different lengths."""

    def make(data: Data | None) -> Job:
        import penstock as ps

        path = Path(os.environ["BENCHMARKS_TMPFS"]) / "lists.tfrecord"
        if not path.exists():
            lengths = np.random.default_rng(0).integers(1, 500, LISTS)
            ps.write({"tokens": [np.arange(length) for length in lengths]}, path)
        loader = ps.Loader(ps.open(path), 64, order=ps.Shuffled(seed=0), threads=2, **options)

        def work(check: bool) -> Outcome:
            count = sum(len(batch["tokens"]) for batch in loader)
            assert count == LISTS
            return Outcome(count)

        return Job(work)

    return make


JOBS = {
    "load-buckets": {
        "pad_to": padded(pad_to={"tokens": 512}),
        "buckets": padded(buckets={"tokens": [64, 128, 256, 512]}),
    },
    "load-resume": {
        f"loader, at record {position:,}": resume(position)
        for position in (1_000, 1_000_000, 500_000_000)
    },
} | {
    case: {
        "loader, 1 thread": load(1, mmap=False),
        "loader, 2 threads": load(2, mmap=False),
        "loader, mmap, 1 thread": load(1, mmap=True),
        "loader, mmap, 2 threads": load(2, mmap=True),
    }
    for case in ("load-small", "load-large")
}
