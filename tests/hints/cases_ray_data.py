"""Hints of reading and writing datasets of Ray. None of these cases needs a cluster."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from steps import Case, Cases

import penstock as ps


def numbered_objects() -> Case:
    from penstock.formats import by_name
    from penstock.ray._targets import StoreTarget
    from penstock.storage import MemoryStorage

    storage = MemoryStorage()
    how: dict[str, Any] = {
        "format": "tfrecord", "index": False, "shard_records": None, "shard_bytes": None,
    }  # fmt: skip

    def target(name: str) -> StoreTarget:
        return StoreTarget(name, by_name("tfrecord"), storage, how)

    def advised() -> None:
        batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
        made = target("d/x.tfrecord")
        with made.attempts():
            paths = made.publish([made.write(0, batch.schema, lambda: [batch])], overwrite=False)
        assert paths[0].endswith("-000000.tfrecord")
        assert ps.open(paths, storage=storage).to_table()["a"].to_pylist() == [1, 2]

    return Case(lambda: target("d/x-{shard}.tfrecord"), advised)


def blocks_of_two_kinds() -> Case:
    from penstock.ray._blocks import in_schema

    schema, other = pa.schema({"a": pa.int64()}), pa.table({"a": [0.5]})
    return Case(
        lambda: list(in_schema(other, schema)),
        lambda: list(in_schema(other.set_column(0, "a", pa.array([0])), schema)),
    )


def block_with_another_column() -> Case:
    from penstock.ray._blocks import in_schema

    schema, other = pa.schema({"a": pa.int64()}), pa.table({"a": [1], "b": [2]})
    return Case(
        lambda: list(in_schema(other, schema)),
        lambda: list(in_schema(other.select(["a"]), schema)),
    )


def tasks_of_two_kinds() -> Case:
    from penstock.ray._targets import Written
    from penstock.ray._write import check_alike

    def found(*types: pa.DataType) -> list[Written]:
        return [Written(n, (), 1, 1, (), pa.schema({"a": kind})) for n, kind in enumerate(types)]

    return Case(
        lambda: check_alike(found(pa.int64(), pa.string())),
        lambda: check_alike(found(pa.int64(), pa.int64())),
    )


CASES: Cases = {
    "'leave out {shard}: x.tfrecord becomes x-<token>-<task>.tfrecord'": numbered_objects,
    "'give all blocks the same columns and types, such as by dataset.map_batches'": (
        blocks_of_two_kinds,
        block_with_another_column,
        tasks_of_two_kinds,
    ),
}
