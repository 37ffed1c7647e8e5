"""TFRecord: a concatenation of framed payloads, usually tf.train.Example, often gzipped whole.

```
offset  size  field
0       8     length        uint64 LE, payload bytes
8       4     length_crc    masked CRC-32C of the 8 length bytes
12      L     payload
12+L    4     data_crc      masked CRC-32C of the payload
```

There is no file header, footer or count. A whole file may be compressed with gzip (any number of members) or zlib; the
file name does not show it. Source: TensorFlow's record_writer.h and record_reader.cc, and published observations of
what tf.data accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.inferred import InferredFrom, file_name
from penstock.columns.numbers import checked_infer
from penstock.columns.selection import Projection
from penstock.columns.types import is_list
from penstock.contract.decoder import Decoder, FrameCheck, Places
from penstock.contract.format import Chunk, FormatInfo, Options, Writer
from penstock.contract.options import options_from
from penstock.contract.regions import Region
from penstock.errors import SchemaError, UnsupportedError
from penstock.formats.tfrecord._dali_index import DaliIndex
from penstock.framing.format import FramedFormat
from penstock.framing.framings import TFRECORD, UNCHECKED_TFRECORD
from penstock.framing.index import kept_schema, sidecar
from penstock.framing.index.sidecar import Index
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import SAMPLE_BYTES, indexed_chunks, sample_chunks
from penstock.framing.read.raw import (
    RAW_SCHEMA,
    RawDecoder,
    given,
    without_columns,
)
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.inflated import InflatedStream
from penstock.framing.streams.stream import PlainStream, Stream
from penstock.framing.write.writer import FramedWriter
from penstock.payloads.example.inference import infer_schema, looks_like_examples, merge_facts
from penstock.payloads.example.plans import (
    IN_LISTS_KEY,
    RECORD,
    WIRE_KEY,
    DecodePlan,
    FieldPlan,
    is_raw,
    lent,
    plan_fields,
)
from penstock.payloads.example.sequence_parts import (
    check_parts,
    names_of_parts,
    part_and_key,
    with_parts,
    without_values,
)
from penstock.storage.base import Sink, Source

_HEAD_BYTES = 4096
"""How many bytes are read to detect the compression. They suffice to inflate the head of the first frame."""


@dataclass(frozen=True, slots=True)
class TFRecordOptions:
    """How to read TFRecord.

    compression: "gzip", "zlib" or "" (none); None detects it from the content.
    infer_records: how many records of a shard are read to infer a schema, or "all".
    """

    compression: str | None = None
    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)
        if isinstance(self.compression, str):
            # TensorFlow spells the names in capitals.
            object.__setattr__(self, "compression", self.compression.lower())


class TFRecordFormat(FramedFormat):
    """Files of TFRecord frames: tf.train.Examples, SequenceExamples or any bytes."""

    info = FormatInfo(
        "tfrecord",
        (".tfrecord", ".tfrecords", ".tfrec", ".tfr"),
        holds_decimals=False,
        only_appends=True,
        may_be_empty=True,
        can_append=True,
        can_map=True,
        compressions=("gzip", "zlib"),
        takes_views=True,
        loses_dtypes=True,
        lossless=False,
        has_checksums=True,
        checksums="CRC-32C of each record",
        has_raw_records=True,
        holds_examples=True,
        holds_text=False,
        takes_descriptions=True,
        holds_structs=False,
    )
    read_options = TFRecordOptions
    framing = TFRECORD
    text_index = DaliIndex()

    @property
    def write_options(self) -> type:
        from penstock.formats.tfrecord.writer import TFRecordWriteOptions

        return TFRecordWriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        container = compression_of(head)
        if not container:
            return _frame_head(head)
        return _inflates_to_frames(head, container)

    def shard(self, source: Source, options: Options) -> OpenShard:
        mine = self.own_options(options)
        compression = _compression(source, mine)
        stream: Stream = InflatedStream(source, compression) if compression else PlainStream(source)
        framing = UNCHECKED_TFRECORD if options.checksums == "none" else TFRECORD
        return OpenShard(source, stream, framing, options)

    def decoder(self, shard: OpenShard, known: Index | None) -> Decoder:
        mine, path = self.own_options(shard.options), shard.source.path
        return decoder_of(shard.options, path, lambda: sample(shard, mine.infer_records, known))

    def checking(self, shard: OpenShard) -> Decoder | None:
        """None if `open` would not decode payloads as Examples. With infer_records="all", this samples only 1000
        records."""
        mine = self.own_options(shard.options)
        num_records = 1000 if mine.infer_records == "all" else mine.infer_records
        # Sampling stops at damage, which the damage scan reports.
        facts, seen = sample(_looking(shard, "stop"), num_records)
        if not looks_like_examples(facts):
            return None
        try:
            fields = plan_fields(infer_schema(facts, seen, shard.options.named))
        except SchemaError:
            fields = []  # the records fit no common schema, but each can still be checked
        return ExampleDecoder(fields, shard.options.dialect).lending()

    def frame_layout(self, data: bytes, start: int, options: Options) -> Iterator[Region]:
        from penstock.formats.tfrecord._regions import frame

        return frame(data, start)

    def create_copy(self, sink: Sink, compression: str, threads: int) -> FramedWriter:
        from penstock.formats.tfrecord.writer import TFRecordWriter

        given = {"compression": compression or None, "payload": "raw"}
        options = options_from(self.write_options, given, "tfrecord")
        return TFRecordWriter(sink, pa.schema([("record", pa.binary())]), options, threads)

    def end_of(self, source: Source, options: Options) -> Index:
        if _compression(source, self.own_options(options)) == "zlib":
            raise UnsupportedError(
                "a zlib file is one stream, so nothing can be appended to it",
                file=source.path,
                hint="write a new shard, or use penstock convert to make a gzip file, which can be appended to",
            )
        return super().end_of(source, options)

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        if is_raw(schema) or options.payload not in (None, "example"):
            return None
        fields = [told for field in schema for told in _told(field)]
        leaves = [leaf.name for leaf in kept_schema.flattened(fields)]
        if len(set(leaves)) < len(leaves):
            return None  # a struct's field and a column have the same name
        return pa.schema(fields if options.exact else map(kept_schema.without_doubles, fields))

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.tfrecord.writer import TFRecordWriter

        return TFRecordWriter(sink, schema, options, threads)


def _compression(source: Source, mine: TFRecordOptions) -> str:
    if mine.compression not in ("", "gzip", "zlib", None):
        raise ValueError(f"unknown compression {mine.compression!r}; known: '', 'gzip', 'zlib'")
    if mine.compression is not None:
        return mine.compression
    return compression_in(source)


def _frame_head(head: bytes) -> bool:
    buffer = _core.Buffer.from_bytes(head[: TFRECORD.head_bytes])
    return (
        len(buffer) == TFRECORD.head_bytes and _core.next_head(TFRECORD.name, buffer, 0) is not None
    )


def _inflates_to_frames(head: bytes, container: str) -> bool:
    """Whether the start of a compressed file inflates to the head of a frame."""
    inflater = _core.Inflater(container, 0)
    is_whole = len(head) < _HEAD_BYTES
    try:
        data = _core.Buffer.from_bytes(head)
        plain = b""
        while len(plain) < TFRECORD.head_bytes and not inflater.finished:
            part, consumed = inflater.push(data, is_whole, TFRECORD.head_bytes - len(plain))
            if not len(part) and not consumed:
                break
            plain += part.to_bytes()
            data = data.slice(consumed, len(data))
    except _core.KernelError:
        return False
    return (inflater.finished and not plain) or _frame_head(plain)


def compression_in(source: Source) -> str:
    """Return the compression of a TFRecord file, detected from its content: "", "gzip" or "zlib"."""
    return compression_of(source.read(0, _HEAD_BYTES).to_bytes()) or ""


def compression_of(head: bytes) -> str | None:
    """Return the compression shown by a file's first bytes: "", "gzip" or "zlib"; None if it is not a TFRecord file.

    The first frame is checked before the magic numbers, because the length of a frame can look like one: 35,615 bytes
    are stored as gzip's magic number. Only a real frame has a correct checksum of its length.
    """
    if not head or _frame_head(head):
        return ""
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if len(head) < 2 or head[0] & 0x8F != 8 or (head[0] * 256 + head[1]) % 31:
        return None
    # Nearly all zlib files declare the largest window (0x78). Another value is more likely a
    # damaged frame, so try to inflate the content.
    return "zlib" if head[0] == 0x78 or _inflates_to_frames(head, "zlib") else None


# -- payloads -------------------------------------------------------------------------------------


class ExampleDecoder(Decoder):
    """Decodes payloads that are tf.train.Example or SequenceExample messages."""

    def __init__(
        self,
        fields: Sequence[FieldPlan],
        dialect: str,
        metadata: Any = None,
        *,
        complete: bool = False,
        given: bool = False,
    ) -> None:
        self._fields = {plan.field.name: plan for plan in fields}
        self._given = given and dialect == "protobuf"
        self._dialect = dialect
        self._complete = complete
        every = DecodePlan(fields, dialect, complete=complete)
        self._plans: dict[tuple[str, ...] | None, DecodePlan] = {None: every}
        self.schema = self._plans[None].schema.with_metadata(metadata)

    @property
    def row_bytes(self) -> dict[str, int]:
        plans = self._fields.items()
        return {name: sum(wire.row_bytes for wire in plan.wires) for name, plan in plans}

    def noticing(self) -> ExampleDecoder:
        fields, metadata = list(self._fields.values()), self.schema.metadata
        return ExampleDecoder(fields, self._dialect, metadata, complete=True, given=self._given)

    def lending(self) -> ExampleDecoder:
        fields = [lent(plan) for plan in self._fields.values()]
        metadata, given = self.schema.metadata, self._given
        complete = self._complete
        return ExampleDecoder(fields, self._dialect, metadata, complete=complete, given=given)

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        if columns is not None and not columns:
            return without_columns(frames, proof)
        batch = self._plan(columns).decode(frames, *given(proof))
        if self._given:
            check_parts(batch, self._fields, frames)
        return batch

    def decode_at(
        self, places: Callable[[], Places | None], records: np.ndarray, columns: Projection
    ) -> pa.RecordBatch | None:
        found = None if columns is not None and not columns else places()
        if found is None:
            return None
        batch = self._plan(columns).decode_at(found, records)
        if batch is not None and self._given and without_values(batch, self._fields):
            return None  # `decode` then finds out whether the records are wrong
        return batch

    def _plan(self, columns: Projection) -> DecodePlan:
        wanted = None if columns is None else tuple(columns)
        plan = self._plans.get(wanted)
        if plan is None:
            assert wanted is not None
            complete = self._complete and set(wanted) >= self._fields.keys()
            fields = [self._fields[name] for name in wanted]
            plan = DecodePlan(fields, self._dialect, complete=complete)
            self._plans[wanted] = plan
        return plan


def decoder_of(
    options: Options, path: str, look: Callable[[], tuple[dict[str, Any], InferredFrom]]
) -> Any:
    """Return a decoder for the caller's schema, or for a schema inferred from the payloads. Any format whose payloads
    may be Examples can call it. `look` returns what `sample` returns."""
    schema = options.schema
    if options.raw:
        return RawDecoder()
    if isinstance(schema, pa.Schema):
        if is_raw(schema):
            return RawDecoder(schema)
        is_given = InferredFrom.of(schema) is None
        fields = plan_fields(
            with_parts(schema, lambda: look()[0]) if is_given else schema,
            convert=is_given and options.dialect == "protobuf",
        )
        return ExampleDecoder(
            fields, options.dialect, schema.metadata, complete=options.complete, given=is_given
        )
    if isinstance(schema, dict):
        from penstock.features import plans as feature_plans

        parts = names_of_parts(schema, lambda: look()[0])
        plans = feature_plans.plan_fields(schema, options.dialect, parts)
        dialect = feature_plans.kernel_dialect(schema, options.dialect)
        return ExampleDecoder(plans, dialect, given=True)
    if schema is not None:
        from penstock.payloads.protobuf import MessageDecoder

        return MessageDecoder(schema)
    facts, seen = look()
    if not looks_like_examples(facts):
        return RawDecoder(RAW_SCHEMA.with_metadata(seen.metadata))
    try:
        inferred = infer_schema(facts, seen, options.named)
    except SchemaError as error:
        raise error.at(file=path) from None
    fields = plan_fields(inferred)
    return ExampleDecoder(fields, options.dialect, inferred.metadata, complete=options.complete)


def sample(
    shard: OpenShard, infer_records: int | str, known: Index | None = None
) -> tuple[dict[str, Any], InferredFrom]:
    """Return facts about the first records of a shard (or all records), and how many records were read.

    Sampling skips damage, which is reported when the records are read. With infer_records="all" and damage="error",
    damage raises an error here, because every record is read.
    """
    options = shard.options
    if options.damage == "error" and infer_records == "all":
        looking = _looking(shard, "error", options.checksums)
        return _facts(looking, sample_chunks(looking), infer_records)
    # With damage="skip", continue after damage, so that later records can give the schema.
    reads_on = options.damage == "skip"
    looking = _looking(shard, "skip" if reads_on else "stop", options.checksums)
    facts, seen = _facts(looking, sample_chunks(looking), infer_records)
    if seen.num_records or reads_on or (known is None and options.damage == "error"):
        return facts, seen
    looking = _looking(shard, "skip", options.checksums)
    chunks = sample_chunks(looking) if known is None else indexed_chunks(known)
    return _facts(looking, chunks, infer_records)


def _looking(shard: OpenShard, damage: str, checksums: str = "all") -> OpenShard:
    """Return the shard with options for sampling: raw records, no index."""
    limits = shard.options.limits
    options = Options(damage=damage, checksums=checksums, index="never", limits=limits, raw=True)
    return replace(shard, options=options)


def _facts(
    shard: OpenShard, chunks: Iterator[Chunk[Any]], infer_records: int | str
) -> tuple[dict[str, Any], InferredFrom]:
    everything = infer_records == "all"
    left = None if everything else int(infer_records)
    parts: list[dict[str, Any]] = []
    chunk_frames = ChunkFrames(shard)
    done = False
    seen_bytes = 0
    for chunk in chunks:
        held = chunk_frames.read(chunk, None)
        frames = held.frames
        bad = frames.verify(None) if shard.verifies else []
        if bad and shard.options.damage == "error":
            raise chunk_frames.located(bad[0], held, chunk)
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
    name = file_name(shard.source.path)
    return facts, InferredFrom(facts["num_records"], not done, name)


def _told(field: pa.Field) -> list[pa.Field]:
    """Return the fields that read back for a written field. A struct stays one field, unless it is part of a
    SequenceExample."""
    leaves = kept_schema.flattened([field])
    is_part = part_and_key(field.name) is not None or WIRE_KEY in (field.metadata or {})
    if pa.types.is_struct(field.type) and leaves and not is_part:
        return [kept_schema.as_struct(field)]
    return [_told_as_list(leaf) for leaf in leaves]


def _told_as_list(field: pa.Field) -> pa.Field:
    """Return a field as inference would return it. Metadata marks a list of lists as a feature list of
    SequenceExamples, and a feature called `record` as different from a raw record."""
    if field.name == RECORD:
        return field.with_metadata({**(field.metadata or {}), WIRE_KEY: RECORD.encode()})
    if not (is_list(field.type) and is_list(field.type.value_type)):
        return field
    return field.with_metadata({**(field.metadata or {}), IN_LISTS_KEY: b"1"})
