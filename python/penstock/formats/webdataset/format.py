"""WebDataset: tar archives in which consecutive members with the same key form a record.

```
bytes     what
512       header of a member: name at 0, size at 124, checksum at 148, type at 156
size      its contents, then zeros up to a multiple of 512
...       more members of the record: their names agree up to the first dot after the last slash
...       more records
1024      zeros that end the archive; usually more, up to a multiple of 10,240
```

The part of the name after that dot, in lower case, is the field. A whole file may be gzipped, whatever its name. An
archive that penstock writes starts with a comment (a global PAX header) that lists the columns from which the fields
were written; see `_comment.py`. Names in an archive are never used as file names, and contents are never executed.

Sources: POSIX.1-2017 (pax, ustar); the GNU tar manual; published observations of what webdataset 1.0.2 reads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.inferred import InferredFrom, file_name
from penstock.columns.lending import lent_schema
from penstock.columns.numbers import as_arrow, as_texts, checked_infer
from penstock.columns.selection import Projection
from penstock.contract.around import around
from penstock.contract.decoder import Decoder, FrameCheck
from penstock.contract.format import FormatInfo, Options, Writer
from penstock.contract.options import options_from
from penstock.contract.regions import Region
from penstock.errors import FormatError, LimitError, SchemaError, UnsupportedError
from penstock.formats.numpy.npy_header import MAGIC
from penstock.formats.webdataset._archive_end import ArchiveReader, ArchiveScan
from penstock.formats.webdataset._comment import ARCHIVE_BYTES, END_BYTES, Stored, stored_in
from penstock.formats.webdataset._detection import inflates_to_archive, is_archive
from penstock.formats.webdataset._fields import (
    BY_CONTENTS,
    NPY,
    ReadingPlan,
    ending,
    of_every_record,
    plan_field,
    type_by_name,
    undecodable,
)
from penstock.formats.webdataset._npy import header_of, type_of
from penstock.formats.webdataset._objects import type_of_objects
from penstock.framing.format import FramedFormat
from penstock.framing.framings import WEBDATASET
from penstock.framing.index.indexing import load_index
from penstock.framing.index.sidecar import Index
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import SAMPLE_BYTES, sample_chunks
from penstock.framing.read.raw import given, without_columns
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.inflated import InflatedStream
from penstock.framing.streams.stream import PlainStream, Stream
from penstock.framing.write.writer import FramedWriter
from penstock.limits import Limits
from penstock.storage.base import Sink, Source

KEY = "__key__"
URL = "__url__"
URL_TYPE = pa.dictionary(pa.int32(), pa.string())
MOST_FIELDS = 10_000
_BLOCK = 512
_OTHER_CODECS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, slots=True)
class WebDatasetOptions:
    """How to read WebDataset.

    decode: whether contents are decoded according to the last part of their names; False gives bytes.
    compression: "gzip" or "" (none); None detects it from the content.
    infer_records: how many records of a shard are read to infer its fields, or "all".
    """

    decode: bool = True
    compression: str | None = None
    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)


class WebDatasetFormat(FramedFormat):
    """Tar archives in which the members with a common key form one record."""

    info = FormatInfo(
        "webdataset",
        (".tar", ".tgz"),
        holds_decimals=False,
        only_appends=True,
        checksums="of each header",
        can_map=True,
        compressions=("gzip",),
        holds_images=True,
        shows_codecs=True,
        takes_views=True,
        takes_descriptions=True,
        whole_dictionaries=(URL,),
        added_columns=(URL,),
        has_raw_records=True,
        holds_structs=False,
    )
    read_options = WebDatasetOptions
    framing = WEBDATASET
    damage_scan_type = ArchiveScan

    @property
    def write_options(self) -> type:
        from penstock.formats.webdataset.writer import WebDatasetWriteOptions

        return WebDatasetWriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return is_archive(head, size) or inflates_to_archive(head)

    def shard(self, source: Source, options: Options) -> OpenShard:
        return _shard(source, options, self.own_options(options))

    def decoder(self, shard: OpenShard, known: Index | None) -> Decoder:
        return _decoder(shard, self.own_options(shard.options))

    def open(self, source: Source, options: Options) -> ArchiveReader:
        shard = self.shard(source, options)
        known = load_index(shard)
        decoder = self.raw_decoder() if options.raw else self.decoder(shard, known)
        return ArchiveReader(shard, decoder, known)

    def checking(self, shard: OpenShard) -> Decoder | None:
        quiet = replace(shard, options=replace(shard.options, damage="skip"))
        try:
            return self.decoder(quiet, None).lending()
        except (SchemaError, FormatError):
            return None

    def frame_layout(self, data: bytes, start: int, options: Options) -> Iterator[Region]:
        from penstock.formats.webdataset._regions import members

        return members(data, start)

    def create_copy(self, sink: Sink, compression: str, threads: int) -> FramedWriter:
        from penstock.formats.webdataset.writer import WebDatasetWriter

        options = options_from(
            self.write_options, {"compression": compression or None}, "webdataset"
        )
        return WebDatasetWriter(sink, None, options, threads)

    def advice(self, schema: pa.Schema) -> tuple[str, ...]:
        from penstock.formats.webdataset.writer import RecordPlan

        return RecordPlan(schema).notes

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.webdataset.writer import WebDatasetWriter

        return WebDatasetWriter(sink, schema, options, threads)


# -- bytes ----------------------------------------------------------------------------------------


def _shard(source: Source, options: Options, mine: WebDatasetOptions) -> OpenShard:
    if mine.compression not in ("", "gzip", None):
        raise ValueError(f"unknown compression {mine.compression!r}; known: '', 'gzip'")
    head = source.read(0, _BLOCK).to_bytes()
    compression = mine.compression
    if compression is None:
        compression = "gzip" if head[:2] == b"\x1f\x8b" else ""
        for magic, name in _OTHER_CODECS.items():
            if head.startswith(magic):
                raise UnsupportedError(
                    f"the archive is compressed with {name}, which penstock does not read",
                    file=source.path,
                    hint="decompress it first, or compress it with gzip",
                )
    stream: Stream = InflatedStream(source, compression) if compression else PlainStream(source)
    return OpenShard(source, stream, WEBDATASET, options)


# -- records --------------------------------------------------------------------------------------


class RecordDecoder(Decoder):
    """Decodes frames, each of which has the members of one record, to columns."""

    def __init__(
        self,
        plans: Sequence[ReadingPlan],
        schema: pa.Schema,
        url: str,
        limits: Limits,
        *,
        complete: bool = False,
    ) -> None:
        self._complete = complete
        self._plans = {plan.column.name: plan for plan in plans}
        self._kernels: dict[tuple[str, ...], tuple[Any, pa.Schema]] = {}
        self._urls = pa.nulls(0, URL_TYPE)
        self._url = url
        self._limits = limits
        self.schema = schema

    def noticing(self) -> RecordDecoder:
        plans = list(self._plans.values())
        return RecordDecoder(plans, self.schema, self._url, self._limits, complete=True)

    def lending(self) -> RecordDecoder:
        schema = lent_schema(self.schema)
        plans = [
            plan_field(schema.field(name), plan.field, self._limits, plan.is_asked, plan.exact)
            for name, plan in self._plans.items()
        ]
        return RecordDecoder(plans, schema, self._url, self._limits, complete=self._complete)

    def members(self, columns: Projection) -> frozenset[str] | None:
        if columns is None:
            return None
        return frozenset(self._plans[name].field for name in columns if name in self._plans)

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        names = tuple(self.schema.names if columns is None else columns)
        if not names:
            return without_columns(frames, proof)
        if proof is not None:
            frames.prove(*given(proof)[1:])
        kernel, schema = self._kernel(names)
        try:
            found = pa.record_batch(kernel.decode(frames))
        except _core.KernelError as error:
            raise self._translated(error) from None
        arrays: list[Any] = []
        for name in names:
            if name == URL and URL not in self._plans:
                arrays.append(of_every_record(self._urls_of(len(frames)), schema.field(URL)))
            elif name == KEY and KEY not in self._plans:
                arrays.append(of_every_record(found.column(KEY), schema.field(KEY)))
            else:
                plan = self._plans[name]
                arrays.append(plan.make(found.column(plan.field), self._limits))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _translated(self, error: _core.KernelError) -> _core.KernelError | FormatError:
        """Convert the kernel's error to a FormatError if the contents break the rules of their field. Otherwise return
        it unchanged."""
        fault = error.args[0]
        plan = next((p for p in self._plans.values() if p.field == fault.field), None)
        if fault.kind != "schema" or fault.record is None or plan is None or plan.is_asked:
            return error
        return undecodable(fault.message, record=fault.record, field=plan.column.name)

    def _kernel(self, names: tuple[str, ...]) -> tuple[Any, pa.Schema]:
        """Return the kernel that decodes these columns, and their schema. Both are cached."""
        made = self._kernels.get(names)
        if made is None:
            wanted = [self._plans[name] for name in names if name in self._plans]
            fields = {plan.field: "bytes" if plan.inflates else plan.contents for plan in wanted}
            keys = KEY in names and KEY not in self._plans
            complete = self._complete and set(names) >= self._plans.keys()
            schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
            made = _core.TarPlan(list(fields.items()), keys, complete), schema
            self._kernels[names] = made
        return made

    def _urls_of(self, count: int) -> Any:
        """Return the file name once per record, as a slice of the largest such array so far."""
        urls = self._urls  # other threads may replace the attribute
        if len(urls) < count:
            numbers = as_arrow(np.zeros(count, np.int32))
            urls = self._urls = pa.DictionaryArray.from_arrays(numbers, as_texts([self._url]))
        return urls.slice(0, count)


def _decoder(shard: OpenShard, mine: WebDatasetOptions) -> Any:
    options = shard.options
    stored = _stored(shard)
    if stored is not None:
        _check_end(shard)
    schema: Any = options.schema
    if schema is None:
        schema = _schema(shard, mine, stored)
    elif isinstance(schema, dict):
        schema = _with_types(_schema(shard, mine, stored), schema)
    elif not isinstance(schema, pa.Schema):
        raise SchemaError("webdataset takes a pyarrow schema, or a dict of types by field")
    # Without decoding, each field is a column, whatever column it was written from.
    named = stored if mine.decode else None
    plans = [_plan(field, named, options) for field in schema if field.name not in (KEY, URL)]
    seen = [plan.field for plan in plans]
    if len(set(seen)) < len(seen):
        raise SchemaError("two columns come from the same field", field=seen[0])
    path, limits = shard.source.path, options.limits
    decoder = RecordDecoder(plans, schema, path, limits, complete=options.complete)
    if named is not None:
        decoder.stored_names = [name for name in named.schema.names if name not in (KEY, URL)]
    return decoder


def _plan(column: Any, stored: Stored | None, options: Options) -> ReadingPlan:
    """Return how to read a column: from the field that the archive's comment names for it, else from the field with the
    column's name."""
    name, is_own = column.name, False
    if stored is not None and stored.fields.get(name, name) != name:
        # If the column has the type in the archive's comment, the caller did not choose it.
        is_own = stored.schema.field(name).type == column.type
        name = stored.fields[name]
    is_asked = options.schema is not None and not is_own and type_by_name(name) != column.type
    exact = options.schema is None or column.name in options.settled
    return plan_field(column, name, options.limits, is_asked, exact)


