"""TFRecord: a concatenation of framed payloads, usually tf.train.Example, often gzipped whole.

```
offset  size  field
0       8     length        uint64 LE, payload bytes
8       4     length_crc    masked CRC-32C of the 8 length bytes
12      L     payload
12+L    4     data_crc      masked CRC-32C of the payload
```

There is no file header, footer or count. A file may be compressed as a whole, with gzip (any number
of members) or zlib; its name says nothing about that. Source: TensorFlow's record_writer.h and
record_reader.cc, and the published observations of what tf.data accepts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError, UnsupportedError
from penstock.format import FormatInfo, Options, Projection, Reader, Writer, options_from
from penstock.formats.tfrecord_index import build_index, load_index
from penstock.formats.tfrecord_raw import (
    FRAMING,
    RAW_SCHEMA,
    RawDecoder,
    given,
    without_columns,
)
from penstock.framing import sidecar
from penstock.framing.framed import FramedReader, Proof
from penstock.framing.inflated import InflatedStream, PlainStream, Stream
from penstock.framing.sidecar import Index
from penstock.schema import (
    INFERRED_KEY,
    NO_RECORDS,
    DecodePlan,
    FieldPlan,
    infer_schema,
    looks_like_examples,
    merge_facts,
    plan_fields,
)
from penstock.storage import Sink, Source

if TYPE_CHECKING:
    from penstock.framing.survey import Survey


@dataclass(frozen=True, slots=True)
class TFRecordOptions:
    """How to read TFRecord.

    compression: "gzip", "zlib" or "" to say it instead of looking; None looks at the bytes.
    infer_records: how many records of a shard to look at for a schema, or "all".
    """

    compression: str | None = None
    infer_records: int | str = 1000


class TFRecordFormat:
    """See penstock.format.Format."""

    info = FormatInfo(
        "tfrecord",
        (".tfrecord", ".tfrecords", ".tfrec", ".tfr"),
        can_append=True,
        lossless=False,
        has_checksums=True,
    )
    read_options = TFRecordOptions

    @property
    def write_options(self) -> type:
        from penstock.formats.tfrecord_writer import TFRecordWriteOptions

        return TFRecordWriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return compression_of(head) is not None and (_frame_head(head) or _inflates_to_frames(head))

    def open(self, source: Source, options: Options) -> Reader:
        mine = options_from(TFRecordOptions, options.format_options, "tfrecord")
        compression = _compression(source, mine)
        plain = not compression
        stream: Stream = PlainStream(source) if plain else InflatedStream(source, compression)
        known = load_index(source, options)
        if known is not None and isinstance(stream, InflatedStream):
            stream.learn(known)

        def build() -> Index:
            index = build_index(source, stream, compression, options)
            if isinstance(stream, InflatedStream):
                stream.learn(index)
            return index

        decoder = decoder_for(source, stream, options, mine)
        return FramedReader(source, stream, FRAMING, options, decoder, build, known)

    def survey(
        self, source: Source, options: Options, *, payloads: bool = False, salvage: bool = False
    ) -> Survey:
        """A reading of the file that goes on after damage and tells all of it."""
        from penstock.framing.survey import Survey

        mine = options_from(TFRecordOptions, options.format_options, "tfrecord")
        compression = _compression(source, mine)
        known = load_index(source, options)
        return Survey(
            source, FRAMING, compression, options.limits, known, payloads=payloads, salvage=salvage
        )

    def end_of(self, source: Source, options: Options) -> Index:
        """The index of a file that is whole to its last byte, so that records may follow.

        Raises:
            FormatError: it is not.
            UnsupportedError: nothing can follow in a file of this kind.
        """
        from penstock.formats.tfrecord_end import check_end

        mine = options_from(TFRecordOptions, options.format_options, "tfrecord")
        compression = _compression(source, mine)
        if compression == "zlib":
            raise UnsupportedError(
                "a ZLIB file is one stream, and nothing can follow its end",
                file=source.path,
                hint="a new shard beside it, or penstock convert to gzip, which can be appended to",
            )
        reader: Any = self.open(source, options)
        index: Index = reader.index
        check_end(source, index)
        return index

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.tfrecord_writer import TFRecordWriter

        return TFRecordWriter(sink, schema, options, threads)


def _compression(source: Source, mine: TFRecordOptions) -> str:
    """What the caller says of the compression, or the bytes."""
    if mine.compression not in ("", "gzip", "zlib", None):
        raise ValueError(f"unknown compression {mine.compression!r}; known: '', 'gzip', 'zlib'")
    if mine.compression is not None:
        return mine.compression
    return compression_of(source.read(0, 64).to_bytes()) or ""


def _frame_head(head: bytes) -> bool:
    buffer = _core.Buffer.from_bytes(head[:12])
    return len(buffer) == 12 and _core.next_head(FRAMING, buffer, 0) is not None


def _inflates_to_frames(head: bytes) -> bool:
    """Whether the start of a compressed file inflates to the head of a frame."""
    container = compression_of(head)
    if not container:
        return False
    inflater = _core.Inflater(container, 0)
    try:
        data = _core.Buffer.from_bytes(head)
        plain = b""
        while len(plain) < 12 and not inflater.finished:
            part, consumed = inflater.push(data, False, 12 - len(plain))
            if not len(part) and not consumed:
                break
            plain += part.to_bytes()
            data = data.slice(consumed, len(data))
    except _core.KernelError:
        return False
    return not plain if inflater.finished and not plain else _frame_head(plain)


def compression_of(head: bytes) -> str | None:
    """The compression, "", "gzip" or "zlib", told by the bytes; None where no TFRecord starts like this.

    Structure first: a first frame whose length happens to spell a magic number (35,615 bytes spell
    gzip's) still has a right length checksum, and no compressed file does.
    """
    if not head or _frame_head(head):
        return ""
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if len(head) >= 2 and head[0] == 0x78 and (head[0] * 256 + head[1]) % 31 == 0:
        return "zlib"
    return None


# -- payloads -------------------------------------------------------------------------------------


class ExampleDecoder:
    """Payloads as tf.train.Example or SequenceExample."""

    def __init__(self, fields: Sequence[FieldPlan], dialect: str, metadata: Any = None) -> None:
        self._fields = {plan.field.name: plan for plan in fields}
        self._dialect = dialect
        self._plans: dict[tuple[str, ...] | None, DecodePlan] = {None: DecodePlan(fields, dialect)}
        self.schema = self._plans[None].schema.with_metadata(metadata)

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: Proof | None = None
    ) -> pa.RecordBatch:
        wanted = None if columns is None else tuple(columns)
        if wanted == ():
            return without_columns(frames, proof)
        plan = self._plans.get(wanted)
        if plan is None:
            assert wanted is not None
            plan = DecodePlan([self._fields[name] for name in wanted], self._dialect)
            self._plans[wanted] = plan
        return plan.decode(frames, *given(proof))


def decoder_for(source: Source, stream: Stream, options: Options, mine: TFRecordOptions) -> Any:
    """The decoder that the caller's schema asks for, or that the payloads suggest."""
    schema = options.schema
    if options.raw:
        return RawDecoder()
    if isinstance(schema, pa.Schema):
        if schema.names == ["record"] and _is_bytes(schema.field(0).type):
            return RawDecoder(schema)
        return ExampleDecoder(plan_fields(schema), options.dialect, schema.metadata)
    if isinstance(schema, dict):
        from penstock.features import plans as feature_plans

        plans = feature_plans.plan_fields(schema, options.dialect)
        return ExampleDecoder(plans, feature_plans.kernel_dialect(schema, options.dialect))
    if schema is not None:
        from penstock.messages import MessageDecoder

        return MessageDecoder(schema)
    facts, seen = sample(source, stream, options, mine.infer_records)
    if not facts["num_records"]:
        return RawDecoder(RAW_SCHEMA.with_metadata({INFERRED_KEY: NO_RECORDS}))
    if not looks_like_examples(facts):
        return RawDecoder()
    try:
        inferred = infer_schema(facts, seen)
    except SchemaError as error:
        raise error.at(file=source.path) from None
    return ExampleDecoder(plan_fields(inferred), options.dialect, inferred.metadata)


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or type_ == pa.binary_view())


