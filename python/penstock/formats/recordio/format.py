"""RecordIO: MXNet's `.rec` files. A record is a payload in one or more parts, each of which begins with a magic number.

```
offset  size  field
0       4     magic         0xced7230a, LE
4       4     flag, length  3 bits (0 whole, 1 first part, 2 middle, 3 last), 29 bits, LE
8       L     payload, or a piece of it
8+L     0..3  zeros up to a multiple of four
```

There is no file header, footer, count or checksum. If a payload has the magic at a multiple of four bytes, it is split
there into parts, which leave out these four bytes. In a pack of images (made by im2rec) each payload is

```
0       4     flag          the number of labels after this header; 0 if the label is in the header
4       4     label         float32
8       8     id
16      8     id2
24      4     labels        float32, as many as the flag says
..            the bytes of an image file
```

Source: dmlc-core's recordio.h, and what MXNet 1.9.1 was observed to accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.columns import kept_names
from penstock.columns.inferred import InferredFrom, file_name
from penstock.columns.lending import lent_schema
from penstock.columns.numbers import checked_infer
from penstock.columns.selection import Projection
from penstock.columns.types import ImageType, storage_of
from penstock.contract.decoder import Decoder, FrameCheck
from penstock.contract.format import FormatInfo, Options, Writer
from penstock.contract.regions import Region
from penstock.errors import FormatError, SchemaError
from penstock.formats.recordio._layout import DATA, PACK, RECORD
from penstock.formats.recordio._mxnet_index import MXNetIndex
from penstock.framing.format import FramedFormat
from penstock.framing.framings import RECORDIO
from penstock.framing.index import kept_schema
from penstock.framing.index.sidecar import Index
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import SAMPLE_BYTES, sample_chunks
from penstock.framing.read.raw import given, without_columns
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import PlainStream
from penstock.framing.write.writer import FramedWriter
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import Sink, Source

MAGIC = b"\x0a\x23\xd7\xce"
HEADER_BYTES = 24


@dataclass(frozen=True, slots=True)
class RecordIOOptions:
    """How to read RecordIO.

    header: whether payloads begin with the header of an image pack. None decides by the first records: the file is a
        pack if each record has a whole header with its labels, followed by a JPEG, PNG, WebP or PPM file or by nothing.
    label: "scalar" for one number per record, "list" for lists. None decides by the first records: one number, lists
        of one length, or lists.
    infer_records: how many records of a shard count as its first records, or "all".
    """

    header: bool | None = None
    label: str | None = None
    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)
        if self.label not in (None, "scalar", "list"):
            raise ValueError(f"unknown label {self.label!r}; known: None, 'scalar', 'list'")
        if self.header not in (None, True, False):
            raise ValueError(f"header must be True, False or None, not {self.header!r}")


class RecordIOFormat(FramedFormat):
    """MXNet's RecordIO: packs of images with labels, or any bytes."""

    info = FormatInfo(
        "recordio",
        (".rec", ".recordio"),
        holds_decimals=False,
        only_appends=True,
        may_be_empty=True,
        can_append=True,
        can_map=True,
        takes_views=True,
        lossless=False,
        loses_dtypes=True,
        holds_images=True,
        holds_text=False,
        has_raw_records=True,
        holds_structs=False,
    )
    read_options = RecordIOOptions
    class_numbers = pa.float32()
    framing = RECORDIO
    text_index = MXNetIndex()

    @property
    def write_options(self) -> type:
        from penstock.formats.recordio.writer import RecordIOWriteOptions

        return RecordIOWriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        # A file that begins in the middle of a record is accepted: it is damaged RecordIO.
        return head.startswith(MAGIC) and (len(head) < 8 or head[7] >> 5 < 4)

    def shard(self, source: Source, options: Options) -> OpenShard:
        return OpenShard(source, PlainStream(source), RECORDIO, options)

    def raw_decoder(self) -> Decoder:
        return RecordIODecoder(_one_column(RECORD, pa.binary_view()))

    def decoder(self, shard: OpenShard, known: Index | None) -> Decoder:
        return _decoder_for(shard, self.own_options(shard.options))

    def checking(self, shard: OpenShard) -> Decoder | None:
        options = replace(shard.options, damage="skip")
        try:
            return _decoder_for(
                replace(shard, options=options), self.own_options(options)
            ).lending()
        except (SchemaError, FormatError):
            return None

    def create_copy(self, sink: Sink, compression: str, threads: int) -> FramedWriter:
        from penstock.formats.recordio.writer import RecordIOWriteOptions, RecordIOWriter

        schema = pa.schema([(RECORD, pa.binary())])
        return RecordIOWriter(sink, schema, RecordIOWriteOptions(), threads)

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        if is_raw(schema):
            return None
        fields = [kept_schema.with_numbers(field, self.class_numbers) for field in schema]
        if "label" in schema.names:  # a pack always has ids
            ids = {"id", "id2"} - set(schema.names)
            fields += [pa.field(name, pa.uint64()) for name in ids]
            fields.sort(key=lambda field: PACK.index(field.name))
        return pa.schema(fields if options.exact else map(kept_schema.without_doubles, fields))

    def frame_layout(self, data: bytes, start: int, options: Options) -> Iterator[Region]:
        from penstock.formats.recordio._regions import record_parts

        return record_parts(data, start)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.recordio._regions import index_line

        yield from index_line(source, record, options)
        yield from super().layout(source, record, options)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.recordio.writer import RecordIOWriter

        return RecordIOWriter(sink, schema, options, threads)


