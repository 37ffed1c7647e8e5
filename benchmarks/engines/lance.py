"""Lance: a columnar format made for random access."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def take(data: Data) -> Job:
    """`take` of each batch, as an Arrow table. For large records only a few batches are taken, because Lance is slow
    there."""
    import lance

    from benchmarks import checks
    from benchmarks.engines import arrow_rows

    path = str(data.copy("rows.lance"))
    if not data.copy("rows.lance").exists():
        lance.write_dataset(arrow_rows.batches(data), path, schema=arrow_rows.schema(data))
    dataset = lance.dataset(path)
    batches = [b.tolist() for b in checks.take_batches(data)]
    if data.size == "large":
        batches = batches[:5]

    def work(check: bool) -> Outcome:
        count = total = 0
        for batch in batches:
            rows = dataset.take(batch)
            count += rows.num_rows
            if check:
                total += checks.arrow_sum(rows)
        return Outcome(count, "take columns", total & checks.WRAP)

    return Job(work)


JOBS = {"take-small": {"take": take}, "take-large": {"take": take}}
