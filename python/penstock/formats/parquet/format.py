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
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

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
from penstock.columns.types import own_types, row_bytes, storage_of
from penstock.conditions import Bound
from penstock.contract.format import Chunk, Format, FormatInfo, NoOptions, Options, Reader, Writer
from penstock.contract.regions import Region
from penstock.engine.kept import Kept
from penstock.errors import FormatError, UnsupportedError
from penstock.formats.parquet._ahead import FREED, ROOM, Ahead, holding, ranges_of, wanted
from penstock.formats.parquet._cursors import Cursor, Cursors
from penstock.formats.parquet._footer import (
    ColumnChunk,
    Footer,
    check_ends,
    check_nesting,
    codecs,
    too_deep,
)
from penstock.formats.parquet._statistics import may_hold
from penstock.formats.parquet._weights import (
    BATCH_BYTES,
    Leaf,
    Rows,
    Weight,
    rows_of,
    varies,
    weight_of,
)
from penstock.storage.base import Sink, Source
from penstock.storage.manifest_mark import KEY, ManifestMetError
from penstock.storage.pyarrow_files import Bytes, translated

CHUNK_BYTES = 16 << 20
"""The size of the parts of a row group larger than SPLIT_BYTES. Decoding a part takes several times its size in memory,
and several parts are decoded in parallel."""
SPLIT_BYTES = 24 << 20
CHUNK_RECORDS = 1 << 20
_FEW_ROWS = 256
_MANY_ROWS = 1 << 16
"""For a row group with at least this many rows, reading page headers and dictionaries first costs little."""
_BYTES_PER_ROW = 4
"""For a smaller row group, page headers and dictionaries are read first if the file has fewer bytes per row than
this."""
_BYTES_PER_COLUMN = 64 << 10
"""In a small file with at least this many bytes per column, page headers are read even if the footer states small
pages, because that costs little."""
_BUFFER_BYTES = 1 << 18
_TOGETHER_BYTES = 128 << 20
"""Up to this size, a row group of an object store is read with few requests."""
_WHOLE_BYTES = 16 << 20
"""In files up to this size, each column is read in one piece."""
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


class GroupPart(NamedTuple):
    """Records of a row group. `step` is the usual length of a part."""

    group: int
    start: int
    num_records: int
    step: int


