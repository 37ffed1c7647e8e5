"""Manifests that nobody made. penstock must refuse them with an error that says what is wrong, or open the shards that
they list, and no others."""

from __future__ import annotations

import functools
import io
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from fuzz.tfrecords import framed
from penstock.manifests.manifest import Manifest
from penstock.manifests.table import SCHEMA, Footer
from penstock.storage import MemoryStorage
from penstock.storage.manifest_mark import KEY

SHARDS, EACH = 6, 3
_NAME = "m.manifest"
_SHARD = b"".join(framed(b"%d" % n) for n in range(EACH))
_NUMBERS: tuple[Any, ...] = (-1, 0, 1, EACH, EACH + 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))
_TEXTS: tuple[Any, ...] = (
    *("", ".", "..", "../x", "a/../../x", "/etc/passwd", "x-0", "x-1", "./x-1", "x\0y", "\x1b[2J"),
    *("s3://b/x", "https://h/x?sig=1", "https://me:pw@h/x", "file:///x", "é" * 5000, None),
)
_VALUES: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, True, 1.5, [], {}, [EACH] * 9, 2**80, [2**80])


def manifests() -> list[bytes]:
    """Valid manifests of one and of several row groups."""
    return [_written(*_honest(), group) for group in (SHARDS, 4, 1)]


def _honest() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema = pa.schema([pa.field("record", pa.binary(), False)])
    footer = Footer(
        (SHARDS * EACH,), SHARDS * len(_SHARD), "stored", schema, False, False, False, "", ""
    )
    facts = json.loads(footer.to_json())
    rows = [
        {
            **dict.fromkeys(SCHEMA.names),
            "path": f"x-{n}",
            "format": "tfrecord",
            "bytes": len(_SHARD),
            "records": EACH,
            "first_record": n * EACH,
            "checksum": n,
        }
        for n in range(SHARDS)
    ]
    return facts, rows


def _written(facts: dict[str, Any], rows: list[dict[str, Any]], group: int) -> bytes:
    """A manifest with these facts and rows, whatever they are, as far as the columns can hold them."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    if facts.get("records") == (SHARDS * EACH,) or facts.get("records") == [SHARDS * EACH]:
        facts["records"] = [
            sum(row["records"] for row in rows[n : n + group]) for n in range(0, len(rows), group)
        ]
    file = io.BytesIO()
    with pq.ParquetWriter(file, SCHEMA, store_schema=False) as writer:
        writer.write_table(table, row_group_size=group)
        writer.add_key_value_metadata({KEY.decode(): json.dumps(facts)})
    return file.getvalue()


@functools.cache
def _storage() -> MemoryStorage:
    return MemoryStorage({f"x-{n}": _SHARD for n in range(SHARDS)} | {"secret": _SHARD})


def _lied(rng: random.Random) -> bytes:
    """A manifest that is a valid file, and says something else."""
    facts, rows = _honest()
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.4:
            facts[rng.choice(list(facts))] = rng.choice(_VALUES)
            continue
        row = rng.choice(rows)
        name = rng.choice(SCHEMA.names)
        is_text = SCHEMA.field(name).type == pa.string()
        values = _TEXTS if is_text else _NUMBERS[:6] if name == "checksum" else _NUMBERS
        row[name] = rng.choice(values)
    for row in rows:
        row["checksum"] = abs(row["checksum"] or 0) % 2**32
    try:
        return _written(facts, rows, rng.choice((SHARDS, 4, 1)))
    except (ValueError, TypeError, pa.ArrowException):
        return b""  # pyarrow cannot write that


def manifest(data: bytes, rng: random.Random) -> None:
    """The bytes as a manifest, or a file that pyarrow wrote of hostile values."""
    if rng.random() < 0.7:
        data = _lied(rng)
    storage = _storage()
    storage.files[_NAME] = data
    listed = Manifest(_NAME, storage)
    count = 0
    for batch in listed.groups():
        batch.validate(full=True)
        count += int(np.sum(batch.column("records").to_numpy()))
        assert not any(".." in path.split("/") for path in batch.column("path").to_pylist())
    assert count == listed.num_records
    assert len(listed.firsts) == listed.num_shards + 1
    ds = ps.open(_NAME, storage=storage, raw=rng.random() < 0.5)
    wanted = rng.randrange(max(len(ds), 1))
    ds.take([wanted])
    assert all(len(record) == 1 for record in ds.to_table()["record"].to_pylist())
