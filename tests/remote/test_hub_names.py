"""`hf://` names: data sets of Hugging Face, from a server of the tests."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage._foreign import ForeignStorage
from remote.servers.hub import Hub, hub

NAME = "some/set"
BASE = f"hf://datasets/{NAME}"
COUNT = 300


def table(first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + COUNT), "x": np.arange(COUNT) / 2})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub() as state:
        for name, value in state.environment().items():
            monkeypatch.setenv(name, value)
        yield state


def files(folder: Path, first: int = 0) -> dict[str, bytes]:
    found: dict[str, bytes] = {"README.md": b"# words"}
    for number in range(3):
        part = table(first).slice(100 * number, 100)
        for name in (f"train-{number:05}-of-00003.parquet", f"train-{number:05}-of-00003.tfrecord"):
            ps.write(part, folder / name, index=False, overwrite=True)
            place = "data" if name.endswith("parquet") else "records/deep"
            found[f"{place}/{name}"] = (folder / name).read_bytes()
    return found


def ids(source: Any, **options: Any) -> list[int]:
    return ps.open(source, **options).to_table()["id"].to_pylist()


def test_a_data_set_is_read(server: Hub, tmp_path: Path) -> None:
    server.put(NAME, files(tmp_path))
    every = list(range(COUNT))
    for name in (
        "data/*.parquet",
        "data",
        "data/",
        "data/train@3.parquet",
        "data/train-{00000..00002}-of-00003.parquet",
        "**/*.tfrecord",
        "records/deep/train-*.tfrecord",
    ):
        assert ids(f"{BASE}/{name}") == every, name
    name = f"{BASE}/records/deep/train@3.tfrecord"
    ds = ps.open(name)
    assert ds.take([299, 0, 150])["id"].to_pylist() == [299, 0, 150]
    assert ps.verify(name).num_records == COUNT
    loader = ps.Loader(ds, batch_size=32, order=ps.Shuffled(seed=1))
    assert sorted(np.concatenate([batch["id"] for batch in loader])) == every
    with pytest.raises(FileNotFoundError):
        ids(f"{BASE}/none/*.parquet")
    with pytest.raises(FileNotFoundError):
        ids(f"{BASE}/none.parquet")


def test_a_revision_is_read_and_stays_the_same(server: Hub, tmp_path: Path) -> None:
    first = server.put(NAME, files(tmp_path))
    ds = ps.open(f"{BASE}/data/*.parquet")
    server.put(NAME, files(tmp_path, first=1000))
    assert ds.to_table()["id"].to_pylist() == list(range(COUNT))
    assert pickle.loads(pickle.dumps(ds)).to_table() == ds.to_table()
    assert ids(f"{BASE}/data/*.parquet")[0] == 1000
    assert ids(f"{BASE}@{first}/data/*.parquet")[0] == 0
    assert ids(f"{BASE}@main/data")[0] == 1000
    with pytest.raises(FileNotFoundError):
        ids(f"{BASE}@no-such/data/*.parquet")


def test_a_cache_keeps_files_of_a_hub(server: Hub, tmp_path: Path) -> None:
    server.put(NAME, files(tmp_path))
    cache = ps.Cache(tmp_path / "cache")
    ds = ps.open(f"{BASE}/data/*.parquet", cache=cache)
    assert ds.to_table()["id"].to_pylist() == list(range(COUNT))
    assert cache.usage().folders[0].address.endswith("/data")
    storage = ds.files.storage
    assert isinstance(storage, ForeignStorage) and storage.cached is not None
    before = storage.cached.counts.misses
    assert ds.to_table()["id"].to_pylist() == list(range(COUNT))
    assert storage.cached.counts.misses == before
    again: Any = pickle.loads(pickle.dumps(ds))
    assert again.files.storage.cached.cache.folder == cache.folder
    server.put(NAME, files(tmp_path, first=1000))
    assert ps.open(f"{BASE}/data/*.parquet", cache=cache).to_table()["id"][0].as_py() == 1000


def test_a_private_data_set_needs_a_token_which_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_secretSecret123"
    with hub(secret) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        server.put(NAME, files(tmp_path))
        name = f"{BASE}/data/*.parquet"
        ds = ps.open(name, storage_options={"token": secret})
        assert len(ds) == COUNT
        assert secret not in repr(ds) + repr(ds.files.storage) + str(vars(ds.files.storage))
        with pytest.raises(ps.UnsupportedError, match="token") as refused:
            pickle.dumps(ds)
        assert secret not in str(refused.value)
        with pytest.raises((ps.StorageError, FileNotFoundError)) as wrong:
            ps.open(name, storage_options={"token": "hf_wrongWrong123"})
        assert "hf_wrongWrong123" not in str(wrong.value)
        monkeypatch.setenv("HF_TOKEN", secret)
        ds = ps.open(name)
        body = pickle.dumps(ds)
        assert secret.encode() not in body
        assert len(pickle.loads(body)) == COUNT


def test_what_it_cannot_do_is_said(server: Hub, tmp_path: Path) -> None:
    server.put(NAME, files(tmp_path))
    with pytest.raises(ps.UnsupportedError, match="does not write"):
        ps.write(table(), f"{BASE}/x.parquet")
    with pytest.raises(ValueError, match="together"):
        ps.open([f"{BASE}/data/train-00000-of-00003.parquet", "s3://bucket/x.parquet"])
    ds = ps.open(f"{BASE}/data/*.parquet")
    child = os.fork()
    if not child:
        status = 1
        try:
            ds.to_table()
        except ps.UnsupportedError as error:
            status = 3 if "spawn" in str(error) else 4
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_without_huggingface_hub_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ps.UnsupportedError) as missing:
        ps.open(f"{BASE}/data/*.parquet")
    assert missing.value.hint == "pip install 'penstock[hf]'"


def total(ds: ps.Dataset, place: Any) -> None:
    place.put(len(ds.to_table()))


@pytest.mark.stress
def test_a_spawned_child_reads(server: Hub, tmp_path: Path) -> None:
    server.put(NAME, files(tmp_path))
    context: Any = multiprocessing.get_context("spawn")
    place = context.Queue()
    child = context.Process(target=total, args=(ps.open(f"{BASE}/data/*.parquet"), place))
    child.start()
    assert place.get(timeout=60) == COUNT
    child.join()
