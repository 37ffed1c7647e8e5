"""ArrayRecord: Riegeli files with a footer that says where their chunks are, read only.

```
every 64 KiB    block header   hash, and where the chunk that it interrupts starts and ends
0               signature      64 constant bytes
64              chunks         a head of 40 bytes with hashes, then records, often compressed
footer offset   footer chunk   {1: {1: version, 2: chunks, 3: records, 4: options}}, then for each
                               chunk {1: its offset, 2: bytes of its records, 3: records}
size - 64 KiB   postscript     a chunk of three equal records {1: footer offset, 2: magic}
```

Numbers in braces are fields of protobuf messages. Hashes are HighwayHash-64. The chunks are unpacked
in Rust (`kernels/riegeli.rs`). Payloads that are tf.train.Examples are decoded as those of TFRecord
are, by the same decoder. Source: Riegeli's and ArrayRecord's published format descriptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.batches import check_records
from penstock.columns.inferred import InferredFrom, file_name
from penstock.columns.joined import join, picked
from penstock.columns.numbers import as_arrow, as_numpy, checked_infer
from penstock.columns.selection import Projection, Selection
from penstock.contract.faults import error_from
from penstock.contract.format import (
    Chunk,
    Delivered,
    Format,
    FormatInfo,
    Options,
    Reader,
    SkippedRegion,
    Writer,
)
from penstock.contract.options import options_from
from penstock.errors import (
    ChecksumError,
    FormatError,
    PenstockError,
    SchemaError,
    TruncatedError,
    UnsupportedError,
)
from penstock.formats.tfrecord.format import decoder_of
from penstock.framing.read.chunks import SAMPLE_BYTES
from penstock.payloads.example.inference import merge_facts
from penstock.storage.base import Sink, Source

BLOCK = 1 << 16
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c3727300000000000000"
) + bytes(8)
MAGIC = 0x71930E704FDAE05E
POSTSCRIPT_RECORDS = 3
VERSION = 1
CHUNK_BYTES = 2 << 20
"""Chunks of the file are read together up to this size."""
PICK_BYTES = 64 << 20
"""What is picked by number is unpacked in parts of this size."""
STEP_BYTES = 4 << 20
"""The same for files whose records are chunks of their own, which need no sorting."""


@dataclass(frozen=True, slots=True)
class ArrayRecordOptions:
    """How to read ArrayRecord.

    infer_records: how many records of a shard to look at for a schema, or "all".
    """

    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)


class ArrayRecordFormat(Format):
    """ArrayRecord: Riegeli files with a footer that says where chunks are."""

    info = FormatInfo(
        "arrayrecord",
        (".array_record", ".arrayrecord", ".riegeli"),
        can_write=False,
        can_map=True,
        compressions=("zstd", "brotli", "snappy"),
        has_checksums=True,
        has_raw_records=True,
        holds_examples=True,
        takes_descriptions=True,
    )
    read_options = ArrayRecordOptions

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether a file starts with the signature of Riegeli."""
        return head[: len(SIGNATURE)] == SIGNATURE

    def open(self, source: Source, options: Options) -> ArrayRecordReader:
        """Read the footer.

        Raises:
            TruncatedError: the file was cut, or never finished.
            FormatError: the bytes are not ArrayRecord; ChecksumError for a hash.
            UnsupportedError: a Riegeli file without a footer, or with transposed chunks.
        """
        mine = options_from(ArrayRecordOptions, options.format_options, "arrayrecord")
        return ArrayRecordReader(source, options, mine)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        raise UnsupportedError(
            "ArrayRecord is read, not written", file=sink.path, hint="write TFRecord or Parquet"
        )


class Extents:
    """Where the chunks of a file are, and how many records they hold: int64 arrays."""

    def __init__(
        self, offsets: np.ndarray, sizes: np.ndarray, counts: np.ndarray, end: int
    ) -> None:
        self.starts = offsets
        self.ends = np.append(offsets[1:], end)
        self.sizes = sizes
        self.firsts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self.firsts[1:])
        self.are_single = bool((counts == 1).all())
        """Whether a record and its chunk have one number."""
        # What a chunk costs: the larger of its bytes in the file and in memory.
        self.costs = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(np.maximum(self.ends - self.starts, sizes), out=self.costs[1:])

    def __len__(self) -> int:
        return len(self.starts)


