"""`info` lists the files, sizes and fields of a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from rich.text import Text

from penstock import describe, formats
from penstock.contract.format import Reader
from penstock.datasets.dataset import Dataset
from penstock.datasets.files import Types
from penstock.datasets.open import opened
from penstock.datasets.shard import Shard
from penstock.framing.index import sidecar
from penstock.framing.read.framed import FramedReader
from penstock.printing import tables
from penstock.printing.printed import Printed
from penstock.storage.skipped import SkippedFile
from penstock.verbs.inspect.tally import Range, Spread

IndexState = Literal["found", "made", "none", "not needed"]
"""The state of a shard's index: it existed, was made and stored just now, is not stored, or is part of the format."""

_MOST_FILES = 12
"""More files than this are not listed one by one."""
_TYPE_WORDS = {
    "given": "as requested",
    "kept": "as written, from the sidecar",
    "stored": "from the files",
    "inferred": "inferred from records",
}
_INDEX_WORDS = {
    "found": "found",
    "made": "made just now",
    "none": "none",
    "not needed": "part of the format",
}


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
    notes: tuple[str, ...] = ()
    """What is unusual about the file, such as a tar archive without its end."""
    checksums: str = ""
    """What the checksums in the file are, such as "CRC-32 of each page"; empty if it has none."""


@dataclass(frozen=True, slots=True, repr=False)
class Info(Printed):
    """A dataset: its files, their totals, and the fields of a record. Printed, it is a table."""

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
    counts_damaged: bool = False
    """Whether the dataset was opened with `damage="skip"` or `"stop"`. `num_records` counts records by their headers or
    the file's index, so it includes records whose contents are damaged. `stats` and scans leave these out."""

    def _page(self) -> list[Any]:
        """The table that `print` and `penstock info` show."""
        shards = self.shards
        pairs = [
            ("files", _files(shards)),
            ("format", _formats(shards)),
            ("records", _records(self)),
            ("bytes", _bytes(self)),
        ]
        if self.record_bytes is not None:
            pairs.append(("record size", self.record_bytes.text(describe.size)))
        pairs.append(("index", _index(shards)))
        pairs.append(("checksums", _checksums(shards)))
        pairs.append(("types", _TYPE_WORDS[self.types]))
        parts: list[Any] = [tables.facts(pairs), "", _fields(self)]
        if 1 < len(shards) <= _MOST_FILES:
            parts += ["", _listing(shards)]
        if noted := [(shard.path, note) for shard in shards for note in shard.notes]:
            parts += ["", _listed("file", "note", noted)]
        if self.skipped_files:
            listed = [(os.path.basename(path), reason) for path, reason in self.skipped_files]
            parts += ["", _listed("not read", "reason", listed)]
        return parts

    def _summary(self) -> str:
        files = "1 file" if len(self.shards) == 1 else f"{describe.count(len(self.shards))} files"
        return f"{files}, {describe.records(self.num_records)}, {describe.size(self.num_bytes)}"


def info(
    source: Any,
    *,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Info:
    """List the files of a dataset, with their sizes, records and fields.

    The records are counted. For framed formats, this reads the headers of the records once, and stores their
    positions as an index (see `index=` of `penstock.open`).

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        storage, storage_options: as for `open`.

    Raises:
        PenstockError: damage was found while the records were counted.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"label": [3, 1, 2]}, "labels.tfrecord", overwrite=True)
        >>> found = ps.info("labels.tfrecord")
        >>> found.num_records, found.shards[0].format, found.shards[0].index
        (3, 'tfrecord', 'found')
    """
    ds = opened(source, storage, storage_options)
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
        ds.options.damage != "error",
    )


