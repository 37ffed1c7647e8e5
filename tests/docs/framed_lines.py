"""A framed format in a page: lines of text, each the payload of a frame of TFRecord's framing."""

import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection
from penstock.contract.decoder import Decoder, FrameCheck
from penstock.contract.format import FormatInfo, Options
from penstock.errors import SchemaError
from penstock.framing.format import FramedFormat
from penstock.framing.framings import TFRECORD
from penstock.framing.index.sidecar import Index
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import PlainStream
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Sink, Source


class LineDecoder(Decoder):
    schema = pa.schema([pa.field("line", pa.string(), nullable=False)])

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        indexed = None if proof is None else proof.indexed
        payloads = pa.array(frames.views(proof is not None, indexed)).cast(pa.binary())
        try:
            batch = pa.record_batch([payloads.cast(pa.string())], schema=self.schema)
        except pa.ArrowInvalid:
            raise SchemaError("a record is not UTF-8", field="line") from None
        return batch if columns is None else batch.select(columns)


def encoded(batch: pa.RecordBatch, first_record: int) -> _core.Framed:
    if batch.column("line").null_count:
        raise SchemaError("a file holds no nulls", field="line")
    return TFRECORD.frames([line.encode() for line in batch.column("line").to_pylist()])


class LinesFormat(FramedFormat):
    info = FormatInfo(
        "lines", (".tfl",), has_checksums=True, has_raw_records=True, may_be_empty=True
    )
    framing = TFRECORD

    def sniff(self, head: bytes, size: int) -> bool:
        start = _core.Buffer.from_bytes(head[: TFRECORD.head_bytes])
        return _core.next_head(TFRECORD.name, start, 0) is not None

    def shard(self, source: Source, options: Options) -> OpenShard:
        return OpenShard(source, PlainStream(source), TFRECORD, options)

    def decoder(self, shard: OpenShard, known: Index | None) -> LineDecoder:
        return LineDecoder()

    def create(self, sink: Sink, schema: pa.Schema, options: object, threads: int) -> FramedWriter:
        if schema.names != ["line"] or schema.field(0).type != pa.string():
            raise SchemaError("a file holds one column, line, of strings")
        return FramedWriter(sink, schema, encoded, threads)
