"""Writes TFRecord shards: batches become frames, and frames plain, gzip or zlib bytes.

Slices of the batches are encoded side by side and written in order. Where a gzip member ends
depends on the records alone, so the bytes are the same for any number of threads and for any way
of cutting the same records into batches. Members hold whole records, which is what makes a gzip
shard readable from its middle; none is empty, since TensorFlow takes an empty one for the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError
from penstock.formats.tfrecord_columns import Payload, PayloadPlan, plan_payload
from penstock.framing.inflated import POINT_BYTES
from penstock.framing.sidecar import Index, SeekPoint
from penstock.limits import KIB
from penstock.numbers import as_numpy
from penstock.pipeline import default_threads
from penstock.storage import Sink

SLICE_BYTES = 1 << 20
"""Arrow bytes that are encoded at once: they and their frames stay in a core's cache."""
SLICE_RECORDS = 8192
WRITE_BYTES = 4 << 20
"""Bytes of one write, each of which starts at a multiple of this: file systems take aligned writes
of this size several times faster than smaller or crooked ones (ext4: in large folios)."""
ZLIB_PUSH_BYTES = 256 * KIB
"""What zlib makes of a stream depends on the pieces it comes in, so all have one size."""
# A gzip file without content: one empty member, 20 bytes, the same as TensorFlow's own.
EMPTY_GZIP = bytes.fromhex("1f8b08000000000000030300") + bytes(8)
_CHECK_BYTES = 16

Result = TypeVar("Result")


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