def _shard(
    ds: Dataset,
    reader: Reader,
    shard: Shard,
    had_index: bool | None,
    total: Range,
) -> ShardInfo:
    facts = (shard.path, shard.format, shard.num_records, shard.num_bytes)
    kind = formats.by_name(shard.format).info
    checksums = "" if reader.lacks_checksums else kind.checksums or "yes" * kind.has_checksums
    if not isinstance(reader, FramedReader):
        kept = kind.keeps_positions
        path = _index_path(ds, shard.path) if kept else None
        state: IndexState = "not needed" if not kept else "none" if path is None else "found"
        notes = tuple(reader.notes)
        return ShardInfo(*facts, reader.compression, None, None, state, path, notes, checksums)
    sizes = reader.record_bytes()
    mine = Range()
    mine.add(sizes)
    total.merge(mine)
    compression = reader.index.compression
    plain_bytes = reader.index.plain_bytes if compression else shard.num_bytes
    path = _index_path(ds, shard.path)
    state = "none" if path is None else "found" if had_index else "made"
    notes = tuple(reader.notes)
    return ShardInfo(*facts, compression, plain_bytes, mine.spread(), state, path, notes, checksums)


def _index_path(ds: Dataset, data_path: str) -> str | None:
    index = ds.options.index
    if index == "never":
        return None
    paths = [sidecar.path_for(data_path, folder) for folder in sidecar.folders(index)]
    return next((path for path in paths if ds.files.storage.exists(path)), None)


# -- as a table -----------------------------------------------------------------------------------


def _files(shards: tuple[ShardInfo, ...]) -> Text:
    if len(shards) == 1:
        return tables.name(shards[0].path)
    line = Text(f"{describe.count(len(shards))}: ")
    line.append_text(tables.name(shards[0].path)).append(" … ")
    return line.append_text(tables.name(shards[-1].path))


def _records(found: Info) -> str:
    shown = describe.count(found.num_records)
    if not found.counts_damaged:
        return shown
    return f"{shown}, found without reading them; stats counts the undamaged ones"


def _listed(first: str, second: str, files: Sequence[tuple[str, str]]) -> Any:
    shown = tables.table(first, second)
    for path, reason in files[:_MOST_FILES]:
        shown.add_row(describe.escape(path), describe.escape(reason))
    if len(files) > _MOST_FILES:
        shown.add_row(f"and {describe.count(len(files) - _MOST_FILES)} more", "")
    return shown


def _formats(shards: tuple[ShardInfo, ...]) -> str:
    kinds: dict[str, int] = {}
    for shard in shards:
        compression = {"": "not compressed", None: ""}.get(shard.compression, shard.compression)
        kind = ", ".join(word for word in (shard.format, compression) if word)
        kinds[kind] = kinds.get(kind, 0) + 1
    if len(kinds) == 1:
        return next(iter(kinds))
    return " · ".join(f"{number} {kind}" for kind, number in kinds.items())


def _bytes(found: Info) -> str:
    shown = describe.size(found.num_bytes)
    plain = [shard.plain_bytes for shard in found.shards]
    total = sum(size for size in plain if size is not None)
    if None in plain or total == found.num_bytes or not any(s.compression for s in found.shards):
        return shown
    return f"{shown}, {describe.size(total)} when inflated"


def _index(shards: tuple[ShardInfo, ...]) -> str:
    states: dict[str, int] = {}
    for shard in shards:
        states[shard.index] = states.get(shard.index, 0) + 1
    if len(states) == 1:
        return _INDEX_WORDS[shards[0].index]
    return " · ".join(f"{number} {_INDEX_WORDS[state]}" for state, number in states.items())


def _checksums(shards: tuple[ShardInfo, ...]) -> str:
    pairs = dict.fromkeys((shard.format, shard.checksums or "none") for shard in shards)
    words = dict.fromkeys(word for _, word in pairs)
    return next(iter(words)) if len(words) == 1 else " · ".join(": ".join(pair) for pair in pairs)


def _fields(found: Info) -> Any:
    shown = tables.table("field", "type")
    for field in found.schema:
        shown.add_row(describe.escape(field.name), tables.dim(tables.kind(field)))
    return shown


def _listing(shards: tuple[ShardInfo, ...]) -> Any:
    shown = tables.table("file", "records", "bytes", "compression", right=("records", "bytes"))
    for shard in shards:
        shown.add_row(
            describe.escape(shard.path),
            describe.count(shard.num_records),
            describe.size(shard.num_bytes),
            {"": "none", None: ""}.get(shard.compression, shard.compression),
        )
    return shown
