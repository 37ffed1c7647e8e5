"""A framed format in a page: lines of text, each the payload of a frame of TFRecord's framing."""

import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection
from penstock.contract.decoder import Proof
from penstock.contract.format import FormatInfo, NoOptions, Options
from penstock.errors import SchemaError
from penstock.framing.framings import TFRECORD
from penstock.framing.index.indexing import load_index
from penstock.framing.read.framed import FramedReader
from penstock.framing.read.shard import Shard
from penstock.framing.streams.stream import PlainStream
from penstock.storage.base import Sink, Source


class LineDecoder:
    schema = pa.schema([pa.field("line", pa.string(), nullable=False)])

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: Proof | None = None
    ) -> pa.RecordBatch:
        indexed = None if proof is None else proof.indexed
        payloads = pa.array(frames.views(proof is not None, indexed)).cast(pa.binary())
        try:
            batch = pa.record_batch([payloads.cast(pa.string())], schema=self.schema)
        except pa.ArrowInvalid:
            raise SchemaError("a record is no UTF-8", field="line") from None
        return batch if columns is None else batch.select(columns)


class LineWriter:
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        if schema.names != ["line"] or schema.field(0).type != pa.string():
            raise SchemaError("a file holds one column, line, of strings")
        self._sink = sink
        self.num_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        lines = [line.encode() for line in batch.column("line").to_pylist()]
        data = TFRECORD.frames(lines).data.to_bytes()
        self._sink.write(data)
        self.num_bytes += len(data)

    def close(self) -> None:
        pass


class LinesFormat:
    info = FormatInfo("lines", (".tfl",), has_checksums=True)
    read_options = write_options = NoOptions

    def sniff(self, head: bytes, size: int) -> bool:
        start = _core.Buffer.from_bytes(head[: TFRECORD.head_bytes])
        return _core.next_head(TFRECORD.name, start, 0) is not None

    def open(self, source: Source, options: Options) -> FramedReader:
        shard = Shard(source, PlainStream(source), TFRECORD, options)
        return FramedReader(shard, LineDecoder(), load_index(shard))

    def create(self, sink: Sink, schema: pa.Schema, options: object, threads: int) -> LineWriter:
        return LineWriter(sink, schema)
