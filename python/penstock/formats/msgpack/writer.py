"""Writes MessagePack: each record is a map of its fields, or a value that is copied unchanged. The bytes of a record
depend only on the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa

from penstock import _core
from penstock.columns.types import is_bytes
from penstock.errors import SchemaError
from penstock.formats.msgpack.columns import FieldPlan, plan_writing
from penstock.framing.write.writer import FramedWriter
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import Sink


@dataclass(frozen=True, slots=True)
class MessagePackWriteOptions:
    """How MessagePack files are written.

    payload: "map" writes each record as a map of its columns. "raw" copies the values of the only column, each of which
        is one encoded MessagePack value. None means "raw" if the only column is binary and called "record", else "map".
    """

    payload: Literal["map", "raw"] | None = None

    def __post_init__(self) -> None:
        if self.payload not in (None, "map", "raw"):
            raise ValueError(f"unknown payload {self.payload!r}; known: None, 'map', 'raw'")


class MessagePackWriter(FramedWriter):
    """Writes one shard to a sink, and collects the data for its index. See FramedWriter."""

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        options: MessagePackWriteOptions,
        threads: int | None = None,
    ) -> None:
        super().__init__(sink, schema, _encoder(schema, options), threads)


Encode = Callable[[pa.RecordBatch, int], _core.Framed]


def _encoder(schema: pa.Schema, options: MessagePackWriteOptions) -> Encode:
    """Return the function that encodes a batch. Raise SchemaError if a column cannot be written."""
    payload = options.payload
    if payload is None and is_raw(schema):
        payload = "raw"
    if payload == "raw":
        if len(schema) != 1 or not is_bytes(schema.field(0).type):
            raise SchemaError(
                f"raw records are one binary column; the schema has {schema.names}",
                hint='payload="map"',
            )
        return lambda batch, first: _core.frame_values(batch.column(0))
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError("two columns have the same name", field=name)
        seen.add(name)
    plans = [plan_writing(field) for field in schema]
    return partial(_encode_maps, plans, pa.schema([plan.kernel for plan in plans]))


def _encode_maps(
    plans: list[FieldPlan], schema: pa.Schema, batch: pa.RecordBatch, first: int
) -> _core.Framed:
    del first
    if not plans:
        return _core.encode_msgpack(pa.array([{}] * batch.num_rows, pa.struct([])))
    arrays = [plan.convert(batch.column(n)) for n, plan in enumerate(plans)]
    return _core.encode_msgpack(pa.RecordBatch.from_arrays(arrays, schema=schema))
