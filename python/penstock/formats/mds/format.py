"""MDS: shards of mosaicml-streaming. This format can only be read.

```
bytes        field
4            n           uint32 LE, number of records
4 * (n + 1)  offsets     uint32 LE, from the start of the file: of each record, and the end
...          config      JSON: names, encodings and sizes of the columns, in order
...          records     for each: uint32 LE size of every column whose size varies, then all bytes
```

A shard describes itself. If the folder has an `index.json`, this file lists the shards in order, with their sizes and
hashes (`penstock.storage.mds_index`). A whole shard may be compressed; then its name ends with the name of the codec.
The types of columns are in `_columns.py`. Source: the published layout of mosaicml-streaming 0.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    check_columns,
    check_records,
    conform,
    empty_columns,
    projected,
)
from penstock.columns.facts import parsed
from penstock.columns.inferred import InferredFrom
from penstock.columns.numbers import as_arrow, in_bytes
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Format, FormatInfo, Options, Reader, Writer
from penstock.contract.regions import Region
from penstock.errors import (
    ChangedError,
    FormatError,
    LimitError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
)
from penstock.formats.mds._columns import columns_of
from penstock.formats.mds._encodings import needs_first_record
from penstock.formats.mds._inflated import CODECS, Inflated
from penstock.formats.mds._listed import listed_hashes
from penstock.formats.mds._values import BadValue, Ranges
from penstock.storage.base import Sink, Source
from penstock.tuned import CHUNK_BYTES, LARGE_RECORD_BYTES

CHUNK_RECORDS = 1 << 16
PICK_BYTES = 64 << 20
"""Picked records are read in pieces of about this size."""
_CONFIG_START = b'{"column_encodings"'
_SHORT = "a record is shorter than its table of sizes"


class MDSFormat(Format):
    """Shards of MosaicML Streaming."""

    info = FormatInfo(
        "mds",
        (".mds", *(f".mds.{codec}" for codec in CODECS)),
        can_write=False,
        can_map=True,
        compressions=tuple(CODECS),
        has_checksums=True,
        checksums="in index.json",
    )

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether `head` has the table of offsets of a shard, and the config if `head` extends that far."""
        if len(head) < 12:
            return False
        count = int.from_bytes(head[:4], "little")
        table_end = 4 * (count + 2)
        seen = np.frombuffer(head[4 : min(table_end, len(head) // 4 * 4)], "<u4")
        first = int(seen[0])
        if not table_end < first <= size or (seen[1:] < seen[:-1]).any() or int(seen[-1]) > size:
            return False
        config = head[table_end : table_end + len(_CONFIG_START)]
        return _CONFIG_START.startswith(config[: len(_CONFIG_START)]) and (
            len(config) == len(_CONFIG_START) or len(seen) > 500
        )

    def open(self, source: Source, options: Options) -> MDSReader:
        """Read the table of offsets and the config.

        Raises:
            FormatError, TruncatedError: the file is not a valid shard.
            UnsupportedError: raw=True, or an unknown encoding.
            SchemaError: a field of schema= is not in the file.
        """
        return MDSReader(source, options)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.mds._regions import shard

        codec = _codec_of(source)
        if not codec:
            size = source.size
            yield from shard(
                lambda start, n: source.read(start, n).to_bytes(), size, record, options.limits
            )
            return
        plain = Inflated(source, codec, options.limits)
        data = plain.read(0, options.limits.member_bytes)
        note = f"decompresses to {len(data)} bytes"
        yield Region(0, source.size, f"{codec} data", note=note)
        found = shard(
            lambda start, n: data.slice(start, n).to_bytes(), len(data), record, options.limits
        )
        for region in found:
            yield region.moved("inflated")

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        raise UnsupportedError(
            "penstock cannot write MDS", file=sink.path, hint="write Parquet or TFRecord"
        )


class MDSReader(Reader):
    """One open shard."""

    def __init__(self, source: Source, options: Options) -> None:
        self._path = source.path
        self._asked = options.schema
        self._limits = options.limits
        self._source = source
        self._plain: Source | Inflated = source
        try:
            self._codec = _codec_of(source)
            if self._codec:
                self._plain = Inflated(source, self._codec, options.limits)
            self._offsets = self._read_offsets()
            self._columns = columns_of(self._read_config())
            self._table_bytes = 4 * sum(column.size is None for column in self._columns)
            self._hashes = listed_hashes(source, self.num_records, options)
            self._own = self._types()
            self.stored_names = self._own.names
        except PenstockError as error:
            raise error.at(file=self._path) from None
        if self._asked is not None:
            check_columns(self._asked, self._own, self._path, options.settled)
        self.schema: pa.Schema = self._asked if self._asked is not None else self._own

    # -- opening --------------------------------------------------------------------------------

    def _front(self, start: int, length: int) -> bytes:
        """Return bytes near the start. Compressed data is decompressed only that far."""
        if isinstance(self._plain, Inflated):
            data = self._plain.front(start + length)[start:]
        else:
            data = self._plain.read(start, length).to_bytes()
        if len(data) < length:
            raise TruncatedError(
                "the shard ends within its head",
                byte=start + len(data),
                expected=f"{length} bytes",
                found=len(data),
            )
        return data

    def _read_offsets(self) -> np.ndarray:
        count, first = np.frombuffer(self._front(0, 8), "<u4").tolist()
        table_end = 4 * (count + 2)
        size = self._plain.size
        if size is not None and table_end > size:
            raise TruncatedError(
                "the table of offsets is longer than the file",
                byte=0,
                expected=f"{table_end} bytes",
                found=size,
            )
        self._limits.check("footer_bytes", max(first, table_end))
        offsets = np.frombuffer(self._front(4, table_end - 4), "<u4").astype(np.int64)
        if offsets[0] <= table_end:
            raise FormatError("record 0 begins before the config", byte=4, found=int(offsets[0]))
        wrong = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(wrong):
            record = int(wrong[0])
            raise FormatError("a record ends before it begins", record=record, byte=8 + 4 * record)
        if size is not None:
            _check_size(offsets, size)
        return offsets

    def _read_config(self) -> dict[str, Any]:
        start, end = 4 * (self.num_records + 2), int(self._offsets[0])
        try:
            config: Any = parsed(self._front(start, end - start), end - start)
        except LimitError as error:
            raise error.at(byte=start) from None
        except FormatError as error:
            raise FormatError(f"the config is invalid: {error.message}", byte=start) from None
        if not isinstance(config, dict):
            raise FormatError("the config is not a JSON object", byte=start)
        if config.get("format") != "mds" or config.get("version") != 2:
            found = f"{config.get('format')!r} version {config.get('version')!r}"[:80]
            raise UnsupportedError(
                "the config is for another format",
                byte=start,
                expected="mds version 2",
                found=found,
            )
        return config

    def _types(self) -> pa.Schema:
        """Return the fields, from the encodings and the first record."""
        first: list[Ranges] | None = None
        record = 0
        if self.num_records and any(needs_first_record(c.encoding) for c in self._columns):
            # Take the first record within the size limit.
            record = int(np.argmax(np.diff(self._offsets) <= self._limits.record_bytes))
            start, end = self._offsets[record : record + 2].tolist()
            self._limits.check("record_bytes", end - start)
            data = np.frombuffer(self._front(start, end - start), np.uint8)
            size, number = np.array([end - start]), np.array([record])
            first = self._split(data, np.zeros(1, np.int64), size, number)
        fields: list[pa.Field] = []
        for place, column in enumerate(self._columns):
            try:
                type_ = column.type_of(None if first is None else first[place])
            except BadValue as error:
                raise error.kind(error.message, record=record, field=column.name) from None
            fields.append(pa.field(column.name, type_, nullable=False))
        empty = None if self.num_records else InferredFrom(0).metadata
        return pa.schema(fields, metadata=empty)

    # -- reading --------------------------------------------------------------------------------

    @property
    def compression(self) -> str | None:
        return self._codec

    @property
    def num_records(self) -> int:
        return len(self._offsets) - 1

    def chunks(self) -> Iterator[Chunk[None]]:
        """Yield runs of records of about 2 MiB."""
        first = 0
        while first < self.num_records:
            goal = int(self._offsets[first]) + CHUNK_BYTES
            last = int(np.searchsorted(self._offsets, goal, "right")) - 1
            last = min(max(last, first + 1), first + CHUNK_RECORDS, self.num_records)
            yield self._chunk(first, last)
            first = last

    def spans(self) -> Iterator[Chunk[None]]:
        """Yield the chunks. A compressed shard is one span, because it is only read from front to back."""
        if not self._codec:
            yield from self.chunks()
        elif self.num_records:
            yield self._chunk(0, self.num_records)

    def _chunk(self, first: int, last: int) -> Chunk[None]:
        start, end = int(self._offsets[first]), int(self._offsets[last])
        return Chunk(first, last - first, start, end)

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        """Yield the records in runs of about 64 MiB."""
        records = np.asarray(records, np.int64)
        check_records(records, self.num_records, self._path)
        whole = self._chunk(0, self.num_records)
        sizes = self._offsets[records + 1] - self._offsets[records]
        pieces = (np.cumsum(sizes) - sizes) // PICK_BYTES
        for run in np.split(records, np.flatnonzero(np.diff(pieces)) + 1):
            if len(run):
                yield whole, run

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: a record is damaged; ChecksumError if a hash of the file is wrong.
            UnsupportedError: a column holds pickles, which are never read.
            SchemaError: there is no such column, or a value does not fit schema=.
        """
        schema = projected(self.schema, columns, self._path)
        self._hashes.verify()
        if records is None:
            numbers = np.arange(chunk.first_record, chunk.first_record + chunk.num_records)
        else:
            numbers = chunk.first_record + np.asarray(records, np.int64)
        try:
            sizes = self._offsets[numbers + 1] - self._offsets[numbers]
            are_large = sizes.sum() > LARGE_RECORD_BYTES * len(numbers)
            any_long = bool((sizes > self._limits.record_bytes).any())
            if not isinstance(self._plain, Inflated) and (are_large or any_long):
                ranges = self._read_columns(numbers, sizes, schema.names)
            else:
                data, starts = self._read_records(numbers, chunk if records is None else None)
                ranges = self._split(data, starts, sizes, numbers)
                if any_long:
                    self._check_wanted([r.sizes for r in ranges], numbers, schema.names)
            arrays = [self._array(field, ranges, numbers) for field in schema]
        except PenstockError as error:
            raise error.at(file=self._path) from None
        if not arrays:
            return empty_columns(len(numbers)).replace_schema_metadata(schema.metadata)
        stored = pa.schema(
            [pa.field(f.name, a.type, nullable=False) for f, a in zip(schema, arrays, strict=True)]
        )
        return conform(pa.RecordBatch.from_arrays(arrays, schema=stored), schema, self._path)

    def _read_records(
        self, numbers: np.ndarray, chunk: Chunk[None] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return bytes that include the records, and where each record begins in them."""
        starts = self._offsets[numbers]
        ends = self._offsets[numbers + 1]
        if chunk is not None:
            data = self._plain.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
            starts = starts - chunk.start_byte
        elif isinstance(self._plain, Inflated):
            base = int(starts.min(initial=self._offsets[-1]))
            data = self._plain.read(base, int(ends.max(initial=base)) - base)
            starts = starts - base
        else:
            sizes = ends - starts
            data = self._plain.gather(
                as_arrow(starts.astype(np.uint64)), as_arrow(sizes.astype(np.uint64))
            )
            starts = np.cumsum(sizes) - sizes
        if isinstance(self._plain, Inflated):
            _check_size(self._offsets, self._plain.size or 0)
        view = in_bytes(data)
        if len(numbers) and len(view) < int((starts + ends - self._offsets[numbers]).max()):
            raise ChangedError("the file was truncated while it was open")
        return view, starts

    def _split(
        self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, numbers: np.ndarray
    ) -> list[Ranges]:
        """Return the bytes of each column. The records begin at `starts` in `data`."""
        self._check(sizes >= self._table_bytes, numbers, _SHORT)
        table = Ranges(data, starts, sizes).windows(self._table_bytes)
        return [Ranges(data, *place) for place in self._places(table, starts, sizes, numbers)]

    def _check_wanted(
        self, lengths: list[np.ndarray], numbers: np.ndarray, names: list[str]
    ) -> None:
        """Raise LimitError if the requested values of a record exceed the limit for a record."""
        wanted = [n for one, n in zip(self._columns, lengths, strict=True) if one.name in names]
        totals = np.sum([*wanted, np.zeros(len(numbers), np.int64)], axis=0)
        for row in np.flatnonzero(totals > self._limits.record_bytes):
            try:
                self._limits.check("record_bytes", int(totals[row]))
            except LimitError as error:
                raise error.at(record=int(numbers[row])) from None

    def _read_columns(
        self, numbers: np.ndarray, sizes: np.ndarray, names: list[str]
    ) -> list[Ranges]:
        """Return the bytes of each column. The columns in `names` are read one by one, so that they need no copy. The
        other columns are empty."""
        self._check(sizes >= self._table_bytes, numbers, _SHORT)
        starts = self._offsets[numbers]
        table = self._read_ranges(starts, np.full(len(starts), self._table_bytes, np.int64))
        places = self._places(table, starts, sizes, numbers)
        self._check_wanted([length for _, length in places], numbers, names)
        ranges: list[Ranges] = []
        for column, (at, length) in zip(self._columns, places, strict=True):
            if column.name in names:
                at, data = np.cumsum(length) - length, self._read_ranges(at, length)
            else:
                data = table[:0]
            ranges.append(Ranges(data, at, length))
        return ranges

    def _read_ranges(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return ranges of the file, concatenated."""
        data = self._source.gather(
            as_arrow(starts.astype(np.uint64)), as_arrow(lengths.astype(np.uint64))
        )
        if len(data) < int(lengths.sum()):
            raise ChangedError("the file was truncated while it was open")
        return in_bytes(data)

    def _places(
        self, table: np.ndarray, starts: np.ndarray, sizes: np.ndarray, numbers: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return where each column starts for each record, and its length."""
        lengths = np.frombuffer(table.tobytes(), "<u4").reshape(len(starts), self._table_bytes // 4)
        at = starts + self._table_bytes
        places: list[tuple[np.ndarray, np.ndarray]] = []
        varying = iter(lengths.T.astype(np.int64))
        for column in self._columns:
            if column.size is None:
                length = next(varying)
            else:
                length = np.full(len(starts), column.size, np.int64)
            places.append((at, length))
            at = at + length
        self._check(
            at == starts + sizes, numbers, "the columns of a record do not add up to its size"
        )
        return places

    def _check(self, is_good: np.ndarray, numbers: np.ndarray, message: str) -> None:
        if not is_good.all():
            record = int(numbers[np.argmin(is_good)])
            raise FormatError(message, record=record, byte=int(self._offsets[record]))

    def _array(self, field: pa.Field, ranges: list[Ranges], numbers: np.ndarray) -> pa.Array:
        place = self._own.get_field_index(field.name)
        column = self._columns[place]
        if column.is_pickle:
            raise UnsupportedError(
                "the column holds pickles, and reading a pickle runs code that it contains",
                field=column.name,
                hint="leave it out: open(..., columns=[...])",
            )
        try:
            return column.decode(ranges[place], field.type, self._own.field(place).type)
        except BadValue as error:
            record = int(numbers[error.row])
            raise error.kind(
                error.message, record=record, field=column.name, byte=int(self._offsets[record])
            ) from None

    def close(self) -> None:
        self._plain.close()


def _codec_of(source: Source) -> str:
    """Return the codec from the ending of the name, or "" if there is none or the content is a plain shard."""
    ending = source.path.rsplit(".", 1)[-1].lower()
    if ending not in CODECS:
        return ""
    return "" if MDSFormat().sniff(source.read(0, 4096).to_bytes(), source.size) else ending


def _check_size(offsets: np.ndarray, size: int) -> None:
    """Raise an error if the last record does not end at the end of the plain bytes."""
    end = int(offsets[-1])
    if end > size:
        record = max(int(np.searchsorted(offsets, size, "right")) - 1, 0)
        raise TruncatedError(
            "the file ends before its records",
            record=record,
            byte=size,
            expected=f"{end} bytes",
            found=size,
        )
    if end < size:
        raise FormatError(
            "there are bytes after the last record", byte=end, expected=f"{end} bytes", found=size
        )
