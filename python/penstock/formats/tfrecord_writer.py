"""Writes TFRecord shards: batches become frames, and frames plain, gzip or zlib bytes.

Where a gzip member ends depends on the records alone, so the bytes are the same for any number of
threads and for any way of cutting the same records into batches. Members hold whole records, which
is what makes a gzip shard readable from its middle; none is empty, since TensorFlow takes an empty
one for the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.formats.framed_writer import FramedWriter, InOrder, PlainOutput
from penstock.formats.tfrecord_columns import Payload, plan_payload
from penstock.framing.inflated import POINT_BYTES
from penstock.framing.sidecar import SeekPoint
from penstock.limits import KIB
from penstock.storage import Sink

ZLIB_PUSH_BYTES = 256 * KIB
"""What zlib makes of a stream depends on the pieces it comes in, so all have one size."""
# A gzip file without content: one empty member, 20 bytes, the same as TensorFlow's own.
EMPTY_GZIP = bytes.fromhex("1f8b08000000000000030300") + bytes(8)
_CHECK_BYTES = 16


@dataclass(frozen=True, slots=True)
class TFRecordWriteOptions:
    """How TFRecord files are written."""

    compression: Literal["gzip", "zlib"] | None = None
    level: int = 6
    """1 (fast) to 9 (small)."""
    member_bytes: int = 256 * KIB
    """A gzip member ends with the record that brings it to so many plain bytes."""
    payload: Payload | None = None
    """What a record becomes; None decides from the schema, see `tfrecord_columns`."""
    float64: Literal["exact", "round"] = "round"
    """What becomes of a float64 that is no float32: the nearest one, as in TensorFlow's FloatList, or
    an error. One beyond float32's range is an error always."""

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip", "zlib"):
            raise ValueError(
                f"TFRecord has no compression {self.compression!r}; known: None, 'gzip', 'zlib'"
            )
        if self.payload not in (None, "example", "sequence", "raw"):
            raise ValueError(
                f"unknown payload {self.payload!r}; known: None, 'example', 'sequence', 'raw'"
            )
        if self.float64 not in ("exact", "round"):
            raise ValueError(f"unknown float64 {self.float64!r}; known: 'exact', 'round'")
        if not 1 <= self.level <= 9:
            raise ValueError(f"level must be 1 to 9, not {self.level}")
        if not 1 <= self.member_bytes <= 1 << 30:
            raise ValueError(f"member_bytes must be 1 to {1 << 30}, not {self.member_bytes}")


