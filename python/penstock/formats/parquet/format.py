"""Parquet: columns in row groups, read and written by pyarrow.

Specification: https://parquet.apache.org/docs/file-format/

    bytes            what
    4                "PAR1" ("PARE" if the footer is encrypted)
    ...              column chunks, row group by row group: pages, each with a header and a CRC-32
    footer_length    FileMetaData in Thrift's compact protocol: schema, row groups, places
    4                footer_length, little-endian
    4                "PAR1" again ("PARE")

A chunk of penstock is a row group, or a part of a row group of more than 24 MiB. pyarrow is never asked about the
metadata of a column, because it crashes the process for an encrypted column, an unknown codec and other faults. So the
byte range of a chunk is not known, and each chunk has the range of all data, from head to footer.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    WHOLE,
    BatchCheck,
    check_columns,
    check_records,
    conform,
    gather_parts,
    projected,
    sound_runs,
)
from penstock.columns.inferred import as_stored
from penstock.columns.selection import Projection, Selection
from penstock.columns.types import own_types
from penstock.conditions import Bound
from penstock.contract.format import Chunk, Format, FormatInfo, NoOptions, Options, Reader, Writer
from penstock.contract.regions import Region
from penstock.engine.kept import Kept
from penstock.errors import FormatError, UnsupportedError
from penstock.formats.parquet._ahead import FREED, ROOM, Ahead, holding, ranges_of, wanted
from penstock.formats.parquet._cursors import Cursor, Cursors
from penstock.formats.parquet._dividing import GroupPart, RowGroups
from penstock.formats.parquet._file import File
from penstock.formats.parquet._footer import check_ends, codecs
from penstock.formats.parquet._statistics import may_hold
from penstock.storage.base import Sink, Source
from penstock.storage.manifest_mark import KEY, ManifestMetError
from penstock.storage.pyarrow_files import Bytes, translated

_NUMBERS = itertools.count()
_DECODED: Kept[pa.RecordBatch] = Kept(64 << 20)
"""The parts that were decoded last for some of their records, of all files of this process."""
_SUMMARIES = ("_metadata", "_common_metadata")
"""Spark and other programs give these names to files that repeat the footers of the other files in the folder."""


class ParquetFormat(Format):
    """Parquet as a penstock format."""

    info = FormatInfo(
        "parquet",
        (".parquet", ".parq", ".pq"),
        only_appends=True,
        has_checksums=True,
        checksums="CRC-32 of each page",
        can_map=True,
        compressions=("snappy", "zstd", "gzip", "lz4", "brotli"),
    )

    @property
    def write_options(self) -> type:
        from penstock.formats.parquet.writer import ParquetOptions

        return ParquetOptions

    read_options = NoOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return size >= 12 and head[:4] in (b"PAR1", b"PARE")

    def open(self, source: Source, options: Options) -> ParquetReader:
        """Read the footer.

        Raises:
            UnsupportedError: the file is encrypted or is a summary of other files (`_metadata`), or raw=True.
            TruncatedError, FormatError: the file is not a valid Parquet file.
            SchemaError: a field of schema= is not in the file.
        """
        if os.path.basename(source.path) in _SUMMARIES:
            raise UnsupportedError(
                "this is a summary of the Parquet files next to it, and has no records",
                file=source.path,
                hint=f"open({os.path.dirname(source.path) or '.'!r}), the folder with the files",
            )
        return ParquetReader(source, options)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.parquet._regions import file_regions

        return file_regions(source, record, options)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.parquet.writer import ParquetWriter

        return ParquetWriter(sink, schema, options)


class ParquetReader(Reader):
    """One open Parquet file."""

    def __init__(self, source: Source, options: Options) -> None:
        self._path = source.path
        self._asked = options.schema
        self._limits = options.limits
        self._data_end = check_ends(source, options)
        self._bytes = Bytes(source, mmap=options.mmap)
        with translated(self._path):
            self._file = File(
                self._bytes,
                self._data_end,
                self._limits.nesting,
                limits_depth=_has_depth_limit(),
                verify=options.checksums != "none",
            )
            if not options.as_table and KEY in (self._file.metadata.metadata or {}):
                raise ManifestMetError(self._path)
            self._stored: Any = as_stored(own_types(self._file.schema))
            self.stored_names = self._stored.names
            self._groups = RowGroups(self._file, self._stored, self._limits)
            self._parts = self._groups.parts()
        if self._asked is not None:
            check_columns(self._asked, self._stored, self._path, options.settled)
        self.schema: pa.Schema = self._asked if self._asked is not None else self._stored
        starts = np.cumsum([0, *(part.num_records for part in self._parts)])
        self._starts = [int(start) for start in starts]
        self._number = next(_NUMBERS)
        self._cursors = Cursors()
        self._proof = BatchCheck(self._path)
        self._ahead: Ahead | None = None

    @property
    def num_records(self) -> int:
        return self._starts[-1]

    @property
    def compression(self) -> str:
        """The codecs of the columns, such as "snappy"; empty if nothing is compressed."""
        with translated(self._path):
            return ", ".join(sorted(codecs(self._file.footer_bytes())))

    @property
    def lacks_checksums(self) -> bool:
        """Whether the first page has no checksum, as pyarrow writes pages unless it is asked for them."""
        from penstock.formats.parquet._regions import has_checksum

        with suppress(FormatError):  # reading the page reports it
            for group in range(min(self._file.metadata.num_row_groups, 1)):
                placed = (one for one in self._file.columns_of(group) if one.end > one.start >= 4)
                return any(
                    not has_checksum(self._bytes.source, one) for one in itertools.islice(placed, 1)
                )
        return False

    def options_alike(self) -> Any:
        """Return options with the codec of this file, if all columns have the same."""
        from penstock.formats.parquet.writer import ParquetOptions

        codec = self.compression or "none"
        known = ParquetFormat.info.compressions
        return ParquetOptions(compression=codec) if codec in (*known, "none") else ParquetOptions()

    def chunks(self) -> Iterator[Chunk[Any]]:
        """Yield the row groups in order, large ones in parts."""
        for number, part in enumerate(self._parts):
            yield Chunk(self._starts[number], part.num_records, 4, self._data_end, part)

    def spans(self) -> Iterator[Chunk[Any]]:
        """Yield the row groups, with the bytes of their columns."""
        at = 0
        for group in range(self._file.metadata.num_row_groups):
            count, columns = (
                self._file.metadata.row_group(group).num_rows,
                self._file.columns_of(group),
            )
            start = min((one.start for one in columns), default=0)
            yield Chunk(at, count, start, max((one.end for one in columns), default=0), WHOLE)
            at += count

    def found_in(self, part: Chunk[Any]) -> Iterator[Chunk[Any]]:
        if self._ahead is not None:
            last = bisect_left(self._starts, part.first_record + part.num_records) - 1
            self._ahead.num_groups = self._parts[last].group + 1
        return super().found_in(part)

    def reads_ahead(self) -> bool:
        if self._bytes.source.announces:
            self._ahead = Ahead(self._bytes.source, self._file.metadata.num_row_groups)
        return self._ahead is not None

    def _ranges(self, group: int, names: Sequence[str]) -> list[tuple[int, int]]:
        described = self._file.metadata.schema
        columns = enumerate(self._file.columns_of(group))
        asked = [c for n, c in columns if described.column(n).path.partition(".")[0] in names]
        return ranges_of(asked, self._data_end)

    def want(self, records: np.ndarray, columns: Projection) -> Sequence[object] | None:
        if not self._bytes.source.announces:
            return ()
        names = projected(self.schema, columns, self._path).names
        places = np.searchsorted(np.asarray(self._starts), records, side="right") - 1
        groups = dict.fromkeys(self._parts[place].group for place in np.unique(places))
        return wanted(self._bytes.source, [r for g in groups for r in self._ranges(g, names)])

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], np.ndarray]]:
        """Yield all records in one pair, so that no row group is decoded twice."""
        check_records(records, self.num_records, self._path)
        if len(records):
            yield Chunk(0, self.num_records, 4, self._data_end, WHOLE), records

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: the row group's bytes are invalid; ChecksumError if a page's CRC is wrong.
            UnsupportedError: a column is encrypted, or pyarrow cannot read columns of its kind.
            SchemaError: there is no such column, or a value does not fit schema=.
        """
        schema = projected(self.schema, columns, self._path)
        with translated(self._path):
            if chunk.data == WHOLE:
                if records is None:
                    records = np.arange(self.num_records)
                parts = self._wanted(records, schema)
                return gather_parts(parts, records, schema, self._path)
            return self._read(chunk.data, schema, chunk.first_record, records)

    def _wanted(self, records: np.ndarray, schema: Any) -> Iterator[tuple[int, Any]]:
        """Yield the chunks that have these records, each decoded once, in file order."""
        places = np.searchsorted(np.asarray(self._starts), records, side="right") - 1
        for place in np.unique(places):
            numbers = records[places == place]
            for chunk in self._divided(self._parts[place], self._starts[place], schema):
                first, end = chunk.first_record, chunk.first_record + chunk.num_records
                if ((numbers >= first) & (numbers < end)).any():
                    read = partial(self._kept_or_read, chunk.data, schema, first)
                    yield from sound_runs(read, numbers, first, end)

    def _kept_or_read(
        self, part: GroupPart, schema: Any, first_record: int, records: Selection
    ) -> Any:
        """Like `_read`, but a part is decoded once for the batches of a loop that follow each other in it."""
        if records is not None:
            return self._read(part, schema, first_record, records)
        key = self._number, (part, tuple(schema.names))
        whole = partial(self._read, part, schema, first_record, None)
        return _DECODED.of(key, whole, lambda batch: batch.get_total_buffer_size())

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        schema = projected(self.schema, columns, self._path)
        with translated(self._path):
            yield from self._divided(chunk.data, chunk.first_record, schema)

    def _divided(self, part: GroupPart, first: int, schema: Any) -> Iterator[Chunk[Any]]:
        """Split a part into pieces that fit into one batch even if dictionaries hold long values."""
        step = min(part.num_records, self._groups.rows_at_once(part.group, schema))
        end = part.start + part.num_records
        for start in range(part.start, end, max(step, 1)):
            count = min(step, end - start)
            piece = part if count == part.num_records else GroupPart(part.group, start, count, step)
            yield Chunk(first + start - part.start, count, 4, self._data_end, piece)

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        if not bounds or not isinstance(chunk.data, GroupPart):
            return True
        group = chunk.data.group
        with translated(self._path):
            columns = self._file.columns_of(group)
            return may_hold(self._file.metadata.row_group(group), columns, self._alike, bounds)

    @cached_property
    def _alike(self) -> dict[str, int]:
        """Map the names of the columns that are returned with the stored type to their positions among all columns of
        the file."""
        stored = {field.name: field.type for field in self._stored}
        delivered = [field.name for field in self.schema if stored.get(field.name) == field.type]
        described = self._file.metadata.schema
        places = {described.column(n).path: n for n in range(self._file.metadata.num_columns)}
        return {name: places[name] for name in delivered if name in places}

    def _read(self, part: GroupPart, schema: Any, first_record: int, records: Selection) -> Any:
        """Decode one part of a row group, or some of its rows, to one verified batch of `schema`."""
        stored = projected(self._stored, schema.names, self._path) if self._asked else schema
        place = part, tuple(stored.names)
        batch = self._proof.kept(place)
        if batch is None:
            batch = self._decoded(part, stored)
        return conform(self._proof.rows(place, batch, records, first_record), schema, self._path)

    def _decoded(self, part: GroupPart, stored: Any) -> Any:
        """Decode one part of a row group with the stored schema, without verifying the values."""
        self._groups.rows_at_once(
            part.group, stored
        )  # raises LimitError if a page or a row is too large
        key = (part.group, tuple(stored.names))
        end = part.start + part.num_records
        make = partial(self._cursor, part, stored)
        with self._cursors.borrow(key, part.start, end, make) as cursor:
            size = self._file.metadata.row_group(part.group).total_byte_size
            # After its turn came, so that no other part waits for it meanwhile.
            with nullcontext() if self._ahead is None else ROOM.of(size):
                while cursor.at < part.start:
                    cursor.read(min(part.step, part.start - cursor.at))
                batch = cursor.read(part.num_records)
        if self._ahead is not None:
            FREED.decoded(batch.get_total_buffer_size())
        return batch

    def _cursor(self, part: GroupPart, stored: Any) -> Cursor:
        names = None if stored.names == self._stored.names else list(stored.names)
        batches = self._file.batches(part.group, names, part.step)
        rows = self._file.metadata.row_group(part.group).num_rows
        wanted_names, ahead = tuple(stored.names), self._ahead
        held = None if ahead is None else ahead.begin(part.group, wanted_names, self._ranges)
        columns = (_columns(batch, stored, self._path) for batch in holding(batches, held))
        return Cursor(columns, rows, stored, self._path)

    def close(self) -> None:
        self._ahead = None
        self._cursors.clear()
        self._proof.forget()
        _DECODED.drop_all_of(self._number)
        self._file.close()


@cache
def _has_depth_limit() -> bool:
    """Whether pyarrow can limit the nesting of a schema, as from release 26 on."""
    import inspect

    import pyarrow.parquet as pq

    return "schema_depth_limit" in inspect.signature(pq.ParquetFile.__init__).parameters


def _columns(batch: Any, schema: Any, path: str) -> Any:
    """Return only the requested columns. For "a.b", pyarrow returns that column, and also field "b" of column "a"."""
    if batch.schema.names != schema.names:
        batch = conform(batch, schema, path) if schema.names else batch.select([])
    return batch
