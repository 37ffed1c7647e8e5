"""The Reader of all framed formats: a walk over frames, and a decoder of their payloads.

TFRecord, RecordIO and similar formats store a header with each record, but no table of all records. Without an index, a
shard is walked window by window. With an index, chunks are computed from it, and any record takes a single read.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.inferred import InferredFrom, file_name
from penstock.columns.numbers import as_arrow, as_numpy, outside
from penstock.columns.selection import Projection, Selection
from penstock.contract.decoder import Decoder, FrameCheck, Places
from penstock.contract.format import (
    Chunk,
    Delivered,
    Readable,
    Reader,
    SkippedRegion,
    Stretch,
    only_chunks,
)
from penstock.contract.left_out import warns_first
from penstock.engine.locks import Lock
from penstock.errors import FormatError, LimitError, RecordIndexError, SchemaError
from penstock.framing.index.indexing import build_index
from penstock.framing.index.sidecar import Index
from penstock.framing.read._places import places_of
from penstock.framing.read.chunk_frames import ChunkFrames
from penstock.framing.read.chunks import OnLong, indexed_chunks, walked_chunks
from penstock.framing.read.held import FrameChunk, Held
from penstock.framing.read.shard import OpenShard
from penstock.framing.read.windows import Windows
from penstock.framing.streams.inflated import InflatedStream
from penstock.framing.streams.stream import MembersStream, PlainStream
from penstock.tuned import FIRST_WINDOW_BYTES, LARGE_CHUNK_BYTES

_HEAD_BYTES = 4096
"""Enough for the header of a large frame in any framing, and for a few small members in front of a tar's large one."""
_PART_BYTES = 16 << 20
"""Maximum bytes of a batch's fixed-width values and nulls, even if its records take few bytes in the file."""


