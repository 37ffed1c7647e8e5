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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core, sidecar
from penstock.errors import FormatError, SchemaError, StaleIndexError
from penstock.faults import error_from
from penstock.format import FormatInfo, Options, Projection, Reader, Writer, options_from
from penstock.framed import FramedReader
from penstock.inflated import (
    POINT_BYTES,
    Forward,
    InflatedStream,
    Inflation,
    PlainStream,
    Stream,
)
from penstock.schema import (
    DecodePlan,
    FieldPlan,
    infer_schema,
    looks_like_examples,
    merge_facts,
    plan_fields,
)
from penstock.sidecar import Index, SeekPoint
from penstock.storage import LocalSource, LocalStorage, Sink, Source

FRAMING = "tfrecord"
RAW_SCHEMA = pa.schema([pa.field("record", pa.binary_view(), nullable=False)])


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
        return compression_of(head) is not None and (
            _frame_head(head) or _inflates_to_frames(head)
        )

    def open(self, source: Source, options: Options) -> Reader:
        mine = options_from(TFRecordOptions, options.format_options, "tfrecord")
        compression = mine.compression
        if compression is None:
            compression = compression_of(source.read(0, 64).to_bytes())
        if compression not in ("", "gzip", "zlib", None):
            raise ValueError(f"unknown compression {compression!r}; known: '', 'gzip', 'zlib'")
        compression = compression or ""
        plain = not compression
        stream: Stream = PlainStream(source) if plain else InflatedStream(source, compression)
        known = _load_index(source, options)
        if known is not None and isinstance(stream, InflatedStream):
            stream.learn(known)

        def build() -> Index:
            index = build_index(source, stream, compression, options)
            if isinstance(stream, InflatedStream):
                stream.learn(index)
            return index

        decoder = decoder_for(source, stream, options, mine)
        return FramedReader(source, stream, FRAMING, options, decoder, build, known)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.tfrecord_writer import TFRecordWriter

        return TFRecordWriter(sink, schema, options, threads)


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
    """"" | "gzip" | "zlib", told by the bytes; None where no TFRecord starts like this.

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


class RawDecoder:
    """Payloads as they are: one column of views into the bytes read."""

    def __init__(self, schema: pa.Schema = RAW_SCHEMA) -> None:
        self.schema = schema

    def decode(self, frames: _core.Frames, columns: Projection) -> pa.RecordBatch:
        if columns is not None and "record" not in columns:
            return _without_columns(len(frames))
        array = pa.array(frames.views())
        if array.type != self.schema.field(0).type:
            array = array.cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([array], schema=self.schema)


class ExampleDecoder:
    """Payloads as tf.train.Example or SequenceExample."""

    def __init__(self, fields: Sequence[FieldPlan], dialect: str, metadata: Any = None) -> None:
        self._fields = {plan.field.name: plan for plan in fields}
        self._dialect = dialect
        self._plans: dict[tuple[str, ...] | None, DecodePlan] = {None: DecodePlan(fields, dialect)}
        self.schema = self._plans[None].schema.with_metadata(metadata)

    def decode(self, frames: _core.Frames, columns: Projection) -> pa.RecordBatch:
        wanted = None if columns is None else tuple(columns)
        if wanted == ():
            return _without_columns(len(frames))
        plan = self._plans.get(wanted)
        if plan is None:
            assert wanted is not None
            plan = DecodePlan([self._fields[name] for name in wanted], self._dialect)
            self._plans[wanted] = plan
        return plan.decode(frames)


def _without_columns(num_records: int) -> pa.RecordBatch:
    empty = pa.array([{}] * num_records, pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)


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
        from penstock import features

        return ExampleDecoder(features.plan_fields(schema, options.dialect), options.dialect)
    if schema is not None:
        from penstock.messages import MessageDecoder

        return MessageDecoder(schema)
    facts, seen = sample(source, stream, options, mine.infer_records)
    if not looks_like_examples(facts):
        return RawDecoder()
    try:
        inferred = infer_schema(facts, seen)
    except SchemaError as error:
        raise error.at(file=source.path) from None
    return ExampleDecoder(plan_fields(inferred), options.dialect, inferred.metadata)


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(type_) or types.is_large_binary(type_) or type_ == pa.binary_view()
    )


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
        frames = chunk.data[0]
        bad = frames.verify(None)
        if bad:
            keep = np.setdiff1d(np.arange(len(frames)), [fault.record for fault in bad])
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
    return Options(damage="stop", index="never", limits=options.limits, raw=True)


# -- the index ------------------------------------------------------------------------------------


def _load_index(source: Source, options: Options) -> Index | None:
    """The sidecar of a file, if there is one and it fits."""
    if options.index == "never":
        return None
    storage = LocalStorage()
    explicit = options.index != "auto"
    folders = [options.index] if explicit else [None, sidecar.cache_folder()]
    for folder in folders:
        path = sidecar.path_for(source.path, folder)
        try:
            index = sidecar.load(path, storage)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except StaleIndexError:
            continue
        if sidecar.fits(index, source, FRAMING):
            return index
    return None


def build_index(
    source: Source, stream: Stream, compression: str, options: Options, keep: bool = True
) -> Index:
    """Find all records of a file, and keep what was found in a sidecar.

    A plain local file is read by its heads alone. A file with damage raises its error, unless the
    damage is to be passed over; then the index lists the records that are delivered, and is not
    kept, since it says nothing about the file as it was meant to be.
    """
    if compression:
        index, whole = _index_compressed(source, stream, compression, options)
    elif isinstance(source, LocalSource):
        index, whole = _index_plain(source, stream, options)
    else:
        index, whole = _index_by_walking(source, stream, options)
    if whole and keep and options.index != "never":
        save_index(index, source.path, None if options.index == "auto" else options.index)
    return index


def save_index(index: Index, data_path: str, folder: str | None) -> str | None:
    """Keep an index beside its file, or in the user's cache where that folder is not writable."""
    storage = LocalStorage()
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        return sidecar.save(index, data_path, storage, folder)
    try:
        return sidecar.save(index, data_path, storage)
    except OSError:
        cache = sidecar.cache_folder()
        try:
            os.makedirs(cache, exist_ok=True)
            return sidecar.save(index, data_path, storage, cache)
        except OSError:
            return None  # an index is a convenience: it can be made again


