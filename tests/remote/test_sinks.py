"""Objects that are written: sent while they are made, whole or not at all, and as the same bytes as a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage._object_sink import part_bytes
from penstock.storage.objects import ObjectStorage
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

MIB = 1 << 20
ENDINGS = ("tfrecord", "tar", "rec", "msgpack", "parquet", "arrow", "h5")
PATCHED = ("beton", "npy", "npz")


def batches(num_bytes: int, columns: int = 1) -> Iterator[pa.RecordBatch]:
    """Records of 100 KB that do not compress, in small batches."""
    rng = np.random.default_rng(0)
    for _ in range(num_bytes // 1_000_000):
        values = [rng.bytes(100_000) for _ in range(10)]
        yield pa.record_batch({f"blob{n}": values for n in range(columns)})


def rows(ending: str) -> dict[str, object]:
    """20 MB for any of the formats."""
    rng = np.random.default_rng(0)
    if ending == "npy":
        return {"array": rng.random((2_500_000, 1))}
    values = rng.integers(0, 256, (200, 100_000), np.uint8)
    if ending == "rec":
        return {"data": [value.tobytes() for value in values]}
    return (
        {"values": values} if ending in ("npz", "h5") else {"blob": [v.tobytes() for v in values]}
    )


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


@pytest.fixture
def link(proxy: FaultProxy) -> Iterator[FaultProxy]:
    proxy.heal()
    proxy.forget()
    yield proxy
    proxy.heal()


def left(seaweed: Seaweed, prefix: str) -> tuple[list[str], list[str]]:
    """The keys below a prefix, and those of uploads that are open."""
    bucket, _, folder = prefix.partition("/")
    keys = [k for k in seaweed.client.keys(bucket, folder) if not k.endswith("/")]
    return keys, [key for key in seaweed.client.uploads(bucket) if key.startswith(folder)]


@pytest.mark.parametrize("ending", [*ENDINGS, *PATCHED])
def test_an_object_has_the_bytes_of_a_file(
    ending: str, prefix: str, seaweed: Seaweed, link: FaultProxy, tmp_path: Path
) -> None:
    file = tmp_path / f"x.{ending}"
    ps.write(rows(ending), file)
    target, options = f"s3://{prefix}/x.{ending}", seaweed.options(link.endpoint)
    ps.write(rows(ending), target, storage_options=options, overwrite=True)
    assert seaweed.client.get(f"{prefix}/x.{ending}") == file.read_bytes()
    parts = [one for one in link.requests("PUT") if "partNumber" in one.query]
    wanted = -(-file.stat().st_size // (8 * MIB)) if ending in ENDINGS else 0
    assert len(parts) == wanted
    keys, open_uploads = left(seaweed, prefix)
    assert [key for key in keys if key.endswith("-tmp")] == open_uploads == []


def test_parts_are_sent_before_the_last_record_is_made(
    prefix: str, seaweed: Seaweed, link: FaultProxy
) -> None:
    sent: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches(60_000_000):
            sent.append(sum("partNumber" in one.query for one in link.requests("PUT")))
            yield batch

    options = seaweed.options(link.endpoint)
    schema = pa.schema({"blob0": pa.binary()})
    data = pa.RecordBatchReader.from_batches(schema, watched())
    ps.write(data, f"s3://{prefix}/x.tfrecord", storage_options=options, overwrite=True, threads=1)
    assert sent[-1] >= 2


def test_the_upload_is_noted_before_its_first_part(
    prefix: str, seaweed: Seaweed, link: FaultProxy
) -> None:
    options = seaweed.options(link.endpoint)
    data = list(batches(20_000_000))
    ps.write(data, f"s3://{prefix}/x.tfrecord", storage_options=options, overwrite=True)
    names = [
        "note"
        if one.path.endswith(".penstock-tmp")
        else "part"
        if "partNumber" in one.query
        else ""
        for one in link.requests("PUT")
    ]
    assert names[:2] == ["note", "part"]


def test_an_error_in_the_data_leaves_nothing(prefix: str, seaweed: Seaweed) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(40_000_000)
        raise ZeroDivisionError

    data = pa.RecordBatchReader.from_batches(pa.schema({"blob0": pa.binary()}), broken())
    with pytest.raises(ZeroDivisionError):
        ps.write(
            data, f"s3://{prefix}/x.tfrecord", storage_options=seaweed.options(), overwrite=True
        )
    assert left(seaweed, prefix) == ([], [])


@pytest.mark.parametrize("num_bytes", [1_000_000, 70_000_000])
def test_an_object_that_came_meanwhile_is_not_replaced(
    num_bytes: int, prefix: str, seaweed: Seaweed
) -> None:
    target = f"s3://{prefix}/x.tfrecord"

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches(num_bytes)
        seaweed.client.put(f"{prefix}/x.tfrecord", b"somebody else's")

    data = pa.RecordBatchReader.from_batches(pa.schema({"blob0": pa.binary()}), slow())
    with pytest.raises(FileExistsError):
        ps.write(data, target, storage_options=seaweed.options())
    assert seaweed.client.get(f"{prefix}/x.tfrecord") == b"somebody else's"
    assert len(left(seaweed, prefix)[0]) == 1
    assert left(seaweed, prefix)[1] == []


def test_objects_up_to_64_mib_ask_the_store_itself(
    prefix: str, seaweed: Seaweed, link: FaultProxy
) -> None:
    """The store decides, and not a question before: the other object comes between the two."""
    target, options = f"s3://{prefix}/x.tfrecord", seaweed.options(link.endpoint)
    other = faults.call(lambda asked: seaweed.client.put(f"{prefix}/x.tfrecord", b"other"))
    link.add(other, method="PUT", times=1)
    data = list(batches(60_000_000))
    with pytest.raises(FileExistsError):
        ps.write(data, target, storage_options=options, index=False)
    assert seaweed.client.get(f"{prefix}/x.tfrecord") == b"other"
    assert not any("partNumber" in one.query for one in link.requests())


def test_a_store_that_fails_ends_the_write(prefix: str, seaweed: Seaweed, link: FaultProxy) -> None:
    link.add(faults.expired(), method="PUT", query="partNumber")
    data = list(batches(20_000_000))
    options = seaweed.options(link.endpoint)
    with pytest.raises(ps.StorageError):
        ps.write(data, f"s3://{prefix}/x.tfrecord", storage_options=options, overwrite=True)
    keys, uploads = left(seaweed, prefix)
    assert len(uploads) == 1
    (note,) = keys
    assert note.endswith(".penstock-tmp")
    link.heal()
    ObjectStorage(options).give_up(f"s3://{prefix.partition('/')[0]}/{note}")
    assert left(seaweed, prefix) == ([], [])


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"name": 3, "upload": "x"}', b"\xff"])
def test_what_is_no_note_is_only_removed(text: bytes, prefix: str, seaweed: Seaweed) -> None:
    storage = ObjectStorage(seaweed.options())
    storage.save(f"s3://{prefix}/.x.1234.penstock-tmp", text)
    storage.give_up(f"s3://{prefix}/.x.1234.penstock-tmp")
    storage.give_up(f"s3://{prefix}/.x.1234.penstock-tmp")
    assert left(seaweed, prefix) == ([], [])


def test_shards_whose_names_end_with_their_number_are_written(
    prefix: str, seaweed: Seaweed
) -> None:
    target = f"s3://{prefix}/x.tfrecord"
    made = ps.write(
        batches(50_000_000), target, shard_bytes=20_000_000, storage_options=seaweed.options(),
        overwrite=True,
    )  # fmt: skip
    assert [path.rsplit("/", 1)[1] for path in made.paths] == [
        f"x-{n:05d}-of-00003.tfrecord" for n in range(3)
    ]
    found = ps.open(target.replace("x.", "x@3."), storage_options=seaweed.options())
    assert len(found) == 500


def test_ten_thousand_parts_are_five_tebibytes() -> None:
    sizes = [part_bytes(number) for number in range(10_000)]
    assert sum(sizes) >= 5 << 40
    assert max(sizes) <= 5 << 30
    assert len(set(sizes[:1000])) == 1


MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa, penstock as ps
target, count = sys.argv[1], int(sys.argv[2])
block = pa.record_batch({"blob": [np.random.default_rng(0).bytes(1_000_000)]})
ps.write(iter([block]), target.replace("x.", "warm."), overwrite=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ps.write((block for _ in range(count)), target, overwrite=True)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize(
    ("ending", "count"),
    [
        ("tfrecord", 200),
        pytest.param("tfrecord", 4000, marks=pytest.mark.stress),
        pytest.param("tar", 4000, marks=pytest.mark.stress),
    ],
)
def test_memory_does_not_grow_with_the_object(
    ending: str, count: int, prefix: str, seaweed: Seaweed
) -> None:
    environment = {name.upper(): value for name, value in seaweed.options().items()}
    command = [sys.executable, "-c", MEMORY, f"s3://{prefix}/x.{ending}", str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    )
    assert int(done.stdout) < 120, "MiB, for four parts of 8 MiB and what the writer holds"


MANY = """
import os, resource, sys
import penstock as ps
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
ps.write({"id": list(range(100))}, sys.argv[1], num_shards=100, index=False)
assert len(ps.open(sys.argv[1].replace("x.", "x@100."))) == 100
"""


@pytest.mark.parametrize("store", ["gs", "az"])
def test_other_stores_take_parts_too(store: str, request: pytest.FixtureRequest) -> None:
    if store == "gs":
        server: Seaweed = request.getfixturevalue("gcs")
        options = server.gcs_options()
        place = request.getfixturevalue("gcs_bucket")
    else:
        options = request.getfixturevalue("azure").options()
        place = request.getfixturevalue("container")
    target = f"{store}://{place}/x.tfrecord"
    ps.write(rows("tfrecord"), target, storage_options=options, overwrite=True)
    assert len(ps.open(target, storage_options=options)) == 200
    with pytest.raises(FileExistsError):
        ps.write(rows("tfrecord"), target, storage_options=options)
    ps.convert(
        target, f"{store}://{place}/y.parquet", num_shards=2, storage_options=options,
        target_storage_options=options,
    )  # fmt: skip
    assert len(ps.open(f"{store}://{place}/y@2.parquet", storage_options=options)) == 200
    assert ps.clean(f"{store}://{place}/", older_than=0, storage_options=options) == []


@pytest.fixture
def gcs_bucket(gcs: Seaweed) -> Iterator[str]:
    with gcs.bucket() as name:
        yield name


def test_many_shards_need_few_open_files(prefix: str, seaweed: Seaweed) -> None:
    environment = {name.upper(): value for name, value in seaweed.options().items()}
    command = [sys.executable, "-c", MANY, f"s3://{prefix}/x.tfrecord"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr


def test_a_child_of_a_fork_does_not_touch_what_waits_here(prefix: str, seaweed: Seaweed) -> None:
    storage = ObjectStorage(seaweed.options())
    first, second = (storage.sink(f"s3://{prefix}/{name}") for name in "ab")
    for sink, letter in ((first, b"a"), (second, b"b")):
        sink.write(letter * 1000)
        sink.finish()
    if (child := os.fork()) == 0:
        sink = storage.sink(f"s3://{prefix}/c")
        sink.write(b"c" * 5000)
        sink.commit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    first.commit()
    second.commit()
    bodies = [seaweed.client.get(f"{prefix}/{name}") for name in "abc"]
    assert bodies == [b"a" * 1000, b"b" * 1000, b"c" * 5000]
