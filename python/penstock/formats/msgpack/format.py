"""MessagePack: consecutive values, each of which is a record; or one array, whose elements are the records.

```
first byte                       value
00..7f, e0..ff                   integer of 7 bits; negative one of 5 bits
80..8f, de, df                   map: count (4 bits, u16, u32), then this many keys and values
90..9f, dc, dd                   array: count, then this many values
a0..bf, d9, da, db               str: length (5 bits, u8, u16, u32), then UTF-8
c0, c2, c3                       nil, false, true
c4, c5, c6                       bin: length (u8, u16, u32), then bytes
c7, c8, c9                       ext: length (u8, u16, u32), type i8, then bytes
ca, cb                           float 32, float 64
cc..cf, d0..d3                   integer of 8, 16, 32, 64 bits: unsigned, signed
d4..d8                           ext of 1, 2, 4, 8, 16 bytes: type i8, then bytes
c1                               never used
```

All numbers are big-endian. There is no file header, no count and no mark between records. Finding a record takes an
index, or reading all values before it. Source: the MessagePack specification, and msgpack-numpy for arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from penstock import _core
from penstock.columns.inferred import INFERRED_KEY, InferredFrom, file_name
from penstock.columns.numbers import checked_infer
from penstock.columns.selection import Projection
from penstock.columns.types import is_bytes
from penstock.contract.decoder import Decoder, FrameCheck
from penstock.contract.format import Chunk, FormatInfo, Options, Stretch, Writer
from penstock.contract.regions import Region
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError, TruncatedError
from penstock.formats.msgpack.columns import FieldPlan, inferred_field, plan_reading
from penstock.framing.format import FramedFormat
from penstock.framing.framings import MSGPACK
from penstock.framing.index.fitting import ends_whole
from penstock.framing.index.indexing import load_index
from penstock.framing.index.sidecar import Index
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import SAMPLE_BYTES, sample_chunks
from penstock.framing.read.framed import FramedReader
from penstock.framing.read.raw import RAW_SCHEMA, RawDecoder, given, without_columns
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import PlainStream
from penstock.limits import Limits
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import Sink, Source


@dataclass(frozen=True, slots=True)
class MessagePackOptions:
    """How to read MessagePack.

    layout: with "values", each top-level value is a record. With "array", the file is one array, and its elements are
        the records. "auto" means "array" if the file is an array whose first element is a map, else "values".
    infer_records: how many records of a shard are read to infer a schema, or "all".
    """

    layout: Literal["auto", "values", "array"] = "auto"
    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)
        if self.layout not in ("auto", "values", "array"):
            raise ValueError(f"unknown layout {self.layout!r}; known: 'auto', 'values', 'array'")


class MessagePackFormat(FramedFormat):
    """Files of MessagePack maps, one after another or in one array."""

    info = FormatInfo(
        "msgpack",
        (".msgpack", ".mpk", ".mp"),
        holds_decimals=False,
        only_appends=True,
        may_be_empty=True,
        can_append=True,
        can_map=True,
        lossless=False,
        loses_dtypes=True,
        has_raw_records=True,
    )
    read_options = MessagePackOptions
    framing = MSGPACK
    finds_next = False

    @property
    def write_options(self) -> type:
        from penstock.formats.msgpack.writer import MessagePackWriteOptions

        return MessagePackWriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether the file starts with several maps of the same fields. There is no magic number, so other files are
        recognized only by their names."""
        begin, count = _array_head(head)
        if (begin and not count) or not _begins_map(head, begin):
            return False
        buffer = _core.Buffer.from_bytes(head[begin:])
        frames, consumed, _, fault = _core.walk(MSGPACK.name, buffer, 0, len(head), False)
        whole = begin + consumed == size or len(head) < size
        return fault is None and whole and _core.looks_like_maps(frames)

    def shard(self, source: Source, options: Options) -> OpenShard:
        mine = self.own_options(options)
        skips = options.damage == "skip"
        if skips:
            # Nearly every byte can begin a value, so only an index shows where a record begins after damage.
            options = replace(options, damage="stop")
        begin, _ = _layout(source, mine)
        return OpenShard(source, PlainStream(source), MSGPACK, options, begin, skips_long=skips)

    def decoder(self, shard: OpenShard, known: Index | None) -> Decoder:
        mine = self.own_options(shard.options)
        return decoder_for(shard, mine)

    def open(self, source: Source, options: Options) -> FramedReader:
        shard = self.shard(source, options)
        known = load_index(shard)
        if shard.skips_long and known is not None:
            shard = replace(shard, options=replace(shard.options, damage="skip"))
        decoder = self.raw_decoder() if options.raw else self.decoder(shard, known)
        if shard.begin:
            count = _array_head(source.read(0, 6).to_bytes())[1]
            return ArrayReader(shard, decoder, known, count)
        return FramedReader(shard, decoder, known)

    def frame_layout(self, data: bytes, start: int, options: Options) -> Iterator[Region]:
        from penstock.formats.msgpack._regions import value_parts

        return value_parts(data, start, options.limits)

    def end_of(self, source: Source, options: Options) -> Index:
        reader = self.open(source, options)
        if isinstance(reader, ArrayReader):
            raise FormatError(
                "the file is one array, and records after its end would not belong to it",
                file=source.path,
                hint="write a new shard, or use penstock convert to make a file of consecutive maps",
            )
        index = reader.index
        if index.num_records and not ends_whole(index, source, MSGPACK):
            message = "the last record is damaged, so nothing can be appended to the file"
            raise FormatError(message, file=source.path)
        return index

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        del options
        return None if is_raw(schema) else schema

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.msgpack.writer import MessagePackWriter

        return MessagePackWriter(sink, schema, options, threads)


