"""ArrayRecord: Riegeli files with a footer that lists their chunks. This format can only be read.

```
every 64 KiB    block header   hash, and where the chunk around it starts and ends
0               signature      64 constant bytes
64              chunks         a head of 40 bytes with hashes, then records, often compressed
footer offset   footer chunk   {1: {1: version, 2: chunks, 3: records, 4: options}}, then for each
                               chunk {1: its offset, 2: bytes of its records, 3: records}
size - 64 KiB   postscript     a chunk of three equal records {1: footer offset, 2: magic}
```

Numbers in braces are fields of protobuf messages. Hashes are HighwayHash-64. Rust (`kernels/riegeli.rs`) unpacks the
chunks, and TFRecord's decoder decodes the payloads. Source: Riegeli's and ArrayRecord's published format descriptions.
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
from penstock.columns.numbers import as_arrow, checked_infer
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
from penstock.contract.regions import Region
from penstock.errors import (
    FormatError,
    PenstockError,
    SchemaError,
    UnsupportedError,
    raise_unless_damage,
)
from penstock.formats.arrayrecord._footer import SIGNATURE, read_extents, unpack, unsigned
from penstock.formats.tfrecord.format import decoder_of
from penstock.framing.read.chunks import SAMPLE_BYTES
from penstock.payloads.example.inference import merge_facts
from penstock.storage.base import Sink, Source
from penstock.tuned import ARRAYRECORD_STEP_BYTES, CHUNK_BYTES

PICK_BYTES = 64 << 20
"""Picked records are unpacked in parts of this size."""


@dataclass(frozen=True, slots=True)
class ArrayRecordOptions:
    """How to read ArrayRecord.

    infer_records: how many records of a shard are read to infer a schema, or "all".
    """

    infer_records: int | str = 1000

    def __post_init__(self) -> None:
        checked_infer(self.infer_records)


class ArrayRecordFormat(Format):
    """Files of ArrayRecord, for reading only."""

    info = FormatInfo(
        "arrayrecord",
        (".array_record", ".arrayrecord", ".riegeli"),
        can_write=False,
        can_map=True,
        compressions=("zstd", "brotli", "snappy"),
        has_checksums=True,
        checksums="HighwayHash of each chunk",
        has_raw_records=True,
        holds_examples=True,
        holds_text=False,
        takes_descriptions=True,
    )
    read_options = ArrayRecordOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return head[: len(SIGNATURE)] == SIGNATURE

    def open(self, source: Source, options: Options) -> ArrayRecordReader:
        """Read the footer.

        Raises:
            TruncatedError: the file was truncated, or never finished.
            FormatError: the file is not a valid ArrayRecord file; ChecksumError if a hash is wrong.
            UnsupportedError: the file is a Riegeli file without a footer, or with transposed chunks.
        """
        return ArrayRecordReader(source, options, self.own_options(options))

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.arrayrecord._regions import file_regions

        return file_regions(source, record, options)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        raise UnsupportedError(
            "penstock cannot write ArrayRecord", file=sink.path, hint="write TFRecord or Parquet"
        )


class ArrayRecordReader(Reader):
    """One open file."""

    def __init__(self, source: Source, options: Options, mine: ArrayRecordOptions) -> None:
        self._source = source
        self._path = source.path
        self._options = options
        try:
            self._extents = read_extents(source, options)
        except PenstockError as error:
            raise error.at(file=self._path) from None
        self._decoder = decoder_of(options, self._path, lambda: self._sample(mine.infer_records))
        self.schema: pa.Schema = self._decoder.schema

    def _sample(self, infer_records: int | str) -> tuple[dict[str, Any], InferredFrom]:
        """Return facts about the first records (or all), and how many were read. Damage is skipped here, because
        reading reports it later. Only with infer_records="all" and damage="error" does it raise an error."""
        everything = infer_records == "all"
        left = self.num_records if everything else int(infer_records)
        parts: list[dict[str, Any]] = []
        starts = self._extents.starts
        for one in range(len(starts)):
            if left <= 0 or (not everything and starts[one] - starts[0] >= SAMPLE_BYTES):
                break
            try:
                frames = self._unpack(np.array([one]))[:left]
            except PenstockError as error:
                raise_unless_damage(error)
                if everything and self._options.damage == "error":
                    raise error.at(file=self._path) from None
                continue
            left -= len(frames)
            parts.append(frames.infer())
        facts = merge_facts(parts)
        count = facts["num_records"]
        return facts, InferredFrom(count, count == self.num_records, file_name(self._path))

    # -- reading --------------------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        return int(self._extents.firsts[-1])

    def chunks(self) -> Iterator[Chunk[tuple[int, int]]]:
        """Yield runs of the file's chunks, of about 2 MiB each."""
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
        """Yield all records together, so that no chunk is unpacked twice. If each chunk has only one record, yield them
        in parts."""
        records = np.asarray(records, np.int64)
        check_records(records, self.num_records, self._path)
        if not len(records):
            return
        whole = self._chunk(0, len(self._extents))
        if not self._extents.are_single:
            yield whole, records
            return
        costs = np.cumsum(self._extents.costs[records + 1] - self._extents.costs[records])
        for run in np.split(records, np.flatnonzero(np.diff(costs // ARRAYRECORD_STEP_BYTES)) + 1):
            yield whole, run

    def decode(
        self, chunk: Chunk[tuple[int, int]], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: a chunk of the file is damaged; ChecksumError if a hash is wrong.
            SchemaError: a record does not fit the schema.
        """
        if records is None:
            return self.delivered(chunk, None, columns).batch
        numbers = chunk.first_record + np.asarray(records, np.int64)
        places = np.searchsorted(self._extents.firsts, numbers, "right") - 1
        wanted = np.unique(places)
        costs = np.cumsum(self._extents.costs[wanted + 1] - self._extents.costs[wanted])
        if not len(wanted) or costs[-1] <= PICK_BYTES:
            return self._decode_chunks(wanted, numbers, columns)
        # Decode the parts in file order, then put all records in the requested order.
        order, back = np.unique(numbers, return_inverse=True)
        batches: list[pa.RecordBatch] = []
        for part in np.split(wanted, np.flatnonzero(np.diff((costs - 1) // PICK_BYTES)) + 1):
            low, high = self._extents.firsts[part[0]], self._extents.firsts[part[-1] + 1]
            some = order[np.searchsorted(order, low) : np.searchsorted(order, high)]
            batches.append(_compact(self._decode_chunks(part, some, columns)))
        if not batches[0].num_columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(numbers), pa.struct([])))
        whole = picked(join(batches), as_arrow(back.astype(np.int64)))
        return _restored(whole, self.schema)

    def delivered(
        self, chunk: Chunk[tuple[int, int]], records: Selection, columns: Projection
    ) -> Delivered:
        if records is not None:
            return super().delivered(chunk, records, columns)
        frames, numbers, skipped = self._read(chunk)
        batch = self._decode_frames(frames, numbers, columns)
        return Delivered(batch, numbers - chunk.first_record, skipped)

    def _read(
        self, chunk: Chunk[tuple[int, int]]
    ) -> tuple[_core.Frames, np.ndarray, list[SkippedRegion]]:
        """Return the records of a chunk and their numbers. If damage is skipped, damaged chunks of the file are
        returned as skipped regions."""
        data = self._source.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
        try:
            frames = self._unpack(np.arange(*chunk.data), data)
            numbers = np.arange(chunk.first_record, chunk.first_record + chunk.num_records)
            return frames, numbers, []
        except FormatError:
            if self._options.damage != "skip":
                raise
        sound, skipped = self._sound_chunks(chunk)
        firsts = self._extents.firsts.tolist()
        runs = [np.arange(firsts[one], firsts[one + 1]) for one in sound.tolist()]
        return self._unpack(sound), np.concatenate([np.zeros(0, np.int64), *runs]), skipped

    def _sound_chunks(
        self, chunk: Chunk[tuple[int, int]]
    ) -> tuple[np.ndarray, list[SkippedRegion]]:
        """Return the chunks of the file that can be unpacked, and the damaged chunks."""
        extents = self._extents
        skipped: list[SkippedRegion] = []
        sound: list[int] = []
        for one in range(*chunk.data):
            try:
                self._unpack(np.array([one]))
            except FormatError as error:
                count = int(extents.firsts[one + 1] - extents.firsts[one])
                start, end = int(extents.starts[one]), int(extents.ends[one])
                skipped.append(SkippedRegion(self._path, start, end, count, error.message))
            else:
                sound.append(one)
        return np.array(sound, np.int64), skipped

    def _decode_chunks(
        self, chunks: np.ndarray, numbers: np.ndarray, columns: Projection
    ) -> pa.RecordBatch:
        """Return the given records, which are in the given chunks of the file, both in ascending order."""
        frames = self._unpack(chunks)
        firsts = self._extents.firsts
        counts = firsts[chunks + 1] - firsts[chunks]
        shifts = firsts[chunks] - (np.cumsum(counts) - counts)
        places = np.searchsorted(firsts, numbers, "right") - 1
        inside = numbers - shifts[np.searchsorted(chunks, places)]
        if len(inside) != len(frames) or (np.diff(inside) != 1).any():
            frames = frames.select(unsigned(inside))
        return self._decode_frames(frames, numbers, columns)

    def _decode_frames(
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

    def _unpack(self, chunks: np.ndarray, data: _core.Buffer | None = None) -> _core.Frames:
        """Return the records of these chunks of the file. `data` has the bytes from the first chunk's start on."""
        extents = self._extents
        starts = extents.starts[chunks]
        lengths = extents.ends[chunks] - starts
        if data is None:
            data = self._source.gather(unsigned(starts), unsigned(lengths))
            inside = np.cumsum(lengths) - lengths
        else:
            inside = starts - starts[0]
        counts = extents.firsts[chunks + 1] - extents.firsts[chunks]
        columns = (inside, lengths, starts, counts, extents.sizes[chunks])
        try:
            return unpack(data, columns, self._options)
        except _core.KernelError as error:
            fault = error.args[0]
            row = 0 if fault.record is None else fault.record
            place = int(np.searchsorted(np.cumsum(counts), row, "right"))
            record = int(extents.firsts[chunks[min(place, len(chunks) - 1)]])
            raise error_from(fault, file=self._path, record=record) from None

    def close(self) -> None:
        self._source.close()


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy view columns, so that views do not keep whole chunks in memory."""
    arrays = [a.cast(pa.binary()) if a.type == pa.binary_view() else a for a in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names) if arrays else batch


def _restored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert columns back to the types of the schema."""
    wanted = pa.schema([schema.field(name) for name in batch.schema.names], schema.metadata)
    arrays = [a.cast(f.type) for a, f in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
