"""Arrow IPC, as file and as stream: record batches in their memory layout, read by pyarrow.

The layout and its specification are in `arrow_messages.py`. A chunk is a record batch. The footer of a file has the
positions of its batches. The batches of a stream are found by reading the headers of its messages once. So both allow
cheap random access and cheap counting.

pyarrow trusts the numbers in a batch, and a manipulated file could crash the process when its arrays are read. So every
batch is validated in full before the caller gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    WHOLE,
    BatchCheck,
    check_columns,
    check_records,
    checked,
    conform,
    empty_columns,
    gather,
    gather_parts,
    position,
    projected,
    sound_runs,
)
from penstock.columns.inferred import as_stored
from penstock.columns.selection import Projection, Selection
from penstock.columns.stored_schema import look_at_names
from penstock.columns.types import own_types
from penstock.contract.format import (
    Chunk,
    Format,
    FormatInfo,
    NoOptions,
    Options,
    Reader,
    Stretch,
    Writer,
)
from penstock.contract.regions import Region
from penstock.errors import FormatError, UnsupportedError
from penstock.formats.arrow._batches import (
    Batches,
    Entry,
    check_sizes,
    placed,
    read_options,
    stream_of,
)
from penstock.formats.arrow._cut import Cutter, Read, check_length
from penstock.formats.arrow._unpack import InTurn, codec_of
from penstock.storage.arrow_messages import (
    MAGIC,
    Footer,
    Message,
    is_stream,
    read_footer,
    read_layout,
    read_message,
    walk_stream,
)
from penstock.storage.base import Sink, Source
from penstock.storage.pyarrow_files import Bytes, Pool, next_batch, translated
from penstock.tuned import ARROW_GROUP_BYTES, ARROW_WHOLE_BYTES

FEATHER_1 = b"FEA1"
KEPT_BATCHES = 4096
PART_BYTES = 8 << 20
"""The size of a part. A batch larger than two parts is read in parts, to limit memory."""
RUN_BYTES = 32 << 10
"""How many bytes of a batch are read together for a few of its rows."""
RUN_COSTS = 256 << 10
"""Reading a run of rows separately takes as long as reading this many bytes of a whole batch."""


class ArrowFormat(Format):
    """Arrow IPC as a penstock format."""

    info = FormatInfo(
        "arrow",
        (".arrow", ".feather", ".arrows", ".ipc"),
        only_appends=True,
        can_map=True,
        compressions=("lz4", "zstd"),
    )

    @property
    def write_options(self) -> type:
        from penstock.formats.arrow.writer import ArrowOptions

        return ArrowOptions

    read_options = NoOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith((MAGIC, FEATHER_1)) or is_stream(head, size)

    def open(self, source: Source, options: Options) -> ArrowReader:
        """Read the footer of a file, or the schema of a stream.

        Raises:
            UnsupportedError: the file is a Feather 1 file, or raw=True.
            TruncatedError, FormatError: the file is not valid Arrow IPC.
            SchemaError: a field of schema= is not in the file.
        """
        return ArrowReader(source, options)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.arrow._regions import file_regions

        return file_regions(source, record, options.limits)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.arrow.writer import ArrowWriter

        return ArrowWriter(sink, schema, options, threads)


class Rows(NamedTuple):
    """Rows of a batch from `first` on, as many as their chunk has."""

    entry: Entry
    first: int
    part: Callable[[], Any] | None = None
    """Reads these rows and any earlier ones that must be read first. None if the rows can be read directly."""
    places: Sequence[int] = ()
    """The columns that `part` returns."""


class ArrowReader(Reader):
    """One open Arrow IPC file or stream."""

    def __init__(self, source: Source, options: Options) -> None:
        self._path = source.path
        self._asked = options.schema
        self._options = options
        self._size = source.size
        head = source.read(0, 16).to_bytes()
        if head.startswith(FEATHER_1):
            raise UnsupportedError(
                "Feather version 1 is not Arrow IPC",
                file=self._path,
                hint="pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new)",
            )
        self._bytes = Bytes(source, mmap=options.mmap)
        self._footer: Footer | None = None
        self._start: Message | None = None
        with translated(self._path):
            if head.startswith(MAGIC):
                self._footer = read_footer(self._bytes.read, self._size, options.limits)
            else:
                messages = walk_stream(self._bytes.read, self._size, options.limits)
                self._start = next(messages, None)
                if self._start is None:
                    raise FormatError("the file is not an Arrow stream: it has no schema", byte=0)
            self._pools: dict[Any, Pool[Any]] = {}
            self._written: Any = self._written_schema()
            self._stored: Any = as_stored(own_types(self._written))
            look_at_names(self._stored)
            self.stored_names = self._stored.names
        if self._asked is not None:
            check_columns(self._asked, self._stored, self._path, options.settled)
        self.schema: pa.Schema = self._asked if self._asked is not None else self._stored
        self._batches = Batches(self._bytes, options, self._footer, self._start)
        self._dictionaries_checked = False
        self._kept: dict[Any, Any] = {}
        self._proof = BatchCheck(self._path)
        told = self._footer or self._start
        is_big_endian = told is not None and told.is_big_endian
        self._cutter = Cutter(self._bytes, self._written, is_big_endian)

    def _written_schema(self) -> Any:
        if self._footer is not None:
            with self._pool(()).borrow() as reader:
                return reader.schema
        assert self._start is not None
        return pa.ipc.open_stream(self._bytes.range(0, self._start.end)).schema

    def options_alike(self) -> Any:
        """Return options for a file or stream like this one, with the codec of its first batch."""
        from penstock.formats.arrow.writer import ArrowOptions

        codec = None
        with suppress(FormatError):  # reading the batch reports its damage
            first = next(iter(self._batches), None)
            if first is not None:
                codec = codec_of(read_layout(self._bytes.read, first.message))
        return ArrowOptions(compression=codec, stream=self._footer is None)

    # -- finding the batches ----------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        """The number of records. The first call reads the header of every batch."""
        return self._batches.num_records

    def chunks(self) -> Iterator[Chunk[Any]]:
        for entry in self._batches:
            message = entry.message
            yield Chunk(entry.first_record, message.num_records, message.start, message.end, entry)

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        """Yield the batches and the skipped regions between them. Small batches are grouped, because handing a task to
        another thread takes as long as reading a few hundred kilobytes."""
        group: list[Stretch] = []
        num_bytes = done = 0
        skipped = self._batches.skipped
        for chunk in self.chunks():
            while done < len(skipped) and skipped[done].start_byte < chunk.start_byte:
                group.append(skipped[done])
                done += 1
            group.append(chunk)
            num_bytes += chunk.end_byte - chunk.start_byte
            if num_bytes >= ARROW_GROUP_BYTES or threads == 1:
                yield partial(tuple, group)
                group, num_bytes = [], 0
        yield partial(tuple, [*group, *skipped[done:]])

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        entry: Entry = chunk.data
        message = entry.message
        if not message.compressed and message.end - message.body < 2 * PART_BYTES:
            yield chunk
            return
        rows, start = chunk.num_records, chunk.start_byte
        places = self._places(projected(self.schema, columns, self._path))
        count = min(self._num_bytes(entry.message, places) // PART_BYTES, rows)
        if count < 2:
            yield chunk
            return
        borders = [rows * part // count for part in range(count + 1)]
        in_turn = self._in_turn(entry.message, borders, places)
        num_bytes = chunk.end_byte - start
        for number, (first, end) in enumerate(pairwise(borders)):
            begin, stop = (start + num_bytes * row // rows for row in (first, end))
            part = None if in_turn is None else partial(in_turn.part, number)
            data = Rows(entry, first, part, places)
            yield Chunk(chunk.first_record + first, end - first, begin, stop, data)

    def _num_bytes(self, message: Message, places: list[int]) -> int:
        """Return the bytes of a batch, or 0 if it should be read whole. Raise LimitError if it is too large."""
        if not message.num_records or not self._cutter.can_cut(message, places):
            return 0
        with placed(self._path, message):
            check_sizes(self._bytes.read, (message,), self._options.limits)
            num_bytes = self._cutter.num_bytes(message)
        is_small = message.compressed and num_bytes < ARROW_WHOLE_BYTES
        return 0 if is_small else num_bytes

    def _in_turn(self, message: Message, borders: list[int], places: list[int]) -> InTurn | None:
        if not message.compressed:
            return None
        cutter = self._cutter  # with `self`, the chunks would keep the reader alive
        return InTurn(lambda: cutter.in_order(message, borders, places))

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], np.ndarray]]:
        """Yield all records in one pair, so that no batch is decoded twice."""
        check_records(records, self.num_records, self._path)
        if len(records):
            yield Chunk(0, self.num_records, 0, self._size, WHOLE), records

    # -- decoding the batches ---------------------------------------------------------------------

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Return some records of one batch.

        Raises:
            FormatError: the batch's bytes are invalid.
            LimitError: a compressed batch states an inflated size beyond limits.batch_bytes.
            SchemaError: there is no such column, or a value does not fit schema=.
        """
        schema = projected(self.schema, columns, self._path)
        with translated(self._path):
            if chunk.data == WHOLE:
                if records is None:
                    records = np.arange(self.num_records)
                return gather_parts(self._wanted(records, schema), records, schema, self._path)
            rows, first = chunk.data, chunk.first_record
            if not isinstance(rows, Rows):
                return self._batch(rows, schema, first, records)
            place = rows.entry.number, rows.first, tuple(schema.names)
            batch = self._proof.kept(place)
            if batch is None:
                batch = self._part(rows, chunk.num_records, schema)
            return conform(self._proof.rows(place, batch, records, first), schema, self._path)

    def _wanted(self, records: np.ndarray, schema: Any) -> Iterator[tuple[int, Any]]:
        """Yield the batches that have these records, or the needed runs of their rows, in file order."""
        entries = self._batches.all
        starts = np.asarray([entry.first_record for entry in entries])
        places = np.searchsorted(starts, records, side="right") - 1
        for place in np.unique(places):
            entry = entries[place]
            runs = self._runs(entry, records[places == place] - entry.first_record, schema)
            if runs is None:
                begin = entry.first_record
                read_batch = partial(self._batch, entry, schema, begin)
                yield from sound_runs(read_batch, records, begin, begin + entry.message.num_records)
                continue
            with placed(self._path, entry.message):
                read = self._cutter.reader(entry.message)
            for first, end in runs:
                rows = checked(self._rows(entry, first, end, schema, read), self._path)
                yield entry.first_record + first, conform(rows, schema, self._path)

    def _runs(self, entry: Entry, rows: np.ndarray, schema: Any) -> list[tuple[int, int]] | None:
        """Return runs of rows that include the given rows, or None if reading the whole batch costs no more."""
        message = entry.message
        size = self._num_bytes(message, self._places(schema))
        if not size:
            return None
        step = max(1, message.num_records * RUN_BYTES // size)
        blocks = np.unique(rows // step)
        if len(blocks) * (RUN_COSTS + RUN_BYTES) >= size:
            return None
        breaks = np.flatnonzero(np.diff(blocks) != 1) + 1
        found = [(int(run[0]), int(run[-1]) + 1) for run in np.split(blocks, breaks)]
        return [(low * step, min(high * step, message.num_records)) for low, high in found]

    def _part(self, part: Rows, num_records: int, schema: Any) -> Any:
        """Read one part of a batch with the stored types, unverified."""
        entry, first, end = part.entry, part.first, part.first + num_records
        with placed(self._path, entry.message):
            if part.part is None or part.places != self._places(schema):
                read = self._cutter.reader(entry.message)
                return self._rows(entry, first, end, schema, read)
            return part.part()

    def _rows(self, entry: Entry, start: int, stop: int, schema: Any, read: Read) -> Any:
        """Read rows [start, stop) of a batch with the stored types, unverified."""
        with placed(self._path, entry.message):
            return self._cutter.rows(entry.message, start, stop, self._places(schema), read)

    def _places(self, schema: Any) -> list[int]:
        """Return the positions of a schema's columns in the file."""
        if schema.names == self._stored.names:  # which may have the same name twice
            return list(range(len(schema.names)))
        return [position(self._stored, name, self._path) for name in schema.names]

    def _batch(self, entry: Entry, schema: Any, first_record: int, records: Selection) -> Any:
        """Return a batch with the columns of `schema`, or some rows of it, verified."""
        if not schema.names:
            count = entry.message.num_records if records is None else len(records)
            return empty_columns(count)
        is_all = schema is self._stored or schema.names == self._stored.names
        places = () if is_all else tuple(self._places(schema))
        key = (entry.number, places)
        batch = self._kept.get(key)
        if batch is not None:
            rows = batch if records is None else gather(batch, records)
            return conform(rows, schema, self._path)
        batch = self._proof.kept(key)
        if batch is None:
            batch = self._decoded(entry, places)
        with placed(self._path, entry.message):
            rows = self._proof.rows(key, batch, records, first_record)
        # A batch in a memory map takes memory only for its headers, so keep it, and verify it once.
        borrowed = self._bytes.mapped is not None and not entry.message.compressed
        if borrowed and len(self._kept) < KEPT_BATCHES and self._proof.kept(key) is None:
            self._kept[key] = batch
        return conform(rows, schema, self._path)

    def _decoded(self, entry: Entry, places: tuple[int, ...]) -> Any:
        message = entry.message
        with placed(self._path, message):
            check_sizes(self._bytes.read, (*entry.dictionaries, message), self._options.limits)
            if self._footer is not None:
                self._check_file_dictionaries()
                with self._pool(places).borrow() as reader:
                    batch = reader.get_batch(entry.block)
            else:
                stream = stream_of(self._bytes, self._start, (*entry.dictionaries, message), places)
                batch = next_batch(stream)
            check_length(message, batch.num_rows)
            return batch

    def _pool(self, places: tuple[int, ...]) -> Pool[Any]:
        """Return the pool of file readers for one projection. It is needed because only one thread may use a pyarrow
        reader at a time."""
        file = self._bytes.file  # not `self`, which has the pool: that would be a cycle

        def make() -> Any:
            return pa.ipc.open_file(file(), options=read_options(places))

        return self._pools.setdefault(places, Pool(make))

    def _check_file_dictionaries(self) -> None:
        """Check the sizes of a file's dictionaries, which pyarrow reads with the first batch."""
        assert self._footer is not None
        if self._dictionaries_checked:
            return
        for start, _, _ in self._footer.dictionaries:
            message = read_message(
                self._bytes.read, start, self._footer.start, self._options.limits
            )
            if message is not None:
                check_sizes(self._bytes.read, (message,), self._options.limits)
        self._dictionaries_checked = True

    def close(self) -> None:
        self._kept.clear()
        self._proof.forget()
        for pool in self._pools.values():
            pool.clear()
        self._bytes.close()
