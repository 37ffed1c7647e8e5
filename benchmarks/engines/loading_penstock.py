"""penstock's loader."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from benchmarks.data import TAKE_BATCHES, TAKE_RECORDS, Data
from benchmarks.job import Job, Outcome


def load(threads: int, *, mmap: bool) -> Callable[[Data], Job]:
    """So many batches of decoded columns, the next ones ahead of the loop."""

    def make(data: Data) -> Job:
        import penstock as ps

        dataset = ps.open(str(data.plain), mmap=mmap)
        len(dataset)
        order = ps.Shuffled(seed=0)
        loader = ps.Loader(dataset, TAKE_RECORDS, order=order, threads=threads)

        def work(check: bool) -> Outcome:
            count = sum(len(batch["label"]) for batch in islice(loader, TAKE_BATCHES[data.size]))
            return Outcome(count)

        return Job(work)

    return make


JOBS = {
    case: {
        "loader, 1 thread": load(1, mmap=False),
        "loader, 2 threads": load(2, mmap=False),
        "loader, mmap, 1 thread": load(1, mmap=True),
        "loader, mmap, 2 threads": load(2, mmap=True),
    }
    for case in ("load-small", "load-large")
}