class TFRecordWriter(FramedWriter):
    """Writes one shard to a sink, and keeps what an index of it needs.

    Args:
        sink: where the bytes go; committed or aborted by the caller.
        schema: of the batches that will come.
        options: see TFRecordWriteOptions.
        threads: how many slices are encoded and compressed at once; None: one a core.
        one_stream: gzip is one member, for programs that read no other.

    Raises:
        SchemaError: a column has a type that no payload holds.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.storage import LocalStorage
        >>> sink = LocalStorage().sink("numbers.tfrecord", overwrite=True)
        >>> batch = pa.record_batch({"n": [1, 2, 3]})
        >>> writer = TFRecordWriter(sink, batch.schema, TFRecordWriteOptions())
        >>> writer.write(batch)
        >>> writer.close()
        >>> sink.commit()
        >>> writer.index().num_records
        3
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        options: TFRecordWriteOptions,
        threads: int | None = None,
        *,
        one_stream: bool = False,
    ) -> None:
        self._options = options
        self._one_stream = one_stream
        plan = plan_payload(schema, options.payload, exact_float64=options.float64 == "exact")

        def encode(part: pa.RecordBatch, first_record: int) -> _core.Framed:
            del first_record
            if plan.kind == "raw":
                return _core.frame_records(part.column(0))
            return _core.encode_examples(plan.convert(part), plan.kind)

        super().__init__(sink, schema, encode, threads)

    def output(self, sink: Sink) -> PlainOutput:
        """Frames as they are, in gzip members, or in one stream."""
        if self._options.compression == "gzip" and not self._one_stream:
            return _Gzip(sink, self._options, InOrder(self.pool, 4 * self.threads))
        if self._options.compression:
            return _OneStream(sink, self._options)
        return PlainOutput(sink)


class _Gzip(PlainOutput):
    """Members of whole records, each of which ends with the record that fills it."""

    compression = "gzip"
    layout = "members"

    def __init__(self, sink: Sink, options: TFRecordWriteOptions, work: InOrder) -> None:
        super().__init__(sink)
        self._options = options
        self._work = work
        self._plain_start = 0
        # The member that is still open: parts of encoded slices, their bytes and records.
        self._parts: list[_core.Buffer] = []
        self._open_bytes = 0
        self._open_records = 0

    def add(self, frames: _core.Buffer, lengths: np.ndarray) -> None:
        ends = np.cumsum(lengths, dtype=np.uint64)
        start, first = 0, 0
        while first < len(ends):
            wanted = start + self._options.member_bytes - self._open_bytes
            last = int(np.searchsorted(ends, wanted, side="left"))
            is_full = last < len(ends)
            after = last + 1 if is_full else len(ends)
            end = int(ends[after - 1])
            self._parts.append(frames.slice(start, end - start))
            self._open_bytes += end - start
            self._open_records += after - first
            if is_full:
                self._close_member()
            start, first = end, after

    def add_parts(self, frames: Sequence[_core.Buffer], lengths: np.ndarray) -> None:
        self.add(_joined(list(frames)), lengths)

    def drain(self) -> None:
        self._work.drain()

    def close(self) -> None:
        if self._open_records:
            self._close_member()
        self._work.drain()
        if not self.num_bytes:
            self.put(_core.Buffer.from_bytes(EMPTY_GZIP))
        super().close()

    def _close_member(self) -> None:
        parts, num_bytes, num_records = self._parts, self._open_bytes, self._open_records
        self._parts, self._open_bytes, self._open_records = [], 0, 0
        plain_start, level = self._plain_start, self._options.level
        self._plain_start += num_bytes

        def compress() -> _core.Buffer:
            return _core.gzip_member(_joined(parts), 0, num_bytes, num_records, level)

        def write(member: _core.Buffer) -> None:
            check = member.slice(0, _CHECK_BYTES).crc32c()
            self.points.append(SeekPoint(8 * self.num_bytes, plain_start, b"", check))
            self.put(member)

        self._work.put(compress, write)


class _OneStream(PlainOutput):
    """One zlib stream, or one gzip member. It is inflated again on the way, which is how its seek
    points are found."""

    layout = "points"

    def __init__(self, sink: Sink, options: TFRecordWriteOptions) -> None:
        super().__init__(sink)
        self.compression = options.compression or "zlib"
        self._deflater = _core.ZlibDeflater(options.level, options.compression == "gzip")
        self._inflater = _core.Inflater(self.compression, POINT_BYTES)
        # Plain bytes that do not make a whole push yet.
        self._parts: list[_core.Buffer] = []
        self._open_bytes = 0
        # Points that still wait for the bytes after them, and the end of the output for these.
        self._waiting: list[SeekPoint] = []
        self._tail = b""

    def add(self, frames: _core.Buffer, lengths: np.ndarray) -> None:
        del lengths
        start = 0
        while len(frames) - start >= ZLIB_PUSH_BYTES - self._open_bytes:
            end = start + ZLIB_PUSH_BYTES - self._open_bytes
            self._parts.append(frames.slice(start, end - start))
            self._push()
            start = end
        if start < len(frames):
            self._parts.append(frames.slice(start, len(frames)))
            self._open_bytes += len(frames) - start

    def add_parts(self, frames: Sequence[_core.Buffer], lengths: np.ndarray) -> None:
        self.add(_joined(list(frames)), lengths)

    def close(self) -> None:
        if self._open_bytes:
            self._push()
        self._follow(self._deflater.finish(), at_end=True)
        super().close()

    def _push(self) -> None:
        parts, self._parts, self._open_bytes = self._parts, [], 0
        self._follow(self._deflater.push(_joined(parts)), at_end=False)

    def _follow(self, data: _core.Buffer, *, at_end: bool) -> None:
        self.put(data)
        rest = data
        while len(rest):
            plain, taken = self._inflater.push(rest, at_end, POINT_BYTES)
            rest = rest.slice(taken, len(rest))
            if not taken and not len(plain):
                break
        self._waiting += [SeekPoint(*point) for point in self._inflater.take_points()]
        recent = self._tail + data.to_bytes()
        first = self.num_bytes - len(recent)
        while self._waiting:
            point = self._waiting[0]
            at = point.compressed_bit // 8 - first
            if len(recent) < at + _CHECK_BYTES and not at_end:
                break
            check = _core.Buffer.from_bytes(recent[at : at + _CHECK_BYTES]).crc32c()
            self.points.append(
                SeekPoint(point.compressed_bit, point.plain_start, point.window, check)
            )
            del self._waiting[0]
        oldest = self._waiting[0].compressed_bit // 8 - first if self._waiting else len(recent)
        self._tail = recent[max(0, min(oldest, len(recent) - 2 * _CHECK_BYTES)) :]


def _joined(parts: list[_core.Buffer]) -> _core.Buffer:
    if len(parts) == 1:
        return parts[0]
    return _core.Buffer.join(parts)
