"""Records of the size of a window and above are read once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock as ps

RECORD_BYTES, NUM_RECORDS = 5_000_000, 8


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "column"), [("x.tfrecord", "video"), ("x.tar", "mp4")])
def test_a_scan_reads_them_once(tmp_path: Path, name: str, column: str, threads: int) -> None:
    values = [os.urandom(RECORD_BYTES) for _ in range(NUM_RECORDS)]
    ps.write({column: values}, tmp_path / name, index=False)
    ds = ps.open(tmp_path / name, index="never")
    before = bytes_read()
    found = [value for batch in ds.scan(threads=threads) for value in batch[column].to_pylist()]
    read = bytes_read() - before
    assert found == values
    assert read < 1.3 * RECORD_BYTES * NUM_RECORDS


@pytest.mark.parametrize("threads", [1, 2])
def test_small_records_after_a_large_one_are_found(tmp_path: Path, threads: int) -> None:
    values = [bytes(RECORD_BYTES), *(b"%d" % n for n in range(50_000)), bytes(RECORD_BYTES)]
    ps.write({"value": values}, tmp_path / "x.tfrecord", index=False)
    ds = ps.open(tmp_path / "x.tfrecord", index="never")
    assert [v for batch in ds.scan(threads=threads) for v in batch["value"].to_pylist()] == values