# -- one array ------------------------------------------------------------------------------------


class ArrayReader(FramedReader):
    """Reads a file that is one array. Raises an error if the array's count is not the number of elements found."""

    def __init__(self, shard: OpenShard, decoder: Any, known: Index | None, count: int) -> None:
        super().__init__(shard, decoder, known)
        self._count = count
        self._stops = shard.options.damage != "error"

    @property
    def index(self) -> Index:
        index = super().index
        self._compare(index.num_records, at_end=True)
        return index

    def found_by(self, threads: int) -> Iterator[Stretch]:
        seen = 0
        for found in self.found():
            if isinstance(found, Chunk):
                seen = found.first_record + found.num_records
                self._compare(seen, at_end=False)
            yield found
        if self.on_long is None:
            self._compare(seen, at_end=True)  # with `on_long`, overlong records are in no chunk

    def _compare(self, found: int, *, at_end: bool) -> None:
        facts: dict[str, Any] = {"file": self.source.path, "expected": self._count, "found": found}
        if found > self._count:
            raise FormatError(
                "other values follow the array at the start of the file",
                hint='open(..., layout="values") reads each top-level value as a record',
                **facts,
            )
        if at_end and found < self._count and not self._stops:
            raise TruncatedError("the array declares more elements than there are", **facts)


def _layout(source: Source, mine: MessagePackOptions) -> tuple[int, int]:
    """Return where the first record starts, and the array's count if the file is an array."""
    if mine.layout == "values":
        return 0, 0
    head = source.read(0, 6).to_bytes()
    begin, count = _array_head(head)
    if mine.layout == "array":
        if not begin:
            raise FormatError("the file does not begin with an array", file=source.path, byte=0)
    elif not (begin and _begins_map(head, begin)):
        return 0, 0
    if count > source.size - begin:
        message = "the array declares more elements than there are bytes"
        left = source.size - begin
        raise TruncatedError(message, file=source.path, byte=0, expected=count, found=left)
    return begin, count


def _array_head(head: bytes) -> tuple[int, int]:
    """Return the size in bytes of an array's head (0 if there is none), and the array's count."""
    first = head[0] if head else 0
    if 0x90 <= first <= 0x9F:
        return 1, first & 15
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    if not width or len(head) <= width:
        return 0, 0
    return 1 + width, int.from_bytes(head[1 : 1 + width], "big")


def _begins_map(head: bytes, at: int) -> bool:
    return head[at : at + 1] != b"" and (0x80 <= head[at] <= 0x8F or head[at] in (0xDE, 0xDF))


# -- records --------------------------------------------------------------------------------------


_BLANK_SHARE = 8
"""The nulls of a batch, which take no bytes in the file, may take this fraction (1/8) of `limits.batch_bytes`."""


