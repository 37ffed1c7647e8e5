"""Writes MessagePack: each record a map of its fields, or a value as it stands.

Slices of the batches are encoded side by side and written in order. A record's bytes depend on the
record alone, so a file is the same for any number of threads and any cut into batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError
from penstock.formats.msgpack_columns import FieldPlan, plan_writing
from penstock.framing.sidecar import Index
from penstock.numbers import as_numpy
from penstock.pipeline import default_threads
from penstock.storage import Sink

SLICE_BYTES = 1 << 20
"""Arrow bytes that are encoded at once: they and their maps stay in a core's cache."""
SLICE_RECORDS = 8192
WRITE_BYTES = 4 << 20
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class MessagePackWriteOptions:
    """How MessagePack files are written.

    payload: "map" writes each record as a map of its columns; "raw" writes the values of the only
        column, each of which is a whole MessagePack value, as they are; None takes a lone binary
        column "record" for the latter.
    """

    payload: Literal["map", "raw"] | None = None

    def __post_init__(self) -> None:
        if self.payload not in (None, "map", "raw"):
            raise ValueError(f"unknown payload {self.payload!r}; known: None, 'map', 'raw'")


class MessagePackWriter:
    """Writes one shard to a sink, and keeps what an index of it needs. See penstock.format.Writer."""

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        options: MessagePackWriteOptions,
        threads: int | None = None,
    ) -> None:
        self._encode = _encoder(schema, options)
        self._schema = schema
        self._sink = sink
        threads = default_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._pool = ThreadPoolExecutor(threads, "penstock-write") if threads > 1 else None
        self._ahead = 2 * threads + 1
        self._pending: deque[Future[_core.Framed]] = deque()
        self._waiting: list[_core.Buffer] = []
        self._waiting_bytes = 0
        self._num_records = 0
        self._num_bytes = 0
        self._lengths: list[np.ndarray] = []
        self._checksums: list[np.ndarray] = []

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
        with _Stopping(self):
            for part in _slices(batch):
                task = partial(_encoded, self._encode, part, self._num_records)
                self._num_records += part.num_rows
                if self._pool is None:
                    self._take(task())
                    continue
                self._pending.append(self._pool.submit(task))
                while len(self._pending) > self._ahead:
                    self._take(self._pending.popleft().result())

    def flush(self) -> None:
        """Wait until all records handed over so far are counted in `num_bytes`."""
        with _Stopping(self):
            self._drain()

    @property
    def num_bytes(self) -> int:
        """Bytes of output that all records so far have made."""
        self.flush()
        return self._num_bytes

    def close(self) -> None:
        """Finish the shard's bytes."""
        with _Stopping(self):
            self._drain()
            self._write_out()
        self.abort()

    def abort(self) -> None:
        """Stop in the middle: wait for the threads, write nothing more."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def index(self) -> Index:
        """Where the records lie. Complete once the writer is closed."""
        lengths = np.concatenate([np.zeros(1, np.uint64), *self._lengths])
        starts = np.cumsum(lengths, dtype=np.uint64)
        checksums = np.concatenate([np.zeros(0, np.uint32), *self._checksums])
        size = int(starts[-1])
        return Index(len(checksums), size, size, "", starts, checksums)

    def _take(self, framed: _core.Framed) -> None:
        self._put(framed.data, as_numpy(framed.lengths), as_numpy(framed.checksums))

    def _put(self, data: _core.Buffer, lengths: np.ndarray, checksums: np.ndarray) -> None:
        self._lengths.append(lengths)
        self._checksums.append(checksums)
        if len(data):
            self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._num_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        if self._waiting:
            # Views of the buffers, which stay where they are.
            self._sink.write_all([memoryview(pa.array(p).buffers()[1]) for p in self._waiting])
        self._waiting, self._waiting_bytes = [], 0

    def _drain(self) -> None:
        while self._pending:
            self._take(self._pending.popleft().result())


class _Stopping:
    """Lets go of the threads of a writer that fails."""

    def __init__(self, writer: MessagePackWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._writer.abort()


Encode = Callable[[pa.RecordBatch], _core.Framed]


def _encoder(schema: pa.Schema, options: MessagePackWriteOptions) -> Encode:
    """What makes records of a batch. Raises SchemaError where a column cannot be written."""
    payload = options.payload
    if payload is None and schema.names == ["record"]:
        payload = "raw" if _is_bytes(schema.field(0).type) else None
    if payload == "raw":
        if len(schema) != 1 or not _is_bytes(schema.field(0).type):
            raise SchemaError(
                f"raw records are one binary column; the schema has {schema.names}",
                hint='payload="map"',
            )
        return lambda batch: _core.frame_values(batch.column(0))
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError("two columns have the same name", field=name)
        seen.add(name)
    plans = [plan_writing(field) for field in schema]
    return partial(_encode_maps, plans, pa.schema([plan.kernel for plan in plans]))


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or type_ == pa.binary_view())


def _encode_maps(plans: list[FieldPlan], schema: pa.Schema, batch: pa.RecordBatch) -> _core.Framed:
    if not plans:
        return _core.encode_msgpack(pa.array([{}] * batch.num_rows, pa.struct([])))
    arrays = [plan.convert(batch.column(n)) for n, plan in enumerate(plans)]
    return _core.encode_msgpack(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _encoded(encode: Encode, batch: pa.RecordBatch, first_record: int) -> _core.Framed:
    try:
        return encode(batch)
    except _core.KernelError as error:
        fault = error.args[0]
        record = None if fault.record is None else first_record + fault.record
        raise SchemaError(fault.message, record=record, field=fault.field) from None
    except SchemaError as error:
        if error.record is not None:
            error.record += first_record
        raise


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch that are worth a task each."""
    if batch.num_rows == 0:
        return
    record_bytes = max(1, batch.nbytes // batch.num_rows)
    step = min(SLICE_RECORDS, max(1, SLICE_BYTES // record_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
