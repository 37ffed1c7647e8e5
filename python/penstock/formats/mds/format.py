"""MDS: shards of mosaicml-streaming, read only.

```
bytes        field
4            n           uint32 LE, number of records
4 * (n + 1)  offsets     uint32 LE, absolute; the first is the start of record 0, the last the end
...          config      JSON: names, encodings and sizes of the columns, in order
...          records     for each: uint32 LE size of every column whose size varies, then all bytes
```

A shard describes itself. The folder's `index.json`, where there is one, says in which order its
shards come, and how long they are and what their hashes are (`penstock.storage.mds_index`). A shard may be
compressed as a whole: its name then ends with the codec's. What a column becomes is written in
`mds_columns.py`. Source: the published layout of mosaicml-streaming 0.13.
"""

from __future__ import annotations

import hashlib
import os
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
from penstock.columns.facts import is_text, parsed
from penstock.columns.inferred import InferredFrom
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Format, FormatInfo, Options, Reader, Writer
from penstock.engine.locks import Lock
from penstock.errors import (
    ChangedError,
    ChecksumError,
    FormatError,
    LimitError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
)
from penstock.formats.mds._columns import Column, Ranges, Unfit, column
from penstock.formats.mds._inflated import CODECS, Inflated
from penstock.storage.base import Sink, Source
from penstock.storage.mds_index import INDEX_NAME, ListedFile, check_size, read_listing

CHUNK_BYTES = 2 << 20
CHUNK_RECORDS = 1 << 16
PICK_BYTES = 64 << 20
"""Records picked by number are read in pieces of about this size."""
LARGE_BYTES = 16 << 10
"""Of records that are larger on average, only what is wanted is read."""
HASH_BYTES = 8 << 20
_CONFIG_START = b'{"column_encodings"'


class MDSFormat(Format):
    """Shards of MosaicML Streaming."""

    info = FormatInfo(
        "mds",
        (".mds", *(f".mds.{codec}" for codec in CODECS)),
        can_write=False,
        can_map=True,
        compressions=tuple(CODECS),
        has_checksums=True,
    )

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether the table of offsets, and the config if it is in sight, are those of a shard."""
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
            FormatError, TruncatedError: the bytes are no shard.
            UnsupportedError: raw=True, or an encoding that is not known.
            SchemaError: a field of schema= is not in the file.
        """
        return MDSReader(source, options)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        raise UnsupportedError(
            "MDS is read, not written", file=sink.path, hint="write Parquet or TFRecord"
        )


