"""Framed formats, once: a walk over frames and a decoder of payloads make a Reader.

TFRecord, RecordIO and their like mark each record in place and say nothing of the whole. Without
an index a shard is walked window by window; with one, its chunks are arithmetic and any record is
one read away. Either way a payload passes the same proof and the same decoder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import (
    ChangedError,
    ChecksumError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    StaleIndexError,
)
from penstock.faults import error_from
from penstock.format import Chunk, Options, Projection, Selection, SkippedRegion
from penstock.framing.gather import gather
from penstock.framing.inflated import Broken, InflatedStream, Stream
from penstock.framing.resync import Region, resynchronise
from penstock.framing.sidecar import Index, as_uint64, fits
from penstock.storage import Source

CHUNK_BYTES = 2 << 20
"""Plain bytes of one chunk: large enough to forget the cost of a call, small enough for a cache."""
LARGE_BYTES = 16 << 10
"""From this mean size on, records are hopped over instead of read to find where they end."""
UNPROVED = "unproved"
"""The column that marks salvaged records."""
_DAMAGED_HEAD = "the head of the record is damaged"
_FRAMING_BYTES = 16


@dataclass(frozen=True, slots=True)
class Proof:
    """Payloads are to be compared with their stored checksums, and those with an index's
    (uint32, by record), if given. A decoder that can does it in the call that decodes."""

    indexed: pa.Array | None = None


class Decoder(Protocol):
    """Turns payloads into a batch of its schema."""

    schema: pa.Schema

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: Proof | None = None
    ) -> pa.RecordBatch:
        """The payloads as a batch; verified first, if a proof is asked for."""
        ...


class FramedReader:
    """A Reader over one framed shard."""

    def __init__(
        self,
        source: Source,
        stream: Stream,
        framing: str,
        options: Options,
        decoder: Decoder,
        index: Callable[[], Index],
        known: Index | None,
    ) -> None:
        self.source = source
        self._stream = stream
        self._framing = framing
        self._options = options
        self._decoder = decoder
        self._build_index = index
        self._index = known
        self._lock = threading.Lock()
        self._salvage = options.damage == "salvage"
        mark = [pa.field(UNPROVED, pa.bool_(), nullable=False)] if self._salvage else []
        self.schema = pa.schema([*decoder.schema, *mark], metadata=decoder.schema.metadata)

    @property
    def index(self) -> Index:
        """Where the records lie; found out when it is first asked for."""
        with self._lock:
            if self._index is None:
                self._index = self._build_index()
            return self._index

    @property
    def num_records(self) -> int:
        return self.index.num_records

    @property
    def has_index(self) -> bool:
        """Whether it is known already where the records lie."""
        return self._index is not None

    def record_bytes(self) -> np.ndarray:
        """Bytes of each record without its frame, int64[num_records]."""
        index = self.index
        return (index.ends - index.starts[: index.num_records]).astype(np.int64) - 16

    def close(self) -> None:
        self.source.close()

    # -- chunks ---------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        if self._index is not None and self._index.gap_ends is None:
            return self._indexed_chunks(self._index)
        return self._walked_chunks()

    def _indexed_chunks(self, index: Index) -> Iterator[Chunk]:
        """Cut the shard at records (for a compressed one, at its points) about CHUNK_BYTES apart."""
        first, number = 0, 0
        ends = index.starts
        points = np.array([p.plain_start for p in index.points], dtype=np.uint64)
        while first < index.num_records:
            # Searched for as uint64: a Python int would make numpy convert all of the index.
            goal = np.uint64(min(int(ends[first]) + CHUNK_BYTES, index.plain_bytes))
            if len(points):
                later = np.searchsorted(points, goal, "left")
                goal = points[later] if later < len(points) else np.uint64(index.plain_bytes)
            # The first record at or after a point: one before it would cost the stretch before.
            last = int(np.searchsorted(ends, goal, "left"))
            last = min(max(last, first + 1), index.num_records)
            bounds = int(ends[first]), int(ends[last])
            yield Chunk(number, first, last - first, *bounds, index)
            first, number = last, number + 1

    def _walked_chunks(self) -> Iterator[Chunk]:
        at = first = number = 0
        want = CHUNK_BYTES
        limit = self._options.limits.record_bytes
        unproved = large = False
        stream = self._stream
        while True:
            if large and not unproved and (hopped := self._hop(stream, at)) is not None:
                count, end = hopped
                yield Chunk(number, first, count, at, end)
                first, number, at = first + count, number + 1, end
                continue
            broken = fault = None
            try:
                walked = stream.walk(self._framing, at, want, limit)
            except _core.KernelError as error:
                broken = error.args[0]
            else:
                frames, consumed, need, fault, num_bytes = walked
                if not num_bytes:
                    return
                if len(frames):
                    data = (frames, unproved)
                    yield Chunk(number, first, len(frames), at, at + consumed, data)
                    first, number = first + len(frames), number + 1
                    at += consumed
                    want = CHUNK_BYTES
                    large = consumed >= LARGE_BYTES * len(frames)
                if fault is None and need:
                    if num_bytes < want:
                        broken = self._break_at(stream, at + num_bytes - consumed)
                        fault = _truncated(num_bytes - consumed, at, need)
                    elif not len(frames):
                        want = max(need, CHUNK_BYTES)
                if fault is not None and broken is None:
                    passed = self._pass_over(stream, fault, first, at, unproved)
                    if passed is None:
                        return
                    region, broken = passed
                    at = region.end_byte
                    # From an unproved border, the record between it and the next proves nothing.
                    unproved = region.unproved or (unproved and region.num_records is not None)
                    want = CHUNK_BYTES
                    first += region.num_records or 0
            if broken is not None:
                later = self._after_break(stream, broken, first, at, fault)
                if later is None:
                    return
                stream, at = later
                want = CHUNK_BYTES
                unproved = False

    def _hop(self, stream: Stream, at: int) -> tuple[int, int] | None:
        """How many records the next chunk has and where it ends, if heads are enough to tell: the
        bytes of such chunks are then read side by side."""
        limit = self._options.limits.record_bytes
        starts = stream.hop(self._framing, at, CHUNK_BYTES, limit)
        if starts is None or len(starts) < 2:
            return None
        return len(starts) - 1, int(starts[-1])

    def _break_at(self, stream: Stream, at: int) -> Any:
        """The fault of the compressed data for which a stream goes no further than `at`, if it is
        for one and there is to be reading after it."""
        if self._options.damage in ("error", "stop"):
            return None
        try:
            stream.read(at, 1)
        except _core.KernelError as error:
            return error.args[0]
        return None

    def _after_break(
        self, stream: Stream, broken: Any, record: int, at: int, cut: Any
    ) -> tuple[Stream, int] | None:
        """Where to go on after a fault of the compressed data, which may have `cut` a record:
        nowhere, or in a stream of its own."""
        if isinstance(stream, InflatedStream) and stream.points:
            # Members were inflated whole, several at once: reading forwards tells which of them
            # breaks, and gives what is before that.
            return stream.without_points(), at
        later = stream.after(broken) if self._goes_on(stream) else None
        if later is None:
            self._stop_in_file(broken, record)
            return None
        other, plain, end = later
        start = min(broken.byte, end)
        if broken.kind == "compression_checksum" and start < end and cut is None and at == plain:
            # All of the member was inflated, and its records have checksums of their own.
            self._skip(start, end, 0, broken.message)
        else:
            self._skip(start, end, None, broken.message)
        return other, plain

    def _pass_over(
        self, stream: Stream, fault: Any, record: int, at: int, unproved: bool
    ) -> tuple[Region, Any] | None:
        """What to do about a broken frame: an error, an end, or a region to pass over, with the
        fault of the compressed data that ends it, if one does."""
        if self._options.damage in ("error", "stop"):
            self._stop_at(fault, record, at)
            return None
        region = resynchronise(stream, self._framing, at, self._salvage, unproved)
        reason = fault.message if region.note is None else f"{fault.message}; {region.note}"
        self._skip(at, region.end_byte, region.num_records, reason)
        broken = self._break_at(stream, region.end_byte) if region.at_end else None
        return None if region.at_end and broken is None else (region, broken)

    def _stop_at(self, fault: Any, record: int, at: int) -> None:
        """Raise the fault of a frame, or note that reading ends at it."""
        error = error_from(fault, file=self.source.path, record=record)
        if self._options.damage == "error":
            raise error
        size = self._stream.size()
        end = self.source.size if size is None else size
        self._skip(at, max(end, at), None, error.message)

    def _stop_in_file(self, fault: Any, record: int) -> None:
        """Raise a fault of the compressed data, or note that reading ends there. Such a fault has
        a place in the file, and how much of the stream is lost nobody knows."""
        error = error_from(fault, file=self.source.path, record=record)
        if self._options.damage == "error":
            raise error
        size = self.source.size
        self._skip(min(fault.byte, size), size, None, error.message)

    def _skip(self, start: int, end: int, num_records: int | None, reason: str) -> None:
        region = SkippedRegion(self.source.path, start, end, num_records, reason)
        self._options.skipped(region)

    # -- records --------------------------------------------------------------------------------

    def decode(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        return self.delivered(chunk, records, columns)[0]

    def delivered(
        self, chunk: Chunk, records: Selection, columns: Projection
    ) -> tuple[pa.RecordBatch, Selection]:
        """What `decode` gives, and which records of the chunk these are: where damage is passed
        over, not all that were asked for."""
        numbers = None if records is None else np.asarray(records, dtype=np.int64)
        frames, unproved, checksums, numbers = self._frames(chunk, numbers)
        wanted = None if columns is None else [c for c in columns if c != UNPROVED]
        indexed = None if checksums is None else pa.array(checksums)
        proof = Proof(indexed) if self._options.checksums == "all" else None
        try:
            try:
                batch = self._decoder.decode(frames, wanted, proof)
            except _core.KernelError as error:
                if proof is None or error.args[0].kind not in ("data_checksum", "stale"):
                    raise
                frames, numbers = self._proved(chunk, frames, numbers, indexed)
                batch = self._decoder.decode(frames, wanted)
        except _core.KernelError as error:
            raise self._located(error.args[0], chunk, numbers) from None
        except SchemaError as error:
            # Of a field made of several columns: its record is a row of this batch.
            if error.record is not None:
                error.record = self._record_of(error.record, chunk, numbers)
            error.at(file=self.source.path)
            raise
        return self._marked(batch, unproved, columns) if self._salvage else batch, numbers

    def frames(self, chunk: Chunk) -> _core.Frames:
        """All frames of a chunk, unproved."""
        return self._frames(chunk, None)[0]

    def readable(self, chunk: Chunk) -> np.ndarray:
        """Which records of a chunk have a frame; where damage is passed over, the others are."""
        numbers = self._frames(chunk, None)[3]
        return np.arange(chunk.num_records) if numbers is None else numbers

    def places(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Where the frames of the readable records of a chunk begin, and where they end."""
        frames = self._frames(chunk, None)[0]
        starts = pa.array(frames.starts()).to_numpy()
        return starts, starts + pa.array(frames.lengths()).to_numpy() + np.uint64(_FRAMING_BYTES)

    def _frames(
        self, chunk: Chunk, numbers: np.ndarray | None
    ) -> tuple[_core.Frames, bool, np.ndarray | None, np.ndarray | None]:
        """The asked frames of a chunk, whether they are unproved, the index's checksums, and which
        frames of the chunk they are; None for all of them."""
        unproved = False
        checksums: np.ndarray | None = None
        # Only the index that a chunk was cut from numbers records as the chunk does.
        index = chunk.data if isinstance(chunk.data, Index) else None
        if chunk.data is not None and not isinstance(chunk.data, Index):
            frames, unproved, *rest = chunk.data
            checksums = rest[0] if rest else None
        else:
            first, last = chunk.first_record, chunk.first_record + chunk.num_records
            length = chunk.end_byte - chunk.start_byte
            if index is not None:
                checksums = index.checksums[first:last]
                self._check_places(index.starts[first : last + 1], length)
            try:
                window = self._stream.read(chunk.start_byte, length)
            except _core.KernelError as error:
                fault = error.args[0]
                if index is None or numbers is not None or not self._goes_on(self._stream):
                    raise error_from(fault, file=self.source.path, record=None) from None
                frames, good = self._around(chunk, fault)
                return frames, False, index.checksums[first:last][good], good
            limit = self._options.limits.record_bytes
            frames, consumed, _, _ = _core.walk(self._framing, window, chunk.start_byte, limit)
            if len(frames) != chunk.num_records or consumed != length:
                # The walk broke on the way: the index knows where the other records are.
                if index is None or checksums is None:
                    message = "the file is not what it was when its chunks were found"
                    raise ChangedError(message, file=self.source.path, record=first)
                asked = np.arange(chunk.num_records) if numbers is None else numbers
                if numbers is None and self._options.damage in ("skip", "salvage"):
                    asked = self._undamaged(window, chunk)
                frames = self._by_index(window, chunk, asked)
                return frames, False, checksums[asked], asked
        if numbers is None:
            return frames, unproved, checksums, None
        chosen = None if checksums is None else checksums[numbers]
        return frames.select(as_uint64(numbers)), unproved, chosen, numbers

    def _goes_on(self, stream: Stream) -> TypeGuard[InflatedStream]:
        """Whether reading goes on after a fault of compressed data."""
        return self._options.damage in ("skip", "salvage") and isinstance(stream, InflatedStream)

    def _around(self, chunk: Chunk, fault: Any) -> tuple[_core.Frames, np.ndarray]:
        """The frames of a chunk of which some compressed data is broken, but for those in it, and
        which of the chunk's they are."""
        stream = self._stream
        assert isinstance(stream, InflatedStream), "only compressed data breaks"
        length = chunk.end_byte - chunk.start_byte
        # What a broken member inflates to needs the proof of each record.
        partly = self._options.checksums == "all"
        window, broken = stream.read_around(chunk.start_byte, length, fault, partly)
        good = self._undamaged(window, chunk, broken)
        return self._by_index(window, chunk, good), good

    def _check_places(self, starts: np.ndarray, length: int) -> None:
        """Refuse an index whose records lie in no order, or that would read more than is allowed."""
        limits = self._options.limits
        most = limits.record_bytes + limits.member_bytes + 4 * CHUNK_BYTES
        if (starts[1:] <= starts[:-1]).any() or length > most:
            message = "the index has records where none can be"
            raise StaleIndexError(message, file=self.source.path)

    def _by_index(self, window: _core.Buffer, chunk: Chunk, asked: np.ndarray) -> _core.Frames:
        """The asked frames of a chunk with damaged heads; raises at the first damaged one."""
        if not len(asked):
            return _core.walk(self._framing, window.slice(0, 0), 0, 0)[0]
        records = chunk.first_record + asked
        starts, ends = self.index.starts[records], self.index.ends[records]
        places, lengths = pa.array(starts), pa.array(ends - starts)
        inside = pa.array(starts - np.uint64(chunk.start_byte))
        try:
            return _core.frames_at(self._framing, window, inside, lengths, places)
        except _core.KernelError as error:
            record = int(records[error.args[0].record])
            self._raise_cut(chunk.start_byte + len(window), record)
            raise self._damaged_head(record) from None

    def _raise_cut(self, end: int, record: int) -> None:
        """If the stream breaks off at `end`, within this record, raise why."""
        if end >= int(self.index.ends[record]):
            return
        try:
            self._stream.read(end, 1)
        except _core.KernelError as error:
            raise error_from(error.args[0], file=self.source.path, record=record) from None

    def _damaged_head(self, record: int) -> ChecksumError:
        return ChecksumError(
            _DAMAGED_HEAD,
            file=self.source.path,
            record=record,
            byte=int(self.index.starts[record]),
            hint=f"penstock verify {self.source.path}",
        )

    def _undamaged(
        self, window: _core.Buffer, chunk: Chunk, broken: list[Broken] | None = None
    ) -> np.ndarray:
        """Which frames of a chunk stand where the index has them; the others are passed over, those
        in compressed data that is broken all at once."""
        begin, end = chunk.first_record, chunk.first_record + chunk.num_records
        starts, ends = self.index.starts[begin:end], self.index.ends[begin:end]
        good = np.zeros(chunk.num_records, dtype=bool)
        lost = np.zeros(chunk.num_records, dtype=bool)
        for part in broken or []:
            lost |= (starts < np.uint64(part.end)) & (ends > np.uint64(part.start))
        at = 0
        while at < chunk.num_records:
            inside = int(starts[at]) - chunk.start_byte
            rest = window.slice(inside, max(len(window) - inside, 0))
            limit = self._options.limits.record_bytes
            frames = _core.walk(self._framing, rest, int(starts[at]), limit)[0]
            found = pa.array(frames.starts()).to_numpy()
            sizes = pa.array(frames.lengths()).to_numpy() + np.uint64(_FRAMING_BYTES)
            known = slice(at, at + len(found))
            num = len(starts[known])
            same = (found[:num] == starts[known]) & (sizes[:num] == (ends - starts)[known])
            agreed = num if same.all() else int(np.argmin(same))
            good[at : at + agreed] = True
            at += agreed
            if at < chunk.num_records:
                if not lost[at]:
                    self._skip(int(starts[at]), int(ends[at]), 1, _DAMAGED_HEAD)
                at += 1
        for part in broken or []:
            inside = (starts >= np.uint64(part.start)) & (starts < np.uint64(part.end))
            num_lost = int((inside & ~good).sum())
            self._skip(part.start_byte, part.end_byte, num_lost, part.message)
        return np.flatnonzero(good)

    def _proved(
        self,
        chunk: Chunk,
        frames: _core.Frames,
        numbers: np.ndarray | None,
        indexed: pa.Array | None,
    ) -> tuple[_core.Frames, np.ndarray | None]:
        """The frames whose payloads are what was written; the others raise or are passed over."""
        faults = frames.verify(indexed)
        # Who asks for records by number wants those or an error, not others in their places.
        passing = self._options.damage in ("skip", "salvage") and chunk.first_record >= 0
        for fault in faults:
            if not passing or fault.kind == "stale":
                raise self._located(fault, chunk, numbers)
        bad = np.array([fault.record for fault in faults], dtype=np.int64)
        starts = pa.array(frames.starts()).to_numpy()
        lengths = pa.array(frames.lengths()).to_numpy()
        for fault in faults:
            start, length = int(starts[fault.record]), int(lengths[fault.record])
            self._skip(start, start + length + _FRAMING_BYTES, 1, fault.message)
        kept = np.setdiff1d(np.arange(len(frames)), bad)
        numbers = kept if numbers is None else numbers[kept]
        return frames.select(as_uint64(kept)), numbers

    def _located(self, fault: Any, chunk: Chunk, numbers: np.ndarray | None) -> PenstockError:
        """A fault of a chunk as an error that names the shard's record."""
        row = fault.record
        record = None if row is None else self._record_of(row, chunk, numbers)
        return error_from(fault, file=self.source.path, record=record)

    def _record_of(self, row: int, chunk: Chunk, numbers: np.ndarray | None) -> int:
        """The shard's record behind a row of a decoded batch."""
        if chunk.first_record < 0:
            return int(chunk.data[3][row])
        return int(row if numbers is None else numbers[row]) + chunk.first_record

    def _marked(self, batch: pa.RecordBatch, unproved: bool, columns: Projection) -> pa.RecordBatch:
        if columns is not None and UNPROVED not in columns:
            return batch
        mark = pa.array(np.full(batch.num_rows, unproved))
        field = pa.field(UNPROVED, pa.bool_(), nullable=False)
        schema = batch.schema.append(field)
        return pa.RecordBatch.from_arrays([*batch.columns, mark], schema=schema)

    # -- random access --------------------------------------------------------------------------

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk, np.ndarray]]:
        """The asked records as one chunk of their own: an index makes any set of them a chunk."""
        index = self.index
        records = np.asarray(records, dtype=np.int64)
        if len(records) and not (0 <= records.min() and records.max() < index.num_records):
            raise RecordIndexError(
                f"no such record among {index.num_records}", file=self.source.path
            )
        starts, ends = index.starts[records], index.ends[records]
        frames = self._gathered(starts.astype(np.uint64), ends.astype(np.uint64), records)
        data = (frames, False, index.checksums[records], records)
        yield Chunk(0, -1, len(records), 0, 0, data), np.arange(len(records))

    def _gathered(self, starts: np.ndarray, ends: np.ndarray, records: np.ndarray) -> _core.Frames:
        lengths = ends - starts
        wrong = (ends < starts) | (ends > np.uint64(self.index.plain_bytes))
        if wrong.any():
            raise StaleIndexError("the index points beyond the file", file=self.source.path)
        if len(lengths):
            self._options.limits.check("record_bytes", int(lengths.max()) - _FRAMING_BYTES)
        try:
            return gather(self.source, self._stream, self.index, self._framing, starts, ends)
        except _core.KernelError as error:
            fault = error.args[0]
            record = None if fault.record is None else int(records[fault.record])
            fitting = fault.kind == "stale" and fits(self.index, self.source, self._framing)
            if fitting and record is not None:
                if self._walks_to_its_end():
                    message = "the file is whole, but not the one that was indexed"
                    raise StaleIndexError(message, file=self.source.path, record=record) from None
                raise self._damaged_head(record) from None
            raise error_from(fault, file=self.source.path, record=record) from None

    def _walks_to_its_end(self) -> bool:
        """Whether the heads of a plain file lead to its end: then nothing in it is damaged, and an
        index that disagrees is of another file."""
        if self.index.compression:
            return False
        limit = self._options.limits.record_bytes
        starts = self._stream.hop(self._framing, 0, 1 << 62, limit)
        return starts is not None and int(starts[-1]) == self.source.size


def _truncated(left: int, at: int, need: int) -> Any:
    """The fault of a stream that ends `left` bytes into a frame."""
    short = left < 12
    message = (
        f"{left} bytes at the end are no whole record head"
        if short
        else "the data ends inside a record"
    )
    return _core.Fault("short_tail" if short else "truncated", at, message, need, left)
