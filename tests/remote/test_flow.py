"""Bytes are asked for before they are needed, each of them once, and within a budget."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.storage._object_source import _KEPT, AHEAD, Claim  # pyright: ignore[reportPrivateUsage]
from penstock.storage.objects import ObjectStorage
from remote.servers.nginx import Nginx
from remote.servers.seaweed import Seaweed

SHARDS, PER_SHARD, RECORD_BYTES = 6, 20, 50_000


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, str]:
    return seaweed.options()


def table(first: int, count: int, num_bytes: int = RECORD_BYTES) -> pa.Table:
    blobs = [np.random.default_rng(n).bytes(num_bytes) for n in range(first, first + count)]
    return pa.table({"id": pa.array(range(first, first + count)), "data": blobs})


def put(server: Seaweed, path: str, data: bytes) -> str:
    server.client.put(path, data)
    return f"s3://{path}"


@pytest.fixture
def shards(tmp_path: Path, seaweed: Seaweed, prefix: str) -> dict[str, list[str]]:
    """By format: the URLs of shards of 1 MB."""
    found: dict[str, list[str]] = {"tfrecord": [], "parquet": []}
    for shard in range(SHARDS):
        for format, urls in found.items():
            file = tmp_path / f"{shard}.{format}"
            ps.write(table(shard * PER_SHARD, PER_SHARD), file)
            urls.append(put(seaweed, f"{prefix}/{file.name}", file.read_bytes()))
            side = file.with_name(f".{file.name}.penstock")
            if side.exists():
                put(seaweed, f"{prefix}/{side.name}", side.read_bytes())
    return found


def asked(dataset: ps.Dataset) -> dict[str, int]:
    """What was asked of the stores of a dataset."""
    found = dataset.files.storage.traffic()
    return {"requests": found.num_requests, "bytes": found.num_fetched_bytes}


@pytest.fixture(autouse=True)
def nothing_stays_claimed() -> Iterator[None]:
    gc.collect()
    before = AHEAD.used
    yield
    gc.collect()
    assert AHEAD.used == before


def test_announced_ranges_are_requested_once(
    seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    data = os.urandom(4 << 20)
    url = put(seaweed, f"{prefix}/x.bin", data)
    storage = ObjectStorage(options)
    source = storage.source(url)
    store, _ = storage.store(url)
    held = source.want([1 << 20, 3 << 20], [200_000, 100_000])
    assert held
    assert AHEAD.used >= 300_000
    assert source.read(1 << 20, 10).to_bytes() == data[1 << 20 :][:10]
    assert source.read(3 << 20, 10).to_bytes() == data[3 << 20 :][:10]
    before = store.stats()["requests"]
    starts = [(1 << 20) + 5, (1 << 20) + 100_000, 3 << 20]
    lengths = [1000, 50_000, 100_000]
    ranges = pa.array(starts, pa.uint64()), pa.array(lengths, pa.uint64())
    wanted = [data[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    assert source.gather(*ranges).to_bytes() == b"".join(wanted)
    assert source.read(starts[0], 100).to_bytes() == wanted[0][:100]
    assert store.stats()["requests"] == before
    # Of ranges that were only partly announced, the others are requested.
    starts[1] = 2 << 20
    wanted[1] = data[2 << 20 :][:50_000]
    ranges = pa.array(starts, pa.uint64()), pa.array(lengths, pa.uint64())
    assert source.gather(*ranges).to_bytes() == b"".join(wanted)
    assert store.stats()["requests"] == before + 1
    del held
    assert source.read(1 << 20, 100).to_bytes() == data[1 << 20 :][:100]
    assert store.stats()["requests"] == before + 2


def test_more_than_the_budget_is_not_announced(
    seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    url = put(seaweed, f"{prefix}/x.bin", bytes(1 << 20))
    source = ObjectStorage(options).source(url)
    claim = AHEAD.claim((80 << 20) - AHEAD.used - 1000)
    assert claim is not None
    assert source.want([500_000], [2000]) is None
    assert source.want([500_000], [900])
    assert source.read(500_000, 2000).to_bytes() == bytes(2000)


def test_threads_that_begin_the_same_files_request_them_once(
    shards: dict[str, list[str]], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of a scan once found, at the same time, that a file was not on its way."""
    storage = ObjectStorage(options)
    urls = shards["parquet"]
    claim = AHEAD.claim

    def slow_claim(count: int) -> Claim | None:
        time.sleep(0.02)  # a thread that is interrupted here
        return claim(count)

    monkeypatch.setattr(AHEAD, "claim", slow_claim)
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(storage.begin, [urls] * 4))
    for url in urls:
        storage.source(url).close()
    assert storage.traffic().num_requests == SHARDS


