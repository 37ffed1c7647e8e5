"""Arrays in a file as the columns of a table: what npy and npz have in common.

The first axis counts records. An array whose order is C is read range by range of its bytes; one in
Fortran's order has its first axis innermost, so that a run of records is one range for each cell of
a record. What a chunk or a take needs of an array is read once, whatever columns it gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import ChangedError, FormatError, LimitError, TruncatedError, UnsupportedError
from penstock.format import Chunk, Options, Projection, Selection
from penstock.formats.batches import (
    check_columns,
    check_options,
    check_records,
    conform,
    empty_columns,
    projected,
)
from penstock.formats.dtypes import column, field_of
from penstock.formats.npy_header import Header
from penstock.numbers import as_arrow, as_numpy
from penstock.storage import Source

CHUNK_BYTES = 2 << 20
CHUNK_RECORDS = 1 << 20
RUN_BYTES = 4096
"""Of an array in Fortran's order, what a chunk reads of each cell at once, if that is not too much."""
FORTRAN_BYTES = 32 << 20
MOST_RANGES = 1 << 18
"""Ranges of a file that are asked for at once."""
MOST_EMPTY = 1 << 24
"""Records of no bytes: nothing but the header says how many there are."""


class Place(Protocol):
    """The bytes of one array, counted from its first."""

    def mapped(self) -> np.ndarray | None:
        """All bytes as uint8, where they are in memory or mapped; else None."""
        ...

    def read(self, start: int, length: int) -> np.ndarray: ...

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class FilePlace:
    """An array that lies in a file as it is."""

    source: Source
    start: int
    size: int

    def mapped(self) -> np.ndarray | None:
        buffer: Any = getattr(self.source, "mapped", None)
        return None if buffer is None else as_bytes(buffer.slice(self.start, self.size))

    def read(self, start: int, length: int) -> np.ndarray:
        found = as_bytes(self.source.read(self.start + start, length))
        if len(found) < length:
            raise ChangedError("the file was cut while it was open", file=self.source.path)
        return found

    def read_all(self, starts: np.ndarray, lengths: np.ndarray) -> Any:
        """A buffer of several ranges, one behind another."""
        total = int(lengths.sum())
        if (starts[:-1] + lengths[:-1] == starts[1:]).all():
            found = self.source.read(self.start + int(starts[0]), total)
        else:
            places = as_arrow((starts + self.start).astype(np.uint64))
            found = self.source.gather(places, as_arrow(lengths.astype(np.uint64)))
        if len(found) < total:
            raise ChangedError("the file was cut while it was open", file=self.source.path)
        return found

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return as_bytes(self.read_all(starts, lengths))


def as_bytes(buffer: Any) -> np.ndarray:
    """A buffer of Rust's as an array of uint8, without copying."""
    return as_numpy(buffer)