# -- payloads -------------------------------------------------------------------------------------


class RecordIODecoder(Decoder):
    """Decodes frames to whole payloads, or to the columns of a pack of images.

    Args:
        schema: some of the columns label, id, id2 and image; or one column of whole payloads.
        num_labels: the length of each list of labels. 0 means one number, None means lists of any length.
    """

    def __init__(self, schema: pa.Schema, num_labels: int | None = 0) -> None:
        self.schema = schema
        self._is_pack = not {DATA, RECORD} & set(schema.names)
        self._num_labels = num_labels
        # Views save a copy, but pyarrow supports few operations on them, so a caller must ask for them.
        self._gives_views = any(storage_of(field.type) == pa.binary_view() for field in schema)

    def lending(self) -> RecordIODecoder:
        return RecordIODecoder(lent_schema(self.schema), self._num_labels)

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        names = self.schema.names if columns is None else list(columns)
        if not names:
            return without_columns(frames, proof)
        arrays: dict[str, pa.Array] = {}
        if self._is_pack:
            arrays = self._pack(frames, [name for name in names if name in PACK], proof)
        else:
            payloads = _core.recordio_payloads(frames, self._gives_views, *given(proof))
            arrays = dict.fromkeys((DATA, RECORD), pa.array(payloads))
        fields = [self.schema.field(name) for name in names]
        # If the file lacks a column, an overlay added that column to other shards.
        made = [
            _converted(arrays[field.name], field)
            if field.name in arrays
            else pa.nulls(len(frames), field.type)
            for field in fields
        ]
        schema = pa.schema(fields, metadata=self.schema.metadata)
        return pa.RecordBatch.from_arrays(made, schema=schema)

    def _pack(
        self, frames: _core.Frames, names: list[str], proof: FrameCheck | None
    ) -> dict[str, pa.Array]:
        try:
            found = _core.recordio_columns(
                frames, names, self._num_labels, self._gives_views, *given(proof)
            )
        except _core.KernelError as error:
            fault = error.args[0]
            if fault.kind != "schema":
                raise
            if fault.field:  # the number of labels differs
                kind, hint = SchemaError, 'open(..., label="list")'
            else:  # the header is truncated
                kind = FormatError
                hint = 'open(..., damage="skip") leaves such records out, header=False gives whole payloads'
            raise kind(
                fault.message,
                record=fault.record,
                field=fault.field,
                byte=fault.byte,
                expected=fault.expected,
                found=fault.found,
                hint=hint,
            ) from None
        batch = pa.record_batch(found)
        return dict(zip(batch.schema.names, batch.columns, strict=True))


