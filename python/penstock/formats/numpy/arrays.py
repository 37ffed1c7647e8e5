"""Arrays in a file as the columns of a table, for npy and npz.

The first axis counts records. In C order, consecutive records are one range of bytes. In Fortran order the first axis
is innermost, so consecutive records are one range for each cell of a record. A chunk or a take reads an array once,
even if several columns are parts of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from penstock.columns.numbers import as_arrow, in_bytes
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Options, Reader, SkippedRegion, Stretch
from penstock.errors import (
    ChangedError,
    FormatError,
    LimitError,
    SchemaError,
    TruncatedError,
    UnsupportedError,
)
from penstock.formats.numpy.checks import Check
from penstock.formats.numpy.dtypes import column, field_of
from penstock.formats.numpy.npy_header import Header
from penstock.storage.base import Source
from penstock.tuned import CHUNK_BYTES

CHUNK_RECORDS = 1 << 20
RUN_BYTES = 4096
"""For an array in Fortran order: the bytes that a chunk reads of each cell, up to FORTRAN_BYTES for all cells."""
FORTRAN_BYTES = 32 << 20
MOST_RANGES = 1 << 18
"""The maximum ranges of a file in one request."""
MOST_EMPTY = 1 << 24
"""The maximum number of records of zero bytes. The size of the file does not limit their number."""


class Place(ABC):
    """The bytes of one array. Positions count from its first byte."""

    @abstractmethod
    def mapped(self) -> np.ndarray | None:
        """All bytes as uint8 if they are in memory or mapped, else None."""
        ...

    @abstractmethod
    def read(self, start: int, length: int) -> np.ndarray:
        """Some bytes as uint8."""
        ...

    @abstractmethod
    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Several ranges as uint8, concatenated."""
        ...


@dataclass(slots=True)
class FilePlace(Place):
    """An array that is stored without compression in a file."""

    source: Source
    start: int
    size: int

    def mapped(self) -> np.ndarray | None:
        buffer: Any = self.source.mapped
        return None if buffer is None else in_bytes(buffer.slice(self.start, self.size))

    def read(self, start: int, length: int) -> np.ndarray:
        return in_bytes(self._whole(self.source.read(self.start + start, length), length))

    def read_all(self, starts: np.ndarray, lengths: np.ndarray) -> Any:
        """Return several ranges in one buffer."""
        total = int(lengths.sum())
        if (starts[:-1] + lengths[:-1] == starts[1:]).all():
            return self._whole(self.source.read(self.start + int(starts[0]), total), total)
        places = as_arrow((starts + self.start).astype(np.uint64))
        return self._whole(self.source.gather(places, as_arrow(lengths.astype(np.uint64))), total)

    def _whole(self, found: Any, length: int) -> Any:
        if len(found) < length:
            raise ChangedError("the file was truncated while it was open", file=self.source.path)
        return found

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return in_bytes(self.read_all(starts, lengths))


