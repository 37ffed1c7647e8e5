"""Objects are read through a cache: the second epoch makes no request, and no process ever reads a wrong byte."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.formats.parquet.format import _DECODED  # pyright: ignore[reportPrivateUsage]
from penstock.storage.cache import Cache
from penstock.storage.objects import ObjectStorage
from remote.servers.fault_proxy import FaultProxy
from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.seaweed import SECRET, Seaweed

MIB = 1 << 20
SHARDS, EACH, BLOB_BYTES = 3, 100, 120_000
NUMBERS = list(range(SHARDS * EACH))


def blob(number: int) -> bytes:
    return np.random.default_rng(number).bytes(BLOB_BYTES)


def table(first: int = 0, count: int = EACH) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": numbers, "blob": [blob(n) for n in numbers]})


@pytest.fixture(scope="module")
def place(seaweed: Seaweed, common_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Shards of 12 MB, two blocks each."""
    folder = tmp_path_factory.mktemp("cached")
    for ending in ("tfrecord", "parquet"):
        ps.write(table(0, SHARDS * EACH), folder / f"x.{ending}", num_shards=SHARDS)
    for file in folder.iterdir():
        seaweed.client.put(f"{common_bucket}/cached/{file.name}", file.read_bytes())
    return f"s3://{common_bucket}/cached"


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


@pytest.fixture
def options(seaweed: Seaweed, proxy: FaultProxy) -> dict[str, str]:
    return seaweed.options() | {"aws_endpoint_url": proxy.endpoint}


def filled(ds: ps.Dataset) -> None:
    storage = ds.files.storage
    assert isinstance(storage, ObjectStorage) and storage.cached is not None
    until = time.monotonic() + 30
    while storage.cached.num_missing:
        assert time.monotonic() < until
        time.sleep(0.01)


def epoch(loader: ps.Loader) -> list[int]:
    found: list[int] = []
    for batch in loader:
        found += batch["id"].tolist()
        for number, data in zip(batch["id"], batch["blob"], strict=True):
            assert data == blob(int(number))
    return found


def is_right(batch: Any) -> bool:
    rows = batch.to_pylist()
    return all(row["blob"] == blob(row["id"]) for row in rows)


ORDERS = [ps.Sequential(), ps.Blocked(seed=1), ps.Shuffled(seed=1)]


@pytest.mark.parametrize(
    ("order", "ending"),
    [*((order, "tfrecord") for order in ORDERS), (ORDERS[0], "parquet")],
    ids=[*(type(order).__name__ for order in ORDERS), "Parquet"],
)
def test_the_second_epoch_makes_no_request(
    order: Any,
    ending: str,
    place: str,
    options: dict[str, str],
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_DECODED, "_most", 1)  # else row groups are still in memory
    ds = ps.open(f"{place}/x@3.{ending}", storage_options=options, cache=tmp_path / "c")
    loader = ps.Loader(ds, batch_size=32, order=order)
    assert sorted(epoch(loader)) == NUMBERS
    filled(ds)
    proxy.forget()
    assert sorted(epoch(loader)) == NUMBERS
    assert proxy.count() == 0
    other = ps.Loader(ds, batch_size=8, order=ps.Shuffled(seed=2))
    assert sorted(epoch(other)) == NUMBERS  # another order of an open dataset
    assert proxy.count() == 0
    assert ds.files.storage.traffic().num_cache_hits > 0


def test_an_epoch_in_order_requests_each_byte_once(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=tmp_path / "c")
    assert ds.to_table().num_rows == len(NUMBERS)
    filled(ds)
    data = sum(shard.num_bytes for shard in ds.shards)
    assert proxy.sent(key="-of-00003.tfrecord") <= data + SHARDS * 600_000  # and the first bytes


def _read_all(ds: ps.Dataset, numbers: list[int], answers: Any) -> None:
    answers.put(
        sorted(ds.take(numbers)["id"].to_pylist()) == NUMBERS and is_right(ds.take([5, 250]))
    )


