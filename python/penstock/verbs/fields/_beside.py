"""New fields stored as an overlay, in files next to the shards. Values are computed shard by shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.contract.format import Chunk, Summary
from penstock.datasets.dataset import Dataset
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError
from penstock.verbs.fields._values import NewFields
from penstock.verbs.fields.overlays import overlays, write_overlay

_BATCH_RECORDS = 1 << 16


def refuse_known(dataset: Dataset, names: list[str], overlay: str) -> None:
    """Raise SchemaError if the records or another overlay already have one of the fields."""
    plain = dataset.reopened(columns=None, overlays=False, schema=None, raw=False)
    known = set(plain.schema.names)
    for other in overlays(dataset):
        if other.name != overlay:
            known.update(other.fields.names)
    for field in names:
        if field in known:
            raise SchemaError(
                "the records already have this field",
                field=field,
                file=dataset.paths[0],
                hint="replace=True shows the new values instead of the old values",
            )


def keep_beside(
    dataset: Dataset, new: NewFields, name: str, overwrite: bool, threads: int | None
) -> Summary:
    def columns_of(shard: int) -> Iterator[pa.RecordBatch]:
        first, end = dataset.files.firsts[shard], dataset.files.firsts[shard + 1]
        if new.reads and end > first:
            yield from _computed(dataset, shard, new, threads)
            return
        for start in range(0, int(end - first), _BATCH_RECORDS):
            yield new.batch(shard, start, min(_BATCH_RECORDS, int(end - first) - start), None)

    return write_overlay(dataset, name, new.schema, columns_of, overwrite=overwrite)


def _computed(
    dataset: Dataset, shard: int, new: NewFields, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the new fields for a shard's records. Several chunks are computed in parallel."""
    reader = dataset.files.reader(shard)

    def run(chunk: Chunk[Any]) -> list[pa.RecordBatch]:
        old = reader.decode(chunk, None, list(new.reads))
        return [new.batch(shard, chunk.first_record, old.num_rows, old)]

    yield from in_order([reader.chunks], run, lambda batch: batch.nbytes, threads)
