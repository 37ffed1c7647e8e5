"""Parquet through pyarrow: reading a row means decoding its row group."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def take(data: Data) -> Job:
    """`dataset.take` of the first batch only, because each call reads nearly the whole file."""
    import pyarrow.dataset
    import pyarrow.parquet

    from benchmarks import checks
    from benchmarks.engines import arrow_rows

    path = data.copy("rows.parquet")
    if not path.exists():
        with pyarrow.parquet.ParquetWriter(
            path, arrow_rows.schema(data), compression="zstd"
        ) as writer:
            writer.write_table(arrow_rows.table(data))
    dataset = pyarrow.dataset.dataset(path)
    batches = checks.take_batches(data)[:1]

    def work(check: bool) -> Outcome:
        count = total = 0
        for batch in batches:
            rows = dataset.take(batch)
            count += rows.num_rows
            if check:
                total += checks.arrow_sum(rows)
        return Outcome(count, "take columns", total & checks.WRAP)

    return Job(work)


JOBS = {"take-small": {"dataset.take, zstd": take}}