def _index_plain(source: LocalSource, stream: Stream, options: Options) -> tuple[Index, bool]:
    limit = options.limits.record_bytes
    starts, checksums, fault = _core.index_file(FRAMING, source.file, limit)
    if fault is not None:
        if options.damage == "error":
            raise error_from(fault, file=source.path, record=fault.record)
        return _index_by_walking(source, stream, options)
    found = pa.array(starts).to_numpy()
    return _index(source, found, pa.array(checksums).to_numpy(), "", (), "plain"), True


def _index(
    source: Source,
    starts: np.ndarray,
    checksums: np.ndarray,
    compression: str,
    points: tuple[SeekPoint, ...],
    layout: str,
) -> Index:
    return Index(
        len(checksums), source.size, int(starts[-1]), compression, starts, checksums, points, layout
    )


def _index_by_walking(source: Source, stream: Stream, options: Options) -> tuple[Index, bool]:
    """An index made of the records that a scan delivers."""
    regions: list[Any] = []
    walking = Options(
        damage=options.damage, limits=options.limits, index="never", raw=True, skipped=regions.append
    )
    reader = FramedReader(source, stream, FRAMING, walking, RawDecoder(), lambda: index, None)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    checksums: list[np.ndarray] = []
    for chunk in reader.chunks():
        frames = chunk.data[0]
        begin = pa.array(frames.starts()).to_numpy()
        starts.append(begin)
        ends.append(begin + pa.array(frames.lengths()).to_numpy() + np.uint64(16))
        checksums.append(pa.array(frames.checksums()).to_numpy())
    begin = np.concatenate([*starts, np.zeros(0, np.uint64)])
    end = np.concatenate([*ends, np.zeros(0, np.uint64)])
    stored = np.concatenate([*checksums, np.zeros(0, np.uint32)])
    edges = np.concatenate([begin, end[-1:] if len(end) else np.zeros(1, np.uint64)])
    index = _index(source, edges, stored, "", (), "plain")
    return (replace(index, gap_ends=end) if regions else index), not regions


def _index_compressed(
    source: Source, stream: Stream, compression: str, options: Options
) -> tuple[Index, bool]:
    """One pass over a compressed file, that notes where inflating may start again."""
    inflation = Inflation(source, compression, point_bytes=POINT_BYTES)
    strict = replace(options, damage="error")
    try:
        index, whole = _index_by_walking(source, Forward(inflation), strict)
    except FormatError:
        if options.damage == "error":
            raise
        # Finding a way around damage means reading back, which that one pass cannot.
        index, _ = _index_by_walking(source, stream, options)
        return replace(index, compression=compression, layout="points"), False
    found = [SeekPoint(*point) for point in inflation.inflater.take_points()]
    points = sidecar.with_checks(found, source)
    return replace(index, compression=compression, points=points, layout="points"), whole