class StoredArray:
    """One array of a file."""

    def __init__(self, header: Header, place: Place, path: str, check: Check | None = None) -> None:
        self._check = check
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
        size = max(self.record_bytes, 1)
        most = CHUNK_BYTES // size
        if self._fortran:
            runs = RUN_BYTES // max(self.dtype.itemsize, 1)
            most = max(most, min(runs, FORTRAN_BYTES // size))
        return max(1, min(most, CHUNK_RECORDS))

    def verify_once(self) -> None:
        """Raise ChecksumError if the array is damaged. Its bytes are read for that once."""
        if self._check is not None:
            self._check.once()

    def read(self, cut: Cut) -> np.ndarray:
        """Return records with the dtype of the file: [records, ...]."""
        if not self.record_bytes or not cut.total:
            return np.zeros((cut.total, *self.inner), self.dtype)
        is_whole = cut.is_run and (cut.is_chunk or cut.total == self.num_records)
        if self._check is not None and (self._fortran or not is_whole):
            self._check.before_some()
        if self._fortran:
            return self._read_fortran(cut)
        size = self.record_bytes
        if cut.is_run:
            start = int(cut.runs[0][0]) * size
            found = self._place.read(start, cut.total * size)
            if self._check is not None and is_whole:
                is_end = start + len(found) == self.num_records * size
                self._check.saw(start, found if is_end else found[: len(found) - cut.shared * size])
        elif (mapped := self._place.mapped()) is not None:
            lines = mapped[: self.num_records * size].reshape(self.num_records, size)
            found = lines.take(cut.records, axis=0).reshape(-1)
        else:
            starts, counts = cut.runs
            found = self._place.gather(starts * size, counts * size)
        return found.view(self.dtype).reshape(cut.total, *self.inner)

    def _read_fortran(self, cut: Cut) -> np.ndarray:
        size = self.dtype.itemsize
        num_cells = math.prod(self.inner)
        mapped = self._place.mapped()
        if mapped is not None:
            whole = mapped[: num_cells * self.num_records * size].view(self.dtype)
            lines = whole.reshape(*self.inner[::-1], self.num_records)
            if cut.is_run:
                start = int(cut.runs[0][0])
                return lines[..., start : start + cut.total].transpose()
            return lines[..., cut.records].transpose()
        runs, counts = cut.runs
        flat = np.empty((num_cells, cut.total), self.dtype)
        block = max(1, MOST_RANGES // len(runs))
        for first in range(0, num_cells, block):
            some = flat[first : first + block]
            cells = np.arange(first, first + len(some), dtype=np.int64)[:, None]
            starts = (cells * self.num_records + runs) * size
            lengths = np.broadcast_to(counts * size, starts.shape)
            data = self._place.gather(starts.reshape(-1), lengths.reshape(-1))
            some[...] = data.view(self.dtype).reshape(some.shape)
        return flat.reshape(*self.inner[::-1], cut.total).transpose()


class Cut:
    """Some records, in any order, and the arrays that were read for them. `is_chunk`: whether the records are a chunk
    of a scan, which reads all records. `shared`: how many of the last records are also the first records of the next
    chunk."""

    def __init__(self, records: np.ndarray, *, is_chunk: bool = False) -> None:
        self.is_chunk = is_chunk
        self.shared = 0
        self.total = len(records)
        self._records: np.ndarray | None = records
        self._runs: tuple[np.ndarray, np.ndarray] | None = None
        self._read: dict[int, np.ndarray] = {}

    @staticmethod
    def of_runs(starts: np.ndarray, counts: np.ndarray, *, is_chunk: bool = False) -> Cut:
        """Runs of consecutive records."""
        cut = Cut(np.zeros(0, np.int64), is_chunk=is_chunk)
        cut.total, cut._records, cut._runs = int(counts.sum()), None, (starts, counts)
        return cut

    @staticmethod
    def of_run(first: int, count: int, *, is_chunk: bool = False) -> Cut:
        return Cut.of_runs(np.array([first]), np.array([count]), is_chunk=is_chunk)

    @property
    def records(self) -> np.ndarray:
        """The numbers of the records."""
        if self._records is None:
            starts, counts = self.runs
            ends = np.cumsum(counts)
            self._records = np.repeat(starts - (ends - counts), counts) + np.arange(self.total)
        return self._records

    @property
    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The records as starts and counts of runs, as long as possible."""
        if self._runs is None:
            records = self.records
            edges = np.flatnonzero(records[1:] != records[:-1] + 1) + 1
            firsts = np.concatenate([[0], edges] if self.total else [edges])
            self._runs = records[firsts], np.diff(firsts, append=self.total)
        return self._runs

    @property
    def is_run(self) -> bool:
        """Whether the records are consecutive. All are compared only if the first and last allow it."""
        records = self._records
        if records is not None and self.total > 1 and records[-1] - records[0] != self.total - 1:
            return False
        return len(self.runs[0]) == 1

    def values(self, array: StoredArray) -> np.ndarray:
        """The records of an array, which is read once."""
        found = self._read.get(id(array))
        if found is None:
            found = self._read[id(array)] = array.read(self)
        return found


class StoredColumn(ABC):
    """One field of the table."""

    field: Any
    num_records: int
    record_bytes: float
    """Roughly the bytes of a record."""
    chunk_records: int

    @abstractmethod
    def read(self, cut: Cut) -> Any:
        """The values of some records, of the field's type."""
        ...


class ArrayColumn(StoredColumn):
    """An array, or one field of a structured array."""

    def __init__(self, name: str, array: StoredArray, part: str | None = None) -> None:
        self.array = array
        self._part = part
        self.num_records = array.num_records
        self.record_bytes: float = array.record_bytes
        self.chunk_records = array.chunk_records
        dtype = array.dtype if part is None else array.dtype[part]
        self.field: Any = field_of(name, dtype, array.inner)

    def read(self, cut: Cut) -> Any:
        values = cut.values(self.array)
        return column(values if self._part is None else values[self._part], self.field.type)


def columns_of(array: StoredArray) -> list[StoredColumn]:
    """Return the columns of a single array: one column called "data", or the fields of a structured array."""
    names = array.dtype.names
    if names is None:
        return [ArrayColumn("data", array)]
    return [ArrayColumn(name, array, name) for name in names]


def check_size(header: Header, room: int, start: int, limits: Any) -> int:
    """Check that a header, which begins at byte `start`, and its array fit into `room` bytes. Return the bytes of the
    array.

    Raises:
        TruncatedError: there are fewer bytes.
        LimitError: a record is too large, or there are too many records of no bytes.
    """
    size = header.num_values * header.dtype.itemsize
    if size > room - header.start:
        raise TruncatedError(
            "the array is truncated",
            byte=start + room,
            expected=f"{size} bytes of shape {header.shape}",
            found=f"{room - header.start} bytes",
        )
    if header.shape:
        inner = math.prod(header.shape[1:]) * header.dtype.itemsize
        limits.check("record_bytes", inner)
        if not inner and header.shape[0] > MOST_EMPTY:
            raise LimitError(f"the array has {header.shape[0]} records of no bytes", byte=start)
    return size


def one_length(what: str, lengths: Iterable[tuple[str, int]], or_else: str = "") -> int:
    """Return the common length of arrays or datasets, given as (name, number of records). Raise SchemaError if their
    lengths differ; `what` is what the error calls them."""
    names: dict[int, list[str]] = {}
    for name, length in lengths:
        names.setdefault(length, []).append(name)
    if len(names) > 1:
        shown = [f"{n}: {_first(some, 3, ', ')}" for n, some in sorted(names.items())]
        most = max(names.values(), key=len)
        raise SchemaError(
            f"the {what} differ in length, so they do not form a table",
            found=_first(shown, 4, "; ")[:1000],
            hint=f"open(..., {what}={most[:8]!r}){or_else}",
        )
    return next(iter(names), 0)


def _first(texts: list[str], most: int, between: str) -> str:
    left = len(texts) - most
    return between.join([*texts[:most], *([f"and {left} more"] if left > 0 else [])])


def refuse_no_axis() -> UnsupportedError:
    """Return the error for an array without axes."""
    return UnsupportedError(
        "a single value without axes is not a table: it has no records",
        expected="an array with a first axis",
        found="shape ()",
        hint="numpy.load reads it",
    )


class ArraysReader(Reader):
    """One open file of arrays of equal length. `lost` are the skipped regions after the arrays."""

    def __init__(
        self,
        columns: list[StoredColumn],
        num_records: int,
        source: Source,
        options: Options,
        metadata: dict[bytes, bytes] | None = None,
        *,
        span: tuple[int, int] = (0, 0),
        compression: str = "",
        restore: Callable[[Any], Any] | None = None,
        lost: Sequence[SkippedRegion] = (),
        checks: Sequence[Check] = (),
        arrays: Mapping[str, StoredArray] | None = None,
    ) -> None:
        self._checks = checks
        self._arrays = {} if arrays is None else arrays
        self._lost = lost
        self._source = source
        self._path = source.path
        self._columns = {column.field.name: column for column in columns}
        self._num_records = num_records
        self._compression = compression
        self._stored: Any = pa.schema([column.field for column in columns], metadata)
        self._span = span
        self.stored_names = self._stored.names
        asked = options.schema
        if asked is not None:
            check_columns(asked, self._stored, self._path, options.settled)
        own = self._stored if restore is None else restore(self._stored)
        self.schema: pa.Schema = asked if asked is not None else own
        size = sum(column.record_bytes for column in columns)
        self._step = max(1, min(int(CHUNK_BYTES / max(size, 1)), CHUNK_RECORDS))
        if len(columns) == 1:
            self._step = columns[0].chunk_records

    @property
    def num_records(self) -> int:
        return self._num_records

    @property
    def compression(self) -> str | None:
        return self._compression

    def _chunk(self, first: int, count: int) -> Chunk[None]:
        start, end = self._span
        if self.num_records:
            size = end - start
            end = start + size * (first + count) // self.num_records
            start = start + size * first // self.num_records
        return Chunk(first, count, start, end)

    def chunks(self) -> Iterator[Chunk[None]]:
        """Yield chunks of about 2 MiB."""
        for first in range(0, self.num_records, self._step):
            yield self._chunk(first, min(self._step, self.num_records - first))

    def spans(self) -> Iterator[Chunk[None]]:
        """Yield the chunks. A compressed file is one span, because its members are only read from front to back."""
        if not self._compression:
            yield from self.chunks()
        elif self.num_records:
            yield self._chunk(0, self.num_records)

    def found_by(self, threads: int) -> Iterator[Stretch]:
        yield from self.chunks()
        yield from self._lost

    def checks(self) -> Iterator[Callable[[], None]]:
        for check in self._checks:
            yield check.verify

    def verify_once(self, columns: Projection) -> None:
        for name, array in self._arrays.items():
            if columns is None or name.partition("#")[0] in columns or name in columns:
                try:
                    array.verify_once()
                except FormatError as error:
                    raise error.at(file=self._path, field=name) from None

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[None], np.ndarray]]:
        if len(records):
            yield self._chunk(0, self.num_records), records

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: a value does not fit its type.
            SchemaError: there is no such column, or a value does not fit schema=.
            ChangedError: the file has become shorter.
        """
        schema: Any = projected(self.schema, columns, self._path)
        if records is None:
            cut = Cut.of_run(chunk.first_record, chunk.num_records, is_chunk=True)
        else:
            check_records(records, chunk.num_records, self._path)
            cut = Cut(records.astype(np.int64, copy=False) + chunk.first_record)
        if not schema.names:
            return empty_columns(cut.total)
        arrays: list[Any] = []
        for name in schema.names:
            try:
                arrays.append(self._columns[name].read(cut))
            except FormatError as error:
                if error.record is not None:
                    error.record = int(cut.records[error.record])
                raise error.at(file=self._path, field=name) from None
        fields: Any = self._stored
        if schema is not self.schema or schema.names != fields.names:
            fields = [self._columns[name].field for name in schema.names]
            fields = pa.schema(fields, self._stored.metadata)
        return conform(pa.RecordBatch.from_arrays(arrays, schema=fields), schema, self._path)

    def close(self) -> None:
        self._source.close()
