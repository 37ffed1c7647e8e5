"""Writes TFRecord shards: frames, stored plain, as gzip members, or as one zlib stream. The bytes do not depend on the
number of threads, or on how the records are split into batches."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock import _core
from penstock.columns.losses import Losses
from penstock.engine.pipeline import Pushed
from penstock.framing.write.output import GzipMembers, OneStream, PlainOutput
from penstock.framing.write.writer import FramedWriter
from penstock.limits import KIB
from penstock.payloads.example.encode_plans import Payload, plan_payload
from penstock.storage.base import Sink


@dataclass(frozen=True, slots=True)
class TFRecordWriteOptions:
    """Options for writing TFRecord files."""

    compression: str | None = None
    level: int = 6
    """1 (fastest) to 9 (smallest)."""
    member_bytes: int = 256 * KIB
    """A gzip member ends with the record that brings its uncompressed size to `member_bytes` or more."""
    payload: Payload | None = None
    """How records are encoded. None decides from the schema, see `plan_payload`."""
    exact: bool = False
    """Whether a float64 that float32 cannot represent exactly is an error. If False, the nearest float32 is stored, as
    in TensorFlow's FloatList. A value beyond float32's range is always an error."""

    def __post_init__(self) -> None:
        if isinstance(self.compression, str):
            # TensorFlow spells the names in capitals, and no compression as "".
            object.__setattr__(self, "compression", self.compression.lower() or None)
        if self.compression not in (None, "gzip", "zlib"):
            raise ValueError(
                f"TFRecord has no compression {self.compression!r}; known: None, 'gzip', 'zlib'"
            )
        if self.payload not in (None, "example", "sequence", "raw"):
            raise ValueError(
                f"unknown payload {self.payload!r}; known: None, 'example', 'sequence', 'raw'"
            )
        if not 1 <= self.level <= 9:
            raise ValueError(f"level must be 1 to 9, not {self.level}")
        if not 1 <= self.member_bytes <= 1 << 30:
            raise ValueError(f"member_bytes must be 1 to {1 << 30}, not {self.member_bytes}")


class TFRecordWriter(FramedWriter):
    """Writes one shard to a sink, and collects the data for its index. The caller commits or aborts the sink. Raises
    SchemaError if no payload can hold the values of a column.

    threads: how many slices are encoded and compressed in parallel; None means one per core.
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        options: TFRecordWriteOptions,
        threads: int | None = None,
    ) -> None:
        self._options = options
        self._losses = Losses(exact=options.exact)
        plan = plan_payload(schema, options.payload, self._losses)

        def encode(part: pa.RecordBatch, first_record: int) -> _core.Framed:
            del first_record
            if plan.kind == "raw":
                return _core.frame_records(part.column(0))
            return _core.encode_examples(plan.convert(part), plan.kind)

        super().__init__(sink, schema, encode, threads)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._losses.notes

    def output(self, sink: Sink) -> PlainOutput:
        how = self._options
        if how.compression == "gzip":
            work = Pushed(self.threads, 4 * self.threads, beside=self._work)
            return GzipMembers(sink, how.level, how.member_bytes, work)
        return OneStream(sink, how.compression, how.level) if how.compression else PlainOutput(sink)
