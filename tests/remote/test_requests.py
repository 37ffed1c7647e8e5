"""How many requests work on objects makes: exactly as many as docs/reference/object-stores.md says, and no more than
planned: two for an object before its sample, one more for a footer; two for each object of a set, and six more."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.framing.index import sidecar
from penstock.storage.local import LocalStorage
from penstock.storage.objects import ObjectStorage
from reading import run_python
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "object-stores.md"
RECORDS = 100
SHARDS = 10
EACH = 52
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<counts>[\d |–]+) \|$", re.MULTILINE)


def documented() -> dict[str, list[int | None]]:
    """The counts of each row of the tables in the section "Requests"."""
    text = PAGE.read_text("utf-8").split("\n## Requests\n")[1].split("\n## ")[0]
    rows = {row["what"].strip(): row["counts"].split("|") for row in ROW.finditer(text)}
    return {
        what: [int(n) if n.strip().isdigit() else None for n in counts]
        for what, counts in rows.items()
    }


FORMATS = {
    "TFRecord": "x.tfrecord",
    "TFRecord, gzip": "x.tfrecord.gz",
    "tar": "x.tar",
    "RecordIO": "x.rec",
    "MessagePack": "x.msgpack",
    "beton": "x.beton",
    "npy": "x.npy",
    "npz": "x.npz",
    "HDF5": "x.h5",
    "Parquet": "x.parquet",
    "Arrow": "x.arrow",
}


class Counted:
    """A store whose requests are counted."""

    def __init__(self, proxy: FaultProxy, place: str, options: dict[str, str]) -> None:
        self.proxy = proxy
        self.place = place
        self.options = options

    def url(self, name: str) -> str:
        return f"s3://{self.place}/{name}"

    def open(self, name: Any) -> ps.Dataset:
        source = self.url(name) if isinstance(name, str) else [self.url(one) for one in name]
        return ps.open(source, storage_options=self.options)

    def requests(self, work: Callable[[], Any]) -> int:
        """The requests of some work, with those that it began and did not wait for."""
        self.settle()
        self.proxy.forget()
        kept = work()
        self.settle()
        del kept
        return self.proxy.count()

    def settle(self) -> None:
        """Wait until nothing is on its way."""
        since, count = time.monotonic(), -1
        while time.monotonic() - since < 0.15:
            seen = self.proxy.requests()
            if len(seen) != count or not all(one.ended for one in seen):
                since, count = time.monotonic(), len(seen)
            time.sleep(0.01)


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(
    proxy: FaultProxy,
    seaweed: Seaweed,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Counted:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Counted(proxy, prefix, seaweed.options(proxy.endpoint))


def records(name: str) -> pa.Table:
    rng = np.random.default_rng(0)
    blobs = pa.array([rng.bytes(10_000) for _ in range(RECORDS)])
    if name == "x.rec":
        return pa.table({"data": blobs})
    if name == "x.npy":
        return pa.table({"data": rng.random(RECORDS * 1250)})
    if name in ("x.npz", "x.h5", "x.beton"):
        numbers = pa.array(rng.integers(0, 255, RECORDS * 10_000, np.uint8))
        values = pa.FixedSizeListArray.from_arrays(numbers, 10_000)
        return pa.table({"id": range(RECORDS), "values": values})
    return pa.table({"id": range(RECORDS), "blob": blobs})


@pytest.mark.parametrize("container", FORMATS)
def test_opening_one_object(container: str, store: Counted, tmp_path: Path) -> None:
    name = FORMATS[container]
    found: list[int] = []
    for index in (False, True):
        where = f"{index}/{name}"
        ps.write(records(name), store.url(where), index=index, storage_options=store.options)
        found.append(store.requests(lambda where=where: store.open(where)))
    assert found == documented()[container]
    has_footer = container in ("Parquet", "Arrow", "npz", "tar", "MessagePack")
    assert max(found) <= 3 + has_footer


@pytest.fixture
def shards(store: Counted) -> Counted:
    rng = np.random.default_rng(0)
    for index in (True, False):
        for shard in range(SHARDS):
            ids = range(EACH * shard, EACH * (shard + 1))
            blobs = [rng.bytes(70_000) for _ in ids]
            name = f"{index}/t-{shard:05}-of-{SHARDS:05}.tfrecord"
            data = pa.table({"id": ids, "blob": blobs})
            ps.write(data, store.url(name), index=index, storage_options=store.options)
    return store


def test_work_on_a_set(shards: Counted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: dict[str, list[int]] = {}
    every_other = np.random.default_rng(0).permutation(SHARDS * EACH // 2)[:256] * 2

    def count(what: str, work: Callable[[], Any]) -> None:
        found.setdefault(what, []).append(shards.requests(work))

    for index in (False, True):

        def fresh(how: str, index: bool = index) -> ps.Dataset:
            """A dataset of whose objects nothing is known on this machine."""
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache-{index}-{how}"))
            return shards.open(f"{index}/t-*.tfrecord")

        names = [f"{index}/t-{n:05}-of-{SHARDS:05}.tfrecord" for n in range(SHARDS)]
        count("open by a pattern", lambda: fresh("pattern"))
        count("open by `@10`", lambda index=index: shards.open(f"{index}/t@10.tfrecord"))
        count("open a list of the 10 names", lambda names=names: shards.open(names))
        count("open a folder", lambda index=index: shards.open(f"{index}/"))
        ds = fresh("scan")
        count("then scan all", lambda ds=ds: sum(batch.num_rows for batch in ds.scan(threads=1)))
        ds = fresh("len")
        count("or `len`", lambda ds=ds: len(ds))
        count("then 256 random records", lambda ds=ds: ds.take(every_other))
        count("or all records once more, at random", lambda ds=ds: ds.take(range(len(ds))))
        again = shards.open(f"{index}/t-*.tfrecord")
        count("`len` in another dataset", lambda again=again: len(again))
    page = documented()
    assert found == {what: page[what] for what in found}
    for what, counts in found.items():
        if what.startswith("open"):
            assert max(counts) <= 2 * SHARDS + 6, what


def test_a_loader_asks_for_each_object_twice_and_then_for_records(shards: Counted) -> None:
    def first_batch(state: Any = None) -> Any:
        ds = shards.open("True/t-*.tfrecord")
        loader = ps.Loader(ds, 16, order=ps.Shuffled(seed=0), threads=1)
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        next(batches)
        return loader.state_dict()

    shards.proxy.forget()
    state = first_batch()
    for resumed in (False, True):
        if resumed:
            shards.proxy.forget()
            first_batch(state)
        seen = shards.proxy.requests()
        assert sum("list-type" in one.query for one in seen) == 1
        assert sum(one.path.endswith(".penstock") for one in seen) == SHARDS
        heads = [one for one in seen if one.range == (0, (32 << 10) - 1)]
        assert len(heads) == SHARDS
        before = 1 + 2 * SHARDS
        assert all(one.path.endswith(".penstock") or one in heads for one in seen[1:before])
        for one in seen[before:]:  # only records
            assert one.range is not None and one.range[1] is not None
            assert one.range[1] - one.range[0] >= 70_000


READ = """
import sys
import penstock as ps
ds = ps.open(sys.argv[1], storage_options=dict(word.split("=", 1) for word in sys.argv[2:]))
assert sum(batch.num_rows for batch in ds.scan()) == 200
assert ds.take([150, 3]).num_rows == 2
assert sum(len(batch["id"]) for batch in ps.Loader(ds, 50, order=ps.Blocked(seed=0))) == 200
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("ending", ["tar", "parquet"])
def test_the_first_bytes_do_not_wait_for_pandas_to_be_imported(ending: str, store: Counted) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        data = {"id": list(map(str, range(100))), "blob": [rng.bytes(10_000) for _ in range(100)]}
        ps.write(data, store.url(f"{name}.{ending}"), storage_options=store.options)
    options = [f"{key}={value}" for key, value in store.options.items()]
    assert run_python(READ, store.url(f"*.{ending}"), *options).strip() == "False"


