"""A dataset of more files than a process may have open: files are closed and reopened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

SHARDS, RECORDS = 300, 3
LIMITED = """
import os, pickle, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
import penstock as ps

shards, records, pattern = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
total = shards * records
ds = ps.open(pattern)
assert len(ds) == total
for threads in (1, 2):
    assert [n for b in ds.scan(threads=threads) for n in b["n"].to_pylist()] == list(range(total))
asked = [total - 1, 0, *range(5, total, 7), 1]
assert ds.take(asked)["n"].to_pylist() == asked
assert pickle.loads(pickle.dumps(ds))[total // 2]["n"] == total // 2
loader = ps.Loader(ds, 32, order=ps.Shuffled(seed=1))
for _ in range(2):
    assert sorted(n for batch in loader for n in batch["n"].tolist()) == list(range(total))
assert ps.verify(pattern).ok
assert ps.info(pattern).num_records == total
made = ps.convert(pattern, "all.arrow")
assert made.num_records == total
# A file that was closed to make room, and is another one when it is needed again.
kept = ds.paths[0]
ps.write({"n": [0] * records}, kept, overwrite=True)
try:
    ds.take([0])
except ps.ChangedError:
    pass
else:
    raise AssertionError("a changed file was read")
print("right")
"""


@pytest.mark.parametrize("suffix", ["tfrecord", "parquet"])
def test_more_shards_than_a_process_may_open_are_read(suffix: str, tmp_path: Path) -> None:
    for shard in range(SHARDS):
        numbers = list(range(shard * RECORDS, (shard + 1) * RECORDS))
        path = tmp_path / f"s-{shard:05d}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table({"n": numbers}), path)
        else:
            ps.write({"n": numbers}, path)
    command = [sys.executable, "-c", LIMITED, str(SHARDS), str(RECORDS), f"s-*.{suffix}"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "right\n", done.stderr[-3000:]
