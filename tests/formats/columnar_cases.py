"""Batches with columns of every kind, and helpers to write and read them, for Parquet and Arrow IPC."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.format import Format, Options, Reader
from penstock.contract.opening import open_shard
from penstock.storage.local import LocalStorage


def write(
    fmt: Format, path: Path, batches: Iterable[pa.RecordBatch], schema: Any, **options: Any
) -> str:
    """Write batches to a file with a format, as the verbs do."""
    sink = LocalStorage().sink(str(path), overwrite=True)
    writer = fmt.create(sink, schema, fmt.write_options(**options), threads=2)
    for batch in batches:
        writer.write(batch)
    writer.close()
    sink.commit()
    assert writer.num_bytes == path.stat().st_size
    return str(path)


def opened(fmt: Format, path: str | Path, **options: Any) -> Reader:
    mmap = options.get("mmap", False)
    return open_shard(fmt, LocalStorage().source(str(path), mmap=mmap), Options(**options))


def scan(reader: Reader, columns: Any = None) -> pa.Table:
    batches = [reader.decode(chunk, None, columns) for chunk in reader.chunks()]
    schema = batches[0].schema if batches else reader.schema
    return pa.Table.from_batches(batches, schema=schema)


def take(reader: Reader, records: list[int] | np.ndarray, columns: Any = None) -> pa.Table:
    picked = reader.pick(np.asarray(records, dtype=np.int64))
    return pa.Table.from_batches([reader.decode(chunk, part, columns) for chunk, part in picked])


def numbers(count: int, start: int = 0) -> pa.RecordBatch:
    """A batch whose records contain their number."""
    ids = np.arange(start, start + count)
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "text": pa.array(
                [f"record {i}" * (i % 7) if i % 5 else None for i in ids], pa.string()
            ),
            "values": pa.array([[float(i)] * (i % 4) for i in ids], pa.list_(pa.float32())),
        }
    )


def of_every_kind() -> pa.RecordBatch:
    """Nulls, nested lists, structs, maps, dictionaries, decimals, times, tensors, extensions."""
    tensors = pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], pa.list_(pa.float32(), 4))
    return pa.record_batch(
        {
            "int": pa.array([1, None, 3], pa.int8()),
            "large": pa.array([2**64 - 1, None, 0], pa.uint64()),
            "half": pa.array(np.array([1.5, 2, 0], np.float16)),
            "bool": pa.array([True, None, False]),
            "text": pa.array(["a", None, "ä\0b"]),
            "bytes": pa.array([b"\x00\xff", b"", None]),
            "large_text": pa.array(["a", None, "c"], pa.large_string()),
            "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
            "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "nested": pa.array([[[1], []], None, [None, [2, 3]]], pa.list_(pa.list_(pa.int32()))),
            "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
            "decimal": pa.array([1, None, -2], pa.decimal128(20, 3)),
            "date": pa.array([1, None, 3], pa.date32()),
            "time": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
            "duration": pa.array([1, None, 3], pa.duration("ms")),
            "null": pa.nulls(3),
            "tensor": pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.float32(), [2, 2]), tensors
            ),
            "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None, "[2]"])),
            "dotted.name": pa.array([1, 2, 3]),
        }
    )


class Broken:
    """A sink that accepts this many bytes and then reports that no space is left."""

    path = "broken"

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.finished = False

    def write(self, data: Any) -> None:
        self.room -= len(memoryview(data))
        if self.room < 0:
            raise OSError(28, "No space left on device")

    def commit(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.finished = True
