"""A format that does not store the positions of its records: the magic LOG1, then for each record its length and CRC-32
as uint32 and its payload. It keeps an index, and records can be added to its files."""

from __future__ import annotations

import struct
import zlib
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Format, FormatInfo, Options, Reader, Writer
from penstock.errors import ChecksumError, FormatError, SchemaError, TruncatedError
from penstock.framing.read.positioned import PositionedReader
from penstock.storage.base import Sink, Source

MAGIC = b"LOG1"
HEAD = struct.Struct("<II")
SCHEMA = pa.schema([pa.field("payload", pa.binary(), nullable=False)])


class LogReader(PositionedReader):
    schema = SCHEMA

    def find(self, starts: list[int]) -> int:
        at, size = 4, self.source.size
        if self.source.read(0, 4).to_bytes() != MAGIC:
            raise FormatError("no LOG1 file", byte=0)
        while at < size:
            head = self.source.read(at, HEAD.size).to_bytes()
            end = at + HEAD.size + (HEAD.unpack(head)[0] if len(head) == HEAD.size else size)
            if end > size:
                raise TruncatedError("the last record is cut", byte=at)
            starts.append(at)
            at = end
        return at

    def payload(self, frame: memoryview) -> bytes:
        length, stored = HEAD.unpack_from(frame)
        if length != len(frame) - HEAD.size:
            raise FormatError("the length is not that in the index")
        found = zlib.crc32(frame[HEAD.size :])
        if found != stored:
            raise ChecksumError("wrong CRC-32", found=found)
        return bytes(frame[HEAD.size :])

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        values = self.parsed(chunk, records, self.payload)
        batch = pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA)
        return batch if columns is None else batch.select(columns)


class LogWriter(Writer):
    def __init__(self, sink: Sink, schema: pa.Schema, start: int, old: int = 0) -> None:
        if schema.names != ["payload"] or schema.field(0).type != pa.binary():
            raise SchemaError("LOG1 holds one column, payload, of binary", field=schema.names[0])
        self.sink = sink
        self.starts, self.old_bytes = [start], old

    @property
    def num_bytes(self) -> int:
        return self.starts[-1] - self.old_bytes

    @property
    def positions(self) -> np.ndarray:
        return np.array(self.starts)

    def write(self, batch: pa.RecordBatch) -> None:
        for payload in batch.column(0).to_pylist():
            if payload is None:
                raise SchemaError("LOG1 holds no nulls", field="payload")
            self.sink.write(HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
            self.starts.append(self.starts[-1] + HEAD.size + len(payload))

    def close(self) -> None:
        pass


class LogFormat(Format):
    info = FormatInfo(
        "log",
        (".log1",),
        can_append=True,
        lossless=False,
        has_checksums=True,
        checksums="CRC-32 of each record",
        keeps_positions=True,
        loses_one=True,
    )
    reader: ClassVar[Any] = LogReader
    writer: ClassVar[Any] = LogWriter

    def sniff(self, head: bytes, size: int) -> bool:
        return head[:4] == MAGIC

    def open(self, source: Source, options: Options) -> Reader:
        return self.reader(self.info, source, options)

    def create(self, sink: Sink, schema: pa.Schema, options: object, threads: int) -> Writer:
        sink.write(MAGIC)
        return self.writer(sink, schema, len(MAGIC))

    def extend(
        self, source: Source, sink: Sink, schema: pa.Schema, options: Any, threads: int
    ) -> Writer:
        return self.writer(sink, schema, source.size, source.size)
