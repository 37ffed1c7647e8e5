"""Conversions from anywhere to anywhere: the same bytes, one job at a time, and what a killed job leaves is used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage import store_lock
from penstock.storage.objects import ObjectStorage
from penstock.verbs.convert.store_journal import folder_of
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

COUNT, SHARDS = 400, 4


@pytest.fixture
def data() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"id": range(COUNT), "blob": [rng.bytes(8000) for _ in range(COUNT)]})


@pytest.fixture
def source(tmp_path: Path, data: pa.Table) -> Path:
    ps.write(data, tmp_path / "x.tfrecord", num_shards=SHARDS)
    return tmp_path / f"x@{SHARDS}.tfrecord"


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, str]:
    return seaweed.options()


@pytest.fixture
def environment(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in options.items():
        monkeypatch.setenv(name.upper(), value)


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


def objects(server: Seaweed, prefix: str) -> dict[str, bytes]:
    """The objects of a prefix by name, without their indexes."""
    bucket, _, folder = prefix.partition("/")
    found = server.client.keys(bucket, f"{folder}/")
    names = [key[len(folder) + 1 :] for key in found if not key.endswith(("/", ".penstock"))]
    return {name: server.client.get(f"{prefix}/{name}") for name in names}


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


@pytest.mark.parametrize("ending", ["parquet", "tar", "beton", "tfrecord.gz"])
def test_from_here_into_a_store_and_back(
    ending: str,
    source: Path,
    tmp_path: Path,
    prefix: str,
    seaweed: Seaweed,
    options: dict[str, str],
) -> None:
    (tmp_path / "here").mkdir()
    ps.convert(source, tmp_path / "here" / f"y.{ending}", num_shards=3)
    made = ps.convert(
        source, f"s3://{prefix}/y.{ending}", num_shards=3, target_storage_options=options
    )
    assert objects(seaweed, prefix) == files(tmp_path / "here")
    assert made.num_records == COUNT
    assert made.paths[0].startswith("s3://")
    (tmp_path / "back").mkdir()
    again = ps.convert(list(made.paths), tmp_path / "back" / "z.tfrecord", storage_options=options)
    assert again.num_records == COUNT
    assert ps.open(tmp_path / "back" / "z.tfrecord").to_table()["id"].to_pylist() == list(
        range(COUNT)
    )


def test_from_one_store_into_another(
    source: Path, tmp_path: Path, prefix: str, rclone: Seaweed, options: dict[str, str]
) -> None:
    ps.convert(source, f"s3://{prefix}/x.parquet", target_storage_options=options)
    ps.convert(source, tmp_path / "x.parquet")
    with rclone.bucket() as bucket:
        with pytest.warns(UserWarning, match="locks are weak"):
            ps.convert(
                f"s3://{prefix}/x.parquet",
                f"s3://{bucket}/y.tfrecord",
                storage_options=options,
                target_storage_options=rclone.options(),
                shard_records=150,
            )
        ps.convert(tmp_path / "x.parquet", tmp_path / "y.tfrecord", shard_records=150)
        found = {n: rclone.client.get(f"{bucket}/{n}") for n in rclone.client.keys(bucket)}
    shards = {n: body for n, body in found.items() if not n.startswith(".")}
    assert shards == {p.name: p.read_bytes() for p in tmp_path.glob("y-*.tfrecord")}
    assert all(name.endswith(".penstock") for name in found.keys() - shards.keys())


@pytest.mark.usefixtures("environment")
def test_a_folder_gets_a_shard_for_each_of_the_source(
    source: Path, tmp_path: Path, prefix: str, seaweed: Seaweed
) -> None:
    ps.convert(source, f"s3://{prefix}/", format="parquet")
    ps.convert(source, f"{tmp_path}/here/", format="parquet")
    assert objects(seaweed, prefix) == files(tmp_path / "here")


@pytest.mark.usefixtures("environment")
def test_shards_by_bytes(source: Path, tmp_path: Path, prefix: str, seaweed: Seaweed) -> None:
    (tmp_path / "here").mkdir()
    for target in (f"s3://{prefix}/y.tar", tmp_path / "here" / "y.tar"):
        ps.convert(source, target, shard_bytes=1_000_000)
    found = objects(seaweed, prefix)
    assert len(found) > 2
    assert found == files(tmp_path / "here")


@pytest.mark.usefixtures("environment")
def test_what_exists_stays_without_overwrite(source: Path, prefix: str, seaweed: Seaweed) -> None:
    target = f"s3://{prefix}/y.parquet"
    seaweed.client.put(f"{prefix}/y-00001-of-00002.parquet", b"other")
    with pytest.raises(FileExistsError):
        ps.convert(source, target, num_shards=2)
    assert objects(seaweed, prefix) == {"y-00001-of-00002.parquet": b"other"}
    ps.convert(source, target, num_shards=2, overwrite=True)
    assert len(ps.open(f"s3://{prefix}/y@2.parquet")) == COUNT


@pytest.mark.usefixtures("environment")
def test_a_source_is_not_its_own_target(source: Path, prefix: str, seaweed: Seaweed) -> None:
    target = f"s3://{prefix}/y.tfrecord"
    ps.convert(source, target)
    before = objects(seaweed, prefix)
    with pytest.raises(ValueError, match="is a source"):
        ps.convert(target, target, overwrite=True)
    assert objects(seaweed, prefix) == before


@pytest.mark.usefixtures("environment")
def test_a_proof_reads_what_is_in_the_store(
    source: Path, prefix: str, proxy: FaultProxy, seaweed: Seaweed
) -> None:
    target, options = f"s3://{prefix}/y.parquet", seaweed.options(proxy.endpoint)
    last = "y-00001-of-00002.parquet"
    proxy.add(faults.damaged(), method="GET", key=last)
    with pytest.raises(ps.FormatError):
        ps.convert(source, target, prove=True, num_shards=2, target_storage_options=options)
    assert last not in objects(seaweed, prefix)
    proxy.heal()
    ps.convert(source, target, prove=True, num_shards=2, target_storage_options=options)
    assert last in objects(seaweed, prefix)


@pytest.mark.usefixtures("environment")
def test_what_somebody_else_put_there_is_not_removed_by_a_proof(
    source: Path, prefix: str, proxy: FaultProxy, seaweed: Seaweed
) -> None:
    target, options = f"s3://{prefix}/y.parquet", seaweed.options(proxy.endpoint)
    ps.write({"id": [1], "blob": [b"x"]}, f"s3://{prefix}/z.parquet")
    body = seaweed.client.get(f"{prefix}/z.parquet")
    last = "y-00001-of-00002.parquet"
    swap = faults.call(lambda asked: seaweed.client.put(f"{prefix}/{last}", body))
    proxy.add(swap, method="GET", key=last, times=1)
    with pytest.raises((ps.FormatError, ps.ChangedError)):
        ps.convert(source, target, prove=True, num_shards=2, target_storage_options=options)
    assert objects(seaweed, prefix)[last] == body


class StoppedError(Exception):
    pass


def stopped_after(shards: int, *words: object, **more: object) -> None:
    """Convert, and be stopped when so many shards of 100 records are done."""

    def progress(done: int, *_: int) -> None:
        if done > 100 * shards:
            raise StoppedError

    with pytest.raises(StoppedError):
        ps.convert(*words, num_shards=SHARDS, progress=progress, **more)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.usefixtures("environment")
def test_finished_shards_are_not_read_again(
    prefix: str, seaweed: Seaweed, proxy: FaultProxy
) -> None:
    rng = np.random.default_rng(1)
    large = {"id": list(range(COUNT)), "blob": [rng.bytes(40_000) for _ in range(COUNT)]}
    ps.write(large, f"s3://{prefix}/in/x.parquet", num_shards=SHARDS)
    name, target = f"s3://{prefix}/in/x@{SHARDS}.parquet", f"s3://{prefix}/out/y.tfrecord"
    through = seaweed.options(proxy.endpoint)
    stopped_after(2, name, target)
    first = objects(seaweed, f"{prefix}/out")
    assert [n for n in sorted(first) if n.startswith("y")] == [
        f"y-0000{n}-of-00004.tfrecord" for n in range(2)
    ]
    journal = [n for n in first if n.startswith(".penstock-convert-")]
    assert {os.path.basename(n) for n in journal} == {
        "job.json", "00000.json", "00001.json", "00002.json"
    }  # fmt: skip
    proxy.forget()
    ps.convert(name, target, num_shards=SHARDS, storage_options=through)
    whole = len(seaweed.client.get(f"{prefix}/in/x-00000-of-00004.parquet"))
    for shard in range(2):
        assert proxy.sent(f"x-0000{shard}-of") < whole / 2, "its first and last bytes only"
        assert proxy.sent(f"x-0000{shard + 2}-of") > whole / 2
    before = objects(seaweed, f"{prefix}/out")
    ps.convert(name, target, num_shards=SHARDS, overwrite=True)
    assert objects(seaweed, f"{prefix}/out") == before


@pytest.mark.usefixtures("environment")
def test_a_changed_shard_is_made_again(source: Path, prefix: str, seaweed: Seaweed) -> None:
    target = f"s3://{prefix}/y.parquet"
    stopped_after(2, source, target, overwrite=True)
    right = objects(seaweed, prefix)["y-00000-of-00004.parquet"]
    seaweed.client.put(f"{prefix}/y-00000-of-00004.parquet", b"changed")
    ps.convert(source, target, num_shards=SHARDS, overwrite=True)
    assert objects(seaweed, prefix)["y-00000-of-00004.parquet"] == right


@pytest.mark.usefixtures("environment")
def test_another_job_removes_what_an_unfinished_one_left(
    source: Path, prefix: str, seaweed: Seaweed
) -> None:
    target = f"s3://{prefix}/y.parquet"
    stopped_after(3, source, target)
    seaweed.client.put(f"{prefix}/y-00001-of-00004.parquet", b"somebody else's since")
    ps.convert(source, target, num_shards=3)
    found = objects(seaweed, prefix)
    assert sorted(found) == [
        "y-00000-of-00003.parquet", "y-00001-of-00003.parquet", "y-00001-of-00004.parquet",
        "y-00002-of-00003.parquet",
    ]  # fmt: skip
    assert found["y-00001-of-00004.parquet"] == b"somebody else's since"


@pytest.mark.usefixtures("environment")
def test_another_source_is_another_job(
    source: Path, tmp_path: Path, prefix: str, data: pa.Table
) -> None:
    target = f"s3://{prefix}/y.parquet"
    stopped_after(2, source, target)
    ps.write(data.slice(0, 399), tmp_path / "x.tfrecord", num_shards=SHARDS, overwrite=True)
    ps.convert(source, target, num_shards=SHARDS)
    assert len(ps.open(f"s3://{prefix}/y@4.parquet")) == 399


@pytest.mark.usefixtures("environment")
def test_a_value_that_does_not_fit_leaves_nothing(
    tmp_path: Path, prefix: str, seaweed: Seaweed
) -> None:
    values = pa.array([float(n) for n in range(90)] + [0.1] * 10)
    ps.write(pa.table({"x": values}), tmp_path / "x.parquet")
    with pytest.raises(ps.SchemaError):
        ps.convert(tmp_path / "x.parquet", f"s3://{prefix}/y.tfrecord", exact=True, num_shards=10)
    assert objects(seaweed, prefix) == {}


@pytest.mark.usefixtures("environment")
def test_an_object_that_comes_meanwhile_is_never_ours(
    source: Path, prefix: str, seaweed: Seaweed, proxy: FaultProxy
) -> None:
    target, options = f"s3://{prefix}/y.parquet", seaweed.options(proxy.endpoint)
    key = f"{prefix}/y-00001-of-00002.parquet"
    proxy.add(
        faults.call(lambda asked: seaweed.client.put(key, b"other")),
        method="PUT", key="y-00001-of-00002.parquet", times=1,
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(FileExistsError):
            ps.convert(source, target, num_shards=2, target_storage_options=options)
        assert seaweed.client.get(key) == b"other"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"job": 3}', b'{"job": "x", "files": [1]}', b"\xff"]
)
@pytest.mark.usefixtures("environment")
def test_a_damaged_journal_is_none(
    text: bytes, source: Path, prefix: str, seaweed: Seaweed
) -> None:
    target = f"s3://{prefix}/y.parquet"
    folder = folder_of(target, f"s3://{prefix}").removeprefix("s3://")
    for name in ("job.json", "00000.json", "00001.json"):
        seaweed.client.put(f"{folder}/{name}", text)
    ps.convert(source, target, num_shards=2)
    assert sorted(objects(seaweed, prefix)) == [f"y-0000{n}-of-00002.parquet" for n in range(2)]


def test_no_secret_is_in_a_journal(
    source: Path, prefix: str, seaweed: Seaweed, options: dict[str, str]
) -> None:
    stopped_after(2, source, f"s3://{prefix}/y.parquet", target_storage_options=options)
    found = objects(seaweed, prefix)
    assert len(found) > 4
    assert seaweed.secret is not None
    assert not any(seaweed.secret.encode() in body for body in found.values())


# -- locks ----------------------------------------------------------------------------------------


def lock_at(prefix: str, number: int = 0) -> str:
    folder = folder_of(f"s3://{prefix}/y.parquet", f"s3://{prefix}").removeprefix("s3://")
    return f"{folder}/lock-{number:05d}.json"


@pytest.mark.usefixtures("environment")
def test_one_job_at_a_time(source: Path, prefix: str, seaweed: Seaweed) -> None:
    target = f"s3://{prefix}/y.parquet"
    refused: list[str] = []

    def progress(done: int, *_: int) -> None:
        with pytest.raises(BlockingIOError, match="another conversion is writing it") as error:
            ps.convert(source, target, num_shards=3)
        refused.append(str(error.value.filename))

    ps.convert(source, target, num_shards=2, progress=progress)
    assert set(refused) == {target}
    assert sorted(objects(seaweed, prefix)) == [f"y-0000{n}-of-00002.parquet" for n in range(2)]


@pytest.mark.usefixtures("environment")
def test_a_lock_of_another_machine_holds_for_two_minutes(
    source: Path, prefix: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"s3://{prefix}/y.parquet"
    seaweed.client.put(lock_at(prefix), json.dumps({"holder": "0" * 32}).encode())
    with pytest.raises(BlockingIOError):
        ps.convert(source, target)
    monkeypatch.setattr(store_lock, "STALE_SECONDS", -1)
    ps.convert(source, target)
    assert list(objects(seaweed, prefix)) == ["y.parquet"]


@pytest.mark.usefixtures("environment")
def test_a_job_whose_lock_was_taken_over_stops(
    source: Path, prefix: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "AGAIN_SECONDS", 0.02)
    later = lock_at(prefix, 1)

    def progress(done: int, *_: int) -> None:
        if done == 100:
            seaweed.client.put(later, json.dumps({"holder": "0" * 32}).encode())
            time.sleep(0.5)

    with pytest.raises(BlockingIOError):
        ps.convert(source, f"s3://{prefix}/y.parquet", num_shards=SHARDS, progress=progress)
    assert "y-00003-of-00004.parquet" not in objects(seaweed, prefix)
    seaweed.client.get(later)


@pytest.mark.usefixtures("environment")
def test_of_two_that_take_a_dead_lock_over_one_gets_it(prefix: str, seaweed: Seaweed) -> None:
    folder = f"s3://{prefix}/.penstock-lock"
    storage = ObjectStorage(seaweed.options())
    storage.save(f"{folder}/lock-00003.json", b"{}")
    storage.save(f"{folder}/probe", b"")
    one, two = (store_lock.StoreLock(storage, folder, "busy", "x") for _ in range(2))
    lives = store_lock.StoreLock._lives  # pyright: ignore[reportPrivateUsage]

    def dead(self: store_lock.StoreLock, number: int, probe: str) -> bool:
        return number != 3 and lives(self, number, probe)

    class Late(store_lock.StoreLock):
        """Sees the dead lock, and creates its own only when the other one has."""

        def _lives(self, number: int, probe: str) -> bool:
            if number == 3:
                one.take(probe)
            return dead(self, number, probe)

    store_lock.StoreLock._lives = dead  # pyright: ignore[reportPrivateUsage]
    try:
        with pytest.raises(BlockingIOError):
            Late(storage, folder, "busy", "x").take(f"{folder}/probe")
        with pytest.raises(BlockingIOError):
            two.take(f"{folder}/probe")
    finally:
        store_lock.StoreLock._lives = lives  # pyright: ignore[reportPrivateUsage]
    assert [os.path.basename(p) for p in storage.list(folder)] == ["lock-00004.json", "probe"]
