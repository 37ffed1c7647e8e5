"""What turns payloads into columns, as the formats with payloads of their own and framing agree on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection
from penstock.storage.local import LocalSource


@dataclass(frozen=True, slots=True)
class Places:
    """Where the records of a file lie."""

    source: LocalSource
    framing: str
    starts: _core.Buffer
    """Of each record and where the last one ends, as in the index; uint64."""
    checksums: _core.Buffer
    """As in the index, uint32."""
    most_bytes: int
    """Bytes that a record may take with its frame."""
    prove: bool
    """Whether payloads are to be compared with their checksums, and those with the index's."""

    def examples(self, records: np.ndarray, plan: _core.ExamplePlan) -> _core.ArrowArray | None:
        """The columns of a plan, of records by their numbers (int64); None where anything is wrong."""
        return _core.examples_at(
            self.framing,
            self.source.file,
            self.source.mapped,
            self.starts,
            self.checksums,
            records.astype("<i8", copy=False).tobytes(),
            self.most_bytes,
            plan,
            self.prove,
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """Payloads are to be compared with their stored checksums, and those with an index's
    (uint32, by record), if given. A decoder that can does it in the call that decodes."""

    indexed: pa.Array | None = None


class Decoder(Protocol):
    """Turns payloads into a batch of its schema."""

    schema: pa.Schema

    def decode(
        self, frames: _core.Frames, columns: Projection, proof: Proof | None = None
    ) -> pa.RecordBatch:
        """The payloads as a batch; verified first, if a proof is asked for."""
        ...


@runtime_checkable
class Lender(Protocol):
    """A Decoder that need not copy byte strings."""

    def lending(self) -> Decoder:
        """The same decoder with views into what was read in place of bytes."""
        ...


@runtime_checkable
class PlaceDecoder(Protocol):
    """A Decoder that can read and decode records in one call."""

    def decode_at(
        self, places: Places, records: np.ndarray, columns: Projection
    ) -> pa.RecordBatch | None:
        """Records by their numbers as a batch. None where something is wrong with any, or another way is better."""
        ...


@runtime_checkable
class BlockProver(Protocol):
    """A Decoder that proves small records a few at a time, right before it reads them."""

    proves_in_blocks: bool


@runtime_checkable
class Widening(Protocol):
    """A Decoder that knows better than its schema how large its columns are at least."""

    @property
    def row_bytes(self) -> Mapping[str, int]:
        """Bytes that a record takes in each column, whatever it holds."""
        ...
