"""Raw records of a framed format, not decoded."""

from __future__ import annotations

import pyarrow as pa

from penstock import _core
from penstock.columns.batches import empty_columns
from penstock.columns.selection import Projection
from penstock.contract.decoder import Decoder, FrameCheck

RAW_SCHEMA = pa.schema([pa.field("record", pa.binary_view(), nullable=False)])


class RawDecoder(Decoder):
    """Returns payloads undecoded: one column of views into the bytes that were read."""

    def __init__(self, schema: pa.Schema = RAW_SCHEMA) -> None:
        self.schema = schema

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        if columns is not None and "record" not in columns:
            return without_columns(frames, proof)
        array = pa.array(frames.views(*given(proof)))
        if array.type != self.schema.field(0).type:
            array = array.cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([array], schema=self.schema)


def given(proof: FrameCheck | None) -> tuple[bool, pa.Array | None]:
    """Convert a FrameCheck to the arguments of the kernels."""
    return (False, None) if proof is None else (True, proof.indexed)


def without_columns(frames: _core.Frames, proof: FrameCheck | None) -> pa.RecordBatch:
    """A batch with the right number of records and no columns."""
    if proof is not None:
        frames.prove(proof.indexed)
    return empty_columns(len(frames))