def _converted(array: pa.Array, wanted: pa.Field) -> pa.Array:
    if kept_names.names_of(wanted) is not None:
        return kept_names.as_labels(array, wanted)
    try:
        stored = array.cast(storage_of(wanted.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        hint = "give a schema with types that can hold the values"
        raise SchemaError(f"does not fit: {error}", field=wanted.name, hint=hint) from None
    if stored.type == wanted.type:
        return stored
    return pa.ExtensionArray.from_storage(wanted.type, stored)


def _decoder_for(shard: OpenShard, mine: RecordIOOptions) -> RecordIODecoder:
    schema = shard.options.schema
    if schema is not None:
        return RecordIODecoder(schema, _num_labels(_checked(schema, mine), mine))
    sample = _sample(shard, None if mine.infer_records == "all" else int(mine.infer_records))
    metadata = InferredFrom(
        sample.num_records, sample.is_all, file_name(shard.source.path)
    ).metadata
    is_pack = sample.is_pack if mine.header is None else mine.header
    if not is_pack:
        return RecordIODecoder(_one_column(DATA, pa.binary()).with_metadata(metadata))
    num_labels = {"scalar": 0, "list": None, None: sample.num_labels}[mine.label]
    label = {0: pa.float32(), None: pa.list_(pa.float32())}.get(num_labels)
    types = {
        "label": label or pa.list_(pa.float32(), num_labels),
        "id": pa.uint64(),
        "id2": pa.uint64(),
        "image": sample.image_type,
    }
    fields = [pa.field(name, type_, nullable=False) for name, type_ in types.items()]
    return RecordIODecoder(pa.schema(fields, metadata=metadata), num_labels)


def _one_column(name: str, type_: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=False)])


def _checked(schema: pa.Schema, mine: RecordIOOptions) -> pa.Schema:
    """Return the caller's schema. Raise SchemaError if RecordIO cannot have its columns."""
    kinds = {True: [PACK], False: [(DATA,), (RECORD,)]}
    allowed = kinds[True] + kinds[False] if mine.header is None else kinds[mine.header]
    # A nullable field may be missing from this file: an overlay may have added it to other shards.
    needed = {field.name for field in schema if not field.nullable}
    needed |= {name for some in allowed for name in some if name in schema.names}
    if len(set(schema.names)) < len(schema) or not any(needed <= set(some) for some in allowed):
        listed = "; or ".join(", ".join(some) for some in allowed)
        message = f"RecordIO cannot have these columns together: {', '.join(schema.names)}"
        raise SchemaError(message, hint=f"use {listed}")
    return schema


def _num_labels(schema: pa.Schema, mine: RecordIOOptions) -> int | None:
    """Return the num_labels of RecordIODecoder for a schema."""
    if "label" not in schema.names:
        return None if mine.label == "list" else 0
    type_ = storage_of(schema.field("label").type)
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size
    return None if pa.types.is_nested(type_) else 0


# -- inference -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sample:
    """Facts about the first records."""

    num_records: int = 0
    num_headers: int = 0
    """The number of records with a whole header and its labels."""
    flags: set[int] = field(default_factory=set)
    codecs: Counter[str] = field(default_factory=Counter)
    """The codecs of the images, "" if unknown. Empty images do not count."""
    is_all: bool = True

    @property
    def is_pack(self) -> bool:
        whole = self.num_headers == self.num_records
        return whole and bool(self.codecs) and "" not in self.codecs

    @property
    def num_labels(self) -> int | None:
        return next(iter(self.flags)) if len(self.flags) == 1 else None if self.flags else 0

    @property
    def image_type(self) -> pa.DataType:
        if not self.codecs or "" in self.codecs:
            return pa.binary()
        return ImageType(next(iter(self.codecs)) if len(self.codecs) == 1 else "")

    def add(self, payload: bytes) -> None:
        self.num_records += 1
        flag = int.from_bytes(payload[:4], "little")
        start = HEADER_BYTES + 4 * flag
        if len(payload) < start:
            return
        self.num_headers += 1
        self.flags.add(flag)
        if len(payload) > start:
            self.codecs[_codec(payload[start : start + 12])] += 1


def _codec(head: bytes) -> str:
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    return "ppm" if head[:3] in (b"P6\n", b"P5\n") else ""


def _sample(shard: OpenShard, most: int | None) -> _Sample:
    """Sample the first `most` records, or all. Sampling ignores damage, which is reported when the records are read."""
    damage = "skip" if shard.options.damage == "skip" else "stop"
    options = Options(damage=damage, index="never", limits=shard.options.limits, raw=True)
    sample = _Sample()
    num_bytes = 0
    for payload in _payloads(replace(shard, options=options)):
        if most is not None and (sample.num_records >= most or num_bytes > SAMPLE_BYTES):
            sample.is_all = False
            break
        sample.add(payload)
        num_bytes += len(payload)
    return sample


def _payloads(shard: OpenShard) -> Iterator[bytes]:
    chunk_frames = ChunkFrames(shard)
    for chunk in sample_chunks(shard):
        frames = chunk_frames.read(chunk, None).frames
        views: Sequence[Any] = pa.array(_core.recordio_payloads(frames, True))
        for view in views:
            yield view.as_py()