SAMPLE_BYTES = 4 << 20


def sample(
    source: Source, stream: Stream, options: Options, infer_records: int | str
) -> tuple[dict[str, Any], str]:
    """Facts about the first records of a shard (or all), and words for how many.

    Damage is passed over here: it is reported when the records are read.
    """
    everything = infer_records == "all"
    left = None if everything else int(infer_records)
    parts: list[dict[str, Any]] = []
    reader = FramedReader(
        source,
        stream,
        FRAMING,
        _quiet(options),
        RawDecoder(),
        lambda: build_index(source, stream, "", options),
        None,
    )
    done = False
    seen_bytes = 0
    for chunk in reader.chunks():
        frames = reader.frames(chunk)
        bad = frames.verify(None)
        if bad:
            wrong = np.array([fault.record for fault in bad], dtype=np.int64)
            keep = np.setdiff1d(np.arange(len(frames)), wrong)
            frames = frames.select(sidecar.as_uint64(keep))
        if left is not None:
            frames = frames[:left]
            left -= len(frames)
        parts.append(frames.infer())
        seen_bytes += chunk.end_byte - chunk.start_byte
        if left is not None and (left <= 0 or seen_bytes >= SAMPLE_BYTES):
            done = True
            break
    facts = merge_facts(parts)
    name = os.path.basename(source.path)
    extent = "the first" if done else "all"
    return facts, f"{extent} {facts['num_records']} records of {name}"


def _quiet(options: Options) -> Options:
    # A file whose first records are lost is still to be read as what the later ones are.
    damage = "skip" if options.damage in ("skip", "salvage") else "stop"
    return Options(damage=damage, index="never", limits=options.limits, raw=True)
