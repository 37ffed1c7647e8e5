"""Stores of other libraries, and of users, give the records that files give."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore.store
import pyarrow as pa
import pyarrow.fs
import pytest
from s3fs import S3FileSystem

import penstock as ps
from penstock.storage import MemoryStorage, Storage
from penstock.storage._foreign import ForeignSource, ForeignStorage, near_groups
from remote.servers.s3 import REGION
from remote.servers.seaweed import KEY_ID, SECRET, Seaweed

COUNT = 600
SHARDS = 3
TABLE = pa.table({"id": range(COUNT), "text": [f"record {n}" * (n % 9) for n in range(COUNT)]})


class Own(Storage):
    """A user's storage: the least that one must write."""

    def __init__(self) -> None:
        self.files = MemoryStorage()

    def source(self, path: str, *, mmap: bool = False) -> Any:
        return self.files.source(path)

    def sink(self, path: str, *, overwrite: bool = False) -> Any:
        return self.files.sink(path, overwrite=overwrite)

    def list(self, folder: str) -> list[str]:
        return [
            path for path in self.files.list(folder) if not os.path.basename(path).startswith(".")
        ]

    def exists(self, path: str) -> bool:
        return self.files.exists(path)


def s3fs_of(seaweed: Seaweed, **keys: Any) -> Any:
    keys = keys or {"key": KEY_ID, "secret": SECRET}
    place = {"endpoint_url": seaweed.endpoint, "client_kwargs": {"region_name": REGION}}
    return S3FileSystem(**place, **keys)


def obstore_of(seaweed: Seaweed, path: str, **more: Any) -> Any:
    bucket, _, prefix = path.partition("/")
    keys = more or {"access_key_id": KEY_ID, "secret_access_key": SECRET}
    return obstore.store.S3Store(
        bucket,
        prefix=prefix,
        endpoint=seaweed.endpoint,
        region=REGION,
        client_options={"allow_http": True},
        **keys,
    )


def pyarrow_of(seaweed: Seaweed) -> Any:
    host = seaweed.endpoint.removeprefix("http://")
    return pyarrow.fs.S3FileSystem(
        access_key=KEY_ID, secret_key=SECRET, endpoint_override=host, scheme="http", region=REGION
    )


PLACES: dict[str, Callable[[Seaweed, str], tuple[Any, str]]] = {
    "obstore": lambda weed, prefix: (obstore_of(weed, f"{prefix}/d"), ""),
    "obstore memory": lambda weed, prefix: (obstore.store.MemoryStore(), "d/"),
    "fsspec memory": lambda weed, prefix: (fsspec.filesystem("memory"), f"memory://{uuid.uuid4()}/"),
    "s3fs": lambda weed, prefix: (s3fs_of(weed), f"s3://{prefix}/d/"),
    "s3fs without scheme": lambda weed, prefix: (s3fs_of(weed), f"{prefix}/d/"),
    "pyarrow": lambda weed, prefix: (pyarrow_of(weed), f"{prefix}/d/"),
    "pyarrow of fsspec": lambda weed, prefix: (
        pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("memory"))),
        f"/{uuid.uuid4()}/",
    ),
    "penstock memory": lambda weed, prefix: (MemoryStorage(), "d/"),
    "own": lambda weed, prefix: (Own(), "d/"),
}  # fmt: skip


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, seaweed: Seaweed, prefix: str) -> tuple[Any, str]:
    """A storage, and a folder in it that ends with a slash. For obstore's store that is its root."""
    return PLACES[request.param](seaweed, prefix)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [(kind, "tfrecord") for kind in PLACES]
    + [(kind, "parquet") for kind in ("obstore", "s3fs", "pyarrow")]
    + [("fsspec memory", ending) for ending in ("tar", "parquet", "beton", "msgpack", "h5")],
)
def test_records_are_those_of_files(
    kind: str, ending: str, seaweed: Seaweed, prefix: str, tmp_path: Path
) -> None:
    storage, folder = PLACES[kind](seaweed, prefix)
    ps.write(TABLE, tmp_path / f"x.{ending}", index=False)
    ps.write(TABLE, f"{folder}x.{ending}", storage=storage, index=False)
    here = ps.open(tmp_path / f"x.{ending}")
    there = ps.open(f"{folder}x.{ending}", storage=storage)
    assert there.schema == here.schema
    assert there.to_table() == here.to_table()
    assert there.take([599, 3, 3, 250]) == here.take([599, 3, 3, 250])
    assert ps.verify(f"{folder}x.{ending}", storage=storage).num_records == COUNT
    loader = ps.Loader(there, batch_size=64, order=ps.Shuffled(seed=1), columns=["id"])
    if ending != "tar":
        assert sorted(np.concatenate([batch["id"] for batch in loader])) == list(range(COUNT))