class MapDecoder(Decoder):
    """Decodes maps to columns."""

    def __init__(
        self,
        fields: Sequence[FieldPlan],
        limits: Limits,
        metadata: Any = None,
        *,
        complete: bool = False,
    ) -> None:
        self._complete = complete
        self._fields = {plan.field.name: plan for plan in fields}
        self._limits = limits
        self._kernels: dict[tuple[str, ...], _core.MsgpackPlan] = {}
        self.schema = pa.schema([plan.field for plan in fields], metadata=metadata)
        self._kernel(tuple(self.schema.names))

    def noticing(self) -> MapDecoder:
        fields, metadata = list(self._fields.values()), self.schema.metadata
        return MapDecoder(fields, self._limits, metadata, complete=True)

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        names = tuple(self.schema.names if columns is None else columns)
        if not names:
            return without_columns(frames, proof)
        found = pa.record_batch(self._kernel(names).decode(frames, *given(proof)))
        plans = [self._fields[name] for name in names]
        arrays = [plan.convert(found.column(n)) for n, plan in enumerate(plans)]
        metadata = self.schema.metadata if columns is None else None
        schema = pa.schema([plan.field for plan in plans], metadata=metadata)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _kernel(self, names: tuple[str, ...]) -> _core.MsgpackPlan:
        plan = self._kernels.get(names)
        if plan is None:
            schema = pa.schema([self._fields[name].kernel for name in names])
            empty = [pa.nulls(0, type_) for type_ in schema.types]
            columns = pa.RecordBatch.from_arrays(empty, schema=schema)
            limits = self._limits
            blanks = limits.batch_bytes // _BLANK_SHARE
            complete = self._complete and set(names) >= self._fields.keys()
            plan = _core.MsgpackPlan(columns, limits.nesting, blanks, complete)
            self._kernels[names] = plan
        return plan


def decoder_for(shard: OpenShard, mine: MessagePackOptions) -> Any:
    """Return the decoder for the caller's schema, or for an inferred one."""
    options = shard.options
    schema = options.schema
    if schema is None:
        return _inferred(shard, mine)
    if schema.names == ["record"] and is_bytes(schema.field(0).type):
        return RawDecoder(schema)
    return _maps([*schema], options.limits, schema.metadata, shard)


def _maps(
    fields: Sequence[pa.Field], limits: Limits, metadata: Any, shard: OpenShard
) -> MapDecoder:
    try:
        # No user chose the types of an inferred schema, so values must fit them exactly.
        exact = INFERRED_KEY in (metadata or {})
        plans = [plan_reading(field, exact=exact) for field in fields]
        return MapDecoder(plans, limits, metadata, complete=shard.options.complete)
    except _core.KernelError as error:
        raise shard.error(error.args[0], None) from None
    except SchemaError as error:
        raise error.at(file=shard.source.path) from None


def _inferred(shard: OpenShard, mine: MessagePackOptions) -> Any:
    facts, is_all = _sample(shard, mine.infer_records)
    if not facts.num_records:
        return RawDecoder(RAW_SCHEMA.with_metadata(InferredFrom(0).metadata))
    name = file_name(shard.source.path)
    metadata = InferredFrom(facts.num_records, is_all, name).metadata
    columns = facts.columns()
    if columns is None:
        return RawDecoder(RAW_SCHEMA.with_metadata(metadata))
    fields = [inferred_field(field) for field in pa.record_batch(columns).schema]
    try:
        return _maps(fields, shard.options.limits, metadata, shard)
    except SchemaError:
        # The types nest deeper than Arrow or the kernels support.
        return RawDecoder(RAW_SCHEMA.with_metadata(metadata))


def _sample(shard: OpenShard, infer_records: int | str) -> tuple[_core.MsgpackFacts, bool]:
    """Return facts about the first records (or all), and whether these are all. Damage ends the sample without an
    error."""
    everything = infer_records == "all"
    left = 0 if everything else int(infer_records)
    limits = shard.options.limits
    quiet = Options(damage="stop", index="never", limits=limits, raw=True)
    shard = replace(shard, options=quiet)
    chunk_frames = ChunkFrames(shard)
    facts = _core.MsgpackFacts()
    seen_bytes = 0
    for chunk in sample_chunks(shard):
        if not everything and (left <= 0 or seen_bytes >= SAMPLE_BYTES):
            return facts, False
        frames = chunk_frames.read(chunk, None).frames
        is_part = not everything and len(frames) > left
        try:
            facts.see(frames[:left] if is_part else frames, limits.nesting)
        except _core.KernelError as error:
            fault = error.args[0]
            raise _deep(shard.error(fault, chunk.first_record + (fault.record or 0))) from None
        left -= len(frames)
        seen_bytes += chunk.end_byte - chunk.start_byte
        if is_part:
            return facts, False
    return facts, True


def _deep(error: PenstockError) -> PenstockError:
    if isinstance(error, LimitError):
        error.hint = "open(..., limits={'nesting': ...}), or raw=True"
    return error
