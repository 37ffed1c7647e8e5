"""A lawful format of one module, and the parts of it that tests of the laws replace: the magic TOY1, then for each
record its length and CRC-32 as uint32 and its payload."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.columns.selection import Projection, Selection
from penstock.contract.format import (
    Chunk,
    Format,
    FormatInfo,
    Options,
    Reader,
    SkippedRegion,
    Stretch,
    Writer,
)
from penstock.errors import ChecksumError, FormatError, SchemaError
from penstock.storage.base import Sink, Source

MAGIC = b"TOY1"
HEAD = struct.Struct("<II")
SCHEMA = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
CHUNK_RECORDS = 8


class ToyReader(Reader):
    def __init__(self, source: Source, options: Options) -> None:
        self.source = source
        self.schema = SCHEMA
        self.skips = options.damage == "skip"
        self.data = source.read(0, source.size).to_bytes()
        if self.data[:4] != MAGIC:
            raise FormatError("no TOY1 file", file=source.path, byte=0)
        self.starts, self.fault = [4], None
        while self.starts[-1] < len(self.data):
            start = self.starts[-1]
            size = HEAD.unpack_from(self.data, start)[0] if start + 8 <= len(self.data) else 1 << 32
            if start + 8 + size > len(self.data):
                self.fault = FormatError(
                    "a record is cut", file=source.path, record=len(self.starts) - 1, byte=start
                )
                break
            self.starts.append(start + 8 + size)

    @property
    def num_records(self) -> int:
        self.check_complete()
        return len(self.starts) - 1

    def check_complete(self) -> None:
        if self.fault is not None and not self.skips:
            raise self.fault

    def chunk(self, first: int) -> Chunk[None]:
        count = min(CHUNK_RECORDS, len(self.starts) - 1 - first)
        return Chunk(first, count, self.starts[first], self.starts[first + count])

    def chunks(self) -> Iterator[Chunk[None]]:
        yield from map(self.chunk, range(0, len(self.starts) - 1, CHUNK_RECORDS))
        self.check_complete()

    def found_by(self, threads: int) -> Iterator[Stretch]:
        yield from self.chunks()
        if self.fault is not None:
            end = len(self.data)
            yield SkippedRegion(self.source.path, self.starts[-1], end, None, str(self.fault))

    def payload(self, record: int) -> bytes:
        start = self.starts[record]
        payload = self.data[start + 8 : self.starts[record + 1]]
        if zlib.crc32(payload) != HEAD.unpack_from(self.data, start)[1]:
            raise ChecksumError("wrong CRC-32", file=self.source.path, record=record, byte=start)
        return payload

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        numbers = range(chunk.num_records) if records is None else records.tolist()
        values = [self.payload(chunk.first_record + number) for number in numbers]
        batch = pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA)
        return batch if columns is None else batch.select(columns)

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        for record in records.tolist():
            chunk = self.chunk(record // CHUNK_RECORDS * CHUNK_RECORDS)
            yield chunk, np.array([record - chunk.first_record])

    def close(self) -> None:
        self.source.close()


class ToyWriter(Writer):
    num_bytes = len(MAGIC)

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        if schema.names != ["payload"] or schema.field(0).type != pa.binary():
            raise SchemaError("TOY1 holds one column, payload, of binary", field=schema.names[0])
        self.sink = sink
        sink.write(MAGIC)

    def bytes_of(self, value: bytes | None) -> bytes:
        if value is None:
            raise SchemaError("TOY1 holds no nulls", field="payload")
        return value

    def write(self, batch: pa.RecordBatch) -> None:
        for value in batch.column(0).to_pylist():
            payload = self.bytes_of(value)
            data = HEAD.pack(len(payload), zlib.crc32(payload)) + payload
            self.sink.write(data)
            self.num_bytes += len(data)

    def close(self) -> None:
        pass


class ToyFormat(Format):
    info = FormatInfo("toy", (".toy",), lossless=False, has_checksums=True)
    reader: ClassVar[Any] = ToyReader
    writer: ClassVar[Any] = ToyWriter

    def sniff(self, head: bytes, size: int) -> bool:
        return head[:4] == MAGIC

    def open(self, source: Source, options: Options) -> Reader:
        return self.reader(source, options)

    def create(self, sink: Sink, schema: pa.Schema, options: object, threads: int) -> Writer:
        return self.writer(sink, schema)