def test_a_new_process_makes_one_request_for_an_object(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    source = f"{place}/x@3.tfrecord"
    ds = ps.open(source, storage_options=options, cache=ps.Cache(tmp_path / "c", 100 * MIB))
    ds.to_table()
    assert len(ds) == len(NUMBERS)
    filled(ds)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    proxy.forget()
    child = spawn.Process(target=_read_all, args=(ds, NUMBERS, answers))
    child.start()
    assert answers.get(timeout=60)
    child.join(30)
    for shard in range(SHARDS):
        assert proxy.count("GET", f"/x-{shard:05}-of-00003.tfrecord") == 1
    assert proxy.count("HEAD") == 0


def test_a_pickle_carries_the_cache(place: str, seaweed: Seaweed, tmp_path: Path) -> None:
    options = seaweed.options() | {"pickle_secrets": "true"}
    cache = ps.Cache(tmp_path / "c", 50 * MIB)
    ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=cache)
    again = pickle.loads(pickle.dumps(ds))
    found = again.files.storage.cached.cache
    assert (found.folder, found.max_bytes) == (cache.folder, cache.max_bytes)
    assert is_right(again.take([7, 260]))


@pytest.mark.stress
def test_spawned_workers_of_torch_share_a_cache(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=tmp_path / "c")
    ds.to_table()
    proxy.forget()
    found: list[int] = []
    for batch in torch_data.DataLoader(
        ds,
        batch_size=50,
        num_workers=2,
        multiprocessing_context="spawn",
        collate_fn=_checked_ids,
    ):
        found += batch
    assert found == NUMBERS
    data = [one for one in proxy.requests("GET") if one.range and one.range[0] > 0]
    assert not data


def _checked_ids(rows: list[dict[str, Any]]) -> list[int]:
    assert all(row["blob"] == blob(int(row["id"])) for row in rows)
    return [int(row["id"]) for row in rows]


