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


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_loader_lists_what_a_scan_lists(damaged: Path, order: ps.Order, threads: int) -> None:
    scanned = ps.open(damaged, damage="skip")
    assert sum(batch.num_rows for batch in scanned.scan()) == 500
    loader = ps.Loader(ps.open(damaged, damage="skip"), 32, order=order, threads=threads)
    for _ in range(2):
        assert sorted(n for batch in loader for n in batch["id"]) == GOOD
    assert set(loader.damage) == set(scanned.damage)
    assert [region.num_records for region in loader.damage] == [50, 50]
    assert loader.stats().num_skipped == 100
    good = ps.Loader(ps.open(damaged, damage="skip"), 32, order=order, columns=["words"])
    assert sum(len(batch["words"][1]) - 1 for batch in good) == 600
    assert not good.damage


def test_a_view_lists_what_its_scan_lists(damaged: Path) -> None:
    def view() -> ps.Dataset:
        return ps.open(damaged, damage="skip").subset(range(220, 580, 3)).rename({"id": "number"})

    scanned = view()
    wanted = [n for batch in scanned.scan() for n in batch["number"].to_pylist()]
    loader = ps.Loader([view(), view()], 32, order=ps.Shuffled(0))
    assert sorted(n for batch in loader for n in batch["number"]) == sorted(2 * wanted)
    assert set(loader.damage) == set(scanned.damage)


def test_records_of_an_array_record_block_are_lost_together(tmp_path: Path) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path / "a.array_record"
    writer = module.ArrayRecordWriter(str(path), "group_size:20,uncompressed")
    for n in range(100):
        writer.write(b"AAAA%04d" % n)
    writer.close()
    data = bytearray(path.read_bytes())
    data[data.index(b"AAAA0045")] ^= 1
    path.write_bytes(data)
    scanned = ps.open(path, damage="skip")
    count = sum(batch.num_rows for batch in scanned.scan())
    loader = ps.Loader(ps.open(path, damage="skip"), 8, order=ps.Shuffled(0))
    column = scanned.schema.names[0]
    assert sum(len(batch[column]) for batch in loader) == count < 100
    assert set(loader.damage) == set(scanned.damage)
    assert loader.stats().num_skipped == 100 - count
