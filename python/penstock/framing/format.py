"""The base class of framed formats, whose records are found by walking over their frames.

A format defines how a file becomes an `OpenShard` (stream and framing) and what decodes its payloads. Reading, random
access, verification, repair and appending follow from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import pyarrow as pa

from penstock import _core
from penstock.contract.decoder import Decoder
from penstock.contract.format import Format, Options
from penstock.contract.regions import Region, text_of
from penstock.errors import UnsupportedError
from penstock.framing.damage import DamageScan
from penstock.framing.framings import Framing
from penstock.framing.index.indexing import load_index
from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex
from penstock.framing.read.framed import FramedReader
from penstock.framing.read.raw import RAW_SCHEMA, RawDecoder
from penstock.framing.read.shard import OpenShard
from penstock.framing.write.end import check_end
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Sink, Source


class FramedFormat(Format, ABC):
    """A Format of framed records. raw=True opens any such file, so it can be verified and indexed whatever it holds."""

    framing: ClassVar[Framing]
    finds_next: ClassVar[bool] = True
    """Whether the next record after damage can be found without an index. Files are then repaired record by record."""
    damage_scan_type: ClassVar[type[DamageScan]] = DamageScan
    text_index: ClassVar[TextIndex | None] = None
    """The kind of index that another library keeps next to such a file."""

    @abstractmethod
    def shard(self, source: Source, options: Options) -> OpenShard:
        """Open a file, and the stream of its frames."""
        ...

    @abstractmethod
    def decoder(self, shard: OpenShard, known: Index | None) -> Decoder:
        """The decoder of payloads to columns, for the caller's schema or for one inferred from payloads. `known` is the
        file's index, if it is valid."""
        ...

    def raw_decoder(self) -> Decoder:
        return RawDecoder()

    def checking(self, shard: OpenShard) -> Decoder | None:
        """The decoder with which `verify` checks payloads, or None if records have no common schema. The schema is
        inferred from the start of the file, because an index may list records that damage has destroyed."""
        return self.decoder(shard, None)

    def open(self, source: Source, options: Options) -> FramedReader:
        shard = self.shard(source, options)
        known = load_index(shard)
        decoder = self.raw_decoder() if options.raw else self.decoder(shard, known)
        return FramedReader(shard, decoder, known)

    def damage_scan(
        self, source: Source, options: Options, *, payloads: bool = False, salvage: bool = False
    ) -> DamageScan:
        """Create a scan that reports all damaged regions; with `payloads`, also records that do not decode."""
        shard = self.shard(source, options)
        decoder = self.checking(shard) if payloads else None
        known, container = load_index(shard), shard.stream.container
        limits = options.limits
        return self.damage_scan_type(
            source, self.framing, container, limits, known, decoder=decoder, salvage=salvage
        )

    def frame_layout(self, data: bytes, start: int, options: Options) -> Iterator[Region]:
        """Yield the parts of one frame, which starts at this byte of the stream. `data` may be truncated."""
        del options
        head, tail = self.framing.head_bytes, self.framing.tail_bytes
        if head:
            yield Region(start, head, "head", data[:head].hex(" "))
        yield Region(start + head, max(len(data) - head - tail, 0), "payload", text_of(data[head:]))
        if tail:
            yield Region(start + len(data) - tail, tail, "tail", data[-tail:].hex(" "))

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.framing.regions import framed

        shard = self.shard(source, options)
        scan = self.damage_scan(source, options) if self.finds_next else None
        described = partial(self.frame_layout, options=options)
        return framed(shard, record, described, scan)

    def create_copy(self, sink: Sink, compression: str, threads: int) -> FramedWriter:
        """A writer that copies frames unchanged, into a file with the given compression."""
        if compression:
            message = f"{self.info.name} is not written with {compression}"
            raise UnsupportedError(message, file=sink.path)
        return FramedWriter(sink, RAW_SCHEMA, _encodes_nothing, threads)

    def end_of(self, source: Source, options: Options) -> Index:
        """The index of a file that is intact up to its last byte, so that records can be appended.

        Raises:
            FormatError: the file is damaged.
            UnsupportedError: such a file cannot be appended to.
        """
        index = self.open(source, options).index
        check_end(source, index, self.framing)
        return index


def _encodes_nothing(batch: pa.RecordBatch, first: int) -> _core.Framed:
    raise AssertionError(f"only frames are copied, not {batch.num_rows} records after {first}")
