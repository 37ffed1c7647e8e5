"""Parquet files whose row groups cannot all be read, to show which ones a query reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_damaged(table: pa.Table, path: Path, groups: Iterable[int]) -> None:
    """Write row groups of 100 records, and damage the last byte of the first column of some."""
    pq.write_table(
        table,
        path,
        row_group_size=100,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
    )
    data = bytearray(path.read_bytes())
    for group in groups:
        column = pq.read_metadata(path).row_group(group).column(0)
        data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