def _with_types(schema: pa.Schema, types: dict[str, Any]) -> pa.Schema:
    """Return the schema with the given types instead of the inferred ones. Fields that it lacks are added."""
    for name, type_ in types.items():
        if not isinstance(type_, pa.DataType):
            raise SchemaError("webdataset takes a dict of pyarrow types", field=name)
        field = pa.field(name, type_)
        place = schema.get_field_index(name)
        at = len(schema) - (URL in schema.names) if place < 0 else place
        schema = schema.insert(at, field) if place < 0 else schema.set(at, field)
    return schema


def _stored(shard: OpenShard) -> Stored | None:
    """Return the columns in the comment at the front of a shard, or None if there is none."""
    try:
        return stored_in(shard.stream)
    except _core.KernelError:
        return None  # reading the records reports the damage


def _check_end(shard: OpenShard) -> None:
    """Check that an uncompressed archive of penstock is complete. If it was truncated between two members, nothing else
    shows that its last record lacks members. Compressed data itself shows that it is truncated."""
    size = shard.source.size
    if shard.stream.container:
        return
    end = shard.source.read(max(0, size - END_BYTES), END_BYTES).to_bytes()
    if size % ARCHIVE_BYTES or any(end):
        shard.stop_at(
            _core.Fault("truncated", size, "the archive is truncated: it has no end"), None, size
        )


