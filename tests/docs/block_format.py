"""A format of blocks in a page. b"BLK1" comes first. Each block is b"BLCK", its number of records, the CRC-32 of its data
and the length of its data, as uint32, and then the data: a zlib stream of the length (uint32) and the bytes of each
record. At the end is an index: b"INDX", the offset (uint64) and the number of records (uint64) of each block, and a tail
with the offset of the index (uint64), its CRC-32 (uint32) and b"TAIL"."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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
    check_record,
)
from penstock.contract.regions import Region
from penstock.errors import ChecksumError, FormatError, SchemaError, TruncatedError
from penstock.storage.base import Sink, Source

MAGIC, INDEX = b"BLK1", b"INDX"
HEAD = struct.Struct("<4sIII")
ENTRY = struct.Struct("<QQ")
TAIL = struct.Struct("<QI4s")
SCHEMA = pa.schema({"note": pa.binary()})


class BlockReader(Reader):
    def __init__(self, source: Source, options: Options) -> None:
        self.source, self.schema = source, SCHEMA
        self._skips = options.damage != "error"
        self._most_bytes = options.limits.batch_bytes
        if source.read(0, len(MAGIC)).to_bytes() != MAGIC:
            raise FormatError("this is not a file of blocks", file=source.path, byte=0)
        self._index_fault: FormatError | None = None  # the blocks are all there, their index is not
        self._fault: FormatError | None = None  # no block can be found after the last chunk
        self._chunks: list[Chunk[None]] = []
        try:
            self._read_index()
        except FormatError as error:
            self._index_fault = error
            self._find_blocks()
        self.firsts = np.array([chunk.first_record for chunk in self._chunks])

    def _add(self, start: int, end: int, num_records: int) -> None:
        last = self._chunks[-1] if self._chunks else Chunk(0, 0, 0, 0)
        self._chunks.append(Chunk(last.first_record + last.num_records, num_records, start, end))

    def _read_index(self) -> None:
        """Take the blocks from the index at the end of the file."""
        source, at = self.source, self.source.size - TAIL.size
        tail = source.read(max(at, 0), TAIL.size).to_bytes()
        if tail[-4:] != b"TAIL" or len(tail) < TAIL.size:
            raise TruncatedError("the index is missing", file=source.path, byte=source.size)
        self.index, stored, _ = TAIL.unpack(tail)
        data = source.read(self.index, at - self.index).to_bytes() if self.index < at else b""
        if data[:4] != INDEX or zlib.crc32(data) != stored:
            raise ChecksumError("the CRC-32 of the index is wrong", file=source.path, byte=at)
        blocks = list(ENTRY.iter_unpack(data[4:]))
        ends = [start for start, _ in blocks[1:]] + [self.index]
        for (start, num_records), end in zip(blocks, ends, strict=False):
            self._add(start, end, num_records)

    def _find_blocks(self) -> None:
        """Walk from block to block, because the index cannot be read."""
        at, source = len(MAGIC), self.source
        while True:
            head = source.read(at, HEAD.size).to_bytes()
            if head[:4] == INDEX:
                self.index = at
                return
            if len(head) < HEAD.size:
                self._fault = TruncatedError("the file is cut", file=source.path, byte=at)
                return
            magic, num_records, _, length = HEAD.unpack(head)
            end = at + HEAD.size + length
            if magic != b"BLCK" or end > source.size:
                message = "no whole block begins here"
                self._fault = FormatError(message, file=source.path, byte=at)
                return
            self._add(at, end, num_records)
            at = end

    @property
    def num_records(self) -> int:
        if self._fault is not None and not self._skips:
            raise self._fault
        return sum(chunk.num_records for chunk in self._chunks)

    @property
    def compression(self) -> str:
        return "zlib"

    def chunks(self) -> Iterator[Chunk[None]]:
        yield from self._chunks
        if self._fault is not None:
            raise self._fault

    def found_by(self, threads: int) -> Iterator[Stretch]:
        yield from self._chunks
        if self._fault is not None:
            if not self._skips:
                raise self._fault
            start, end = self._fault.byte or 0, self.source.size
            yield SkippedRegion(self.source.path, start, end, None, self._fault.message)

    def checks(self) -> Iterable[Callable[[], None]]:
        def check_index() -> None:
            if self._index_fault is not None and self._fault is None:
                raise self._index_fault

        yield check_index

    def compares(self, chunk: Chunk[None] | None) -> bool:
        return True

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        data, at = self._inflated(chunk), 0
        values: list[bytes] = []
        while at < len(data):
            length = int.from_bytes(data[at : at + 4], "little")
            values.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        if at != len(data) or len(values) != chunk.num_records:
            raise self._lost("a block does not hold the records that it claims", chunk)
        batch = pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA)
        batch = batch if columns is None else batch.select(columns)
        return batch if records is None else batch.take(pa.array(records))

    def _inflated(self, chunk: Chunk[None]) -> bytes:
        block = self.source.read(chunk.start_byte, chunk.end_byte - chunk.start_byte).to_bytes()
        if len(block) < HEAD.size:
            raise self._lost("a block is cut", chunk)
        magic, num_records, stored, length = HEAD.unpack_from(block)
        if (magic, num_records, length) != (b"BLCK", chunk.num_records, len(block) - HEAD.size):
            raise self._lost("the head of a block differs from the index", chunk)
        if zlib.crc32(block[HEAD.size :]) != stored:
            raise self._lost("the CRC-32 of a block is wrong", chunk)
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(block[HEAD.size :], self._most_bytes)
        except zlib.error as error:
            raise self._lost(f"a block cannot be inflated: {error}", chunk) from None
        if not inflate.eof:
            raise self._lost("a block is cut, or inflates to more than the limit", chunk)
        return data

    def _lost(self, message: str, chunk: Chunk[None]) -> FormatError:
        """All records of the block are lost, so the error names no record."""
        return ChecksumError(message, file=self.source.path, byte=chunk.start_byte)

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        blocks = np.searchsorted(self.firsts, records, "right") - 1
        for part in np.split(np.arange(len(records)), np.flatnonzero(np.diff(blocks)) + 1):
            if len(part):  # neighbours in the request that are in the same block
                chunk = self._chunks[int(blocks[part[0]])]
                yield chunk, records[part] - chunk.first_record

    def close(self) -> None:
        self.source.close()


@dataclass(frozen=True)
class BlockOptions:
    block_records: int = 256
    level: int = 6

    def __post_init__(self) -> None:
        if self.block_records < 1 or not 0 <= self.level <= 9:
            raise ValueError("block_records is 1 or more, and level is 0 to 9")


class BlockWriter(Writer):
    def __init__(self, sink: Sink, schema: pa.Schema, options: BlockOptions) -> None:
        if schema.names != ["note"] or schema.field(0).type != pa.binary():
            raise SchemaError("a file holds one column, note, of binary", field=schema.names[0])
        self._sink, self._options = sink, options
        self._blocks: list[tuple[int, int]] = []
        self._waiting: list[bytes] = []
        self._at = 0
        self._put(MAGIC)

    @property
    def num_bytes(self) -> int:
        return self._at

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self._at += len(data)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.column(0).null_count:
            raise SchemaError("a file holds no nulls", field="note")
        for value in batch.column(0).to_pylist():
            self._waiting.append(value)
            if len(self._waiting) == self._options.block_records:
                self._put_block()

    def _put_block(self) -> None:
        raw = b"".join(len(value).to_bytes(4, "little") + value for value in self._waiting)
        data = zlib.compress(raw, self._options.level)
        self._blocks.append((self._at, len(self._waiting)))
        self._put(HEAD.pack(b"BLCK", len(self._waiting), zlib.crc32(data), len(data)) + data)
        self._waiting = []

    def close(self) -> None:
        if self._waiting:
            self._put_block()
        index = INDEX + b"".join(ENTRY.pack(*block) for block in self._blocks)
        self._put(index + TAIL.pack(self._at, zlib.crc32(index), b"TAIL"))


class BlockFormat(Format):
    info = FormatInfo(
        "blocks",
        (".blk",),
        compressions=("zlib",),
        has_checksums=True,
        checksums="CRC-32 of each block",
    )
    write_options = BlockOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return head[: len(MAGIC)] == MAGIC[:size]

    def open(self, source: Source, options: Options) -> BlockReader:
        return BlockReader(source, options)

    def create(
        self, sink: Sink, schema: pa.Schema, options: BlockOptions, threads: int
    ) -> BlockWriter:
        return BlockWriter(sink, schema, options)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        reader = self.open(source, options)
        yield Region(0, len(MAGIC), "magic", MAGIC.decode())
        num_records = 0
        for chunk in reader.chunks():
            start, length = chunk.start_byte, chunk.end_byte - chunk.start_byte
            num_records = chunk.first_record + chunk.num_records
            head = Region(start, HEAD.size, "head", f"{chunk.num_records} records")
            data = Region(start + HEAD.size, length - HEAD.size, "data", note="zlib")
            name = f"block with records {chunk.first_record} to {num_records - 1}"
            yield Region(start, length, name, children=(head, data))
        yield Region(reader.index, source.size - reader.index, "index")
        check_record(record, num_records)
