"""The rivals' rows. They run in an environment of their own, which `benchmarks/setup` makes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.remote.where import (
    BATCH,
    NUM_RECORDS,
    PER_SHARD,
    RECORD_BYTES,
    SHARDS,
    Where,
    repeated,
    shard_size,
)

Timed = Callable[[], Any]
WORKERS = 4
SEED = 7


def chosen() -> list[int]:
    """Random records."""
    import numpy as np

    return np.random.default_rng(SEED).choice(NUM_RECORDS, BATCH, replace=False).tolist()


def places() -> list[tuple[int, int]]:
    """Shard and first byte of random records, for clients that know no records: about where they are."""
    return [(n // PER_SHARD, n % PER_SHARD * RECORD_BYTES) for n in chosen()]


# -- clients: bytes, not records ------------------------------------------------------------------


def s3fs_scan(format: str) -> Callable[[Where], Timed]:
    """`cat` of eight shards at a time."""

    def job(where: Where) -> Timed:
        import s3fs

        files = s3fs.S3FileSystem(endpoint_url=where.endpoint)
        names = [f"{where.bucket}/{name}" for name in where.names(format)]

        def timed() -> int:
            groups = [names[first : first + 8] for first in range(0, SHARDS, 8)]
            return sum(len(data) for group in groups for data in files.cat(group).values())

        return timed

    return job


def s3fs_take(where: Where) -> Timed:
    """`cat_ranges`."""
    import s3fs

    files = s3fs.S3FileSystem(endpoint_url=where.endpoint)
    names = [f"{where.bucket}/{where.name(shard, 'tfrecord')}" for shard, _ in places()]
    starts = [start for _, start in places()]
    ends = [start + RECORD_BYTES for start in starts]
    files.cat_file(names[0], 0, 10)
    return lambda: sum(map(len, files.cat_ranges(names, starts, ends)))


def boto3_client(where: Where, connections: int) -> Any:
    """A client with this many connections."""
    import boto3
    from botocore.config import Config

    config = Config(max_pool_connections=connections)
    return boto3.client("s3", endpoint_url=where.endpoint, config=config)


def boto3_scan(where: Where) -> Timed:
    """`get_object` in eight threads."""
    client = boto3_client(where, 8)

    def get(name: str) -> int:
        return len(client.get_object(Bucket=where.bucket, Key=name)["Body"].read())

    def timed() -> int:
        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(get, where.names("tfrecord")))

    return timed


def boto3_take(where: Where) -> Timed:
    """`get_object` of ranges in 64 threads."""
    client = boto3_client(where, 64)
    client.head_object(Bucket=where.bucket, Key=where.name(0, "tfrecord"))

    def get(place: tuple[int, int]) -> int:
        shard, start = place
        found = client.get_object(
            Bucket=where.bucket,
            Key=where.name(shard, "tfrecord"),
            Range=f"bytes={start}-{start + RECORD_BYTES - 1}",
        )
        return len(found["Body"].read())

    def timed() -> int:
        with ThreadPoolExecutor(64) as pool:
            return sum(pool.map(get, places()))

    return timed


def obstore_scan(where: Where) -> Timed:
    """`get` in eight threads."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(where.bucket, endpoint=where.endpoint, client_options={"allow_http": True})

    def get(name: str) -> int:
        return len(obstore.get(store, name).bytes())

    def timed() -> int:
        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(get, where.names("tfrecord")))

    return timed


# -- libraries: records ---------------------------------------------------------------------------


def arrow_scan(format: str) -> Callable[[Where], Timed]:
    """`pyarrow.dataset`."""

    def job(where: Where) -> Timed:
        import pyarrow.dataset as pds
        from pyarrow.fs import S3FileSystem

        address = where.endpoint.removeprefix("http://")
        files = S3FileSystem(endpoint_override=address, scheme="http")
        names = ["one/one.parquet"] if format == "one" else where.names(format)
        names = [f"{where.bucket}/{name}" for name in names]

        def timed() -> int:
            found = pds.dataset(names, filesystem=files, format="parquet")
            return sum(batch.column("data").nbytes for batch in found.to_batches())

        return timed

    return job


def lance_dataset(where: Where) -> Any:
    import lance

    options = {"aws_endpoint": where.endpoint, "allow_http": "true"}
    return lance.dataset(f"s3://{where.bucket}/lance/rows.lance", storage_options=options)


def lance_make(where: Where) -> Timed:
    """Write the records as a Lance dataset."""
    import lance
    import pyarrow.parquet as pq

    def timed() -> int:
        options = {"aws_endpoint": where.endpoint, "allow_http": "true"}
        tables = (pq.read_table(file) for file in sorted(Path(where.scratch).glob("*.parquet")))
        batches = (batch for table in tables for batch in table.to_batches())
        first = next(batches)
        lance.write_dataset(
            (batch for some in ([first], batches) for batch in some),
            f"s3://{where.bucket}/lance/rows.lance",
            schema=first.schema,
            max_rows_per_file=NUM_RECORDS // 8,
            storage_options=options,
        )
        return 0

    return timed


