"""Verbs and odd answers of a store: credentials that expire, and listings that are cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage.objects import ObjectStorage
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import KEY_ID, SECRET, Seaweed

COUNT, SHARDS = 900, 5


@pytest.fixture(scope="module")
def place(seaweed: Seaweed, common_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("answers")
    data = pa.table({"id": range(COUNT), "blob": [bytes([n % 256]) * 900 for n in range(COUNT)]})
    for made in ps.write(data, folder / "x.tfrecord", num_shards=SHARDS, index=False).paths:
        seaweed.client.put(f"{common_bucket}/answers/{Path(made).name}", Path(made).read_bytes())
    return f"s3://{common_bucket}/answers"


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


def test_credentials_that_expire_in_a_scan_are_renewed_or_named(
    place: str, proxy: FaultProxy, seaweed: Seaweed
) -> None:
    proxy.add(faults.expired(), method="GET", ranged=True, nth=[3, 5])
    with pytest.raises(ps.StorageError, match="ExpiredToken") as refused:
        ps.open(
            f"{place}/x@{SHARDS}.tfrecord", storage_options=seaweed.options(proxy.endpoint)
        ).to_table()
    assert "credentials" in str(refused.value.hint)
    assert refused.value.file is not None and SECRET not in str(refused.value)
    asked: list[int] = []

    def credentials() -> dict[str, str]:
        asked.append(1)
        return {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}

    proxy.heal()
    rule = proxy.add(faults.expired(), method="GET", ranged=True, nth=[3])
    options = seaweed.options(proxy.endpoint)
    del options["aws_access_key_id"], options["aws_secret_access_key"]
    storage = ObjectStorage(options, credentials=credentials)
    table = ps.open(f"{place}/x@{SHARDS}.tfrecord", storage=storage).to_table()
    assert table["id"].to_pylist() == list(range(COUNT))
    assert rule.fired == 1
    assert len(asked) > 1


def test_a_cut_listing_is_asked_for_again_and_never_believed(
    place: str, proxy: FaultProxy, seaweed: Seaweed
) -> None:
    options = {**seaweed.options(proxy.endpoint), "deadline": 5}
    rule = proxy.add(faults.short_body(), query="list-type", times=1)
    for name in (f"{place}/*.tfrecord", f"{place}/"):
        rule.fired = 0
        assert len(ps.open(name, storage_options=options)) == COUNT
        assert rule.fired == 1
    rule.times = None
    with pytest.raises(ps.StorageError, match="listing"):
        ps.open(f"{place}/*.tfrecord", storage_options=options)