def _schema(shard: OpenShard, mine: WebDatasetOptions, stored: Stored | None) -> pa.Schema:
    """Return the columns of a shard, from its comment or inferred from its first records."""
    if stored is not None and mine.decode:
        return stored.schema
    names, headers, seen = _sample(shard, mine)
    fields: list[Any] = []
    for name in sorted(names):
        type_ = type_by_name(name) if mine.decode else pa.binary()
        if type_ is None:
            type_ = headers.get(name, pa.binary())
        fields.append(pa.field(name, type_))
    key, url = pa.field(KEY, pa.string(), nullable=False), pa.field(URL, URL_TYPE, nullable=False)
    return pa.schema([key, *fields, url], seen.metadata)


def _sample(
    shard: OpenShard, mine: WebDatasetOptions
) -> tuple[set[str], dict[str, Any], InferredFrom]:
    """Read the first records of a shard (or all). Return the names of their fields, the types of fields whose contents
    determine the type, and which records were read. Damage is skipped, because reading the records reports it."""
    has_all = mine.infer_records == "all"
    left = sys.maxsize if has_all else int(mine.infer_records)
    most_bytes = sys.maxsize if has_all else SAMPLE_BYTES
    quiet = replace(shard.options, damage="skip" if shard.skips_damage else "stop")
    shard = replace(shard, options=quiet)
    frames_of = ChunkFrames(shard)
    names: set[str] = set()
    samples: dict[str, list[Any]] = {}
    num_records = seen_bytes = 0
    is_all = True
    for chunk in sample_chunks(shard):
        is_all = left > 0 and seen_bytes < most_bytes
        if not is_all:
            break
        frames = frames_of.read(chunk, None).frames
        is_all = len(frames) <= left
        frames = frames[:left]
        for part in _sound(shard, frames):
            names.update(_core.tar_fields(part, MOST_FIELDS))
            if mine.decode:
                _add_samples(samples, names, part)
        num_records += len(frames)
        seen_bytes += chunk.end_byte - chunk.start_byte
        left -= len(frames)
        if not is_all:
            break
    types = {name: _type_by_contents(name, parts) for name, parts in samples.items()}
    return names, types, InferredFrom(num_records, is_all, file_name(shard.source.path))


