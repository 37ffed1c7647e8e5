"""Tasks on objects: each reads its own bytes, in the planned state, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from test_requests import Counted

import penstock as ps
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

MIB = 1 << 20
HEAD_BYTES = 256 << 10
RECORDS = 2400
RECORD_BYTES = 10_000
CUT = {
    "x.tfrecord": {},
    "x.tar": {},
    "x.rec": {},
    "x.msgpack": {},
    "x.parquet": {"row_group_bytes": 4 * MIB},
    "x.arrow": {},
    "x.npy": {},
    "x.h5": {},
}


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(
    proxy: FaultProxy, seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Counted:
    options = seaweed.options(proxy.endpoint)
    for name, value in options.items():  # a task has no secrets, and finds them where it is read
        monkeypatch.setenv(name.upper(), value)
    return Counted(proxy, prefix, options)


def records(name: str) -> pa.Table:
    rng = np.random.default_rng(0)
    if name == "x.npy":
        return pa.table({"data": rng.random(RECORDS * RECORD_BYTES // 8)})
    blobs = pa.array([rng.bytes(RECORD_BYTES) for _ in range(RECORDS)])
    if name == "x.rec":
        return pa.table({"data": blobs})
    if name == "x.h5":
        return pa.table({"data": blobs.cast(pa.binary(RECORD_BYTES))})
    return pa.table({"id": range(RECORDS), "blob": blobs})


def carried(tasks: list[ps.ReadTask]) -> list[ps.ReadTask]:
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


@pytest.mark.parametrize("name", CUT)
def test_parts_of_an_object_are_read_once(name: str, store: Counted) -> None:
    table = records(name)
    path = store.url(name)
    ps.write(table, path, index=False, storage_options=store.options, **CUT[name])
    tasks = ps.open(path).tasks(6 * MIB)
    assert len(tasks) > 3 - 2 * (name == "x.arrow")  # whose batches are large
    size = sum(task.num_bytes for task in tasks)
    store.settle()
    store.proxy.forget()
    found: list[pa.RecordBatch] = []
    for task in carried(tasks):
        found += list(task.batches())
    store.settle()
    seen = store.proxy.requests()
    got = pa.Table.from_batches(found)
    assert got.num_rows == table.num_rows
    for column in table.schema.names:
        assert (
            column not in got.schema.names or got[column].to_pylist() == table[column].to_pylist()
        )
    assert all(one.method == "GET" and one.path.endswith(name) for one in seen)
    sent = sum(one.sent for one in seen)
    # Each task reads the first bytes, by which formats are known, and perhaps a footer.
    assert sent <= size + len(tasks) * 2 * HEAD_BYTES


def test_small_objects_take_one_request_each(store: Counted) -> None:
    made = [
        ps.write(
            {"id": range(9 * n, 9 * n + 9)},
            store.url(f"{n}.tfrecord"),
            index=False,
            storage_options=store.options,
        )
        for n in range(10)
    ]
    ds = ps.open([one.paths[0] for one in made])
    (task,) = carried(ds.tasks())
    found: list[pa.RecordBatch] = []
    assert store.requests(lambda: found.extend(task.batches())) == 10
    assert pa.Table.from_batches(found)["id"].to_pylist() == list(range(90))


def test_an_object_replaced_since_is_refused(store: Counted) -> None:
    path = store.url("x.tfrecord")
    for first in (0, 10):
        ps.write(
            {"id": range(first, first + 9)},
            path,
            index=False,
            overwrite=True,
            storage_options=store.options,
        )
        if not first:
            (task,) = carried(ps.open(path).tasks())
    with pytest.raises(ps.ChangedError):
        list(task.batches())


def test_a_task_has_no_secrets(store: Counted) -> None:
    path = store.url("x.tfrecord")
    ps.write({"id": range(9)}, path, storage_options=store.options)
    (task,) = ps.open(path).tasks()
    secret = store.options["aws_secret_access_key"]
    assert secret.encode() not in pickle.dumps(task)
    (task,) = ps.open(path, storage_options=store.options).tasks()
    with pytest.raises(ps.UnsupportedError, match="aws_secret_access_key"):
        pickle.dumps(task)
    assert secret not in repr(task)
