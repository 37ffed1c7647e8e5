"""`info` lists the files, sizes and fields of a dataset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.contract.format import Reader
from penstock.datasets.dataset import Dataset, Shard
from penstock.datasets.files import Types
from penstock.datasets.open import open as open_dataset
from penstock.framing.index import sidecar
from penstock.framing.read.framed import FramedReader
from penstock.storage.skipped import SkippedFile
from penstock.verbs.inspect.tally import Range, Spread

IndexState = Literal["found", "made", "none", "not needed"]
"""The state of a shard's index: it existed, was made and stored just now, is not stored, or is part of the format."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One file. `compression` is "" for an uncompressed file, and None if the format does not store it. `plain_bytes`
    is the size after decompression. `record_bytes` has the sizes of the records without their frames. Both are None
    for formats that do not store records one by one."""

    path: str
    format: str
    num_records: int
    num_bytes: int
    compression: str | None
    plain_bytes: int | None
    record_bytes: Spread | None
    index: IndexState
    index_path: str | None


@dataclass(frozen=True, slots=True)
class Info:
    """A dataset: its files, their totals, and the fields of a record."""

    shards: tuple[ShardInfo, ...]
    schema: pa.Schema
    num_records: int
    num_bytes: int
    record_bytes: Spread | None
    types: Types = "inferred"
    """The source of the field types: "given" by schema=, "kept" in sidecars that were written with the files, "stored"
    in the files, or "inferred" from records."""
    skipped_files: tuple[SkippedFile, ...] = ()
    """Files that were found but are not read, with the reason; see `Dataset.skipped_files`."""


def info(source: Any) -> Info:
    """List the files of a dataset, with their sizes, records and fields.

    The records are counted. For framed formats, this reads the headers of the records once, and stores their
    positions as an index (see `index=` of `penstock.open`).

    Args:
        source: a Dataset, or anything that `penstock.open` takes.

    Raises:
        PenstockError: damage was found while the records were counted.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"label": [3, 1, 2]}, "labels.tfrecord", overwrite=True)
        >>> found = ps.info("labels.tfrecord")
        >>> found.num_records, found.shards[0].format, found.shards[0].index
        (3, 'tfrecord', 'found')
    """
    ds = source if isinstance(source, Dataset) else open_dataset(source)
    total = Range()
    # Check this before the records are counted, which makes indexes.
    had_index = [
        reader.has_index if isinstance(reader, FramedReader) else None
        for reader in ds.files.own_readers()
    ]
    found = ds.shards
    shards = [
        _shard(ds, reader, shard, had, total)
        for reader, shard, had in zip(ds.files.own_readers(), found, had_index, strict=True)
    ]
    return Info(
        tuple(shards),
        ds.schema,
        sum(shard.num_records for shard in shards),
        sum(shard.num_bytes for shard in shards),
        total.spread(),
        ds.files.types,
        ds.skipped_files,
    )


def _shard(
    ds: Dataset,
    reader: Reader,
    shard: Shard,
    had_index: bool | None,
    total: Range,
) -> ShardInfo:
    facts = (shard.path, shard.format, shard.num_records, shard.num_bytes)
    if not isinstance(reader, FramedReader):
        return ShardInfo(*facts, reader.compression, None, None, "not needed", None)
    sizes = reader.record_bytes()
    mine = Range()
    mine.add(sizes)
    total.merge(mine)
    compression = reader.index.compression
    plain_bytes = reader.index.plain_bytes if compression else shard.num_bytes
    path = _index_path(ds, shard.path)
    state: IndexState = "none" if path is None else "found" if had_index else "made"
    return ShardInfo(*facts, compression, plain_bytes, mine.spread(), state, path)


def _index_path(ds: Dataset, data_path: str) -> str | None:
    index = ds.options.index
    if index == "never":
        return None
    paths = [sidecar.path_for(data_path, folder) for folder in sidecar.folders(index)]
    return next((path for path in paths if os.path.exists(path)), None)