class FramedReader(Reader):
    """A Reader of one framed shard. If its index is not `known`, it is built when it is needed."""

    def __init__(self, shard: OpenShard, decoder: Decoder, known: Index | None) -> None:
        self.source = shard.source
        self._shard = shard
        self._frames = ChunkFrames(shard)
        self._plain = decoder
        retyped = shard.options.retyped
        seen = InferredFrom.of(decoder.schema if retyped is None else retyped.own)
        self._seen = seen
        is_known = seen is None or (seen.is_all and seen.place == file_name(shard.source.path))
        self._decoder = decoder if is_known or shard.options.complete else decoder.noticing()
        self._lending: tuple[Decoder, Decoder] | None = None
        """The latest decoder that was asked for views, and the one that returns them."""
        self._index = known
        self._lock = Lock()
        self._streams: dict[frozenset[str], MembersStream | None] = {}
        self.on_long: OnLong | None = None
        """If set, it is called for a record above the size limit, and the walk continues."""
        self._row_bytes = decoder.row_bytes
        self._all_bytes = sum(self._row_bytes.values())
        self.schema = decoder.schema
        self.stored_names = decoder.stored_names

    @property
    def index(self) -> Index:
        with self._lock:
            if self._index is None:
                self._index = build_index(self._shard)
            return self._index

    @property
    def num_records(self) -> int:
        return self.index.num_records

    @property
    def has_index(self) -> bool:
        """Whether the positions of the records are already known."""
        return self._index is not None

    @property
    def uncounted(self) -> Sequence[SkippedRegion]:
        return () if self._index is None else self._index.gaps

    def place(self, record: int) -> tuple[str, int, int] | None:
        index = self.index
        return self.source.path, int(index.starts[record]), int(index.ends[record])

    def numbers(self, chunk: FrameChunk) -> np.ndarray:
        index = self._index
        if index is None or index.gap_ends is None:
            return super().numbers(chunk)
        # The chunks count lost records, too, but the index of a damaged file has only the readable ones.
        starts = index.starts[: index.num_records]
        first = int(np.searchsorted(starts, np.uint64(chunk.start_byte)))
        return np.arange(first, first + chunk.num_records)

    def record_numbers(self, chunk: FrameChunk) -> np.ndarray:
        records = chunk.data.records if isinstance(chunk.data, Held) else None
        if records is not None and len(records) == chunk.num_records:
            return records  # also those that were picked
        return super().record_numbers(chunk)

    def record_bytes(self) -> np.ndarray:
        """Bytes of each record without its frame, int64[num_records]."""
        index = self.index
        sizes = (index.ends - index.starts[: index.num_records]).astype(np.int64)
        return sizes - self._shard.framing.least_bytes

    def close(self) -> None:
        self.source.close()

    def compares(self, chunk: FrameChunk | None) -> bool:
        held = None if chunk is None else chunk.data
        by_index = isinstance(held, Index) or (
            isinstance(held, Held) and held.checksums is not None
        )
        return self._shard.verifies and (self._shard.framing.is_checked or by_index)

    def chunks(self) -> Iterator[FrameChunk]:
        return only_chunks(self.found())

    def found(self) -> Iterator[Stretch]:
        """The chunks and skipped regions, from the index or by a walk."""
        if self._index is not None and self._index.gap_ends is None:
            most = self._shard.record_bytes + self._shard.framing.least_bytes
            yield from indexed_chunks(self._index, most)
            return
        yield from walked_chunks(self._shard, on_long=self.on_long)
        if isinstance(self._shard.stream, InflatedStream):
            self._shard.stream.rest()

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        shard = self._shard
        self.source.read_in_order()
        size = None if shard.stream.container else shard.stream.size()
        if threads == 1 or self._index is not None or size is None or self._begins_large():
            return self.found()
        return self._in_windows(Windows(shard, size))

    def _begins_large(self) -> bool:
        """Whether the first record is about as large as a window. Finding the next header is then no work, and windows
        would cut, and read again, nearly every record."""
        shard = self._shard
        try:
            begun = shard.stream.walk(shard.framing, shard.begin, _HEAD_BYTES, shard.record_bytes)
        except _core.KernelError:
            return False
        return 2 * begun.need >= LARGE_CHUNK_BYTES

    def spans(self) -> Iterator[FrameChunk]:
        index = self.index
        if not self._shard.stream.container:
            yield from self.chunks()
        elif index.num_records:
            yield Chunk(0, index.num_records, 0, self.source.size, index)

    def found_in(self, part: Chunk[Any]) -> Iterator[FrameChunk]:
        stream = self._shard.stream
        if self._index is not None or not part.end_byte or not isinstance(stream, PlainStream):
            return super().found_in(part)
        self.source.read_in_order(part.start_byte, part.end_byte)
        bounded = replace(self._shard, stream=stream.until(part.end_byte))
        return only_chunks(walked_chunks(bounded, start=(part.start_byte, part.first_record)))

    def found_for(
        self, columns: Projection, threads: int
    ) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        shard = self._shard
        stream = self._members(columns) if self._index is None else None
        if stream is not None:
            stream.read(shard.begin, FIRST_WINDOW_BYTES)  # shows whether the members are too small
        if stream is None or not stream.pays:
            return self.found_by(threads)
        return walked_chunks(replace(shard, stream=stream))

    def _members(self, columns: Projection) -> MembersStream | None:
        """The stream of only those members of each record that these columns need. None if all bytes are needed: also
        to look for records after damage, which is done by their bytes."""
        shard = self._shard
        fields = self._plain.members(columns)
        if fields is None or shard.options.damage != "error" or shard.skips_long or self.on_long:
            return None
        if fields not in self._streams:
            self._streams[fields] = shard.stream.of_members(fields)
        return self._streams[fields]

    def _in_windows(self, windows: Windows) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        yield from windows
        if not self._shard.skips_long_records:
            # This waits inside the task, not in this thread, so that the next file can be opened
            # meanwhile.
            yield lambda: tuple(self._after_windows(windows))
        else:
            yield from self._after_windows(windows)

    def _after_windows(self, windows: Windows) -> Iterator[Stretch]:
        """Continue from the fault that ended the windows, if any: raise it, or skip it and yield later chunks."""
        if (rest := windows.rest()) is not None:
            yield from walked_chunks(self._shard, start=rest)

    def pick(self, records: np.ndarray) -> Iterator[tuple[FrameChunk, Selection]]:
        """The requested records as a single chunk."""
        index = self.index
        records = np.asarray(records, dtype=np.int64)
        if outside(records, index.num_records):
            raise RecordIndexError(
                f"no such record; the shard has {index.num_records}", file=self.source.path
            )
        held = self._frames.picked(index, records)
        yield Chunk(0, len(records), 0, 0, held), None

    def want(self, records: np.ndarray, columns: Projection) -> Sequence[object] | None:
        index = self.index
        if self._shard.stream.container or not len(records):
            return ()
        starts, ends = index.starts[records].astype(np.int64), index.ends[records].astype(np.int64)
        is_first = np.append(True, starts[1:] != ends[:-1])
        first, last = starts[is_first], ends[np.append(is_first[1:], True)]
        return self.source.want(first.tolist(), (last - first).tolist())

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        if self._all_bytes > self._shard.options.limits.batch_bytes:
            return None
        return self._decoder.decode_at(lambda: self._places, records, columns)

    @cached_property
    def _places(self) -> Places | None:
        return places_of(self._shard, self.index)

    def decode(self, chunk: FrameChunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._delivered(chunk, records, columns).batch

    def lent(self, chunk: FrameChunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        return self._delivered(chunk, records, columns, lends=True).batch

    def delivered(self, chunk: FrameChunk, records: Selection, columns: Projection) -> Delivered:
        return self._delivered(chunk, records, columns)

    # Complexity: one branch for each kind of fault that a batch may have.
    def _delivered(
        self,
        chunk: FrameChunk,
        records: Selection,
        columns: Projection,
        *,
        lends: bool = False,
    ) -> Delivered:
        decoder = self._decoder_of(columns, lends)
        numbers = None if records is None else np.asarray(records, dtype=np.int64)
        self._check_width(columns)
        stream = None if self._shard.verifies else self._members(columns)
        held = self._frames.read(chunk, numbers, stream)
        proof = None
        if self._shard.verifies and not held.verified:
            proof = FrameCheck(None if held.checksums is None else as_arrow(held.checksums))
        try:
            try:
                batch = decoder.decode(held.frames, columns, _apart(held.frames, proof))
            except _core.KernelError as error:
                if proof is None or error.args[0].kind not in ("data_checksum", "stale"):
                    raise
                held = self._frames.proved(held, chunk)
                batch = decoder.decode(held.frames, columns)
        except _core.KernelError as error:
            if error.args[0].kind == "unexpected" and not self._shard.options.complete:
                self._warn(error.args[0], held, chunk)
                self._decoder = self._plain
                return self._delivered(chunk, records, columns, lends=lends)
            raise self._frames.located(error.args[0], held, chunk) from None
        except (SchemaError, FormatError) as error:
            self._add_place(error, held, chunk)
            raise
        kept = records if held.records is None else held.records - chunk.first_record
        return Delivered(batch, kept, held.skipped)

    def _decoder_of(self, columns: Projection, lends: bool) -> Decoder:
        # A caller that names columns does not miss others.
        decoder = self._decoder if columns is None else self._plain
        if not lends:
            return decoder
        lending = self._lending
        if lending is None or lending[0] is not decoder:
            lending = self._lending = decoder, decoder.lending()
        return lending[1]

    def _warn(self, fault: _core.Fault, held: Held, chunk: FrameChunk) -> None:
        """Warn, once for a field of the dataset, that it is left out."""
        path = self.source.path
        if warns_first(self._shard.options.origin or (path, 1), fault.field):
            found = self._frames.located(fault, held, chunk)
            warnings.warn(
                f"{path}: record {found.record} has the field {found.field!r}, which is left out, because the fields "
                f'were inferred from {self._seen}; open(..., infer_records="all") finds it',
                stacklevel=2,
            )

    def _add_place(self, error: SchemaError | FormatError, held: Held, chunk: FrameChunk) -> None:
        is_format = isinstance(error, FormatError)
        if is_format and error.file is not None:
            return  # verification raised it, with the position
        # The decoder raised it, with the row of this batch as its record.
        if (row := error.record) is not None:
            if is_format:
                error.at(byte=self._frames.payload_byte(row, held))
            error.record = self._frames.record_of(row, held, chunk)
        error.at(file=self.source.path)

    def parts(self, chunk: FrameChunk, columns: Projection) -> Iterator[FrameChunk]:
        if chunk.num_records * self._all_bytes <= _PART_BYTES:
            yield chunk  # the usual case, for any columns
            return
        most = max(_PART_BYTES // max(self._width(columns), 1), 1)
        if chunk.num_records <= most:
            yield chunk
            return
        first = chunk.first_record
        if isinstance(index := chunk.data, Index) and not self._shard.stream.container:
            for begin, end in pairwise([*range(0, chunk.num_records, most), chunk.num_records]):
                places = index.starts[first + begin], index.starts[first + end]
                yield Chunk(first + begin, end - begin, int(places[0]), int(places[1]), index)
            return
        held = self._frames.read(chunk, None)
        if held.records is not None:
            yield chunk  # a damaged chunk, whose frames are not numbered consecutively
            return
        ends = [*range(0, len(held.frames), most), len(held.frames)]
        starts = as_numpy(held.frames.starts())
        for begin, last in pairwise(ends):
            end = int(starts[last]) if last < len(starts) else chunk.end_byte
            part = held.slice(begin, last)
            yield Chunk(first + begin, last - begin, int(starts[begin]), end, part)

    def _check_width(self, columns: Projection) -> None:
        limits = self._shard.options.limits
        if self._all_bytes <= limits.batch_bytes:
            return
        try:
            limits.check("batch_bytes", self._width(columns))
        except LimitError as error:
            raise error.at(file=self.source.path) from None

    def _width(self, columns: Projection) -> int:
        """Minimum number of bytes that a record takes in these columns."""
        names = self._row_bytes if columns is None else columns
        return sum(self._row_bytes.get(name, 0) for name in names)

    def held(self, chunk: FrameChunk) -> FrameChunk:
        """The same chunk with its frames loaded, so that they are read only once."""
        return replace(chunk, data=self._frames.read(chunk, None))

    def frames(self, chunk: FrameChunk) -> _core.Frames:
        """All frames of a chunk, not verified."""
        return self._frames.read(chunk, None).frames

    def readable(self, chunk: FrameChunk) -> Readable:
        return self._frames.readable(chunk)


class _Proving(threading.local):
    """Seconds that this thread has spent on verification; None if they are not measured."""

    seconds: float | None = None


_PROVING = _Proving()


@contextmanager
def proving_timed() -> Generator[Callable[[], float]]:
    """Let this thread verify payloads in a separate call, to measure the time. That takes a second pass over them.
    Yields a function that returns the seconds so far."""
    _PROVING.seconds = 0.0
    try:
        yield lambda: _PROVING.seconds or 0.0
    finally:
        _PROVING.seconds = None


def _apart(frames: _core.Frames, proof: FrameCheck | None) -> FrameCheck | None:
    """Verify now if the time is measured. Returns the verification that remains for the decoder."""
    if proof is None or _PROVING.seconds is None:
        return proof
    begun = time.perf_counter()
    frames.prove(proof.indexed)
    _PROVING.seconds += time.perf_counter() - begun
    return None
