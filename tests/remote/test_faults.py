"""Under random faults of the network and the store, verbs return the right data or the documented error, in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

COUNT, SHARDS = 600, 3
SECONDS = 100
FAULTS = (
    faults.reset(), faults.close_early(), faults.unavailable(), faults.too_many(), faults.short_body(),
    faults.long_body(), faults.shifted_range(), faults.whole_object(), faults.status(500, "InternalError"),
    faults.slow(0.05), faults.refused(), faults.lost_answer(),
)  # fmt: skip
NAMES = {"tfrecord": "x@3.tfrecord", "tar": "x@3.tar", "parquet": "x@3.parquet"}


@pytest.fixture(scope="module")
def data() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"id": range(COUNT), "blob": [rng.bytes(3000) for _ in range(COUNT)]})


@pytest.fixture(scope="module")
def place(
    data: pa.Table, seaweed: Seaweed, common_bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    folder = tmp_path_factory.mktemp("faults")
    for ending in NAMES:
        ps.write(data, folder / f"x.{ending}", num_shards=SHARDS)
    for file in folder.iterdir():
        seaweed.client.put(f"{common_bucket}/faults/{file.name}", file.read_bytes())
    return f"s3://{common_bucket}/faults"


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


def ids(table: pa.Table) -> list[int]:
    values = table["id"].to_pylist()
    return [int(value) for value in values]


def scan(place: str, name: str, options: dict[str, str]) -> list[int]:
    return ids(ps.open(f"{place}/{name}", storage_options=options).to_table())


def take(place: str, name: str, options: dict[str, str]) -> list[int]:
    ds = ps.open(f"{place}/{name}", storage_options=options)
    numbers = np.random.default_rng(1).permutation(COUNT)[:60]
    found = ids(pa.Table.from_batches([ds.take(numbers)]))
    assert found == numbers.tolist()
    return list(range(COUNT))


def load(place: str, name: str, options: dict[str, str]) -> list[int]:
    ds = ps.open(f"{place}/{name}", storage_options=options)
    loader = ps.Loader(ds, 64, order=ps.Blocked(seed=2), columns=["id"])
    return sorted(int(one) for batch in loader for one in batch["id"])


def write(place: str, name: str, options: dict[str, str]) -> list[int]:
    target = f"{place}/written-{name.replace('@3', '')}"
    data = pa.table({"id": range(COUNT)})
    ps.write(data, target, storage_options=options, overwrite=True, index=False)
    return ids(ps.open(target, storage_options=options).to_table())


def convert(place: str, name: str, options: dict[str, str]) -> list[int]:
    stem = name.replace("@3.", "-")
    target = f"{place}/converted-{stem}.tfrecord"
    ps.convert(
        f"{place}/{name}", target, columns=["id"], num_shards=2, overwrite=True, index=False,
        storage_options=options, target_storage_options=options,
    )  # fmt: skip
    return ids(
        ps.open(target.replace(".tfrecord", "@2.tfrecord"), storage_options=options).to_table()
    )


VERBS: tuple[Callable[[str, str, dict[str, str]], list[int]], ...] = (
    scan,
    take,
    load,
    write,
    convert,
)


def run(seed: int, place: str, proxy: FaultProxy, seaweed: Seaweed) -> bool:
    """One verb under faults. Whether it returned data, and not an error."""
    proxy.heal()
    for fault in FAULTS:
        proxy.add(fault, probability=0.03, seed=seed)
    verb, name = VERBS[seed % len(VERBS)], list(NAMES.values())[seed // len(VERBS) % 3]
    begun = time.monotonic()
    try:
        found = verb(place, name, seaweed.options(proxy.endpoint))
    except (ps.StorageError, ps.ChangedError):
        return False
    finally:
        assert time.monotonic() - begun < SECONDS
    assert found == list(range(COUNT))
    return True


def test_random_faults_change_no_record(place: str, proxy: FaultProxy, seaweed: Seaweed) -> None:
    done = [run(seed, place, proxy, seaweed) for seed in range(24)]
    assert sum(done) >= 20, "most faults are overcome"


@pytest.mark.stress
@pytest.mark.parametrize("part", range(40))
def test_a_thousand_runs_under_faults(
    part: int, place: str, proxy: FaultProxy, seaweed: Seaweed
) -> None:
    done = [run(25 * part + n, place, proxy, seaweed) for n in range(25)]
    assert sum(done) >= 22


def test_an_endpoint_that_is_away_is_named_in_time(tmp_path: Path) -> None:
    options = {
        "aws_endpoint_url": "http://127.0.0.1:9", "aws_allow_http": "true",
        "aws_access_key_id": "a", "aws_secret_access_key": "b",
    }  # fmt: skip
    begun = time.monotonic()
    with pytest.raises(ps.StorageError, match=r"nobody answers|no answer|connection"):
        ps.open("s3://bucket/x.tfrecord", storage_options=options)
    assert time.monotonic() - begun < 60
