"""Decoders of payloads into columns: the interface between payload formats and framing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection
from penstock.columns.types import row_bytes
from penstock.storage.base import Source


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of a file's records, for reading and decoding in one call."""

    source: Source
    file: _core.File
    framing: str
    starts: _core.Buffer
    """Start of each record, then the end of the last, as in the index; uint64."""
    checksums: _core.Buffer
    """Checksum of each record, as in the index; uint32."""
    most_bytes: int
    """Maximum bytes of a record with its frame."""
    prove: bool
    """Whether payloads are compared with their checksums, and the checksums with the index."""

    def examples(self, records: np.ndarray, plan: _core.ExamplePlan) -> _core.ArrowArray | None:
        """Read the columns of a plan for records, given by number (int64). None if there is any fault."""
        return _core.examples_at(
            self.framing,
            self.file,
            self.source.mapped,
            self.starts,
            self.checksums,
            records.astype("<i8", copy=False).tobytes(),
            self.most_bytes,
            plan,
            self.prove,
        )


@dataclass(frozen=True, slots=True)
class FrameCheck:
    """A request to compare payloads with their stored checksums, if possible in the same call as decoding. If `indexed`
    is given, payloads are also compared with these checksums from an index (uint32 for each record)."""

    indexed: pa.Array | None = None


class Decoder(ABC):
    """Decodes payloads into a batch of its schema."""

    schema: pa.Schema
    stored_names: Sequence[str] = ()
    """See `Reader.stored_names`."""

    @abstractmethod
    def decode(
        self, frames: _core.Frames, columns: Projection, proof: FrameCheck | None = None
    ) -> pa.RecordBatch:
        """Decode payloads. If `proof` is given, verify them first."""
        ...

    def noticing(self) -> Decoder:
        """The same decoder. If possible, it raises a fault of kind "unexpected" for a field that the schema lacks, when
        it decodes all columns."""
        return self

    def members(self, columns: Projection) -> frozenset[str] | None:
        """The members of a record whose contents are in these columns, if a record consists of members that can be
        read without the others; else None."""
        del columns
        return None

    def lending(self) -> Decoder:
        """The same decoder. If possible, it returns views into the bytes that were read instead of copies."""
        return self

    def decode_at(
        self, places: Callable[[], Places | None], records: np.ndarray, columns: Projection
    ) -> pa.RecordBatch | None:
        """Read and decode records by number in one call. None if there is a fault, if `places` returns None, or if the
        decoder cannot do this."""
        del places, records, columns
        return None

    @property
    def row_bytes(self) -> Mapping[str, int]:
        """The minimum bytes of a record in each column."""
        return {field.name: row_bytes(field.type) for field in self.schema}
