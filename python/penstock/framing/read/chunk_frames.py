"""Read the frames of a chunk, check that they are at the expected offsets, and verify them.

An index stores the position of each record and the checksum of its payload. A record whose header or stored checksum
is damaged is therefore not lost if damage is skipped: its frame is rebuilt around the verified payload.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.contract.format import Readable, SkippedRegion
from penstock.errors import (
    ChecksumError,
    LimitError,
    PenstockError,
    StaleIndexError,
    command,
)
from penstock.framing.damage import frames_around_damage
from penstock.framing.index.fitting import fits
from penstock.framing.index.sidecar import Index
from penstock.framing.read._gather import gather
from penstock.framing.read.held import FrameChunk, Held, frames_in
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import Stream
from penstock.limits import raise_limit
from penstock.storage.local import LocalSource
from penstock.tuned import CHUNK_BYTES

_DAMAGED_HEAD = "the header of the record is damaged"
_RESTORED = "only the framing of the record is damaged, the payload is intact"


class ChunkFrames:
    """Returns the frames of one shard's chunks. Several threads may use it at the same time."""

    def __init__(self, shard: OpenShard) -> None:
        self._shard = shard
        self._framing = shard.framing
        self._seen: tuple[tuple[int, int], bool] | None = None
        """Size and modification time of the file when `_walks_to_its_end` last read it, and the result."""

    def read(
        self, chunk: FrameChunk, numbers: np.ndarray | None, stream: Stream | None = None
    ) -> Held:
        """The frames with these numbers in the chunk, or all readable frames. `stream`: the parts of them to read."""
        if isinstance(chunk.data, Index):
            return self._indexed(chunk, chunk.data, numbers, stream or self._shard.stream)
        held = chunk.data
        return held if numbers is None else held.select(numbers, chunk.first_record)

    def _whole(self, chunk: FrameChunk, window: _core.Buffer) -> _core.Frames | None:
        """The frames in the bytes of a chunk; None unless these hold exactly `chunk.num_records` frames."""
        # The window counts as the end of the stream, because the last frame of a chunk ends with it. The frame of
        # a tar has no end of its own.
        framing, most = self._framing.name, self._shard.record_bytes
        frames, consumed, _, _ = _core.walk(framing, window, chunk.start_byte, most, True)
        is_all = len(frames) == chunk.num_records and consumed == len(window)
        return frames if is_all else None

    def readable(self, chunk: FrameChunk) -> Readable:
        """The records of a chunk whose frames can be read; the others are skipped."""
        held = self.read(chunk, None)
        records = np.arange(chunk.num_records)
        starts = as_numpy(held.frames.starts())
        ends = starts + self._framing.frame_bytes(as_numpy(held.frames.lengths()))
        if held.records is not None:
            known = held.records >= 0
            records, starts, ends = (
                held.records[known] - chunk.first_record,
                starts[known],
                ends[known],
            )
        return Readable(records, starts, ends, held.skipped)

    # -- by an index ----------------------------------------------------------------------------

    def _indexed(
        self, chunk: FrameChunk, index: Index, numbers: np.ndarray | None, stream: Stream
    ) -> Held:
        first, last = chunk.first_record, chunk.first_record + chunk.num_records
        length = chunk.end_byte - chunk.start_byte
        if chunk.num_records == 1 and length - self._framing.least_bytes > self._shard.record_bytes:
            return self._long(index, first, numbers)
        checksums = index.checksums[first:last]
        self._check_places(index.starts[first : last + 1], length)
        try:
            window = stream.read(chunk.start_byte, length)
            frames = self._whole(chunk, window) if len(window) == length else None
            if frames is not None:
                held = Held(frames, checksums=checksums)
                return held if numbers is None else held.select(numbers, first)
            # The walk stopped at a fault, but the index has the positions of the other records.
            if self._shard.skips_damage:
                return self._around_damage(chunk, index, numbers)
        except _core.KernelError as error:
            if not self._shard.skips_damage:
                raise self._shard.error(error.args[0], None) from None
            return self._around_damage(chunk, index, numbers)
        asked = np.arange(chunk.num_records) if numbers is None else numbers
        self._check_sizes(index, first + asked)
        frames = self._by_index(window, chunk.start_byte, index, first + asked)
        return Held(frames, checksums[asked], first + asked)

    def _around_damage(self, chunk: FrameChunk, index: Index, numbers: np.ndarray | None) -> Held:
        """The frames of a damaged chunk that a damage scan accepts; the others are skipped, or raise an error if they
        were requested."""
        held = frames_around_damage(self._shard, chunk, index)
        if numbers is None:
            return held
        assert held.records is not None, "the scan sets them"
        wanted = chunk.first_record + numbers
        held = held.select(np.flatnonzero(held.records >= 0), chunk.first_record)
        assert held.records is not None, "as before"
        missing = wanted[~np.isin(wanted, held.records)]
        if len(missing):
            raise self._damaged_head(index, int(missing[0]))
        return held.select(np.searchsorted(held.records, wanted), chunk.first_record)

    def _long(self, index: Index, record: int, numbers: np.ndarray | None) -> Held:
        """Raise LimitError for a record above the size limit, or skip it."""
        skipped: tuple[SkippedRegion, ...] = ()
        try:
            self._check_sizes(index, np.array([record]))
        except LimitError as error:
            if numbers is not None and not len(numbers):
                pass
            elif numbers is not None or not self._shard.skips_damage:
                raise
            else:
                start, end = int(index.starts[record]), int(index.ends[record])
                skipped = (self._shard.skipped(start, end, 1, error.message),)
        nothing = np.zeros(0, np.uint64)
        frames = frames_in(self._framing, _core.Buffer.from_bytes(b""), nothing, nothing)
        records, checksums = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return Held(frames, records=records, checksums=checksums, skipped=skipped)

    def _check_sizes(self, index: Index, records: np.ndarray) -> None:
        sizes = (index.ends[records] - index.starts[records]).astype(np.int64)
        long = np.flatnonzero(sizes - self._framing.least_bytes > self._shard.record_bytes)
        if len(long):
            record = int(records[long[0]])
            found = int(sizes[long[0]]) - self._framing.least_bytes
            raise LimitError(
                "the record is longer than the limit record_bytes",
                file=self._shard.source.path,
                record=record,
                byte=int(index.starts[record]),
                expected=self._shard.record_bytes,
                found=found,
                hint=raise_limit("record_bytes", found),
            )

    def _check_places(self, starts: np.ndarray, length: int) -> None:
        """Raise StaleIndexError if the records are not in order, or are together too long for a chunk."""
        limits = self._shard.options.limits
        most = limits.record_bytes + limits.member_bytes + 4 * CHUNK_BYTES
        if (starts[1:] <= starts[:-1]).any() or length > most:
            message = "the index has impossible record positions"
            raise StaleIndexError(message, file=self._shard.source.path)

    def _by_index(
        self, window: _core.Buffer, begin: int, index: Index, records: np.ndarray
    ) -> _core.Frames:
        """Frames in a window that starts at offset `begin`. Raises an error for the first damaged header."""
        if not len(records):
            return _core.walk(self._framing.name, window.slice(0, 0), begin, 0)[0]
        starts, ends = index.starts[records], index.ends[records]
        places, lengths = as_arrow(starts), as_arrow(ends - starts)
        inside = as_arrow(starts - np.uint64(begin))
        try:
            return _core.frames_at(self._framing.name, window, inside, lengths, places)
        except _core.KernelError as error:
            record = int(records[error.args[0].record])
            self._raise_cut(begin + len(window), index, record)
            raise self._damaged_head(index, record) from None

    def _raise_cut(self, end: int, index: Index, record: int) -> None:
        """Raise the error that explains why the stream breaks off at `end`, if that is inside this record."""
        if end >= int(index.ends[record]):
            return
        try:
            self._shard.stream.read(end, 1)
        except _core.KernelError as error:
            raise self._shard.error(error.args[0], record) from None

    def _damaged_head(self, index: Index, record: int) -> PenstockError:
        path = self._shard.source.path
        return self._shard.changed() or ChecksumError(
            _DAMAGED_HEAD,
            file=path,
            record=record,
            byte=int(index.starts[record]),
            hint=command("penstock", "verify", path),
        )

    # -- verification ---------------------------------------------------------------------------

    def proved(self, held: Held, chunk: FrameChunk) -> Held:
        """The frames whose payloads match their checksums. Others are skipped, or raise an error."""
        indexed = None if held.checksums is None else as_arrow(held.checksums)
        faults = held.frames.verify(indexed)
        # A caller that requests records by number gets exactly these records or an error.
        picked = isinstance(chunk.data, Held) and chunk.data.records is not None
        starts = as_numpy(held.frames.starts())
        sizes = self._framing.frame_bytes(as_numpy(held.frames.lengths()))
        kept = np.ones(len(held.frames), dtype=bool)
        skipped = list(held.skipped)
        for fault in faults:
            row = fault.record or 0  # these faults always have a record
            right = self._has_known_payload(held, row)
            if not self._shard.skips_damage or fault.kind == "stale" or (picked and not right):
                raise self.located(fault, held, chunk)
            kept[row] = right
            if not picked:
                start = int(starts[row])
                lost, reason = (0, f"{fault.message}; {_RESTORED}") if right else (1, fault.message)
                skipped.append(self._shard.skipped(start, start + int(sizes[row]), lost, reason))
        held = replace(held, skipped=tuple(skipped))
        left = held.select(np.flatnonzero(kept), chunk.first_record)
        if int(kept.sum()) == len(kept) - len(faults):
            return left
        payloads = map(left.frames.payload, range(len(left.frames)))
        data = self._framing.frames(list(payloads)).data
        return replace(left, frames=frames_in(self._framing, data, starts[kept], sizes[kept]))

    def _has_known_payload(self, held: Held, row: int) -> bool:
        """Whether a payload matches the checksum in the index."""
        if held.checksums is None:
            return False
        crc = _core.Buffer.from_bytes(held.frames.payload(row)).crc32c()
        return self._framing.checksum(crc) == int(held.checksums[row])

    def located(self, fault: Any, held: Held, chunk: FrameChunk) -> PenstockError:
        """Convert a fault in a row of these frames to an error that names the shard's record."""
        row = fault.record
        if row is None:
            error = self._shard.error(fault, None)
            error.byte = error.byte or None  # a fault of a whole column has no offset
            return error
        error = self._shard.error(fault, self.record_of(row, held, chunk))
        # Faults found in the assembled batch have no offset: use that of the payload.
        error.byte = max(error.byte or 0, self.payload_byte(row, held))
        return error

    def payload_byte(self, row: int, held: Held) -> int:
        return int(as_numpy(held.frames.starts())[row]) + self._framing.head_bytes

    def record_of(self, row: int, held: Held, chunk: FrameChunk) -> int | None:
        if held.records is None:
            return chunk.first_record + row
        return int(held.records[row]) if held.records[row] >= 0 else None

    # -- random access --------------------------------------------------------------------------

    def picked(self, index: Index, records: np.ndarray) -> Held:
        """The frames of any records of the shard, in the requested order."""
        starts = index.starts[records].astype(np.uint64)
        ends = index.ends[records].astype(np.uint64)
        path = self._shard.source.path
        wrong = (ends < starts) | (ends > np.uint64(index.plain_bytes))
        if wrong.any():
            raise StaleIndexError("the index has records beyond the end of the file", file=path)
        if len(records):
            largest = int((ends - starts).argmax())
            most = int(ends[largest] - starts[largest]) - self._framing.least_bytes
            try:
                self._shard.options.limits.check("record_bytes", most)
            except LimitError as error:
                place = {"record": int(records[largest]), "byte": int(starts[largest])}
                raise error.at(file=path, **place) from None
        checksums = index.checksums[records]
        try:
            frames = self._gathered(index, starts, ends, checksums)
        except _core.KernelError as error:
            fault = error.args[0]
            record = None if fault.record is None else int(records[fault.record])
            is_checked = self._framing.is_checked
            is_damage = not is_checked or fits(index, self._shard.source, self._framing)
            if fault.kind == "stale" and is_damage and record is not None:
                # Unchecked frames may lead to the end of the file by chance.
                if is_checked and self._walks_to_its_end(index):
                    message = "the file is intact, but it is not the file that was indexed"
                    raise StaleIndexError(message, file=path, record=record) from None
                raise self._damaged_head(index, record) from None
            raise self._shard.error(fault, record) from None
        return Held(frames, checksums, records)

    def _gathered(
        self, index: Index, starts: np.ndarray, ends: np.ndarray, checksums: np.ndarray
    ) -> _core.Frames:
        """The frames at these offsets. If damage is skipped, damaged frames are rebuilt if possible."""
        sizes = ends - starts
        data, inside = gather(self._shard.source, self._shard.stream, index, starts, ends)
        name, places = self._framing.name, as_arrow(starts)
        try:
            return _core.frames_at(name, data, as_arrow(inside), as_arrow(sizes), places)
        except _core.KernelError:
            if not self._shard.skips_damage:
                raise
        asked = zip(inside.tolist(), sizes.tolist(), checksums.tolist(), strict=True)
        parts: list[_core.Buffer] = []
        for at, size, known in asked:
            frame = data.slice(at, size)
            parts.append(self._mended(frame, size, known) or frame)
        return frames_in(self._framing, _core.Buffer.join(parts), starts, sizes)

    def _mended(self, frame: _core.Buffer, num_bytes: int, known: int) -> _core.Buffer | None:
        """Rebuild a frame with a damaged header or trailer, if its payload matches the index's checksum; else None."""
        length = num_bytes - self._framing.least_bytes
        if len(frame) < num_bytes or not 0 <= length <= self._shard.record_bytes:
            return None
        payload = frame.slice(self._framing.head_bytes, length)
        if self._framing.checksum(payload.crc32c()) != known:
            return None
        return self._framing.frames([payload.to_bytes()]).data

    def _walks_to_its_end(self, index: Index) -> bool:
        """Whether the headers of a plain file lead to its end. If they do, an index that disagrees belongs to another
        file."""
        if index.compression:
            return False
        shard = self._shard
        now = None
        # Done once for each state of the file, not for each damaged record.
        with suppress(OSError):
            told = os.stat(shard.source.path)
            now = told.st_size, told.st_mtime_ns
        if self._seen is not None and self._seen[0] == now:
            return self._seen[1]
        most = 1 << 62 if self._framing.is_checked else shard.record_bytes
        source, found = shard.source, False
        if isinstance(source, LocalSource) and source.mapped is None:
            starts, _, _ = _core.index_file(self._framing.name, source.file, most)
            found = int(as_numpy(starts)[-1]) == source.size
        self._seen = None if now is None else (now, found)
        return found