class MDSReader(Reader):
    """One open shard."""

    def __init__(self, source: Source, options: Options) -> None:
        self._path = source.path
        self._asked = options.schema
        self._limits = options.limits
        self._source = source
        self._inside: Source | Inflated = source
        self._lock = Lock()
        self._unproved: ListedFile | None = None
        try:
            codec = _codec(source)
            self._compression = codec or ""
            if codec:
                self._inside = Inflated(source, codec, options.limits)
            count, first = self._read_offsets()
            self._columns = _columns(self._config(4 * (count + 2), first))
            self._table = 4 * sum(one.size is None for one in self._columns)
            self._check_listed(options)
            self._own = self._types()
        except PenstockError as error:
            raise error.at(file=self._path) from None
        if self._asked is not None:
            check_columns(self._asked, self._own, self._path, options.settled)
        self.schema: pa.Schema = self._asked if self._asked is not None else self._own

    # -- opening --------------------------------------------------------------------------------

    def _front(self, start: int, length: int) -> bytes:
        """Bytes of the head. What is compressed is not inflated further than that."""
        if isinstance(self._inside, Inflated):
            data = self._inside.front(start + length)[start:]
        else:
            data = self._inside.read(start, length).to_bytes()
        if len(data) < length:
            raise TruncatedError(
                "the shard ends within its head",
                byte=start + len(data),
                expected=f"{length} bytes",
                found=len(data),
            )
        return data

    def _read_offsets(self) -> tuple[int, int]:
        count, first = np.frombuffer(self._front(0, 8), "<u4").tolist()
        table_end = 4 * (count + 2)
        size = self._inside.size if isinstance(self._inside, Inflated) else self._source.size
        if size is not None and table_end > size:
            raise TruncatedError(
                "the table of offsets is longer than the file",
                byte=0,
                expected=f"{table_end} bytes",
                found=size,
            )
        self._limits.check("footer_bytes", max(first, table_end))
        table = np.frombuffer(self._front(4, table_end - 4), "<u4").astype(np.int64)
        if first <= table_end:
            raise FormatError("record 0 begins before the config", byte=4, found=first)
        wrong = np.flatnonzero(table[1:] < table[:-1])
        if len(wrong):
            record = int(wrong[0])
            raise FormatError("a record ends before it begins", record=record, byte=8 + 4 * record)
        if size is not None and int(table[-1]) != size:
            _raise_other_size(table, size)
        self._offsets = table
        return count, first

    def _config(self, start: int, end: int) -> dict[str, Any]:
        try:
            config: Any = parsed(self._front(start, end - start), end - start)
        except LimitError as error:
            raise error.at(byte=start) from None
        except FormatError as error:
            raise FormatError(f"the config: {error.message}", byte=start) from None
        if not isinstance(config, dict):
            raise FormatError("the config is no JSON object", byte=start)
        if config.get("format") != "mds" or config.get("version") != 2:
            found = f"{config.get('format')!r} version {config.get('version')!r}"[:80]
            raise UnsupportedError(
                "the config is of another format", byte=start, expected="mds version 2", found=found
            )
        return config

    def _check_listed(self, options: Options) -> None:
        """Compare with the folder's index.json, if it lists this shard."""
        if options.checksums == "none":
            return
        beside = options.beside(INDEX_NAME)
        if beside is None:
            return
        try:
            shards = read_listing(beside, options.limits) or []
        finally:
            beside.close()
        name = os.path.basename(self._path)
        for shard in shards:
            for file in (shard.plain, shard.packed):
                if file is None or file.name != name:
                    continue
                check_size(self._path, self._source.size, file)
                if shard.num_records != self.num_records:
                    message = f"{INDEX_NAME} lists another number of records"
                    listed = f"{shard.num_records} (listed)"
                    raise FormatError(message, expected=listed, found=self.num_records)
                if options.verifies:
                    self._unproved = file

    def _types(self) -> pa.Schema:
        """The fields, by the encodings and the first record."""
        first: list[Ranges] | None = None
        told = 0
        if self.num_records and any(_is_open(c.encoding) for c in self._columns):
            # One that is longer than is read says nothing, unless all are.
            told = int(np.argmax(np.diff(self._offsets) <= self._limits.record_bytes))
            start, end = self._offsets[told : told + 2].tolist()
            self._limits.check("record_bytes", end - start)
            data = np.frombuffer(self._front(start, end - start), np.uint8)
            numbers = np.array([told])
            first = self._split(data, np.zeros(1, np.int64), np.array([end - start]), numbers)
        fields: list[pa.Field] = []
        for place, one in enumerate(self._columns):
            try:
                kind = one.type_of(None if first is None else first[place])
            except Unfit as error:
                raise error.kind(error.message, record=told, field=one.name) from None
            fields.append(pa.field(one.name, kind, nullable=False))
        empty = None if self.num_records else InferredFrom(0).metadata
        return pa.schema(fields, metadata=empty)

    # -- reading --------------------------------------------------------------------------------

    @property
    def compression(self) -> str | None:
        return self._compression

    @property
    def num_records(self) -> int:
        """How many records the head counts."""
        return len(self._offsets) - 1

    def chunks(self) -> Iterator[Chunk[None]]:
        """Runs of records of about 2 MiB."""
        first = 0
        while first < self.num_records:
            goal = int(self._offsets[first]) + CHUNK_BYTES
            last = int(np.searchsorted(self._offsets, goal, "right")) - 1
            last = min(max(last, first + 1), first + CHUNK_RECORDS, self.num_records)
            yield self._chunk(first, last)
            first = last

    def _chunk(self, first: int, last: int) -> Chunk[None]:
        start, end = int(self._offsets[first]), int(self._offsets[last])
        return Chunk(first, last - first, start, end)

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        """The records in runs of about 64 MiB."""
        records = np.asarray(records, np.int64)
        check_records(records, self.num_records, self._path)
        whole = self._chunk(0, self.num_records)
        sizes = self._offsets[records + 1] - self._offsets[records]
        pieces = (np.cumsum(sizes) - sizes) // PICK_BYTES
        for run in np.split(records, np.flatnonzero(np.diff(pieces)) + 1):
            if len(run):
                yield whole, run

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Some records of one chunk.

        Raises:
            FormatError: a record's bytes are not sound; ChecksumError for the file's hash.
            UnsupportedError: a column is a pickle, which is never read.
            SchemaError: no such column, or a value does not fit.
        """
        schema = projected(self.schema, columns, self._path)
        self._prove()
        if records is None:
            numbers = np.arange(chunk.first_record, chunk.first_record + chunk.num_records)
        else:
            numbers = chunk.first_record + np.asarray(records, np.int64)
        try:
            sizes = self._offsets[numbers + 1] - self._offsets[numbers]
            are_large = sizes.sum() > LARGE_BYTES * len(numbers)
            any_long = bool((sizes > self._limits.record_bytes).any())
            if not isinstance(self._inside, Inflated) and (are_large or any_long):
                ranges = self._gathered(numbers, sizes, schema.names)
            else:
                data, starts = self._bytes(numbers, chunk if records is None else None)
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

    def _bytes(
        self, numbers: np.ndarray, chunk: Chunk[None] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The records in one run of bytes, and where each begins there."""
        starts = self._offsets[numbers]
        ends = self._offsets[numbers + 1]
        if chunk is not None:
            data = self._inside.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
            starts = starts - chunk.start_byte
        elif isinstance(self._inside, Inflated):
            base = int(starts.min(initial=self._offsets[-1]))
            data = self._inside.read(base, int(ends.max(initial=base)) - base)
            starts = starts - base
        else:
            sizes = ends - starts
            data = self._inside.gather(
                as_arrow(starts.astype(np.uint64)), as_arrow(sizes.astype(np.uint64))
            )
            starts = np.cumsum(sizes) - sizes
        if isinstance(self._inside, Inflated) and self._inside.size != int(self._offsets[-1]):
            _raise_other_size(self._offsets, self._inside.size or 0)
        view = as_numpy(pa.array(data))
        if len(numbers) and len(view) < int((starts + ends - self._offsets[numbers]).max()):
            raise ChangedError("the file was cut while it was open")
        return view, starts

    def _split(
        self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, numbers: np.ndarray
    ) -> list[Ranges]:
        """Where each column has its bytes of each record."""
        self._demand(sizes >= self._table, numbers, "a record is shorter than its table of sizes")
        table = Ranges(data, starts, sizes).windows(self._table)
        return [Ranges(data, *place) for place in self._places(table, starts, sizes, numbers)]

    def _check_wanted(self, lengths: list[Any], numbers: np.ndarray, names: list[str]) -> None:
        """Refuse a record whose wanted values are longer than one may be."""
        wanted = [n for one, n in zip(self._columns, lengths, strict=True) if one.name in names]
        totals = np.sum([*wanted, np.zeros(len(numbers), np.int64)], axis=0)
        long = np.flatnonzero(totals > self._limits.record_bytes)
        if len(long):
            try:
                self._limits.check("record_bytes", int(totals[long[0]]))
            except LimitError as error:
                raise error.at(record=int(numbers[long[0]])) from None

    def _gathered(self, numbers: np.ndarray, sizes: np.ndarray, names: list[str]) -> list[Ranges]:
        """The same of large records, of which nothing is read that is not wanted: the values of
        each column come one after another, and need no copy."""
        self._demand(sizes >= self._table, numbers, "a record is shorter than its table of sizes")
        starts = self._offsets[numbers]
        table = self._run(starts, np.full(len(starts), self._table, np.int64))
        ranges: list[Ranges] = []
        places = self._places(table, starts, sizes, numbers)
        self._check_wanted([length for _, length in places], numbers, names)
        for one, (at, length) in zip(self._columns, places, strict=True):
            if one.name in names:
                data = self._run(at, length)
                ranges.append(Ranges(data, np.cumsum(length) - length, length))
            else:
                ranges.append(Ranges(table[:0], at, length))
        return ranges

    def _run(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Ranges of the file, one after another."""
        data = self._source.gather(
            as_arrow(starts.astype(np.uint64)), as_arrow(lengths.astype(np.uint64))
        )
        if len(data) < int(lengths.sum()):
            raise ChangedError("the file was cut while it was open")
        return as_numpy(pa.array(data))

    def _places(
        self, table: np.ndarray, starts: np.ndarray, sizes: np.ndarray, numbers: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Where each column starts in each record, and its length, by the records' own tables."""
        lengths = np.frombuffer(table.tobytes(), "<u4").reshape(len(starts), self._table // 4)
        at = starts + self._table
        places: list[tuple[np.ndarray, np.ndarray]] = []
        column = 0
        for one in self._columns:
            if one.size is None:
                length = lengths[:, column].astype(np.int64)
                column += 1
            else:
                length = np.full(len(starts), one.size, np.int64)
            places.append((at, length))
            at = at + length
        self._demand(at == starts + sizes, numbers, "a record's columns do not fill it")
        return places

    def _demand(self, good: np.ndarray, numbers: np.ndarray, message: str) -> None:
        if not good.all():
            record = int(numbers[np.argmin(good)])
            raise FormatError(message, record=record, byte=int(self._offsets[record]))

    def _array(self, field: pa.Field, ranges: list[Ranges], numbers: np.ndarray) -> pa.Array:
        place = self._own.get_field_index(field.name)
        one = self._columns[place]
        if one.is_refused:
            raise UnsupportedError(
                "the column holds pickles, and to read a pickle is to run what it says",
                field=one.name,
                hint="open(..., columns=[...]) without it",
            )
        try:
            return one.decode(ranges[place], field.type, self._own.field(place).type)
        except Unfit as error:
            record = int(numbers[error.row])
            raise error.kind(
                error.message, record=record, field=one.name, byte=int(self._offsets[record])
            ) from None

    def _prove(self) -> None:
        """Hash the file once, before the first record is given, as index.json lists it."""
        with self._lock:
            listed = self._unproved
            if listed is None:
                return
            for name, expected in listed.hashes.items():
                if name in hashlib.algorithms_available and not name.startswith("shake"):
                    found = self._hash(name)
                    if found != expected:
                        raise ChecksumError(
                            f"the file's {name} is not the one that {INDEX_NAME} lists",
                            file=self._path,
                            expected=f"{expected} (listed)",
                            found=found,
                        )
            self._unproved = None

    def _hash(self, name: str) -> str:
        digest = hashlib.new(name, usedforsecurity=False)
        for start in range(0, self._source.size, HASH_BYTES):
            digest.update(as_numpy(pa.array(self._source.read(start, HASH_BYTES))).data)
        return digest.hexdigest()

    def close(self) -> None:
        """Let go of the file."""
        self._inside.close()


def _codec(source: Source) -> str | None:
    """The codec that the name says, if the bytes are no plain shard."""
    ending = source.path.rsplit(".", 1)[-1].lower()
    if ending not in CODECS:
        return None
    return None if MDSFormat().sniff(source.read(0, 4096).to_bytes(), source.size) else ending


def _is_open(encoding: str) -> bool:
    """Whether the first record has to say what a column is."""
    return encoding in ("pil", "list[pil]", "ndarray") or (
        encoding.startswith("ndarray:") and encoding.count(":") == 1
    )


def _raise_other_size(table: np.ndarray, size: int) -> None:
    end = int(table[-1])
    if end > size:
        record = max(int(np.searchsorted(table, size, "right")) - 1, 0)
        raise TruncatedError(
            "the file ends before its records",
            record=record,
            byte=size,
            expected=f"{end} bytes",
            found=size,
        )
    raise FormatError(
        "there are bytes behind the last record", byte=end, expected=f"{end} bytes", found=size
    )


def _columns(config: dict[str, Any]) -> list[Column]:
    """The columns that a config describes."""
    keys = ("column_names", "column_encodings", "column_sizes")
    names, encodings, sizes = (config.get(key) for key in keys)
    lists = [names, encodings, sizes]
    if not all(isinstance(part, list) for part in lists) or len({len(p) for p in lists}) != 1:  # type: ignore[arg-type]
        raise FormatError("the config has no lists of names, encodings and sizes of one length")
    columns: list[Column] = []
    for name, encoding, size in zip(names, encodings, sizes, strict=True):  # type: ignore[arg-type]
        if not is_text(name) or not is_text(encoding):
            raise FormatError("the config has a name or an encoding that is no text")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise FormatError("the config has a size that is no number", field=name)
        columns.append(column(name, encoding, size))
    if len({one.name for one in columns}) < len(columns):
        raise FormatError("the config names a column twice")
    return columns
