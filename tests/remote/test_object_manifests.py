"""A manifest of a store opens its shards without a listing, and in the state that it lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.manifests.table import GROUP_SHARDS
from penstock.storage.base import FileState
from penstock.storage.local import LocalStorage
from penstock.verbs.manifest._table import Row, TableWriter
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import SECRET, Seaweed

SHARDS, COUNT = 12, 240


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


@pytest.fixture
def options(proxy: FaultProxy, seaweed: Seaweed) -> dict[str, str]:
    return seaweed.options(proxy.endpoint)


@pytest.fixture
def folder(prefix: str, seaweed: Seaweed) -> str:
    ps.write(
        {"id": range(COUNT)},
        f"s3://{prefix}/x.tfrecord",
        num_shards=SHARDS,
        storage_options=seaweed.options(),
    )
    return f"s3://{prefix}"


def made(folder: str, path: str, options: dict[str, str]) -> ps.Summary:
    return ps.manifest(
        f"{folder}/x-*.tfrecord",
        path,
        storage_options=options,
        target_storage_options=options,
    )


def test_a_manifest_costs_no_listing_and_no_request_for_a_shard(
    folder: str, options: dict[str, str], proxy: FaultProxy
) -> None:
    made(folder, f"{folder}/x.manifest", options)
    proxy.forget()
    ds = ps.open(f"{folder}/x.manifest", storage_options=options)
    assert len(ds) == COUNT
    assert ds.schema.names == ["id"]
    assert len(ds.shards) == SHARDS
    assert ds.fingerprint
    assert {seen.path.rpartition("/")[2] for seen in proxy.requests()} == {"x.manifest"}
    assert len(proxy.requests()) <= 3
    proxy.forget()
    assert ds[COUNT - 1] == {"id": COUNT - 1}
    touched = {seen.path.rpartition("/")[2] for seen in proxy.requests()}
    last = f"x-{SHARDS - 1:05}-of-{SHARDS:05}.tfrecord"
    assert touched <= {last, f".{last}.penstock"}
    assert ds.to_table()["id"].to_pylist() == list(range(COUNT))
    plain = ps.open(f"{folder}/x-*.tfrecord", storage_options=options)
    assert (plain.fingerprint, plain.shards) == (ds.fingerprint, ds.shards)


def test_a_manifest_on_this_machine_lists_objects(
    folder: str, options: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "x.manifest"
    ps.manifest(f"{folder}/x-*.tfrecord", path, storage_options=options)
    ds = ps.open(path, storage_options=options)
    assert ds.take([0, COUNT - 1])["id"].to_pylist() == [0, COUNT - 1]
    assert ds.paths[0].startswith(folder)
    assert ps.verify(path, storage_options=options).ok
    assert ps.verify_manifest(path, storage_options=options).ok
    assert SECRET.encode() not in path.read_bytes()


def test_a_replaced_object_is_an_error_until_the_manifest_is_refreshed(
    folder: str, prefix: str, options: dict[str, str], seaweed: Seaweed
) -> None:
    name = f"{folder}/x.manifest"
    made(folder, name, options)
    key = f"{prefix}/x-00003-of-{SHARDS:05}.tfrecord"
    old = seaweed.client.done("GET", key).body
    seaweed.client.done("PUT", key, body=old + old)
    ds = ps.open(name, storage_options=options)
    assert ds[0] == {"id": 0}
    with pytest.raises(
        ps.ChangedError, match=r"since the manifest .*x.manifest was made"
    ) as raised:
        list(ds.scan())
    assert "--refresh" in (raised.value.hint or "")
    report = ps.verify_manifest(name, storage_options=options)
    assert [one.kind for one in report.findings] == ["changed"]
    done = ps.manifest(name, name, storage_options=options, target_storage_options=options)
    assert done.num_records == COUNT + COUNT // SHARDS
    assert done.notes == (f"shards: 0 new, 1 changed, 0 gone, {SHARDS - 1} as before",)
    assert len(list(ps.open(name, storage_options=options))) == done.num_records


def test_many_states_are_asked_for_by_a_listing(
    folder: str,
    options: dict[str, str],
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made(folder, f"{folder}/x.manifest", options)
    monkeypatch.setattr("penstock.storage.objects._LISTED_FROM", SHARDS)
    proxy.forget()
    assert ps.verify_manifest(f"{folder}/x.manifest", storage_options=options).ok
    assert proxy.count("HEAD") == 0
    assert len([seen for seen in proxy.requests() if "list-type" in seen.query]) == 1


def test_an_old_version_is_read_as_long_as_the_store_keeps_it(
    seaweed: Seaweed, options: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "a.tfrecord"
    with seaweed.bucket(versions=True) as bucket:
        for number in range(2):
            ps.write({"id": [number]}, file, overwrite=True, index=False)
            seaweed.client.done("PUT", f"{bucket}/a.tfrecord", body=file.read_bytes())
            if not number:
                made_of = f"s3://{bucket}/a.tfrecord"
                ps.manifest(made_of, tmp_path / "a.manifest", storage_options=options)
        assert ps.open(tmp_path / "a.manifest", storage_options=options)[0] == {"id": 0}
        assert ps.open(f"s3://{bucket}/a.tfrecord", storage_options=options)[0] == {"id": 1}


def test_new_shards_are_added(folder: str, options: dict[str, str]) -> None:
    name = f"{folder}/all.manifest"
    more = {"storage_options": options, "target_storage_options": options}
    ps.manifest(f"{folder}/x-0000{{0..5}}-of-{SHARDS:05}.tfrecord", name, **more)
    done = ps.manifest(f"{folder}/x-*.tfrecord", name, **more)
    assert done.notes == (f"shards: {SHARDS - 6} new, 0 changed, 0 gone, 6 as before",)
    shards = ps.open(name, storage_options=options).shards
    assert [shard.num_records for shard in shards] == [COUNT // SHARDS] * SHARDS


def test_a_manifest_among_shards_is_left_out(folder: str, options: dict[str, str]) -> None:
    made(folder, f"{folder}/x.manifest", options)
    ds = ps.open(f"{folder}/", storage_options=options)
    assert len(ds.paths) == SHARDS
    assert [one.path for one in ds.skipped_files] == [f"{folder}/x.manifest"]


def test_a_set_is_moved_with_its_manifest(
    folder: str, prefix: str, options: dict[str, str], seaweed: Seaweed
) -> None:
    made(folder, f"{folder}/x.manifest", options)
    bucket, _, below = prefix.partition("/")
    for key in seaweed.client.keys(bucket, f"{below}/x"):
        body = seaweed.client.done("GET", f"{bucket}/{key}").body
        seaweed.client.done("PUT", f"{prefix}/there/{key.rpartition('/')[2]}", body=body)
    ds = ps.open(f"{folder}/there/x.manifest", storage_options=options)
    assert ds.paths[0].startswith(f"{folder}/there/")
    assert ds.to_table()["id"].to_pylist() == list(range(COUNT))


def million(path: Path, folder: str, real: dict[int, Any], count: int) -> None:
    """A manifest of `count` shards, of which only those in `real` exist."""
    made = TableWriter(LocalStorage().sink(str(path)))
    tag = '"0123456789abcdef0123456789abcdef"'
    for number in range(count):
        state = real.get(number) or FileState(1000, tag)
        made.add(Row(f"{folder}/part-{number:07}.tfrecord", "tfrecord", 10, state, number, None))
    schema = pa.schema([("id", pa.int64())])
    made.finish(str(path), schema, "kept", has_overlays=False)


def test_a_rank_touches_only_its_own_shards(
    folder: str,
    prefix: str,
    options: dict[str, str],
    seaweed: Seaweed,
    proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    shards, rank, batch = 3 * GROUP_SHARDS, 5, 10
    file = tmp_path / "part.tfrecord"
    ps.write({"id": range(10)}, file, index=False)
    number = rank  # ten records a shard, and ten records a rank in the first step
    seaweed.client.done("PUT", f"{prefix}/part-{number:07}.tfrecord", body=file.read_bytes())
    url = f"{folder}/part-{number:07}.tfrecord"
    state = ps.open(url, storage_options=options).files.storage.file_state(url)
    million(tmp_path / "big.manifest", folder, {number: state}, shards)
    seaweed.client.done(
        "PUT", f"{prefix}/big.manifest", body=(tmp_path / "big.manifest").read_bytes()
    )
    proxy.forget()
    ds = ps.open(f"{folder}/big.manifest", storage_options=options)
    assert len(proxy.requests()) <= 3
    loader = ps.Loader(ds, batch, rank=rank, world_size=8, threads=0)
    assert next(iter(loader))["id"].tolist() == list(range(10))
    shards_touched = {seen.path for seen in proxy.requests() if "part-" in seen.path}
    assert all(f"part-{number:07}" in path for path in shards_touched)


@pytest.mark.parametrize("verb", ["write", "convert"])
def test_writers_write_a_manifest_into_the_store(
    folder: str, options: dict[str, str], seaweed: Seaweed, prefix: str, verb: str
) -> None:
    name = f"{folder}/new/y.manifest"
    if verb == "write":
        where = {"storage_options": options}
        ps.write({"id": range(9)}, f"{folder}/new/y.tar", num_shards=3, manifest=name, **where)
    else:
        where = {"storage_options": options, "target_storage_options": options}
        source = f"{folder}/x@{SHARDS}.tfrecord"
        ps.convert(source, f"{folder}/new/y.tar", num_shards=3, manifest=name, **where)
    ds = ps.open(name, storage_options=options)
    assert len(ds.paths) == 3
    assert len(ds) == (9 if verb == "write" else COUNT)
    assert ds[len(ds) - 1]["id"] == len(ds) - 1
    data = seaweed.client.done("GET", f"{prefix}/new/y.manifest").body
    assert SECRET.encode() not in data
    with pytest.raises(FileExistsError, match="the manifest exists"):
        ps.write({"id": [1]}, f"{folder}/z.tar", manifest=name, storage_options=options)
