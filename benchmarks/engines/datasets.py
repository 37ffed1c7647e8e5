"""Hugging Face datasets: memory-mapped Arrow files, with rows selected by a list of indices.

Its Arrow results are slices of the mapped file, one for each row, whose bytes have not been read yet. They are joined
into one batch here, because every other engine returns one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def take(form: str) -> Callable[[Data], Job]:
    """Batches as Arrow tables or as Python lists."""

    def make(data: Data) -> Job:
        import pyarrow as pa

        import datasets
        from benchmarks import checks
        from benchmarks.engines import arrow_rows

        datasets.disable_progress_bars()
        path = data.copy("datasets.arrow")
        if not path.exists():
            with (
                pa.OSFile(str(path), "wb") as file,
                pa.ipc.new_stream(file, arrow_rows.schema(data)) as writer,
            ):
                for batch in arrow_rows.batches(data):
                    writer.write_batch(batch)
        dataset = datasets.Dataset.from_file(str(path))
        if form == "arrow":
            dataset = dataset.with_format("arrow")
        batches = [b.tolist() for b in checks.take_batches(data)]

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in batches:
                rows: Any = dataset[batch]
                if form == "arrow":
                    rows = rows.combine_chunks()
                count += rows.num_rows if form == "arrow" else len(rows["label"])
                if check:
                    total += checks.arrow_sum(
                        rows if form == "arrow" else pa.table(rows, schema=arrow_rows.schema(data))
                    )
            return Outcome(count, "take columns", total & checks.WRAP)

        return Job(work)

    return make


ROWS = {"to one Arrow batch": take("arrow"), "to Python": take("python")}
JOBS = {"take-small": ROWS, "take-large": ROWS}
