"""Records of a plain local file that are read and decoded in one call, as `take` mostly does.

Between the steps of the longer way (`gather`, `Held`, `Decoder.decode`) any fault is looked into. Here there
is none, or the longer way is taken after all: so small takes cost little more than their reads, and large records are
decoded while they are in a cache of the processor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.framing.shard import Shard
from penstock.framing.sidecar import Index
from penstock.framing.stream import PlainStream
from penstock.numbers import as_arrow
from penstock.storage import LocalSource

_MOST = (1 << 64) - 1


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


def places_of(shard: Shard, index: Index) -> Places | None:
    """Where the records of a shard lie, if they can be read so."""
    source = shard.source
    if not isinstance(source, LocalSource) or not isinstance(shard.stream, PlainStream):
        return None
    if shard.salvages or index.gap_ends is not None:
        return None
    most = min(shard.record_bytes + shard.framing.least_bytes, _MOST)
    numbers = (index.starts.astype("<u8", copy=False), index.checksums.astype("<u4", copy=False))
    starts, checksums = (_core.Buffer.from_values(as_arrow(all_of)) for all_of in numbers)
    return Places(source, shard.framing.name, starts, checksums, most, shard.proves)
