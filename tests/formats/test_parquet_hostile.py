"""Parquet pages that claim more data than they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from reading import run_python

# PageHeader in Thrift's compact protocol: a data page of 2 GiB with 100 plain values.
LYING = bytes.fromhex("1500 15feffffff0f 15feffffff0f 2c 15c801 1500 1506 1506 00 00")

PROGRAM = r"""
import re, sys
import penstock as ps
try:
    list(ps.open(sys.argv[1], index="never").scan())
except ps.FormatError:
    print(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
"""
"""A program that prints its peak memory in KiB."""


def test_a_page_that_claims_2_gib_costs_neither_memory_nor_time(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.arange(100)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    data = bytearray(path.read_bytes())
    data[4 : 4 + len(LYING)] = LYING  # the first page begins after the magic
    path.write_bytes(data)
    with pytest.raises(ps.FormatError, match="2147483647"):
        ps.open(path, index="never")[0]
    assert int(run_python(PROGRAM, str(path))) < 300 << 10
