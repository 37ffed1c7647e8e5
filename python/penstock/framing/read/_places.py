"""Records of a plain local file that are read and decoded in one call, as `take` mostly does.

Between the steps of the longer way (`gather`, `Held`, `Decoder.decode`) any fault is looked into. Here there
is none, or the longer way is taken after all: so small takes cost little more than their reads, and large records are
decoded while they are in a cache of the processor.
"""

from __future__ import annotations

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.contract.decoder import Places
from penstock.framing.index.sidecar import Index
from penstock.framing.read.shard import Shard
from penstock.framing.streams.stream import PlainStream
from penstock.storage.local import LocalSource

_MOST = (1 << 64) - 1


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
