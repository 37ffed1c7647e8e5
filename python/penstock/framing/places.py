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
    """Where records of a file lie."""

    source: LocalSource
    framing: str
    index: Index
    records: np.ndarray
    """Their numbers, int64."""
    most_bytes: int
    """Bytes that one may take with its frame."""
    prove: bool
    """Whether payloads are to be compared with their checksums, and those with the index's."""

    def examples(self, plan: _core.ExamplePlan) -> _core.ArrowArray | None:
        """The columns of a plan; None where anything is wrong."""
        index = self.index
        starts, checksums, records = map(as_arrow, (index.starts, index.checksums, self.records))
        file, mapped = self.source.file, self.source.mapped
        return _core.examples_at(
            self.framing,
            file,
            mapped,
            starts,
            checksums,
            records,
            self.most_bytes,
            plan,
            self.prove,
        )


def places_of(shard: Shard, index: Index, records: np.ndarray) -> Places | None:
    """Where these records are, if they can be read so."""
    source = shard.source
    if not isinstance(source, LocalSource) or not isinstance(shard.stream, PlainStream):
        return None
    if shard.salvages or index.gap_ends is not None:
        return None
    most = min(shard.record_bytes + shard.framing.least_bytes, _MOST)
    return Places(source, shard.framing.name, index, records, most, shard.proves)
