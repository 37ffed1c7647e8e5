"""More files than a process may have open at first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps

READ = """
import resource, sys
soft, hard = map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
import penstock as ps
ds = ps.open(sys.argv[1])
print(sum(batch.num_rows for batch in ds.scan()), len(ds), ds.take([len(ds) - 1, 0]).num_rows)
"""


def read(files: str, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", READ, files, str(soft), str(hard)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("ending", ["tfrecord", "parquet"])
def test_a_dataset_may_have_more_files_than_the_soft_limit(ending: str, tmp_path: Path) -> None:
    table = pa.table({"id": range(400)})
    ps.write(table, tmp_path / f"a-{{shard:05d}}.{ending}", num_shards=400)
    ended = read(f"{tmp_path}/a-*.{ending}", 128, 2000)
    assert ended.stdout.split() == ["400", "400", "2"], ended.stderr


def test_the_hard_limit_is_told(tmp_path: Path) -> None:
    ps.write(pa.table({"id": range(200)}), tmp_path / "a-{shard:05d}.tfrecord", num_shards=200)
    ended = read(f"{tmp_path}/a-*.tfrecord", 128, 128)
    assert ended.returncode == 1
    assert "ulimit -Hn" in ended.stderr.splitlines()[-1]


def test_few_files_leave_the_limit_as_it_is(tmp_path: Path) -> None:
    ps.write(pa.table({"id": range(4)}), tmp_path / "a-{shard:05d}.tfrecord", num_shards=4)
    looks = READ + "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    command = [sys.executable, "-c", looks, f"{tmp_path}/a-*", "1000", "2000"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.split() == ["4", "4", "2", "1000"]