@pytest.mark.parametrize("num_groups", [10, 200])
def test_a_footer_is_read_once(num_groups: int, store: Counted, seaweed: Seaweed) -> None:
    """It says whether a file is a manifest, and is then parsed."""
    data = pa.table({f"{n} {'long' * 30}": np.arange(num_groups) for n in range(50)})
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, row_group_size=1)
    body = sink.getvalue().to_pybytes()
    num_bytes = int.from_bytes(body[-8:-4], "little")
    assert (num_bytes > 256 << 10) == (num_groups > 10)
    seaweed.client.put(f"{store.place}/x.parquet", body)
    store.proxy.forget()
    ds = store.open("x.parquet")
    assert ds.schema.names == data.column_names
    gets = [one for one in store.proxy.requests("GET") if one.range]
    # The first bytes, the last ones, and if these are not enough, the footer.
    assert sum(one.sent for one in gets) < num_bytes + (384 << 10)
    assert len(ds) == num_groups


def test_one_missing_object_is_named(shards: Counted) -> None:
    with pytest.raises(FileNotFoundError, match="no such object"):
        shards.open(["True/t-00000-of-00010.tfrecord", "True/t-00077-of-00010.tfrecord"]).to_table()


def test_large_records_are_indexed_by_their_headers(store: Counted, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = [3_000_000, 2_500_000, 4_000_000]
    data = {"id": range(3), "blob": [rng.bytes(size) for size in sizes]}
    ps.write(data, tmp_path / "x.tfrecord")
    for name in ("a", "b"):
        ps.write(data, store.url(f"{name}.tfrecord"), index=False, storage_options=store.options)
    store.proxy.forget()
    made = ps.index(store.url("*.tfrecord"), storage_options=store.options)
    assert made == [store.url(".a.tfrecord.penstock"), store.url(".b.tfrecord.penstock")]
    # Of each: its first bytes with the first header, two headers, and its end.
    gets = [one for one in store.proxy.requests("GET") if one.range]
    assert sum(one.sent for one in gets) < 1_000_000
    ours = sidecar.load(str(tmp_path / ".x.tfrecord.penstock"), LocalStorage())
    theirs = sidecar.load(made[0], ObjectStorage(store.options))
    assert theirs.starts.tolist() == ours.starts.tolist()
    assert theirs.checksums.tolist() == ours.checksums.tolist()
    assert store.open("a.tfrecord")[2]["blob"] == data["blob"][2]


@pytest.mark.parametrize("ending", ["tfrecord", "tar", "tfrecord.gz"])
def test_verify_reads_every_byte_once(ending: str, store: Counted) -> None:
    url = store.url(f"x.{ending}")
    rng = np.random.default_rng(0)
    rows = {"id": range(200), "blob": [rng.bytes(100_000) for _ in range(200)]}
    ps.write(rows, url, storage_options=store.options)
    found: list[ps.Report] = []
    store.requests(lambda: found.append(ps.verify(url, storage_options=store.options)))
    assert found[0].num_records == 200
    assert sum(one.sent for one in store.proxy.requests()) < 1.01 * found[0].num_bytes + (64 << 10)


def test_small_records_are_indexed_by_reading_all_bytes(store: Counted, tmp_path: Path) -> None:
    data = {"id": range(50), "blob": [bytes([n]) * 20_000 for n in range(50)]}
    ps.write(data, store.url("x.tfrecord"), index=False, storage_options=store.options)
    made = store.requests(lambda: ps.index(store.url("x.tfrecord"), storage_options=store.options))
    assert made < 10


def test_a_damaged_header_is_an_error_of_the_record(store: Counted, seaweed: Seaweed) -> None:
    data = {"id": range(3), "blob": [bytes([n]) * 3_000_000 for n in range(3)]}
    ps.write(data, store.url("x.tfrecord"), index=False, storage_options=store.options)
    body = bytearray(seaweed.client.get(f"{store.place}/x.tfrecord"))
    body[3_000_000:3_000_400] = bytes(400)
    seaweed.client.put(f"{store.place}/x.tfrecord", bytes(body))
    with pytest.raises(ps.FormatError) as damaged:
        ps.index(store.url("x.tfrecord"), storage_options=store.options)
    assert damaged.value.record == 1


def test_of_a_large_sidecar_only_what_is_needed_is_read(store: Counted, tmp_path: Path) -> None:
    count = 300_000
    data = pa.table({"id": range(count)})
    ps.write(data, store.url("x.tfrecord"), storage_options=store.options)
    ds = store.open("x.tfrecord")
    asked = [count - 1, 5, 123_456, 5]
    store.proxy.forget()
    assert len(ds) == count
    assert ds.take(asked)["id"].to_pylist() == asked
    assert ds[-2] == {"id": count - 2}
    store.settle()
    seen = store.proxy.requests(key=".penstock")
    assert seen
    assert sum(one.sent for one in seen) < 1_000_000  # of 3.6 MB
    assert ds.to_table()["id"].to_pylist() == list(range(count))
    assert ds.take(range(0, count, 1000))["id"].to_pylist() == list(range(0, count, 1000))
    local = tmp_path / "x.tfrecord"
    ps.write(data, local)
    assert ds.take(asked) == ps.open(local).take(asked)


def test_a_damaged_block_of_a_large_sidecar_is_not_used(store: Counted, seaweed: Seaweed) -> None:
    count = 300_000
    ps.write({"id": range(count)}, store.url("x.tfrecord"), storage_options=store.options)
    body = bytearray(seaweed.client.get(f"{store.place}/.x.tfrecord.penstock"))
    body[len(body) // 3] ^= 1
    seaweed.client.put(f"{store.place}/.x.tfrecord.penstock", bytes(body))
    ds = store.open("x.tfrecord")
    with pytest.raises(ps.StaleIndexError, match="the index is damaged"):
        ds.take(range(0, count, 5000))
