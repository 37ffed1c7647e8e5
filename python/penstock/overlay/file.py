"""The file of an overlay: columns of one shard, readable by record number, with checksums of all bytes.

```
offset  size  field                          (all numbers little endian)
0       ...   blocks: each a separate Arrow IPC stream with one record batch
C       8 B   ends: the offset of the end of each of the B blocks
...     8 B   records: for each block, the number of records up to its end
...     4 B   checksums: crc32c of each block
...     S     schema, as Arrow's schema message
...     F     facts, JSON: name, sequence, shard {num_bytes, num_records, digest, tag}, drop [name], rename {old: new}
-64     8     magic "PSFIELDS"
-56     4     version: 1, or 2 if the facts have drop and rename
-52     4     crc32c of everything from C up to here
-48     8     num_records
-40     8     B
-32     8     S
-24     8     F
-16     12    0
-4      4     crc32c of the 60 bytes before
```

Values come first, so that a file can be written in one pass. Blocks have about 512 KiB, so that one record takes one
small read. An overlay without fields has no blocks. A file gets its name only when it is complete.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.batches import checked, conform, empty_batch, gather_parts
from penstock.columns.facts import Facts, parsed_object
from penstock.columns.joined import join
from penstock.columns.regroup import Regroup
from penstock.columns.stored_schema import schema_of
from penstock.columns.types import own_batch, own_types
from penstock.errors import (
    ChangedError,
    ChecksumError,
    FormatError,
    SchemaError,
    TruncatedError,
)
from penstock.limits import Limits
from penstock.overlay._block_cache import BlockCache
from penstock.overlay.identity import Identity
from penstock.overlay.places import Place, removal
from penstock.overlay.view import Changes
from penstock.storage.arrow_messages import walk_stream
from penstock.storage.base import Sink, Source
from penstock.storage.pyarrow_files import next_batch, translated, writable

MAGIC = b"PSFIELDS"
VERSION = 1
CHANGING_VERSION = 2
"""Of an overlay that drops or renames fields, which older readers must not ignore."""
BLOCK_RECORDS = 1 << 16
BLOCK_BYTES = 512 << 10
_TRAILER = struct.Struct("<8sIIQQQQ12s")
_MOST_FACTS = 1 << 20


def find(
    shard: str, place: Place, limits: Limits, cache: BlockCache | None = None
) -> list[Overlay]:
    """The overlays of a shard in one place, in the order in which they were made. Raises FormatError if a file is not an
    overlay."""
    found = [Overlay(path, place, limits, cache) for path in place.paths_of(shard)]
    return sorted(found, key=lambda overlay: (overlay.sequence, overlay.name))


class OverlayWriter:
    """Writes one overlay. The caller commits the sink."""

    def __init__(
        self, sink: Sink, name: str, sequence: int, schema: pa.Schema, changes: Changes
    ) -> None:
        self._sink = sink
        self._name = name
        self._sequence = sequence
        self._schema = schema
        self._changes = changes
        self._regroup = Regroup(schema, group_records=BLOCK_RECORDS, group_bytes=BLOCK_BYTES)
        self._ends: list[int] = []
        self._records: list[int] = []
        self._checksums: list[int] = []
        self.num_records = 0
        self.num_bytes = 0
        self.digest = ""
        """Identifies the finished file, as `Overlay.digest`."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the values of the next records. Raises SchemaError if columns differ or values do not fit."""
        if batch.schema.names != self._schema.names:
            raise SchemaError(
                "the columns of a batch differ from those of the overlay",
                file=self._sink.path,
                expected=self._schema.names,
                found=batch.schema.names,
            )
        for group in self._regroup.add(conform(batch, self._schema, self._sink.path)):
            self._write_block(group)

    def finish(self, identity: Identity) -> None:
        """Write the remaining values and the table of blocks. Raises SchemaError unless there is a value for each
        record of the shard."""
        for group in self._regroup.rest():
            self._write_block(group)
        if not len(self._schema):
            self.num_records = identity.num_records or 0
        if self.num_records != identity.num_records:
            raise SchemaError(
                "one value is needed for each record of the shard",
                file=self._sink.path,
                expected=identity.num_records,
                found=self.num_records,
            )
        facts = {"name": self._name, "sequence": self._sequence, "shard": asdict(identity)}
        if self._changes:
            facts |= {"drop": self._changes.drop, "rename": dict(self._changes.rename)}
        sections = [
            np.array(self._ends, "<u8").tobytes(),
            np.array(self._records, "<u8").tobytes(),
            np.array(self._checksums, "<u4").tobytes(),
            self._schema.serialize().to_pybytes(),
            json.dumps(facts, sort_keys=True).encode(),
        ]
        contents = b"".join(sections)
        crc = _core.Buffer.from_bytes(contents).crc32c()
        trailer = _TRAILER.pack(
            MAGIC,
            CHANGING_VERSION if self._changes else VERSION,
            crc,
            self.num_records,
            len(self._ends),
            len(sections[3]),
            len(sections[4]),
            bytes(12),
        )
        end = struct.pack("<I", _core.Buffer.from_bytes(trailer).crc32c())
        self._put(contents + trailer + end)
        self.digest = f"{crc:08x}{end.hex()}"

    def _write_block(self, batch: Any) -> None:
        stream = pa.BufferOutputStream()
        with writable(self._sink.path), pa.ipc.new_stream(stream, self._schema) as writer:
            writer.write_batch(batch)
        data = stream.getvalue().to_pybytes()
        self._put(data)
        self.num_records += batch.num_rows
        self._ends.append(self.num_bytes)
        self._records.append(self.num_records)
        self._checksums.append(_core.Buffer.from_bytes(data).crc32c())

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self.num_bytes += len(data)


