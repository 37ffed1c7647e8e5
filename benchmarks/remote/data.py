"""Makes the objects: 4,000 records of 100 KB of noise, in 50 shards of each format."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from benchmarks.remote.where import PER_SHARD, RECORD_BYTES, REGION, SHARDS, Where
from remote.servers.s3 import S3


def table(shard: int) -> pa.Table:
    """The records of a shard."""
    noise = np.random.default_rng(shard).bytes(PER_SHARD * RECORD_BYTES)
    offsets = np.arange(PER_SHARD + 1, dtype=np.int64) * RECORD_BYTES
    data = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), PER_SHARD, [None, pa.py_buffer(offsets), pa.py_buffer(noise)]
    )
    return pa.table({"data": data.cast(pa.binary())})


def store(
    client: S3, where: Where, local: Path, plain: Path, run: Callable[[str], str | None]
) -> dict[str, str]:
    """Store all objects, and files for the server without a link. `run` makes the rivals' own formats from Parquet
    files in the scratch folder; the reply has the words of those that could not."""
    scratch = Path(where.scratch)
    writer: pq.ParquetWriter | None = None
    for shard in range(SHARDS):
        records = table(shard)
        for format in ("tfrecord", "tar"):
            file = local / Path(where.name(shard, format)).name
            ps.write(records, file, index=True, overwrite=True)
            for one in (file, file.with_name(f".{file.name}.penstock")):
                if one.exists():
                    client.put(f"{where.bucket}/{format}/{one.name}", one.read_bytes())
                    if format == "tfrecord":
                        (plain / format).mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(one, plain / format / one.name)
                    one.unlink()
        file = scratch / f"{shard:05}.parquet"
        pq.write_table(records, file)
        client.put(f"{where.bucket}/parquet/{file.name}", file.read_bytes())
        writer = writer or pq.ParquetWriter(local / "one.parquet", records.schema)
        writer.write_table(records)
    assert writer is not None
    writer.close()
    client.put(f"{where.bucket}/one/one.parquet", (local / "one.parquet").read_bytes())
    (local / "one.parquet").unlink()
    # The indexes were made before the upload. So they take the state of the objects, as users do it.
    options = {
        "aws_endpoint_url": where.endpoint,
        "aws_region": REGION,
        "aws_allow_http": "true",
        "aws_access_key_id": where.key_id,
        "aws_secret_access_key": where.secret,
    }
    ps.index([f"s3://{where.bucket}/{n}" for n in where.names("tfrecord")], storage_options=options)
    problems = {name: words for name in ("lance", "mds") if (words := run(name))}
    for file in sorted((scratch / "mds").glob("*")):
        client.put(f"{where.bucket}/mds/{file.name}", file.read_bytes())
    shutil.rmtree(scratch)
    scratch.mkdir()
    return problems