CACHED = [kind for kind in PLACES if kind not in ("penstock memory", "own")]


@pytest.mark.parametrize("kind", CACHED)
def test_the_second_epoch_of_another_librarys_files_is_read_from_a_cache(
    kind: str, seaweed: Seaweed, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, folder = PLACES[kind](seaweed, prefix)
    path = f"{folder}x.tfrecord"
    ps.write(TABLE, path, storage=storage)
    expected = ps.open(path, storage=storage).to_table()
    ds = ps.open(path, storage=storage, cache=tmp_path / "c")
    assert ds.to_table() == expected
    assert ds.take([599, 3])["id"].to_pylist() == [599, 3]
    asked, hits = ds.files.storage.traffic().num_requests, ds.files.storage.traffic().num_cache_hits

    def refuse(*_: Any) -> Any:
        raise AssertionError("asked again")

    monkeypatch.setattr(ForeignSource, "_read", refuse)
    assert ds.to_table() == expected
    loader = ps.Loader(ds, batch_size=50, order=ps.Shuffled(seed=0), columns=["id"])
    assert sorted(np.concatenate([batch["id"] for batch in loader])) == list(range(COUNT))
    traffic = ds.files.storage.traffic()
    assert traffic.num_requests == asked
    assert traffic.num_cache_hits > hits
    monkeypatch.undo()
    ps.write(TABLE.slice(0, 599), path, storage=storage, overwrite=True)
    assert len(ps.open(path, storage=storage, cache=tmp_path / "c").to_table()) == 599


def test_names_stand_for_files_as_elsewhere(place: tuple[Any, str]) -> None:
    storage, folder = place
    ps.write(TABLE, f"{folder}x.tfrecord", num_shards=SHARDS, storage=storage)
    ps.write(TABLE.slice(0, 7), f"{folder}other.tar", storage=storage)

    def ids(source: Any) -> list[int]:
        return ps.open(source, storage=storage).to_table()["id"].to_pylist()

    every = list(range(COUNT))
    for name in (
        "x-*.tfrecord",
        "x@3.tfrecord",
        "x@*.tfrecord",
        "x-{00000..00002}-of-00003.tfrecord",
    ):
        assert ids(f"{folder}{name}") == every, name
    assert ids([f"{folder}x-0000{n}-of-00003.tfrecord" for n in range(SHARDS)]) == every
    with pytest.raises(FileNotFoundError):
        ids(f"{folder}y-*.tfrecord")
    with pytest.raises(FileNotFoundError):
        ids(f"{folder}y.tfrecord")
    with pytest.raises(FileExistsError):
        ps.write(TABLE, f"{folder}other.tar", storage=storage)


def test_folders_are_listed_once_with_those_below(place: tuple[Any, str]) -> None:
    storage, folder = place
    if isinstance(storage, Own):
        pytest.skip("it has no folders in folders")
    for name in ("a/x.tfrecord", "a/b/y.tfrecord", "a/b/.hidden.tfrecord", "c/z.tfrecord"):
        ps.write(TABLE.slice(0, 10), f"{folder}{name}", storage=storage, index=False)
    assert len(ps.open(f"{folder}a", storage=storage)) == 20
    assert len(ps.open(f"{folder}a/", storage=storage)) == 20
    assert len(ps.open(f"{folder}**/*.tfrecord", storage=storage)) == 30
    assert len(ps.open(f"{folder}*/*.tfrecord", storage=storage)) == 20


def test_a_replaced_file_is_an_error(place: tuple[Any, str]) -> None:
    storage, folder = place
    if isinstance(storage, Storage):
        pytest.skip("it says nothing about the state of a file")
    name = f"{folder}x.tfrecord"
    blob = {"blob": [os.urandom(50_000) for _ in range(30)]}
    ps.write(blob, name, storage=storage, index=False)
    ds = ps.open(name, storage=storage)
    assert ds.head(1).num_rows == 1
    blob["blob"] = [os.urandom(50_000) for _ in range(30)]
    ps.write(blob, name, storage=storage, index=False, overwrite=True)
    with pytest.raises(ps.ChangedError, match="changed or replaced"):
        ds.to_table()
    with pytest.raises(ps.ChangedError, match="changed or replaced"):
        ds.take([3])


def test_pickles_are_read_where_the_storage_can_be_pickled(
    seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.write(TABLE, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options())
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    for storage, name in (
        (s3fs_of(seaweed, anon=False), f"{prefix}/x.tfrecord"),
        (obstore_of(seaweed, prefix, skip_signature=False), "x.tfrecord"),
    ):
        body = pickle.dumps(ps.open(name, storage=storage))
        assert SECRET.encode() not in body
        assert pickle.loads(body).to_table()["id"] == TABLE["id"]


def test_secrets_of_a_storage_are_not_pickled(seaweed: Seaweed, prefix: str) -> None:
    ps.write(TABLE, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options())
    for storage, name in (
        (s3fs_of(seaweed), f"{prefix}/x.tfrecord"),
        (pyarrow_of(seaweed), f"{prefix}/x.tfrecord"),
        (pyarrow.fs.SubTreeFileSystem(prefix, pyarrow_of(seaweed)), "x.tfrecord"),
        (obstore_of(seaweed, prefix), "x.tfrecord"),
    ):
        ds = ps.open(name, storage=storage)
        with pytest.raises(ps.UnsupportedError, match="secret"):
            pickle.dumps(ds)
        assert SECRET not in repr(ds) + repr(ds.files.storage) + str(vars(ds.files.storage))


def rows(ds: ps.Dataset, place: Any) -> None:
    place.put(ds.to_table().num_rows)


@pytest.mark.parametrize("kind", ["s3fs"])
def test_a_child_process_that_is_spawned_reads(kind: str, seaweed: Seaweed, prefix: str) -> None:
    storage, folder = PLACES[kind](seaweed, prefix)
    ps.write(TABLE, f"{folder}x.tfrecord", storage=storage)
    context = multiprocessing.get_context("spawn")
    place = context.Queue()
    child = context.Process(
        target=rows, args=(ps.open(f"{folder}x.tfrecord", storage=storage), place)
    )
    child.start()
    assert place.get(timeout=60) == COUNT
    child.join()


@pytest.mark.parametrize("kind", ["s3fs", "pyarrow", "obstore", "fsspec memory"])
def test_a_forked_child_reads_or_is_told_why_not(kind: str, seaweed: Seaweed, prefix: str) -> None:
    storage, folder = PLACES[kind](seaweed, prefix)
    ps.write(TABLE, f"{folder}x.tfrecord", storage=storage)
    ds = ps.open(f"{folder}x.tfrecord", storage=storage)
    assert len(ds) == COUNT
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if ds.take([7])["id"].to_pylist() == [7] else 2
        except ps.UnsupportedError as error:
            status = 3 if "spawn" in str(error) else 4
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (3 if kind in ("s3fs", "pyarrow") else 0)


def test_the_index_of_an_obstore_store_is_kept(seaweed: Seaweed, prefix: str) -> None:
    store = obstore_of(seaweed, prefix)
    ps.write(TABLE, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options(), index=False)
    assert len(ps.open("x.tfrecord", storage=store)) == COUNT
    assert ps.open("x.tfrecord", storage=store).files.storage is not None
    (path,) = ps.index(f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options())
    assert path


def test_credentials_of_an_obstore_provider_are_asked_for(seaweed: Seaweed, prefix: str) -> None:
    asked: list[int] = []

    def provider() -> dict[str, Any]:
        asked.append(1)
        keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
        return {**keys, "token": None, "expires_at": None}

    ps.write(TABLE, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options())
    store = obstore_of(seaweed, prefix, credential_provider=provider)
    assert len(ps.open("x.tfrecord", storage=store)) == COUNT
    assert asked


def test_file_systems_of_this_machine_are_its_files(tmp_path: Path) -> None:
    ps.write(TABLE, tmp_path / "x.tfrecord")
    for storage in (
        fsspec.filesystem("file"),
        pyarrow.fs.LocalFileSystem(),
        obstore.store.LocalStore(),
    ):
        assert ps.open(tmp_path / "x.tfrecord", storage=storage).to_table() == TABLE
        assert ps.open(f"{tmp_path}/*.tfrecord", storage=storage, mmap=True).to_table() == TABLE


def test_what_is_no_storage_is_refused() -> None:
    with pytest.raises(TypeError, match="fsspec"):
        ps.open("x.tfrecord", storage=object())
    with pytest.raises(ValueError, match="not both"):
        ps.open("x.tfrecord", storage=MemoryStorage(), storage_options={"aws_region": "a"})


def test_an_error_of_a_library_is_told_without_its_text(seaweed: Seaweed, prefix: str) -> None:
    ps.write(TABLE, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options())
    wrong = s3fs_of(seaweed, key=KEY_ID, secret="wrong-secret-9")
    with pytest.raises(ps.StorageError) as refused:
        ps.open(f"{prefix}/x.tfrecord", storage=wrong)
    assert (
        "wrong-secret-9" not in str(refused.value) and refused.value.file == f"{prefix}/x.tfrecord"
    )

    class Broken(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        def cat_file(self, *given: Any, **named: Any) -> bytes:
            return super().cat_file(*given, **named)[:-1]

    broken = Broken(skip_instance_cache=True)
    ps.write(TABLE, "/short/x.tfrecord", storage=broken, overwrite=True)
    with pytest.raises(ps.StorageError, match="returned"):
        ps.open("/short/x.tfrecord", storage=broken)


def test_near_ranges_are_read_together() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        starts = random.integers(0, 1 << 26, random.integers(1, 50))
        lengths = random.integers(0, 1 << 20, len(starts))
        groups = near_groups(starts, lengths)
        assert sorted(np.concatenate(groups)) == list(range(len(starts)))
        for group in groups:
            size = (starts[group] + lengths[group]).max() - starts[group].min()
            assert len(group) == 1 or size <= 8 << 20
    near = np.arange(100) * 70_000
    assert len(near_groups(near, np.full(100, 10_000))) == 1


def test_ranges_of_a_foreign_file_are_its_bytes() -> None:
    system = fsspec.filesystem("memory")
    body = np.random.default_rng(5).bytes(3 << 20)
    system.pipe_file("/ranges/x", body)
    from penstock.storage.places import storage_of

    storage = storage_of("x", system)
    assert isinstance(storage, ForeignStorage)
    source = storage.source("/ranges/x")
    random = np.random.default_rng(6)
    for count in (1, 2, 100):
        starts = random.integers(0, len(body) - 5000, count)
        lengths = random.integers(0, 5000, count)
        found = source.gather(pa.array(starts, pa.uint64()), pa.array(lengths, pa.uint64()))
        pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
        assert bytes(found) == b"".join(body[start : start + length] for start, length in pairs)