class StoredArray:
    """One array of a file."""

    def __init__(self, header: Header, place: Place, path: str) -> None:
        self.dtype = header.dtype
        self.shape = header.shape
        self.inner = header.shape[1:]
        self.num_records = header.shape[0]
        self.record_bytes = math.prod(self.inner) * header.dtype.itemsize
        self._fortran = header.fortran_order and len(header.shape) > 1
        self._place = place
        self._path = path

    @property
    def chunk_records(self) -> int:
        """How many records are read at once."""
        size = max(self.record_bytes, 1)
        most = CHUNK_BYTES // size
        if self._fortran:
            runs = RUN_BYTES // max(self.dtype.itemsize, 1)
            most = max(most, min(runs, FORTRAN_BYTES // size))
        return max(1, min(most, CHUNK_RECORDS))

    def read(self, cut: Cut) -> np.ndarray:
        """The records of a cut, [records, ...] with the dtype of the file."""
        if not self.record_bytes or not cut.total:
            return np.zeros((cut.total, *self.inner), self.dtype)
        if self._fortran:
            return self._read_fortran(cut)
        size = self.record_bytes
        if len(cut.starts) == 1:
            found = self._place.read(int(cut.starts[0]) * size, cut.total * size)
        else:
            mapped = self._place.mapped()
            if mapped is not None:
                lines = mapped[: self.num_records * size].reshape(self.num_records, size)
                found = np.take(lines, cut.records(), axis=0).reshape(-1)
            else:
                found = self._place.gather(cut.starts * size, cut.counts * size)
        return found.view(self.dtype).reshape(cut.total, *self.inner)

    def _read_fortran(self, cut: Cut) -> np.ndarray:
        size = self.dtype.itemsize
        num_cells = math.prod(self.inner)
        mapped = self._place.mapped()
        if mapped is not None:
            whole = mapped[: num_cells * self.num_records * size].view(self.dtype)
            lines = whole.reshape(*self.inner[::-1], self.num_records)
            if len(cut.starts) == 1:
                start = int(cut.starts[0])
                found = lines[..., start : start + cut.total]
            else:
                found = lines[..., cut.records()]
        else:
            flat = np.empty((num_cells, cut.total), self.dtype)
            block = max(1, MOST_RANGES // len(cut.starts))
            for first in range(0, num_cells, block):
                some = flat[first : first + block]
                cells = np.arange(first, first + len(some), dtype=np.int64)[:, None]
                starts = (cells * self.num_records + cut.starts) * size
                lengths = np.broadcast_to(cut.counts * size, starts.shape)
                data = self._place.gather(starts.reshape(-1), lengths.reshape(-1))
                some[...] = data.view(self.dtype).reshape(some.shape)
            found = flat.reshape(*self.inner[::-1], cut.total)
        return found.transpose()


class Cut:
    """Runs of records, and what was read of them already."""

    def __init__(self, starts: np.ndarray, counts: np.ndarray) -> None:
        self.starts = starts
        self.counts = counts
        self.total = int(counts.sum())
        self._read: dict[int, np.ndarray] = {}

    @staticmethod
    def of(records: np.ndarray) -> Cut:
        """Records in any order; neighbours are one run."""
        if not len(records):
            return Cut(np.zeros(0, np.int64), np.zeros(0, np.int64))
        edges = np.flatnonzero(np.diff(records) != 1) + 1
        firsts = np.concatenate([[0], edges])
        return Cut(records[firsts], np.diff(np.concatenate([firsts, [len(records)]])))

    def records(self) -> np.ndarray:
        """The number of each record."""
        ends = np.cumsum(self.counts)
        return np.repeat(self.starts - (ends - self.counts), self.counts) + np.arange(self.total)

    def values(self, array: StoredArray) -> np.ndarray:
        """The records of an array, read once."""
        found = self._read.get(id(array))
        if found is None:
            found = self._read[id(array)] = array.read(self)
        return found


class Column(Protocol):
    """One field of the table."""

    field: Any
    num_records: int
    record_bytes: float
    """About as many bytes does a record take."""
    chunk_records: int

    def read(self, cut: Cut) -> Any:
        """The values of some records, of the field's type."""
        ...


class ArrayColumn:
    """An array, or one field of a structured one."""

    def __init__(self, name: str, array: StoredArray, part: str | None = None) -> None:
        self.array = array
        self._part = part
        self.num_records = array.num_records
        self.record_bytes: float = array.record_bytes
        self.chunk_records = array.chunk_records
        dtype = array.dtype
        if part is not None:
            assert dtype.fields is not None
            dtype = dtype.fields[part][0]
        self.field: Any = field_of(name, dtype, array.inner)

    def read(self, cut: Cut) -> Any:
        values = cut.values(self.array)
        return column(values if self._part is None else values[self._part], self.field.type)


def columns_of(array: StoredArray) -> list[Column]:
    """A lone array: one field called "data", or the fields of a structured one."""
    names = array.dtype.names
    if names is None:
        return [ArrayColumn("data", array)]
    return [ArrayColumn(name, array, name) for name in names]


def check_size(header: Header, room: int, start: int, limits: Any) -> int:
    """Hold a header's claims against the bytes that there are from `start` on: `room`, of which
    the header is the first part. Returns the bytes of the array.

    Raises:
        TruncatedError: there are fewer.
        LimitError: a record is larger than the limits allow, or records of no bytes are too many.
    """
    size = header.num_values * header.dtype.itemsize
    if size > room - header.start:
        raise TruncatedError(
            "the array is cut",
            byte=start + room,
            expected=f"{size} bytes of shape {header.shape}",
            found=f"{room - header.start} bytes",
        )
    if header.shape:
        inner = math.prod(header.shape[1:]) * header.dtype.itemsize
        limits.check("record_bytes", inner)
        if not inner and header.shape[0] > MOST_EMPTY:
            raise LimitError(f"{header.shape[0]} records of no bytes", byte=start)
    return size


def refuse_no_axis() -> UnsupportedError:
    """What is said of an array without axes."""
    return UnsupportedError(
        "a single value without axes is no table: it has no records",
        expected="an array with a first axis",
        found="shape ()",
        hint="numpy.load reads it",
    )


class ArraysReader:
    """One open file of arrays with as many records each."""

    def __init__(
        self,
        columns: list[Column],
        num_records: int,
        source: Source,
        options: Options,
        metadata: dict[bytes, bytes] | None = None,
        *,
        span: tuple[int, int] = (0, 0),
        compression: str = "",
        restore: Callable[[Any], Any] | None = None,
    ) -> None:
        self._source = source
        self._path = source.path
        self._columns = {column.field.name: column for column in columns}
        self.num_records = num_records
        self.compression = compression
        self._stored: Any = pa.schema([column.field for column in columns], metadata)
        self._span = span
        asked = check_options(options, "a file of arrays")
        if asked is not None:
            check_columns(asked, self._stored, self._path)
        own = self._stored if restore is None else restore(self._stored)
        self.schema: pa.Schema = asked if asked is not None else own
        size = sum(column.record_bytes for column in columns)
        self._step = max(1, min(int(CHUNK_BYTES / max(size, 1)), CHUNK_RECORDS))
        if len(columns) == 1:
            self._step = columns[0].chunk_records

    def _chunk(self, first: int, count: int) -> Chunk:
        start, end = self._span
        if self.num_records:
            size = end - start
            end = start + size * (first + count) // self.num_records
            start = start + size * first // self.num_records
        return Chunk(first // self._step, first, count, start, end)

    def chunks(self) -> Iterator[Chunk]:
        """Runs of about 2 MiB."""
        for first in range(0, self.num_records, self._step):
            yield self._chunk(first, min(self._step, self.num_records - first))

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk, np.ndarray]]:
        """All records in one pair: they are read from where they lie."""
        check_records(records, self.num_records, self._path)
        if len(records):
            yield self._chunk(0, self.num_records), records

    def decode(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        """Some records of one chunk.

        Raises:
            FormatError: a value is not what its type says, or the file is shorter than it was.
            SchemaError: no such column, or a value does not fit schema=.
        """
        schema: Any = projected(self.schema, columns, self._path)
        if records is None:
            cut = Cut(np.array([chunk.first_record]), np.array([chunk.num_records]))
        else:
            check_records(records, chunk.num_records, self._path)
            cut = Cut.of(records.astype(np.int64, copy=False) + chunk.first_record)
        if not schema.names:
            return empty_columns(cut.total)
        arrays: list[Any] = []
        for name in schema.names:
            try:
                arrays.append(self._columns[name].read(cut))
            except FormatError as error:
                if error.record is not None:
                    error.record = int(cut.records()[error.record])
                raise error.at(file=self._path, field=name) from None
        fields = [self._columns[name].field for name in schema.names]
        stored = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, self._stored.metadata))
        return conform(stored, schema, self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()