class Overlay:
    """An overlay whose table is already read and verified. The file is opened again when values are requested."""

    def __init__(
        self, path: str, place: Place, limits: Limits, cache: BlockCache | None = None
    ) -> None:
        self.path = path
        self.place = place
        self._limits = limits
        source = place.storage.source(path)
        try:
            self._read_facts(source)
        except FormatError as error:
            raise error.at(file=path, hint=self._hint) from None
        finally:
            source.close()
        self._key = f"{path}\0{self.digest}"
        self._cache = BlockCache() if cache is None else cache

    @property
    def _hint(self) -> str:
        return f"{removal('SOURCE', 'NAME', self.place.folder)}, or put back the file"

    def _read_facts(self, source: Source) -> None:
        size = source.size
        tail = _trailer_of(source)
        magic, version, contents_crc, num_records, blocks, schema_bytes, facts_bytes, _ = (
            _TRAILER.unpack_from(tail)
        )
        if magic != MAGIC:
            raise TruncatedError("does not end like an overlay", byte=size - len(tail))
        if _core.Buffer.from_bytes(tail[:-4]).crc32c() != int.from_bytes(tail[-4:], "little"):
            raise ChecksumError("the checksum of the end does not match", byte=size - len(tail))
        if version not in (VERSION, CHANGING_VERSION):
            newest = CHANGING_VERSION
            raise FormatError("the overlay has an unknown version", expected=newest, found=version)
        contents_bytes = 20 * blocks + schema_bytes + facts_bytes
        start = size - len(tail) - contents_bytes
        if start < 0 or facts_bytes > _MOST_FACTS:
            raise FormatError("its table is larger than the file", byte=size - len(tail))
        self._limits.check("footer_bytes", contents_bytes)
        contents = source.read(start, contents_bytes)
        if len(contents) != contents_bytes or contents.crc32c() != contents_crc:
            raise ChecksumError("the checksum of its table does not match", byte=start)
        raw = contents.to_bytes()
        self._ends = np.frombuffer(raw, "<u8", blocks).astype(np.int64)
        self._records = np.frombuffer(raw, "<u8", blocks, 8 * blocks).astype(np.int64)
        self._checksums = np.frombuffer(raw, "<u4", blocks, 16 * blocks)
        at = 20 * blocks
        with translated(self.path):
            stored = schema_of(raw[at : at + schema_bytes])
            self.schema: pa.Schema = own_types(stored)
            facts = parsed_object(raw[at + schema_bytes :], _MOST_FACTS)
            shard = facts.facts("shard")
            self.name = facts.text("name")
            self.sequence = facts.count("sequence")
            self.identity = Identity(
                shard.count("num_bytes"),
                shard.count("num_records"),
                shard.text("digest"),
                shard.text("tag") if "tag" in shard else "",
            )
            self.changes = _changes_in(facts) if version == CHANGING_VERSION else Changes()
        self._check_table(start, num_records if len(self.schema) else 0)
        if self.identity.num_records != num_records or len(set(self.schema.names)) != len(
            self.schema.names
        ):
            raise FormatError("its facts do not match its table")
        self.num_records = num_records
        self.num_bytes = size
        self._tail = tail
        self.digest = f"{contents_crc:08x}{tail[-4:].hex()}"

    def _check_table(self, end: int, num_records: int) -> None:
        ends = np.concatenate([[0], self._ends])
        records = np.concatenate([[0], self._records])
        wrong = (np.diff(ends) <= 0).any() or (np.diff(records) <= 0).any()
        if wrong or ends[-1] != end or records[-1] != num_records:
            raise FormatError("its table has blocks that overlap or are missing", byte=end)
        self._limits.check("batch_bytes", int(np.diff(ends).max(initial=0)))

    # -- values ---------------------------------------------------------------------------------

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """All values, in order."""
        for block in range(len(self._ends)):
            yield self._block(block)

    def between(self, first: int, last: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of records [first, last), not copied if all are in one block."""
        low = int(np.searchsorted(self._records, first, "right"))
        high = int(np.searchsorted(self._records, last, "left"))
        parts: list[pa.RecordBatch] = []
        for block in range(low, min(high + 1, len(self._records))):
            start = self._first(block)
            begin, end = max(first - start, 0), min(last, int(self._records[block])) - start
            if begin < end:
                batch = self._block(block).select(columns)
                parts.append(batch.slice(begin, end - begin))
        if len(parts) == 1:
            return parts[0]
        return join(parts) if parts else self._none(columns)

    def take(self, records: np.ndarray, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of some records, in the requested order. Repeats are allowed."""
        if not len(records):
            return self._none(columns)
        first = int(records[0])
        if (np.diff(records) == 1).all():
            return self.between(first, first + len(records), columns)
        blocks = np.unique(np.searchsorted(self._records, records, "right")).tolist()
        parts = ((self._first(block), self._block(block).select(columns)) for block in blocks)
        with translated(self.path):
            return gather_parts(parts, records, self._none(columns).schema, self.path)

    def _none(self, columns: Sequence[str]) -> pa.RecordBatch:
        return empty_batch(self.schema).select(columns)

    def verify(self) -> None:
        """Read and verify all values. Raises ChangedError if they have changed."""
        for block in range(len(self._ends)):
            self._block(block)

    def _first(self, block: int) -> int:
        return int(self._records[block - 1]) if block else 0

    def _block(self, block: int) -> pa.RecordBatch:
        key = self._key, block
        batch = self._cache.get(key)
        if batch is None:
            start = int(self._ends[block - 1]) if block else 0
            length = int(self._ends[block]) - start
            source = self._cache.source(self._key, self._opened)
            batch = self._decoded(source, block, start, length)
            self._cache.put(key, batch, length)
        return batch

    def _opened(self) -> Source:
        source = self.place.storage.source(self.path)
        if source.size != self.num_bytes or _trailer_of(source) != self._tail:
            source.close()
            raise ChangedError("the overlay was replaced while it was open", file=self.path)
        return source

    def _decoded(self, source: Source, block: int, start: int, length: int) -> pa.RecordBatch:
        data = source.read(start, length)
        stored, found = int(self._checksums[block]), data.crc32c()
        if len(data) != length or found != stored:
            # ChangedError, because `damage="skip"` must not skip records of the shard, which is not damaged.
            raise ChangedError(
                "the overlay's bytes have changed since they were written",
                file=self.path,
                byte=start,
                expected=f"checksum {stored:#010x}",
                found=f"{found:#010x}",
                hint=self._hint,
            )
        try:
            with translated(self.path):
                return self._parsed(data, block)
        except FormatError as error:
            raise ChangedError(
                error.message, file=self.path, byte=start, hint=self._hint
            ) from error

    def _parsed(self, data: _core.Buffer, block: int) -> pa.RecordBatch:
        buffer = pa.py_buffer(data)

        def read(at: int, length: int) -> bytes:
            return buffer.slice(at, max(min(length, len(data) - at), 0)).to_pybytes()

        for message in walk_stream(read, len(data), self._limits):
            if message.compressed or not 0 <= message.reach <= message.end - message.body:
                raise FormatError("a block does not have the layout that penstock writes")
        with pa.ipc.open_stream(buffer) as stream:
            batch = checked(next_batch(stream), self.path)
        batch = own_batch(batch, own_types(batch.schema))
        wanted = int(self._records[block]) - self._first(block)
        if batch.num_rows != wanted or not batch.schema.equals(self.schema, check_metadata=True):
            raise FormatError("a block does not match the table")
        return batch

    def close(self) -> None:
        """Close the file if no other thread reads it."""
        self._cache.drop_source(self._key)


def _trailer_of(source: Source) -> bytes:
    length = _TRAILER.size + 4
    tail = source.read(max(source.size - length, 0), length).to_bytes()
    if len(tail) != length:
        raise TruncatedError("too short for an overlay", file=source.path, found=len(tail))
    return tail


def _changes_in(facts: Facts) -> Changes:
    named = facts.facts("rename")
    renamed = {name: named.text(name) for name in named}
    if len(set(renamed.values())) < len(renamed):
        raise FormatError("two fields would have the same name")
    return Changes(tuple(facts.texts("drop")), renamed)
