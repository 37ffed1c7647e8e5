"""The table for the benchmarks that choose records: an Arrow file in batches of 65,536 rows."""

from __future__ import annotations

import os
from pathlib import Path

RECORDS = 1_000_000


def table_file() -> Path:
    """Return the path of the table, and make it if it is missing."""
    path = Path(os.environ["BENCHMARKS_TMPFS"]) / "table.arrow"
    if not path.exists():
        import numpy as np
        import pyarrow as pa

        random = np.random.default_rng(0)
        names = [f"name-{number}" for number in random.integers(0, 700_000, RECORDS)]
        table = pa.table(
            {
                "id": random.permutation(RECORDS),
                "label": random.integers(0, 1000, RECORDS),
                "score": random.random(RECORDS, np.float32),
                "name": names,
            }
        )
        unfinished = path.with_suffix(".unfinished")
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, table.schema) as made:
            made.write_table(table, max_chunksize=65_536)
        unfinished.rename(path)
    return path


def target(engine: str) -> Path:
    """The path of an engine's result."""
    return Path(os.environ["BENCHMARKS_TMPFS"]) / f"chosen-{engine}.arrow"
