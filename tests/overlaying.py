"""Overlays of a file of many records, for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.overlay.places import Place
from penstock.storage.local import LocalStorage
from penstock.verbs.fields.overlays import write_overlay

COUNT = 100_000
BESIDE = Place(LocalStorage())
folder_of, path_of = BESIDE.folder_of, BESIDE.path_of


def file_of_ids(folder: Path) -> str:
    """A file of COUNT records."""
    where = str(folder / "a.tfrecord")
    ps.write({"id": range(COUNT)}, where)
    return where


def keep(source: Any, name: str = "new", overwrite: bool = False, **columns: Any) -> ps.Summary:
    """Write overlays for the only shard of a source, or for several shards."""
    batch = pa.record_batch(columns)
    dataset = source if isinstance(source, ps.Dataset) else ps.open(source)
    firsts = dataset.files.firsts

    def columns_of_shard(shard: int) -> list[pa.RecordBatch]:
        return [batch.slice(firsts[shard], firsts[shard + 1] - firsts[shard])]

    return write_overlay(dataset, name, batch.schema, columns_of_shard, overwrite=overwrite)