class ArrayRecordReader(Reader):
    """One open file."""

    def __init__(self, source: Source, options: Options, mine: ArrayRecordOptions) -> None:
        self._source = source
        self._path = source.path
        self._options = options
        try:
            self._extents = self._read_footer()
        except PenstockError as error:
            raise error.at(file=self._path) from None
        self._decoder = decoder_of(options, self._path, lambda: self._sample(mine.infer_records))
        self.schema: pa.Schema = self._decoder.schema

    # -- opening --------------------------------------------------------------------------------

    def _read_footer(self) -> Extents:
        size = self._source.size
        head = self._source.read(0, len(SIGNATURE)).to_bytes()
        if head != SIGNATURE:
            kind = TruncatedError if SIGNATURE.startswith(head) else FormatError
            raise kind("does not start as ArrayRecord", byte=0, found=head[:8].hex(" "))
        if size < 2 * BLOCK or size % BLOCK:
            raise self._without_end()
        try:
            frames = self._control_chunk(size - BLOCK, size)
        except ChecksumError:
            raise
        except FormatError:  # the last block is of a larger chunk: the file was cut there
            raise self._without_end() from None
        if frames is None or len(frames) != POSTSCRIPT_RECORDS:
            raise self._without_end()
        offsets, magics, _ = (as_numpy(n) for n in self._numbers(frames, [1, 2, 3], size - BLOCK))
        if (magics != MAGIC).any() or (offsets != offsets[0]).any():
            raise self._without_end()
        footer = int(offsets[0])
        if not len(SIGNATURE) <= footer < size - BLOCK:
            raise FormatError("the footer is not in the file", byte=size - BLOCK, found=footer)
        self._options.limits.check("footer_bytes", size - BLOCK - footer)
        frames = self._control_chunk(footer, size - BLOCK)
        if frames is None or not len(frames):
            raise FormatError("the footer has no records", byte=footer)
        return self._extents_of(frames, footer)

    def _without_end(self) -> PenstockError:
        """What a file is that begins as one of ArrayRecord and does not end so."""
        if self._path.endswith(".riegeli"):
            return UnsupportedError(
                "a plain Riegeli file, which has no footer; only ArrayRecord files are read",
                hint="copy its records to an ArrayRecord or TFRecord file with riegeli's own reader",
            )
        return TruncatedError(
            "there is no postscript in the last 64 KiB: the file was cut, never finished, or is a "
            "plain Riegeli file",
            byte=self._source.size,
            found=f"{self._source.size} bytes",
        )

    def _control_chunk(self, start: int, end: int) -> _core.Frames | None:
        """The records of a chunk that no index describes; None where there is no such chunk."""
        data = self._source.read(start, end - start)
        try:
            kind, _, count, size = _core.riegeli_head(data, start)
            if kind != ord("r"):
                return None
            self._options.limits.check("footer_bytes", size)
            return self._frames(data, _columns([0, end - start, start, count, size]))
        except _core.KernelError as error:
            raise error_from(error.args[0], file=self._path, record=None) from None

    def _numbers(self, frames: _core.Frames, fields: list[int], place: int) -> Any:
        try:
            return _core.message_numbers(frames, fields)
        except _core.KernelError:
            raise FormatError("the footer or postscript is no message", byte=place) from None

    def _extents_of(self, frames: _core.Frames, footer: int) -> Extents:
        """The chunks that a footer lists, if they can be."""
        head = _core.Buffer.from_bytes(frames.payload(0))
        version, num_chunks, num_records = _footer_head(head.to_bytes(), footer)
        if version != VERSION:
            raise UnsupportedError("a footer of this version is not known", found=version)
        columns = [as_numpy(n) for n in self._numbers(frames[1:], [1, 2, 3], footer)]
        offsets, sizes, counts = (column.astype(np.int64) for column in columns)
        if len(offsets) != num_chunks or int(counts.sum()) != num_records:
            raise FormatError(
                "the footer does not list as many chunks and records as it says",
                byte=footer,
                expected=f"{num_chunks} chunks, {num_records} records",
                found=f"{len(offsets)} chunks, {int(counts.sum())} records",
            )
        # A chunk has a byte for each record at least, which bounds the sums.
        limit = np.diff(offsets, append=footer)
        outside = (offsets < len(SIGNATURE)) | (offsets >= footer)
        if outside.any() or (limit <= 0).any() or (counts < 0).any() or (counts > limit).any():
            raise FormatError("the footer lists chunks where none can be", byte=footer)
        if (sizes < 0).any():
            raise FormatError("the footer lists chunks of no size that can be", byte=footer)
        if len(sizes):
            self._options.limits.check("member_bytes", int(sizes.max()))
        return Extents(offsets, sizes, counts, footer)

    def _sample(self, infer_records: int | str) -> tuple[dict[str, Any], InferredFrom]:
        """Facts about the first records (or all), and how many. Damage is passed over
        here: it is reported when the records are read. Who looks at all of them is told of it at once."""
        everything = infer_records == "all"
        left = self.num_records if everything else int(infer_records)
        parts: list[dict[str, Any]] = []
        seen_bytes = 0
        for chunk in self.chunks():
            if left <= 0 or (not everything and seen_bytes >= SAMPLE_BYTES):
                break
            for one in range(*chunk.data):
                try:
                    frames = self._unpacked(np.array([one]))[:left]
                except PenstockError as error:
                    if everything and self._options.damage == "error":
                        raise error.at(file=self._path) from None
                    continue
                left -= len(frames)
                parts.append(frames.infer())
                if left <= 0:
                    break
            seen_bytes += chunk.end_byte - chunk.start_byte
        facts = merge_facts(parts)
        count = facts["num_records"]
        return facts, InferredFrom(count, count == self.num_records, file_name(self._path))

    # -- reading --------------------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        """How many records the footer counts."""
        return int(self._extents.firsts[-1])

    def chunks(self) -> Iterator[Chunk[tuple[int, int]]]:
        """Runs of the file's chunks of about 2 MiB."""
        costs = self._extents.costs
        first = 0
        while first < len(self._extents):
            goal = int(costs[first]) + CHUNK_BYTES
            last = max(int(np.searchsorted(costs, goal, "right")) - 1, first + 1)
            yield self._chunk(first, last)
            first = last

    def _chunk(self, first: int, last: int) -> Chunk[tuple[int, int]]:
        extents = self._extents
        start, end = int(extents.starts[first]), int(extents.ends[last - 1])
        record = int(extents.firsts[first])
        count = int(extents.firsts[last]) - record
        return Chunk(record, count, start, end, (first, last))

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[tuple[int, int]], np.ndarray]]:
        """All records in one pair, so that no chunk is unpacked twice; in several, each of which
        stays in the processor's cache, where each record is a chunk of its own."""
        records = np.asarray(records, np.int64)
        check_records(records, self.num_records, self._path)
        if not len(records):
            return
        whole = self._chunk(0, len(self._extents))
        if not self._extents.are_single:
            yield whole, records
            return
        costs = np.cumsum(self._extents.costs[records + 1] - self._extents.costs[records])
        for run in np.split(records, np.flatnonzero(np.diff(costs // STEP_BYTES)) + 1):
            yield whole, run

    def decode(
        self, chunk: Chunk[tuple[int, int]], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        """Some records of one chunk.

        Raises:
            FormatError: a chunk of the file is not sound; ChecksumError for a hash.
            SchemaError: a record does not fit the schema.
        """
        if records is None:
            return self.delivered(chunk, None, columns).batch
        numbers = chunk.first_record + np.asarray(records, np.int64)
        places = np.searchsorted(self._extents.firsts, numbers, "right") - 1
        wanted = np.unique(places)
        costs = np.cumsum(self._extents.costs[wanted + 1] - self._extents.costs[wanted])
        if not len(wanted) or costs[-1] <= PICK_BYTES:
            return self._picked(wanted, numbers, columns)
        # Each part in the order of the file, then all records in the order asked.
        order, back = np.unique(numbers, return_inverse=True)
        batches: list[pa.RecordBatch] = []
        for part in np.split(wanted, np.flatnonzero(np.diff((costs - 1) // PICK_BYTES)) + 1):
            low, high = self._extents.firsts[part[0]], self._extents.firsts[part[-1] + 1]
            some = order[np.searchsorted(order, low) : np.searchsorted(order, high)]
            batches.append(_compact(self._picked(part, some, columns)))
        if not batches[0].num_columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(numbers), pa.struct([])))
        whole = picked(join(batches), as_arrow(back.astype(np.int64)))
        return _restored(whole, self.schema)

    def delivered(
        self, chunk: Chunk[tuple[int, int]], records: Selection, columns: Projection
    ) -> Delivered:
        if records is not None:
            return super().delivered(chunk, records, columns)
        frames, numbers, skipped = self._whole(chunk)
        batch = self._decoded(frames, numbers, columns)
        return Delivered(batch, numbers - chunk.first_record, skipped)

    def _whole(
        self, chunk: Chunk[tuple[int, int]]
    ) -> tuple[_core.Frames, np.ndarray, list[SkippedRegion]]:
        """The records of a chunk and their numbers; if damage is skipped, without damaged chunks of the file, which are
        returned as skipped."""
        data = self._source.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
        firsts = self._extents.firsts
        try:
            frames = self._unpacked(np.arange(*chunk.data), data)
            numbers = np.arange(chunk.first_record, chunk.first_record + chunk.num_records)
            return frames, numbers, []
        except FormatError:
            if self._options.damage != "skip":
                raise
        sound, skipped = self._sound(chunk)
        runs = [np.arange(int(firsts[one]), int(firsts[one + 1])) for one in sound.tolist()]
        return self._unpacked(sound), np.concatenate([np.zeros(0, np.int64), *runs]), skipped

    def _picked(
        self, chunks: np.ndarray, numbers: np.ndarray, columns: Projection
    ) -> pa.RecordBatch:
        """These records, all of them in these chunks of the file (rising)."""
        frames = self._unpacked(chunks)
        firsts = self._extents.firsts
        counts = firsts[chunks + 1] - firsts[chunks]
        shifts = firsts[chunks] - (np.cumsum(counts) - counts)
        places = np.searchsorted(firsts, numbers, "right") - 1
        inside = numbers - shifts[np.searchsorted(chunks, places)]
        if len(inside) != len(frames) or (np.diff(inside) != 1).any():
            frames = frames.select(as_arrow(inside.astype(np.uint64)))
        return self._decoded(frames, numbers, columns)

    def _decoded(
        self, frames: _core.Frames, numbers: np.ndarray, columns: Projection
    ) -> pa.RecordBatch:
        try:
            return self._decoder.decode(frames, columns)
        except _core.KernelError as error:
            fault = error.args[0]
            record = None if fault.record is None else int(numbers[fault.record])
            raise error_from(fault, file=self._path, record=record) from None
        except (SchemaError, FormatError) as error:
            if error.record is not None:
                error.record = int(numbers[error.record])
            raise error.at(file=self._path) from None

    def _unpacked(self, chunks: np.ndarray, data: _core.Buffer | None = None) -> _core.Frames:
        """The records of these chunks of the file; `data` holds them from the first's start."""
        extents = self._extents
        starts, ends = extents.starts[chunks], extents.ends[chunks]
        lengths = ends - starts
        if data is None:
            data = self._source.gather(_arrow(starts), _arrow(lengths))
            inside = np.cumsum(lengths) - lengths
        else:
            inside = starts - starts[0]
        counts = extents.firsts[chunks + 1] - extents.firsts[chunks]
        columns = [_arrow(c) for c in (inside, lengths, starts, counts, extents.sizes[chunks])]
        try:
            return self._frames(data, columns)
        except _core.KernelError as error:
            fault = error.args[0]
            row = 0 if fault.record is None else fault.record
            place = int(np.searchsorted(np.cumsum(counts), row, "right"))
            record = int(extents.firsts[chunks[min(place, len(chunks) - 1)]])
            raise error_from(fault, file=self._path, record=record) from None

    def _frames(self, data: _core.Buffer, columns: list[pa.Array]) -> _core.Frames:
        starts, lengths, offsets, counts, sizes = columns
        limits = self._options.limits
        return _core.riegeli_records(
            data,
            starts,
            lengths,
            offsets,
            counts,
            sizes,
            limits.record_bytes,
            limits.member_bytes,
            self._options.verifies,
        )

    def _sound(self, chunk: Chunk[tuple[int, int]]) -> tuple[np.ndarray, list[SkippedRegion]]:
        """Those of the file's chunks in a chunk that can be unpacked, and the others."""
        extents = self._extents
        skipped: list[SkippedRegion] = []
        sound: list[int] = []
        for one in range(*chunk.data):
            try:
                self._unpacked(np.array([one]))
            except FormatError as error:
                count = int(extents.firsts[one + 1] - extents.firsts[one])
                start, end = int(extents.starts[one]), int(extents.ends[one])
                region = SkippedRegion(self._path, start, end, count, error.message)
                skipped.append(region)
            else:
                sound.append(one)
        return np.array(sound, np.int64), skipped

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()


def _arrow(numbers: np.ndarray) -> pa.Array:
    return as_arrow(numbers.astype(np.uint64))


def _columns(row: list[int]) -> list[pa.Array]:
    """One chunk as the table that the kernel takes."""
    return [as_arrow(np.array([value], np.uint64)) for value in row]


def _footer_head(record: bytes, place: int) -> tuple[int, int, int]:
    """Version, number of chunks and of records, of the message within the footer's first record."""
    try:
        length, at = _varint(record, 1) if record[:1] == b"\x0a" else (0, 0)
        if at + length > len(record) or not at:
            raise IndexError
        found = {1: 0, 2: 0, 3: 0}
        end = at + length
        while at < end:
            tag, at = _varint(record, at)
            value, at = _varint(record, at)
            if tag & 7 == 2:
                at += value
            elif tag & 7:
                raise IndexError
            found[tag >> 3] = value
    except IndexError:
        raise FormatError("the footer does not begin as it should", byte=place) from None
    return found[1], found[2], found[3]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 varint and where it ends; IndexError where it does not."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Views copied out of the chunks that they would keep in memory."""
    arrays = [a.cast(pa.binary()) if a.type == pa.binary_view() else a for a in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names) if arrays else batch


def _restored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns with their own types again."""
    wanted = pa.schema([schema.field(name) for name in batch.schema.names], schema.metadata)
    arrays = [a.cast(f.type) for a, f in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