def _add_samples(samples: dict[str, list[Any]], names: set[str], part: _core.Frames) -> None:
    typed = [name for name in names if _has_typed_contents(name)]
    if not typed:
        return
    plan = _core.TarPlan([(name, "bytes") for name in typed], False)
    found = pa.record_batch(plan.decode(part))
    for name in typed:
        samples.setdefault(name, []).append(found.column(name).drop_null())


def _sound(shard: OpenShard, frames: _core.Frames) -> Iterator[_core.Frames]:
    """Yield runs of records whose members are valid fields without duplicates. Reading the other records reports their
    faults."""
    keys = _core.TarPlan([], False)

    def read(first: int, end: int) -> pa.RecordBatch:
        part = frames[first:end]
        try:
            _core.tar_fields(part, MOST_FIELDS)
            return pa.record_batch(keys.decode(part))
        except _core.KernelError as error:
            fault = error.args[0]
            row = None if fault.record is None else first + fault.record
            raise shard.error(fault, row) from None

    for first, end, found in around(read, lambda error: error.record, 0, len(frames)):
        if isinstance(found, pa.RecordBatch):
            yield frames[first:end]
        elif isinstance(found, LimitError):
            raise found


def _has_typed_contents(field: str) -> bool:
    last, is_compressed = ending(field)
    return last in BY_CONTENTS and not is_compressed


def _type_by_contents(field: str, parts: list[Any]) -> Any:
    last, _ = ending(field)
    if last == NPY:
        fronts = [value.as_buffer()[:4096].to_pybytes() for part in parts for value in part]
        # A value that is not an npy file is damaged, and shows nothing about the others.
        files = [front for front in fronts if front.startswith(MAGIC)]
        return type_of([header_of(front) for front in files])
    return type_of_objects(last, pa.concat_arrays([part.cast(pa.binary()) for part in parts]))