def lance_scan(where: Where) -> Timed:
    """`to_batches`."""
    import_module("lance")

    def timed() -> int:
        found = lance_dataset(where).to_batches(batch_size=PER_SHARD)
        return sum(batch.column("data").nbytes for batch in found)

    return timed


def lance_take(where: Where) -> Timed:
    """`take` of an open dataset."""
    dataset = lance_dataset(where)
    dataset.take([0])
    return lambda: dataset.take(chosen()).column("data").nbytes


def lance_first(where: Where) -> Timed:
    """`take` of the first batch, opening included."""
    import_module("lance")

    return lambda: lance_dataset(where).take(chosen()).column("data").nbytes


def webdataset_of(where: Where, shuffled: int) -> Any:
    import webdataset

    pipes = [f"pipe:curl -sf '{address}'" for address in where.addresses["tar"]]
    found = webdataset.WebDataset(pipes, shardshuffle=SHARDS if shuffled else False)
    return found.shuffle(shuffled) if shuffled else found


def webdataset_samples(where: Where, shuffled: int, workers: int) -> Iterator[bytes]:
    found = webdataset_of(where, shuffled)
    if workers:
        import webdataset

        found = webdataset.WebLoader(found.map(_data), batch_size=None, num_workers=workers)
        return iter(found)
    return map(_data, found)


def _data(sample: Any) -> bytes:
    return sample["data.bin"]


def webdataset_all(shuffled: int, workers: int) -> Callable[[Where], Timed]:
    """All records, in order or shuffled in a buffer."""

    def job(where: Where) -> Timed:
        import_module("webdataset")

        return lambda: sum(map(len, webdataset_samples(where, shuffled, workers)))

    return job


def webdataset_first(where: Where) -> Timed:
    """The first batch, through a buffer as large as the batch."""
    import_module("webdataset")

    def timed() -> int:
        samples = webdataset_samples(where, BATCH, 0)
        return sum(len(next(samples)) for _ in range(BATCH))

    return timed


def streaming_dataset(where: Where, *, shuffle: bool) -> Any:
    from streaming import StreamingDataset

    return StreamingDataset(
        remote=f"s3://{where.bucket}/mds",
        local=str(Path(where.scratch, "mds")),
        shuffle=shuffle,
        batch_size=BATCH,
        num_canonical_nodes=1,
        predownload=8 * BATCH,
    )


def streaming_make(where: Where) -> Timed:
    """Write the records in its own format."""
    import pyarrow.parquet as pq
    from streaming import MDSWriter

    def timed() -> int:
        out = str(Path(where.scratch, "mds"))
        shutil.rmtree(out, ignore_errors=True)
        columns = {"data": "bytes"}
        with MDSWriter(out=out, columns=columns, size_limit=shard_size() + 4096) as writer:
            for file in sorted(Path(where.scratch).glob("*.parquet")):
                for value in pq.read_table(file)["data"].to_pylist():
                    writer.write({"data": value})
        return 0

    return timed


def streaming_all(where: Where) -> Timed:
    """A shuffled epoch."""
    import_module("streaming")

    def timed() -> int:
        return sum(len(sample["data"]) for sample in streaming_dataset(where, shuffle=True))

    return timed


def streaming_first(where: Where) -> Timed:
    """The first batch of a shuffled epoch."""
    import_module("streaming")

    def timed() -> int:
        samples = iter(streaming_dataset(where, shuffle=True))
        return sum(len(next(samples)["data"]) for _ in range(BATCH))

    return timed


def streaming_take(where: Where) -> Timed:
    """Random records, one by one; each fetches its whole shard."""
    dataset = streaming_dataset(where, shuffle=False)
    return lambda: sum(len(dataset[number]["data"]) for number in chosen())


JOBS = {
    "make lance": lance_make,
    "make mds": streaming_make,
    "s3fs: scan": s3fs_scan("tfrecord"),
    "s3fs: take": s3fs_take,
    "boto3: scan": boto3_scan,
    "boto3: take": boto3_take,
    "obstore: scan": obstore_scan,
    "pyarrow: scan": arrow_scan("parquet"),
    "pyarrow: scan one": arrow_scan("one"),
    "lance: scan": lance_scan,
    "lance: take": lance_take,
    "lance: first": lance_first,
    "webdataset: scan": webdataset_all(0, 0),
    "webdataset: scan by workers": webdataset_all(0, WORKERS),
    "webdataset: epoch": webdataset_all(4 * BATCH, WORKERS),
    "webdataset: first": webdataset_first,
    "streaming: epoch": streaming_all,
    "streaming: first": streaming_first,
    "streaming: take": streaming_take,
}
JOBS |= {f"{name}: cpu": repeated(JOBS[f"{name}: scan"]) for name in ("obstore", "boto3", "s3fs")}