class TFRecordWriter:
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
        self._plan = plan_payload(schema, options.payload, exact_float64=options.float64 == "exact")
        self._schema = schema
        threads = default_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._pool = ThreadPoolExecutor(threads, "penstock-write") if threads > 1 else None
        self._work = _InOrder(self._pool, 2 * threads + 1)
        self._lengths: list[np.ndarray] = []
        self._checksums: list[np.ndarray] = []
        self._num_records = 0
        self._output: _Plain
        if options.compression == "gzip" and not one_stream:
            self._output = _Gzip(sink, options, _InOrder(self._pool, 4 * threads))
        elif options.compression:
            self._output = _OneStream(sink, options)
        else:
            self._output = _Plain(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the records of a batch.

        Raises:
            SchemaError: a value does not fit; names the record (of this shard) and the field. It
                may come with a later batch, or with `close`.
        """
        if batch.schema != self._schema:
            raise SchemaError(
                f"a batch has another schema than the writer: {batch.schema.names} and "
                f"{self._schema.names}"
                if batch.schema.names != self._schema.names
                else "a batch has other types than the writer was told"
            )
        try:
            for part in _slices(batch):
                first_record = self._num_records
                self._num_records += part.num_rows
                self._work.put(
                    lambda part=part, first=first_record: _encode(self._plan, part, first),
                    self._take,
                )
        except BaseException:
            self._stop()
            raise

    def write_frames(
        self, frames: Sequence[_core.Buffer], lengths: np.ndarray, checksums: np.ndarray
    ) -> None:
        """Append whole frames as they stand: their bytes in any number of parts, the uint64 length of each, and the
        uint32 checksum of each payload as it is stored there."""
        self._finishing(self._work.drain)
        self._num_records += len(lengths)
        self._lengths.append(lengths)
        self._checksums.append(checksums)
        self._finishing(lambda: self._output.add_parts(frames, lengths))

    def flush(self) -> None:
        """Wait until all records handed over so far are counted in `num_bytes`."""
        self._finishing(self._drain)

    @property
    def num_bytes(self) -> int:
        """Bytes of output that all records so far have made; of gzip, those of whole members."""
        self.flush()
        return self._output.num_bytes

    def close(self) -> None:
        """Finish the shard's bytes."""
        self._finishing(self._finish)
        self._stop()

    def abort(self) -> None:
        """Stop in the middle: wait for the threads, write nothing more."""
        self._stop()

    def index(self) -> Index:
        """Where the records lie. Complete once the writer is closed."""
        lengths = np.concatenate([np.zeros(1, np.uint64), *self._lengths])
        starts = np.cumsum(lengths, dtype=np.uint64)
        checksums = np.concatenate([np.zeros(0, np.uint32), *self._checksums])
        return Index(
            num_records=len(checksums),
            data_bytes=self._output.num_bytes,
            plain_bytes=int(starts[-1]),
            compression=self._output.compression,
            starts=starts,
            checksums=checksums,
            points=tuple(self._output.points),
            layout=self._output.layout,
        )

    def _take(self, framed: _core.Framed) -> None:
        lengths = as_numpy(framed.lengths)
        self._lengths.append(lengths)
        self._checksums.append(as_numpy(framed.checksums))
        self._output.add(framed.data, lengths)

    def _drain(self) -> None:
        self._work.drain()
        self._output.drain()

    def _finish(self) -> None:
        self._work.drain()
        self._output.close()

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _finishing(self, last: Callable[[], None]) -> None:
        try:
            last()
        except BaseException:
            self._stop()
            raise


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch that are worth a task each."""
    if batch.num_rows == 0:
        return
    record_bytes = max(1, batch.nbytes // batch.num_rows)
    step = min(SLICE_RECORDS, max(1, SLICE_BYTES // record_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _encode(plan: PayloadPlan, batch: pa.RecordBatch, first_record: int) -> _core.Framed:
    try:
        if plan.kind == "raw":
            return _core.frame_records(batch.column(0))
        return _core.encode_examples(plan.convert(batch), plan.kind)
    except _core.KernelError as error:
        fault = error.args[0]
        record = None if fault.record is None else first_record + fault.record
        raise SchemaError(fault.message, record=record, field=fault.field) from None
    except SchemaError as error:
        if error.record is not None:
            error.record += first_record
        raise


class _InOrder:
    """Runs tasks in the threads of a pool and hands their results on in order, a few ahead at most.

    Without a pool, tasks run where they are put.
    """

    def __init__(self, pool: ThreadPoolExecutor | None, ahead: int) -> None:
        self._pool = pool
        self._ahead = ahead
        self._pending: deque[tuple[Future[Any], Callable[[Any], None]]] = deque()

    def put(self, task: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Run a task; `then` gets its result, in this thread, after those of earlier tasks."""
        if self._pool is None:
            then(task())
            return
        self._pending.append((self._pool.submit(task), then))
        while len(self._pending) > self._ahead:
            self._next()

    def drain(self) -> None:
        """Wait for all results."""
        while self._pending:
            self._next()

    def _next(self) -> None:
        future, then = self._pending.popleft()
        then(future.result())


class _Plain:
    """Frames as they are."""

    compression = ""
    layout = "plain"

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting_parts: list[_core.Buffer] = []
        self._waiting_bytes = 0
        self.num_bytes = 0
        """Bytes of output, written or waiting."""
        self.points: list[SeekPoint] = []

    def add(self, frames: _core.Buffer, lengths: np.ndarray) -> None:
        """Append whole frames."""
        del lengths
        self._put(frames)

    def add_parts(self, frames: Sequence[_core.Buffer], lengths: np.ndarray) -> None:
        """Append whole frames that are in parts."""
        del lengths
        for part in frames:
            self._put(part)

    def drain(self) -> None:
        """Wait until everything that can be written is counted."""

    def close(self) -> None:
        """Write what is left."""
        self._write_out(self._waiting_bytes)

    def _put(self, data: _core.Buffer) -> None:
        if len(data):
            self._waiting_parts.append(data)
            self._waiting_bytes += len(data)
            self.num_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            self._write_out(self._waiting_bytes - self.num_bytes % WRITE_BYTES)

    def _write_out(self, num_bytes: int) -> None:
        """Write so many of the waiting bytes, without moving them."""
        parts: list[memoryview] = []
        self._waiting_bytes -= num_bytes
        while num_bytes:
            part = self._waiting_parts.pop(0)
            if len(part) > num_bytes:
                self._waiting_parts.insert(0, part.slice(num_bytes, len(part)))
                part = part.slice(0, num_bytes)
            parts.append(_view(part))
            num_bytes -= len(part)
        self._sink.write_all(parts)


class _Gzip(_Plain):
    """Members of whole records, each of which ends with the record that fills it."""

    compression = "gzip"
    layout = "members"

    def __init__(self, sink: Sink, options: TFRecordWriteOptions, work: _InOrder) -> None:
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
            self._put(_core.Buffer.from_bytes(EMPTY_GZIP))
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
            self._put(member)

        self._work.put(compress, write)


class _OneStream(_Plain):
    """One zlib stream, or one gzip member. It is inflated again on the way, which is how its seek points are found."""

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
        self._put(data)
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


def _view(data: _core.Buffer) -> memoryview:
    """The bytes of a Buffer, which stays where it is."""
    return memoryview(pa.array(data).buffers()[1])