class ParquetReader(Reader):
    """One open Parquet file."""

    def __init__(self, source: Source, options: Options) -> None:
        self._path = source.path
        self._asked = options.schema
        self._limits = options.limits
        self._large_groups: set[int] = set()
        """Row groups with pages that may exceed the limit for one record."""
        self._verify = options.checksums != "none"
        self._data_end = check_ends(source, options)
        self._bytes = Bytes(source, mmap=options.mmap)
        self._metadata: Any = None
        with translated(self._path):
            if not _has_depth_limit():
                check_nesting(self._footer_bytes(), self._limits.nesting)
            file = self._open()
            self._metadata = file.metadata
            if not options.as_table and KEY in (file.metadata.metadata or {}):
                raise ManifestMetError(self._path)
            self._stored: Any = as_stored(own_types(file.schema_arrow))
            self._parts = self._plan()
        if self._asked is not None:
            check_columns(self._asked, self._stored, self._path, options.settled)
        self.schema: pa.Schema = self._asked if self._asked is not None else self._stored
        starts = np.cumsum([0, *(part.num_records for part in self._parts)])
        self._starts = [int(start) for start in starts]
        self._number = next(_NUMBERS)
        self._cursors = Cursors()
        self._proof = BatchCheck(self._path)
        self._rows: dict[Any, Rows] = {}
        self._ahead: Ahead | None = None
        self._footer: Footer | None = None

    def _open(self, **how: Any) -> Any:
        """Return a new pyarrow reader. The footer is parsed only the first time."""
        import pyarrow.parquet as pq

        if _has_depth_limit():
            how["schema_depth_limit"] = self._limits.nesting + 1
        try:
            return pq.ParquetFile(
                self._bytes.file(),
                metadata=self._metadata,
                # Columns are read one by one, in small reads, because a row group may be larger
                # than memory. In a small file columns are read whole, so no page can claim more
                # bytes than its column has. In object stores each read takes a round trip, so the
                # columns of a row group are requested together, unless they may be too large.
                pre_buffer=self._bytes.source.storage is not None
                and self._largest_group() <= _TOGETHER_BYTES,
                buffer_size=0 if self._bytes.source.size <= _WHOLE_BYTES else _BUFFER_BYTES,
                page_checksum_verification=self._verify,
                **how,
            )
        except OSError as error:
            if "too deeply nested" in str(error):
                raise too_deep(self._limits.nesting).at(byte=self._data_end) from None
            raise

    def _largest_group(self) -> int:
        if self._metadata is None:
            return 0  # the footer is read now, and no group
        groups = range(self._metadata.num_row_groups)
        return max((self._metadata.row_group(n).total_byte_size for n in groups), default=0)

    def _plan(self) -> list[GroupPart]:
        """Split the row groups into chunks, by their sizes in the footer."""
        parts: list[GroupPart] = []
        # A row takes at least this many bytes, even if all its values are null or equal.
        widths = [row_bytes(field.type) for field in self._stored]
        most = max(1, min(CHUNK_RECORDS, BATCH_BYTES // max(sum(widths), 1)))
        total = 0
        for group in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(group)
            count, size = row_group.num_rows, row_group.total_byte_size
            if count < 0 or size < 0:
                raise FormatError(f"row group {group} has a negative size", found=min(count, size))
            if size > self._limits.record_bytes:
                self._large_groups.add(group)
            step = most
            if size > SPLIT_BYTES:
                step = max(1, min(step, count * CHUNK_BYTES // size))
            # A footer can claim any number of records, so the number of parts is limited to the
            # number of its bytes.
            step = max(step, -(-count // max(self._metadata.serialized_size, 4096)))
            total += count
            parts.extend(
                GroupPart(group, start, min(step, count - start), step)
                for start in range(0, count, step)
            )
        if total != self._metadata.num_rows or total >= 1 << 63:
            raise FormatError(
                "the footer's count of records differs from that of its row groups",
                expected=self._metadata.num_rows,
                found=total,
            )
        return parts

    @property
    def num_records(self) -> int:
        return self._starts[-1]

    @property
    def compression(self) -> str:
        """The codecs of the columns, such as "snappy"; empty if nothing is compressed."""
        with translated(self._path):
            return ", ".join(sorted(codecs(self._footer_bytes())))

    def _footer_bytes(self) -> bytes:
        return self._bytes.read(self._data_end, self._bytes.source.size - 8 - self._data_end)

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
        for group in range(self._metadata.num_row_groups):
            count, columns = self._metadata.row_group(group).num_rows, self._columns_of(group)
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
            self._ahead = Ahead(self._bytes.source, self._metadata.num_row_groups)
        return self._ahead is not None

    def _ranges(self, group: int, names: Sequence[str]) -> list[tuple[int, int]]:
        described = self._metadata.schema
        columns = enumerate(self._columns_of(group))
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
        step = min(part.num_records, self._rows_at_once(part.group, schema))
        end = part.start + part.num_records
        for start in range(part.start, end, max(step, 1)):
            count = min(step, end - start)
            piece = part if count == part.num_records else GroupPart(part.group, start, count, step)
            yield Chunk(first + start - part.start, count, 4, self._data_end, piece)

    def _rows_at_once(self, group: int, schema: Any) -> int:
        """Return how many rows of a row group may be decoded together. Raise LimitError if a page or a row is too
        large."""
        key = (group, tuple(schema.names))
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = self._rows_of(group, schema)
        rows.check(self._limits)
        return rows.step

    def _rows_of(self, group: int, schema: Any) -> Rows:
        row_group = self._metadata.row_group(group)
        rows = row_group.num_rows
        names = schema.names
        if group not in self._large_groups:
            wanted = set(names)
            stored = [field for field in self._stored if field.name in wanted]
            names = [field.name for field in stored if varies(field.type)]
            if not (rows and names and self._may_take_much(rows, stored)):
                return Rows(rows, 0)
        found = self._weights(group, names)
        values = max([rows, *(one.num_values for one in found)])
        return rows_of(
            found,
            max(rows, 1),
            self._limits,
            partial(self._with_dictionaries, group, names),
            footer_bytes=row_group.total_byte_size,
            has_few_bytes=rows >= _MANY_ROWS or self._bytes.source.size < values * _BYTES_PER_ROW,
        )

    def _may_take_much(self, rows: int, stored: Sequence[Any]) -> bool:
        """Whether rows may take far more than the footer says, or the check costs little."""
        size = self._bytes.source.size
        is_small = size <= _WHOLE_BYTES
        if rows >= _MANY_ROWS:
            return True
        if any(pa.types.is_nested(storage_of(field.type)) for field in stored):
            return is_small
        has_few_bytes = _FEW_ROWS <= rows > size // _BYTES_PER_ROW
        return has_few_bytes or (is_small and size >= _BYTES_PER_COLUMN * len(self._stored))

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        if not bounds or not isinstance(chunk.data, GroupPart):
            return True
        group = chunk.data.group
        with translated(self._path):
            columns = self._columns_of(group)
            return may_hold(self._metadata.row_group(group), columns, self._alike(), bounds)

    def _alike(self) -> dict[str, int]:
        """Map the names of the columns that are returned with the stored type to their positions among all columns of
        the file."""
        stored = {field.name: field.type for field in self._stored}
        delivered = [field.name for field in self.schema if stored.get(field.name) == field.type]
        described = self._metadata.schema
        places = {described.column(n).path: n for n in range(self._metadata.num_columns)}
        return {name: places[name] for name in delivered if name in places}

    def _columns_of(self, group: int) -> list[ColumnChunk]:
        if self._footer is None:
            self._footer = Footer(self._footer_bytes())
        return self._footer.columns(group)

    def _weights(self, group: int, names: Sequence[str]) -> list[Weight]:
        columns = self._columns_of(group)
        prefixes = tuple(f"{name}." for name in names)
        found: list[Weight] = []
        for number, column in zip(range(self._metadata.num_columns), columns, strict=False):
            described = self._metadata.schema.column(number)
            path = described.path
            # With a column "a", pyarrow also reads "a.b", which may be a field of "a" or a separate column.
            if path in names or path.startswith(prefixes):
                is_nested = described.max_repetition_level > 0 or described.max_definition_level > 1
                found.append(
                    weight_of(self._bytes.read, Leaf(path, is_nested), column, self._limits)
                )
        return found

    def _with_dictionaries(
        self, group: int, names: Sequence[str], paths: Sequence[str], count: int
    ) -> Iterator[Any]:
        """Yield batches of columns of a row group, with the columns in `paths` as dictionaries."""
        return self._open(read_dictionary=paths).iter_batches(
            count, row_groups=[group], columns=names, use_threads=False
        )

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
        self._rows_at_once(part.group, stored)  # raises LimitError if a page or a row is too large
        key = (part.group, tuple(stored.names))
        end = part.start + part.num_records
        make = partial(self._cursor, part, stored)
        with self._cursors.borrow(key, part.start, end, make) as cursor:
            size = self._metadata.row_group(part.group).total_byte_size
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
        batches = self._open().iter_batches(
            part.step, row_groups=[part.group], columns=names, use_threads=False
        )
        rows = self._metadata.row_group(part.group).num_rows
        wanted_names, ahead = tuple(stored.names), self._ahead
        held = None if ahead is None else ahead.begin(part.group, wanted_names, self._ranges)
        columns = (_columns(batch, stored, self._path) for batch in holding(batches, held))
        return Cursor(columns, rows, stored, self._path)

    def close(self) -> None:
        self._ahead = None
        self._cursors.clear()
        self._proof.forget()
        _DECODED.drop_all_of(self._number)
        self._bytes.close()


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
