"""A scan of objects takes the same memory however much it reads, with the default budgets, and loads no library that it
does not use."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.formats.parquet._ahead import Room
from reading import run_python
from remote.servers.link import link
from remote.servers.nginx import Nginx

SCAN = """
import sys
from pathlib import Path
import penstock as ps

url, times = sys.argv[1], int(sys.argv[2])
count = sum(batch.num_rows for batch in ps.open([url] * times).scan())
lines = Path("/proc/self/status").read_text().splitlines()
print(count, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024)
"""
MOST_MIB = 300
RECORDS, RECORD_BYTES = 100, 100_000


@pytest.fixture(scope="module", params=["tfrecord", "parquet"])
def shard(nginx: Nginx, request: pytest.FixtureRequest) -> str:
    """The path of a shard of 10 MB on the server. A scan lists it many times."""
    file = nginx.files / f"memory.{request.param}"
    blobs = [np.random.default_rng(n).bytes(RECORD_BYTES) for n in range(RECORDS)]
    table = pa.table({"id": range(RECORDS), "data": blobs})
    if request.param == "parquet":
        pq.write_table(table, file)  # with a dictionary of all values, which takes most memory
    else:
        ps.write(table, file, index=False, overwrite=True)
    return f"/strong/{file.name}"


def peak(url: str, times: int, seconds: int) -> int:
    count, found = map(int, run_python(SCAN, url, str(times), seconds=seconds).split())
    assert count == times * RECORDS
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it has no VmHWM")
def test_a_scan_stays_below_300_mib(nginx: Nginx, shard: str) -> None:
    """The server answers faster than records are decoded, so all budgets are used up."""
    assert peak(nginx.endpoint + shard, 60, 120) < MOST_MIB


@pytest.mark.stress
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it has no VmHWM")
def test_a_scan_of_5_gb_over_a_link_stays_below_300_mib(nginx: Nginx, shard: str) -> None:
    with link(nginx.endpoint) as far:
        assert peak(far.endpoint + shard, 500, 1200) < MOST_MIB


def test_row_groups_of_objects_are_decoded_within_a_budget() -> None:
    room = Room(lambda: 20)
    running: list[int] = []
    most: list[int] = []

    def decode(num_bytes: int) -> None:
        with room.of(num_bytes):
            running.append(num_bytes)
            most.append(sum(running))
            assert len(running) == 1 or sum(running) <= 20
            time.sleep(0.002)
            running.remove(num_bytes)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(decode, [5, 10, 100, 8, 12, 20, 1] * 5))
    assert max(most) == 100
    with room.of(100):
        child = os.fork()
        if not child:
            with room.of(100):  # its parent's threads do not decode here
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


LIBRARIES = """
import sys
import penstock as ps

for url in sys.argv[2:]:
    for cache in (None, sys.argv[1]):
        dataset = ps.open(url, cache=cache)
        for _ in dataset.scan():
            pass
        dataset.take([70, 5, 71, 5])
        for order in (ps.Blocked(seed=0), ps.Shuffled(seed=0)):
            for _ in ps.Loader(dataset, 50, order=order, columns=["id", "data"], ragged="list"):
                pass
print(*{"pandas", "pyarrow.dataset"} & sys.modules.keys())
"""


def test_reading_objects_loads_no_pandas(nginx: Nginx, tmp_path: Path) -> None:
    """`pa.array` loads it if it is there: 45 MB, and a third of a second before the first request."""
    urls: list[str] = []
    blobs = [np.random.default_rng(n).bytes(30_000) for n in range(RECORDS)]
    for format in ("tfrecord", "tar", "parquet"):
        file = nginx.files / f"libraries.{format}"
        ps.write(pa.table({"id": range(RECORDS), "data": blobs}), file, overwrite=True)
        urls.append(f"{nginx.endpoint}/strong/{file.name}")
    assert run_python(LIBRARIES, str(tmp_path), *urls).split() == []
