"""MessagePack files in memory, packed by msgpack itself, and what penstock reads from them."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.storage import MemoryStorage


def opened(data: bytes, **options: Any) -> ps.Dataset:
    return ps.open(
        "a.msgpack",
        storage=MemoryStorage({"a.msgpack": data}),  # type: ignore[arg-type]
        **{"index": "never", **options},
    )


def table(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    return pa.Table.from_batches(list(dataset.scan()), schema=dataset.schema)


def packed(*records: Any) -> bytes:
    return b"".join(msgpack.packb(record) for record in records)


def numpy_map(array: Any, **changes: Any) -> dict[bytes, Any]:
    array = np.asarray(array)
    descr = array.dtype.str
    found = {b"nd": True, b"type": descr, b"kind": b"", b"shape": array.shape}
    return {**found, b"data": array.tobytes(), **{k.encode(): v for k, v in changes.items()}}