def in_child(work: Callable[[], bool]) -> int:
    """Run in a fork, and return its process."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def test_a_forked_child_reads_and_fills_the_cache(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=tmp_path / "c")
    assert len(ds) == len(NUMBERS)
    ds.take([1])

    def work() -> bool:
        right = is_right(ds.take([3, 299, 120]))
        ds.to_table()
        filled(ds)
        return right

    for _ in range(3):
        assert os.waitpid(in_child(work), 0)[1] == 0
    proxy.forget()
    assert sorted(ds.take(NUMBERS)["id"].to_pylist()) == NUMBERS
    assert proxy.count() == 0


def test_the_ranks_of_a_machine_request_each_block_once(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    source = f"{place}/x@3.tfrecord"
    ds = ps.open(source, storage_options=options, cache=tmp_path / "c")
    assert len(ds) == len(NUMBERS)

    def work(rank: int) -> bool:
        loader = ps.Loader(ds, batch_size=5, rank=rank, world_size=4)
        found = epoch(loader)
        filled(ds)
        return len(found) == len(NUMBERS) / 4

    proxy.forget()
    children = [in_child(lambda rank=rank: work(rank)) for rank in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    # What the ranks needed at once, and each block once: not once for each rank.
    assert proxy.sent(key="-of-00003.tfrecord") <= 2.1 * sum(shard.num_bytes for shard in ds.shards)


def test_a_new_open_never_has_the_bytes_of_a_replaced_object(
    seaweed: Seaweed, prefix: str, options: dict[str, str], tmp_path: Path
) -> None:
    path = f"{prefix}/x.tfrecord"
    for first in (0, 1000, 2000):
        ps.write(table(first), tmp_path / "x.tfrecord", index=False, overwrite=True)
        seaweed.client.put(path, (tmp_path / "x.tfrecord").read_bytes())
        ds = ps.open(f"s3://{path}", storage_options=options, cache=tmp_path / "c")
        assert ds.to_table()["id"].to_pylist() == list(range(first, first + EACH))
        assert ds.take([99])["id"].to_pylist() == [first + 99]
    old = ds
    ps.write(table(3000), tmp_path / "x.tfrecord", index=False, overwrite=True)
    seaweed.client.put(path, (tmp_path / "x.tfrecord").read_bytes())
    assert is_right(old.to_table())  # its pinned state, from the cache
    ps.Cache(tmp_path / "c").clear()
    with pytest.raises(ps.ChangedError):
        old.to_table()


def test_a_flipped_byte_on_disk_is_fetched_again(
    place: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path
) -> None:
    ds = ps.open(f"{place}/x@3.parquet", storage_options=options, cache=tmp_path / "c")
    ds.to_table()
    filled(ds)
    for number, path in enumerate(sorted((tmp_path / "c").glob("*.0"))):
        data = bytearray(path.read_bytes())
        data[(number + 1) * MIB] ^= 1
        path.write_bytes(data)
    proxy.forget()
    found = ds.to_table()
    assert found.num_rows == len(NUMBERS)
    assert is_right(found)
    assert proxy.count() >= SHARDS
    filled(ds)
    proxy.forget()
    ds.to_table()
    assert proxy.count() == 0


@pytest.mark.parametrize("where", ["untagged", "weak"])
def test_a_server_without_strong_tags_is_read_without_the_cache(
    where: str, tmp_path: Path, nginx: Nginx
) -> None:
    ps.write(table(), tmp_path / f"{where}.tfrecord", index=False)
    shutil.copy(tmp_path / f"{where}.tfrecord", nginx.files)
    with pytest.warns(UserWarning, match="no version and no strong ETag"):
        ds = ps.open(
            f"{nginx.endpoint}/{where}/{where}.tfrecord",
            storage_options={"allow_http": True},
            cache=tmp_path / "c",
        )
    assert is_right(ds.to_table())
    assert not (tmp_path / "c").exists()


def test_a_signed_address_is_cached_without_its_query(tmp_path: Path, nginx: Nginx) -> None:
    ps.write(table(), tmp_path / "signed.tfrecord", index=False)
    shutil.copy(tmp_path / "signed.tfrecord", nginx.files)
    url = f"{nginx.endpoint}/signed/signed.tfrecord?sig={SIGNATURE}"
    cache = ps.Cache(tmp_path / "c")
    for more in ("", "&expires=1", "&expires=2"):
        ds = ps.open(url + more, storage_options={"allow_http": True}, cache=cache)
        ds.to_table()
        assert cache.usage().num_blocks == 2  # a new signature, the same object
    for path in (tmp_path / "c").iterdir():
        data = path.read_bytes()
        for secret in (SIGNATURE, SECRET, "sig=", "expires="):
            assert secret.encode() not in data
    assert SIGNATURE not in repr(cache) + repr(cache.usage()) + "".join(os.listdir(tmp_path / "c"))


def _reads(place: str, options: dict[str, str], cache: Cache, seed: int) -> bool:
    """Read the set again and again, in all ways, until killed."""
    rng = random.Random(seed)
    warnings.simplefilter("error")
    while True:
        ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=cache)
        for _ in range(3):
            numbers = rng.sample(NUMBERS, 40)
            if ds.take(numbers)["id"].to_pylist() != numbers or not is_right(ds.take(numbers[:9])):
                return False
        for batch in ds.scan():
            if not is_right(batch.slice(0, 5)):
                return False


def killed_again_and_again(rounds: int, place: str, options: dict[str, str], folder: Path) -> None:
    """Kill four processes that share a cache which is too small for the set."""
    most = 24 * MIB
    cache = ps.Cache(folder, most)
    rng = random.Random(0)
    ps.open(f"{place}/x@3.tfrecord", storage_options=options)[0]  # builds the indexes
    for number in range(rounds):
        children = [
            in_child(lambda seed=4 * number + n: _reads(place, options, cache, seed))
            for n in range(4)
        ]
        time.sleep(rng.uniform(0.2, 1.0))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            status = os.waitpid(child, 0)[1]
            assert os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)
        on_disk = sum(path.stat().st_size for path in folder.iterdir())
        assert on_disk <= most + 4 * 8 * MIB
    ds = ps.open(f"{place}/x@3.tfrecord", storage_options=options, cache=cache)
    assert sorted(epoch(ps.Loader(ds, batch_size=32))) == NUMBERS
    assert ds.files.storage.traffic().num_cache_hits > 0
    assert 0 < cache.usage().num_bytes <= most


def test_four_killed_processes_leave_no_wrong_byte(
    place: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    killed_again_and_again(4, place, seaweed.options(), tmp_path / "c")


@pytest.mark.stress
def test_four_processes_that_are_killed_fifty_times_leave_no_wrong_byte(
    place: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    killed_again_and_again(50, place, seaweed.options(), tmp_path / "c")
