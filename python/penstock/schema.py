"""From a schema to what a kernel decodes, and back: the columns of tf.train.Example payloads.

A field of the schema is made of one or more *wires*: columns as the kernel decodes them, of the
three kinds that exist on the wire. `FieldPlan.finish` turns the wires' arrays into the field's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError, UnsupportedError

INFERRED_KEY = b"penstock.inferred_from"


@dataclass(frozen=True, slots=True)
class Wire:
    """One column as the kernel decodes it.

    `kind` is "int64", "float", "bytes", or None for a column of nulls. `layout` is "scalar",
    "list", "fixed" (of `size` values), "frame_scalars" or "frame_lists" (feature lists).
    `default` holds the values that stand for a missing feature.
    """

    key: str
    kind: str | None
    layout: str = "scalar"
    size: int = 0
    in_lists: bool = False
    text: bool = False
    required: bool = False
    default: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """How one field of the schema is decoded."""

    field: pa.Field
    wires: tuple[Wire, ...]
    finish: Callable[[Sequence[pa.Array]], pa.Array] = lambda arrays: arrays[0]


class DecodePlan:
    """How a batch of a schema is decoded; made once, used for many batches."""

    def __init__(self, fields: Sequence[FieldPlan], dialect: str) -> None:
        self.fields = tuple(fields)
        self.schema = pa.schema([f.field for f in fields])
        columns = [
            (
                str(number),
                w.key.encode("utf-8", "surrogateescape"),
                w.in_lists,
                w.kind,
                w.layout,
                w.size,
                w.text,
                w.required,
                None if w.default is None else list(w.default),
            )
            for number, w in enumerate(w for f in fields for w in f.wires)
        ]
        self._plan = _core.ExamplePlan(columns, dialect)

    def decode(self, frames: _core.Frames) -> pa.RecordBatch:
        """Decode payloads. Raises KernelError with a Fault that names record and field."""
        decoded = pa.record_batch(frames.decode(self._plan))
        arrays = decoded.columns
        done: list[pa.Array] = []
        at = 0
        for plan in self.fields:
            done.append(plan.finish(arrays[at : at + len(plan.wires)]))
            at += len(plan.wires)
        if not done:
            return decoded
        return pa.RecordBatch.from_arrays(done, schema=self.schema)
