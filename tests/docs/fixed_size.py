"""A format in a page: records of one size after b"FIXD" and that size as uint32, little endian."""

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Format, FormatInfo, Options, Reader, Writer
from penstock.errors import FormatError, SchemaError, TruncatedError
from penstock.storage.base import Sink, Source

HEAD = struct.Struct("<4sI")
CHUNK_RECORDS = 4096


class FixedSizeReader(Reader):
    def __init__(self, source: Source) -> None:
        self.source = source
        if source.size < HEAD.size:
            raise TruncatedError("the header is truncated", file=source.path, byte=source.size)
        magic, self._size = HEAD.unpack(source.read(0, HEAD.size).to_bytes())
        if magic != b"FIXD" or not self._size:
            raise FormatError("no header of this format", file=source.path, byte=0)
        self._num_records, rest = divmod(source.size - HEAD.size, self._size)
        if rest:
            message, byte = "the last record is truncated", source.size - rest
            raise TruncatedError(message, file=source.path, record=self._num_records, byte=byte)
        self.schema = pa.schema([pa.field("record", pa.binary(self._size), nullable=False)])

    @property
    def num_records(self) -> int:
        return self._num_records

    def chunks(self) -> Iterator[Chunk[None]]:
        for number in range(-(-self.num_records // CHUNK_RECORDS)):
            yield self._chunk(number)

    def _chunk(self, number: int) -> Chunk[None]:
        first = number * CHUNK_RECORDS
        last = min(first + CHUNK_RECORDS, self.num_records)
        start, end = (HEAD.size + edge * self._size for edge in (first, last))
        return Chunk(first, last - first, start, end)

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        data = self.source.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
        type_ = self.schema.field("record").type
        array = pa.Array.from_buffers(type_, chunk.num_records, [None, pa.py_buffer(data)])
        batch = pa.record_batch([array], schema=self.schema)
        batch = batch if columns is None else batch.select(columns)
        return batch if records is None else batch.take(pa.array(records))

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        chunks = records // CHUNK_RECORDS
        for run in np.split(records, np.flatnonzero(np.diff(chunks)) + 1):
            if len(run):
                chunk = self._chunk(int(run[0]) // CHUNK_RECORDS)
                yield chunk, run - chunk.first_record

    def close(self) -> None:
        self.source.close()


class FixedSizeWriter(Writer):
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._sink = sink
        if schema.names != ["record"] or not pa.types.is_fixed_size_binary(schema.field(0).type):
            message = "a file holds one column, record, of byte strings of one size"
            raise SchemaError(message, field=schema.names[0] if schema.names else None)
        size = schema.field("record").type.byte_width
        sink.write(HEAD.pack(b"FIXD", size))
        self._num_bytes = HEAD.size

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.column("record").null_count:
            raise SchemaError("a file holds no nulls", field="record")
        data = b"".join(batch.column("record").to_pylist())
        self._sink.write(data)
        self._num_bytes += len(data)

    def close(self) -> None:
        pass


class FixedSizeFormat(Format):
    info = FormatInfo("fixedsize", (".fixd",), lossless=False)  # columns come back as not nullable

    def sniff(self, head: bytes, size: int) -> bool:
        return head[:4] == b"FIXD"

    def open(self, source: Source, options: Options) -> FixedSizeReader:
        return FixedSizeReader(source)

    def create(
        self, sink: Sink, schema: pa.Schema, options: object, threads: int
    ) -> FixedSizeWriter:
        return FixedSizeWriter(sink, schema)
