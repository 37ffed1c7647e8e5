"""The writer of framed formats. Several threads convert slices of batches to frames, which are written in order.

Frames depend only on their records, so the output is the same for any number of threads and any division into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.lending import lent_schema
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Part, Writer
from penstock.engine.pipeline import Pushed, checked_threads
from penstock.errors import SchemaError
from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex
from penstock.framing.write.output import PlainOutput, parts_of
from penstock.storage.base import Sink
from penstock.tuned import LARGE_RECORD_BYTES, LARGE_SLICE_BYTES, SLICE_BYTES, SLICE_RECORDS


class Encoded(NamedTuple):
    """The frames of a slice."""

    parts: Sequence[Part]
    """The bytes of the frames."""
    lengths: np.ndarray
    """The length of each frame, uint64."""
    checksums: np.ndarray
    """The checksum of each payload in its stored form, uint32."""


class FramedWriter(Writer):
    """Writes one shard of a framed format, and keeps the data for its index. The caller commits or aborts the sink.

    Args:
        encode: returns the frames of a slice, given the number of its first record. It runs in a thread, and raises
            KernelError or SchemaError, whose record number counts from the start of the slice.
        threads: how many slices are encoded in parallel; None for one per core.
    """

    text_index: TextIndex | None = None
    """The text index to write with the file, if requested."""

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        encode: Callable[[pa.RecordBatch, int], _core.Framed],
        threads: int | None = None,
    ) -> None:
        self._schema = schema
        self._lent = lent_schema(schema)
        self._encode = encode
        self.threads = checked_threads(threads)
        self._work = Pushed(self.threads, 2 * self.threads + 1)
        self._lengths: list[np.ndarray] = []
        self._checksums: list[np.ndarray] = []
        self._num_records = 0
        self._is_given_up = False
        self._output = self.output(sink)

    def output(self, sink: Sink) -> PlainOutput:
        return PlainOutput(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the records of a batch.

        Raises:
            SchemaError: a value does not fit. The error names the record of this shard and the field. A later call of
                `write` or `close` may raise it.
            ValueError: an error or Ctrl-C stopped an earlier call.
        """
        if not self._takes(batch):
            raise SchemaError(
                f"a batch does not have the writer's schema: it has {batch.schema.names}, the "
                f"writer {self._schema.names}"
                if batch.schema.names != self._schema.names
                else "a batch does not have the types of the writer's schema"
            )
        self._check()
        try:
            # More waiting slices of this size would need new memory each time, which is slower than waiting.
            most = self.threads + 1 if _is_large(batch) else None
            for part in slices_of(batch):
                first_record = self._num_records
                self._num_records += part.num_rows
                self._work.put(
                    lambda part=part, first=first_record: self._encoded(part, first),
                    self._take,
                    most,
                )
        except BaseException:
            self._give_up()
            raise

    def _takes(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch has the writer's schema. Byte strings may be views."""
        return batch.schema in (self._schema, self._lent)

    def write_frames(
        self, frames: Sequence[Part], lengths: np.ndarray, checksums: np.ndarray
    ) -> None:
        """Append whole frames unchanged. For the arguments see `Encoded`."""
        self._finishing(self._work.drain)
        self._num_records += len(lengths)
        self._finishing(lambda: self._add(frames, lengths, checksums))

    def flush(self) -> None:
        """Wait until all records written so far are counted in `num_bytes`."""
        self._finishing(self._drain)

    @property
    def num_bytes(self) -> int:
        """Bytes of output for all records so far; estimated for records that are not compressed yet."""
        self.flush()
        return self._output.size()

    def close(self) -> None:
        self._finishing(self._finish)
        self._work.close()

    def abort(self) -> None:
        self._work.close()

    def index(self) -> Index:
        """The positions of the records. Complete once the writer is closed."""
        starts = np.concatenate([np.zeros(1, np.uint64), *self._lengths])
        np.cumsum(starts, out=starts)
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

    def _encoded(self, part: pa.RecordBatch, first_record: int) -> Encoded:
        try:
            framed = self._encode(part, first_record)
        except _core.KernelError as error:
            fault = error.args[0]
            record = None if fault.record is None else first_record + fault.record
            raise SchemaError(fault.message, record=record, field=fault.field) from None
        except SchemaError as error:
            if error.record is not None:
                error.record += first_record
            raise
        lengths, checksums = as_numpy(framed.lengths), as_numpy(framed.checksums)
        return Encoded(parts_of(framed), lengths, checksums)

    def _take(self, frames: Encoded) -> None:
        self._add(*frames)

    def _add(self, parts: Sequence[Part], lengths: np.ndarray, checksums: np.ndarray) -> None:
        self._lengths.append(lengths)
        self._checksums.append(checksums)
        self._output.add(parts, lengths)

    def _drain(self) -> None:
        self._work.drain()
        self._output.drain()

    def _finish(self) -> None:
        self._work.drain()
        self._output.close()

    def _finishing(self, last: Callable[[], None]) -> None:
        self._check()
        try:
            last()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Stop for good after an error or Ctrl-C, because it is unknown which records the file lacks."""
        self._is_given_up = True
        self._work.close()

    def _check(self) -> None:
        if self._is_given_up:
            raise ValueError(
                "an error or Ctrl-C stopped this writer, so records are missing from its file; write the file again"
            )


def slices_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into parts of about the same size, each large enough for a task."""
    if batch.num_rows == 0:
        return
    count = round(batch.nbytes / (LARGE_SLICE_BYTES if _is_large(batch) else SLICE_BYTES))
    count = max(count, -(-batch.num_rows // SLICE_RECORDS))
    step = -(-batch.num_rows // max(1, count))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _is_large(batch: pa.RecordBatch) -> bool:
    return batch.nbytes >= LARGE_RECORD_BYTES * batch.num_rows