def test_first_bytes_are_kept_until_what_wants_them_has_read_them(
    seaweed: Seaweed, prefix: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They once made room for others after a footer was read, so a scan of Parquet files asked for some twice."""
    monkeypatch.setattr(_KEPT, "_most", 1)
    data = os.urandom(1_000_000)
    urls = [put(seaweed, f"{prefix}/{n}.bin", data) for n in range(3)]
    storage, before = ObjectStorage(options), AHEAD.used
    storage.begin(urls, len(data))
    sources = [storage.source(url) for url in urls]
    for source in sources:
        assert source.read(len(data) - 8, 8).to_bytes() == data[-8:]
    held = [source.want([4, 500_000], [1000, 400_000]) for source in sources]
    for source in sources:
        assert source.read(500_000, 400_000).to_bytes() == data[500_000:900_000]
    assert storage.traffic().num_requests == 3
    assert AHEAD.used - before == 3 * len(data)
    held.clear()
    assert AHEAD.used == before
    assert sources[0].read(4, 1000).to_bytes() == data[4:1004]
    assert storage.traffic().num_requests == 4
    # What is read in order is kept until its last byte before the footer was read.
    storage = ObjectStorage(options)
    storage.begin(urls[:1], len(data))
    source = storage.source(urls[0])
    source.read(len(data) - 8, 8)
    source.read_in_order()
    source.read(0, 600_000)
    assert AHEAD.used - before == len(data)
    source.read(600_000, len(data) - 8 - 600_000)
    assert AHEAD.used == before
    assert storage.traffic().num_requests == 1


@pytest.mark.parametrize("format", ["tfrecord", "parquet"])
def test_a_scan_reads_each_byte_once_and_small_files_with_one_request(
    format: str, shards: dict[str, list[str]], options: dict[str, str]
) -> None:
    urls = shards[format]
    dataset = ps.open(urls, storage_options=options)
    opened = asked(dataset)
    assert [n for batch in dataset.scan() for n in batch["id"].to_pylist()] == list(
        range(SHARDS * PER_SHARD)
    )
    # The first file was opened before, by its first bytes and, for Parquet, its last.
    sidecars = SHARDS if format == "tfrecord" else 0
    after = asked(dataset)
    assert after["requests"] - opened["requests"] <= SHARDS + sidecars + 2
    size = SHARDS * PER_SHARD * RECORD_BYTES
    assert after["bytes"] - opened["bytes"] < size + SHARDS * (64 << 10) + (256 << 10)


def test_a_scan_of_some_columns_reads_no_others(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    file = tmp_path / "x.parquet"
    data = table(0, 400)
    data = data.append_column("small", pa.array([bytes(2000) + os.urandom(2000)] * 400))
    pq.write_table(data, file, row_group_size=50, use_dictionary=False, compression="none")
    url = put(seaweed, f"{prefix}/x.parquet", file.read_bytes())
    dataset = ps.open(url, storage_options=options)
    before = asked(dataset)
    batches = list(dataset.scan(columns=["small", "id"]))
    assert pa.Table.from_batches(batches) == data.select(["small", "id"]).combine_chunks()
    after = asked(dataset)
    assert after["bytes"] - before["bytes"] < 2.5e6  # of 21.6 MB
    assert after["requests"] - before["requests"] <= 2 * 8


@pytest.mark.parametrize("format", ["tfrecord", "parquet"])
def test_a_blocked_epoch_reads_each_byte_once(
    format: str, tmp_path: Path, shards: dict[str, list[str]], options: dict[str, str]
) -> None:
    urls = shards[format]
    order = ps.Blocked(seed=5, window_chunks=2)
    there = ps.open(urls, storage_options=options)
    here = ps.open([tmp_path / Path(url).name for url in urls])
    assert len(there) == SHARDS * PER_SHARD
    before = asked(there)
    expected = [batch["id"].tolist() for batch in ps.Loader(here, 7, order=order)]
    found = [batch["id"].tolist() for batch in ps.Loader(there, 7, order=order)]
    assert found == expected
    after = asked(there)
    size = SHARDS * PER_SHARD * RECORD_BYTES
    assert after["bytes"] - before["bytes"] < 1.25 * size
    # A loop that is left gives up what was requested for it (see `nothing_stays_claimed`).
    for _ in ps.Loader(there, 7, order=order):
        break


def test_the_first_bytes_of_large_files_leave_room_for_reading_ahead(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    """A scan once asked for 8 MiB of each of the next 12 files, and had no room to read the first file ahead."""
    file = tmp_path / "x.tfrecord"
    ps.write(table(0, 40, 1_000_000), file, index=False)
    data = file.read_bytes()
    urls = [put(seaweed, f"{prefix}/{n}.tfrecord", data) for n in range(4)]
    scan = ps.open(urls, storage_options=options).scan(threads=1)
    used: list[int] = []
    for batch in scan:
        used.append(AHEAD.used)
        assert batch.num_rows
    assert max(used) <= 80 << 20
    # Three quarters of the way through the first file, the second was not asked for much more than its first bytes.
    assert len(used) >= 30
    assert used[7] <= (8 << 20) + 40_000_000


def test_many_small_files_are_on_their_way_together(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    """So a link of 20 ms is filled by files of 100 KB."""
    ps.write(table(0, 10, 1000), tmp_path / "x.tfrecord", index=False)
    data = (tmp_path / "x.tfrecord").read_bytes()
    urls = [put(seaweed, f"{prefix}/{n}.tfrecord", data) for n in range(60)]
    schema = ps.open(tmp_path / "x.tfrecord").schema  # else opening looks at 32 files
    dataset = ps.open(urls, storage_options=options, schema=schema)
    before = asked(dataset)["requests"]
    scan = dataset.scan(threads=1)
    next(scan)
    deadline = time.monotonic() + 10
    while asked(dataset)["requests"] - before < 32 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 32 <= asked(dataset)["requests"] - before <= 36
    assert sum(batch.num_rows for batch in scan) == 590
    assert asked(dataset)["requests"] - before <= 61


def test_a_loader_says_what_it_asked_of_the_store(
    shards: dict[str, list[str]], options: dict[str, str]
) -> None:
    dataset = ps.open(shards["tfrecord"], storage_options=options)
    loader = ps.Loader(dataset, 10, order=ps.Blocked(seed=1))
    assert len(list(loader)) == 12
    stats = loader.stats()
    size = SHARDS * PER_SHARD * RECORD_BYTES
    # Without what the dataset asked for before: the first bytes of the first file.
    assert size - (256 << 10) <= stats.num_fetched_bytes < 1.4 * size
    assert SHARDS <= stats.num_requests < 40
    assert stats.store_wait_seconds > 0
    assert stats.num_retries == stats.num_cache_hits == 0
    assert stats.to_dict()["num_requests"] == stats.num_requests
    shown = str(stats)
    assert "requests to stores" in shown
    assert "threads waited for stores" in shown
    assert "tried again" not in shown
    # An epoch's own figures, and none for files of this machine.
    list(loader)
    epoch = loader.stats().since(stats)
    # The first bytes of all files are still here.
    assert size - SHARDS * (256 << 10) <= epoch.num_fetched_bytes < 1.2 * size
    assert epoch.stage_seconds["columns"] >= 0


def test_a_loader_of_local_files_has_no_requests(tmp_path: Path) -> None:
    ps.write(table(0, 10), tmp_path / "x.tfrecord")
    loader = ps.Loader(ps.open(tmp_path / "x.tfrecord"), 5)
    list(loader)
    assert loader.stats().num_requests == 0
    assert "stores" not in str(loader.stats())


@pytest.mark.parametrize(("num_bytes", "most"), [(100_000, 1.01), (10_000_000, 1.3)])
def test_threads_of_a_scan_ask_for_each_block_once(
    num_bytes: int, most: float, nginx: Nginx
) -> None:
    """Threads read several objects at a time. Each stops in the middle of a block, and goes on when its turn comes. The
    end of a record that is longer than a window is read twice."""
    data = np.random.default_rng(0).bytes(num_bytes)
    num_records = 60_000_000 // num_bytes
    file = nginx.files / f"scanned-{num_bytes}.tfrecord"
    records = pa.record_batch({"data": [data] * num_records})
    ps.write(records, file, index=False, overwrite=True)
    urls = [f"{nginx.endpoint}/strong/{file.name}"] * 4
    dataset = ps.open(urls, schema=pa.schema([("data", pa.binary())]))
    found = sum(batch.num_rows for batch in dataset.scan(threads=8))
    assert found == 4 * num_records
    assert asked(dataset)["bytes"] <= most * 4 * file.stat().st_size
