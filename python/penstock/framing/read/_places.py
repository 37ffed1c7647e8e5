"""Read and decode records of a plain file on this machine in one call, which is the usual way of `take`.

If there is any fault, the slower way (`gather`, `Held`, `Decoder.decode`) is used instead. It works step by step, and
finds out what the fault is. A small take costs little more than its reads, and large records are decoded while they are
in a cache.
"""

from __future__ import annotations

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.contract.decoder import Places
from penstock.framing.index.sidecar import Index
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.stream import PlainStream

_MOST = (1 << 64) - 1


def places_of(shard: OpenShard, index: Index) -> Places | None:
    """The positions of a shard's records; None if they cannot be read this way."""
    source = shard.source
    file = source.local_file()
    if file is None or index.gap_ends is not None or not isinstance(shard.stream, PlainStream):
        return None
    most = min(shard.record_bytes + shard.framing.least_bytes, _MOST)
    numbers = (index.starts.astype("<u8", copy=False), index.checksums.astype("<u4", copy=False))
    starts, checksums = (_core.Buffer.from_values(as_arrow(all_of)) for all_of in numbers)
    return Places(source, file, shard.framing.name, starts, checksums, most, shard.verifies)
