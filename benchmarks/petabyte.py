"""`python -m benchmarks.petabyte`: what 1 PB in a million objects costs: requests, bytes, money and time.

The manifest is a real one of 10^6 shards that do not exist, and `Dataset.tasks` plans how to read them. What each task
asks of the store is counted by the sizes that penstock's code uses; `tests/remote/test_petabyte.py` compares these
counts with the requests that a server sees. Prices and limits are those of S3, as of 2026.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from benchmarks.plan_tasks import peak_bytes
from penstock.manifests.table import GROUP_SHARDS, SCHEMA, Footer
from penstock.storage._object_announced import _GAP_BYTES as GAP_BYTES
from penstock.storage._object_announced import PIECE_BYTES
from penstock.storage._object_sink import part_bytes
from penstock.storage._object_source import HEAD_BYTES
from penstock.storage.manifest_mark import KEY
from penstock.tuned import WINDOW_BYTES

SHARDS = 1_000_000
FRAME_BYTES = 100_016
"""A TFRecord of 100,000 bytes."""
SHARD_RECORDS = 10_000
"""On average: shards differ by up to a twentieth."""
INDEX_BYTES = 8
"""A record in a sidecar."""

GET_DOLLARS, PUT_DOLLARS = 0.0004 / 1000, 0.005 / 1000
"""S3 standard in us-east-1. HEAD costs as much as GET, LIST and POST as PUT. DELETE costs nothing."""
MACHINES, PREFIXES = 100, 100
LINK_BYTES = 10e9 / 8
"""A second, of one machine."""
LATENCY, AT_ONCE = 0.02, 64
"""Seconds to the first byte, and the requests of a machine at once."""
PREFIX_GETS = 5500
"""Requests a second that S3 promises for each prefix."""


@dataclass(frozen=True)
class Cost:
    """What some work asks of a store. Costs add up."""

    gets: int = 0
    puts: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def dollars(self) -> float:
        return self.gets * GET_DOLLARS + self.puts * PUT_DOLLARS

    def hours(self, machines: int) -> float:
        """Whatever takes longest: the network of the machines, their round trips, or the limit of the prefixes."""
        requests = self.gets + self.puts
        seconds = (
            (self.read + self.written) / (LINK_BYTES * machines),
            requests * LATENCY / (AT_ONCE * machines),
            requests / (PREFIX_GETS * PREFIXES),
        )
        return max(seconds) / 3600


def _pieces(num_bytes: int, size: int) -> int:
    return -(-num_bytes // size)


def _opened(records: int) -> Cost:
    """The first bytes of a shard, and its sidecar."""
    return Cost(gets=2, read=HEAD_BYTES + records * INDEX_BYTES)


def task(num_bytes: int, records: int) -> Cost:
    """A read task of an engine: Ray, Spark …"""
    return Cost(gets=_pieces(num_bytes, PIECE_BYTES), read=num_bytes)


def scan(num_bytes: int, records: int) -> Cost:
    """`Dataset.scan`: the same, and the sidecar."""
    return task(num_bytes, records) + Cost(gets=1, read=records * INDEX_BYTES)


def blocked(num_bytes: int, records: int, ranks: int = 1, part_bytes: int = 0) -> Cost:
    """An epoch of `Blocked` on some ranks. Each rank opens each shard, and of each part it reads the records that are
    its own; ranges with little between them are one request."""
    parts = max(num_bytes // part_bytes, 1) if part_bytes else 1
    near = GAP_BYTES // FRAME_BYTES
    """A request reads across up to so many records of other ranks, instead of being two."""
    share, others = 1 / ranks, 1 - 1 / ranks
    own = records / ranks
    over = own * sum(n * share * others**n for n in range(1, near + 1))
    read = int((own + over) * FRAME_BYTES)
    runs = parts + own * others ** (near + 1)
    gets = max(int(runs), parts * _pieces(read // parts, PIECE_BYTES))
    one = _opened(records) + Cost(gets=gets, read=read)
    return Cost(*(ranks * getattr(one, field.name) for field in fields(one)))


def shuffled(num_bytes: int, records: int, ranks: int = 1) -> Cost:
    """An epoch of `Shuffled` on some ranks. Each rank opens each shard; each record is a request."""
    opened = _opened(records)
    return Cost(gets=records + ranks * opened.gets, read=num_bytes + ranks * opened.read)


def verify(num_bytes: int, records: int) -> Cost:
    """`ps.verify`: a scan, a look at the object, and a listing of overlays."""
    return scan(num_bytes, records) + Cost(gets=1, puts=1)


def convert(num_bytes: int, records: int) -> Cost:
    """`ps.convert` into as many TFRecords: windows, parts of an upload, the sidecar, notes, and looks at the target."""
    parts, at = 0, 0
    while at < num_bytes:
        at += part_bytes(parts)
        parts += 1
    looks, upload, beside, journal, listing = 6, 2, 2, 2, 1
    return _opened(records) + Cost(
        gets=_pieces(num_bytes, WINDOW_BYTES) + looks,
        puts=parts + upload + beside + journal + listing,
        read=num_bytes,
        written=num_bytes + records * INDEX_BYTES,
    )


def shards() -> tuple[np.ndarray, np.ndarray]:
    """The bytes and records of each shard."""
    rng = np.random.default_rng(0)
    spread = SHARD_RECORDS // 20
    records = rng.integers(SHARD_RECORDS - spread, SHARD_RECORDS + spread, SHARDS, endpoint=True)
    return records * FRAME_BYTES, records


def write_manifest(path: Path) -> None:
    """A manifest of objects that do not exist, as `ps.manifest` would write it."""
    sizes, records = shards()
    firsts = np.cumsum(records) - records
    groups = range(0, SHARDS, GROUP_SHARDS)
    facts = Footer(
        tuple(int(records[first : first + GROUP_SHARDS].sum()) for first in groups),
        int(sizes.sum()),
        "kept",
        pa.schema([("image", pa.binary()), ("label", pa.int64())]),
        True,
        False,
        False,
        "",
        "00",
    )
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", store_schema=False) as writer:
        for first in groups:
            numbers = range(first, min(first + GROUP_SHARDS, SHARDS))
            place = slice(numbers.start, numbers.stop)
            columns: dict[str, Any] = {
                "path": [f"s3://bucket/{n % PREFIXES:02}/train-{n:07}.tfrecord" for n in numbers],
                "format": ["tfrecord"] * len(numbers),
                "bytes": sizes[place],
                "records": records[place],
                "first_record": firsts[place],
                "etag": [f'"{hash((n, n)) & (2**128 - 1):032x}"' for n in numbers],
                "checksum": np.arange(numbers.start, numbers.stop),
            }
            nulls = [None] * len(numbers)
            arrays = [pa.array(columns.get(field.name, nulls), field.type) for field in SCHEMA]
            writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
        writer.add_key_value_metadata({KEY.decode(): facts.to_json().decode()})


def total(cost_of: Any, sizes: np.ndarray, records: np.ndarray, **how: int) -> Cost:
    """The cost of all shards. Shards of one size cost the same."""
    found, counts = np.unique(np.stack([sizes, records]), axis=1, return_counts=True)
    sums = [0] * 4
    for (size, number), count in zip(found.T.tolist(), counts.tolist(), strict=True):
        cost = cost_of(size, number, **how)
        for place, one in enumerate(fields(cost)):
            sums[place] += count * getattr(cost, one.name)
    return Cost(*sums)


def _number(value: float) -> str:
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.0f}"


def _time(hours: float) -> str:
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h"


def table(sizes: np.ndarray, records: np.ndarray, part_bytes: int) -> list[str]:
    """The table of the page, for the shards that tasks name."""
    rows: list[tuple[str, Any, dict[str, int]]] = [
        ("read by tasks of an engine", task, {}),
        ("scan", scan, {}),
        ("`Blocked`, a rank alone", blocked, {"part_bytes": part_bytes}),
        (f"`Blocked`, {MACHINES} ranks", blocked, {"ranks": MACHINES, "part_bytes": part_bytes}),
        ("`Shuffled`, a rank alone", shuffled, {}),
        (f"`Shuffled`, {MACHINES} ranks", shuffled, {"ranks": MACHINES}),
        ("verify", verify, {}),
        ("convert", convert, {}),
    ]
    lines = [
        f"| work | GET, HEAD | PUT, LIST | read | written | S3 | 1 machine | {MACHINES} machines |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, cost_of, how in rows:
        cost = total(cost_of, sizes, records, **how)
        lines.append(
            f"| {name} | {_number(cost.gets)} | {_number(cost.puts)} | {cost.read / 1e15:.2f} PB |"
            f" {cost.written / 1e15:.2f} PB | {cost.dollars:,.0f} $ |"
            f" {'–' if 'ranks' in how else _time(cost.hours(1))} |"
            f" {'–' if 'alone' in name else _time(cost.hours(MACHINES))} |"
        )
    return lines


@dataclass
class Planned:
    """What the planner made of the manifest."""

    num_tasks: int
    seconds: float
    """Of the CPU."""
    peak_bytes: int
    pickle_bytes: int
    lines: list[str]


def planned(folder: Path) -> Planned:
    """Write the manifest, plan, and count."""
    path = folder / "petabyte.manifest"
    write_manifest(path)
    # No server listens there, so a request would fail: planning makes none.
    options = {"aws_endpoint_url": "http://127.0.0.1:1", "aws_allow_http": True, "aws_region": "r"}
    began = time.process_time()
    ds = ps.open(path, storage_options=options)
    tasks = ds.tasks(target_bytes=1 << 30)
    seconds = time.process_time() - began
    peak = peak_bytes()
    records = np.array([found.num_records for found in tasks])
    sizes = np.array([found.num_bytes for found in tasks])
    assert len(ds) == records.sum()
    parts = ds.files.chunk_lengths
    part_bytes = int(sizes.sum(dtype=float)) // len(parts)
    return Planned(
        len(tasks),
        seconds,
        peak,
        len(pickle.dumps(tasks[len(tasks) // 2])),
        table(sizes, records, part_bytes),
    )


def main() -> None:
    """Print the plan and the table."""
    with tempfile.TemporaryDirectory() as name:
        found = planned(Path(name))
    print(
        f"{found.num_tasks:,} tasks in {found.seconds:.2f} s of CPU, peak {found.peak_bytes / 1e6:,.0f} MB,"
        f" {found.pickle_bytes} bytes a pickle"
    )
    print(*found.lines, sep="\n")


if __name__ == "__main__":
    main()
