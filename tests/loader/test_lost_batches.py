"""Batches of which no record can be read, and groups of records that are lost together, such as a row group of Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

GROUP = 50
ORDERS = [ps.Sequential(), ps.Shuffled(0), ps.Blocked(0)]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 200 records in groups of 50; records 250 to 299 and 500 to 549 cannot be read."""
    folder = tmp_path_factory.mktemp("groups")
    for number in range(3):
        first = 200 * number
        words = [[word] * (word % 5) for word in range(first, first + 200)]
        table = pa.table({"id": range(first, first + 200), "words": words})
        path = folder / f"{number}.parquet"
        pq.write_table(
            table, path, row_group_size=GROUP, use_dictionary=False, write_page_checksum=True
        )
    for number, group in ((1, 1), (2, 2)):
        path = folder / f"{number}.parquet"
        chunk = pq.ParquetFile(path).metadata.row_group(group).column(0)
        data = bytearray(path.read_bytes())
        data[chunk.data_page_offset + chunk.total_compressed_size - 20] ^= 0xFF
        path.write_bytes(data)
    return folder


GOOD = [n for n in range(600) if n // GROUP not in (5, 10)]


@pytest.mark.parametrize("order", ORDERS)
def test_every_batch_is_full_if_ranks_pad(damaged: Path, order: ps.Order) -> None:
    data = ps.open(damaged, damage="skip")
    ranks = [
        ps.Loader(
            data,
            25,
            order=order,
            pad_to={"words": 4},
            uneven="pad",
            rank=rank,
            world_size=2,
            record_numbers="n",
        )
        for rank in range(2)
    ]
    seen: list[int] = []
    for step in zip(*ranks, strict=True):
        for batch in step:
            assert {len(column) for column in batch.values()} == {25}
            seen += batch["id"][batch["mask"]].tolist()
    assert sorted(seen) == GOOD
