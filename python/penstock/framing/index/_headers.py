"""Makes the index of an object from the headers of its records, by one small request for each record.

The requests of one object follow one another, since a header says where the next one is. So this takes as many round
trips as there are records, but objects that are indexed at the same time do not wait for each other. Reading an object
whole takes as long as its share of the link needs. `_Turns` compares the two.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from penstock import _core
from penstock.engine.locks import Lock
from penstock.framing.read.shard import OpenShard
from penstock.storage.local import LocalSource

_ROUND_TRIP_BYTES = 2 << 20
"""The bytes that a link brings during one round trip (1 Gbit/s and 17 ms)."""
_TRIES = 16
"""After so many records, their mean size is known."""


class _Turns:
    """How many objects are being indexed by their headers in this process."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()

    @contextmanager
    def one(self) -> Generator[None]:
        with self._lock:
            self.count += 1
        try:
            yield
        finally:
            with self._lock:
                self.count -= 1

    def are_worth(self, record_bytes: float) -> bool:
        """Whether a request for each record takes less time than all bytes."""
        return record_bytes * self.count >= _ROUND_TRIP_BYTES


_TURNS = _Turns()


def by_headers(shard: OpenShard) -> tuple[np.ndarray, np.ndarray] | None:
    """The starts and stored checksums of all records of an object. None if reading it whole takes less time, if the
    framing stores no checksums of records, or if a header is damaged."""
    if isinstance(shard.source, LocalSource) or not shard.framing.is_checked:
        return None
    if shard.stream.container or shard.skips_damage:
        return None
    with _TURNS.one():
        return _by_headers(shard)


def _by_headers(shard: OpenShard) -> tuple[np.ndarray, np.ndarray] | None:
    source, framing = shard.source, shard.framing
    head, tail = framing.head_bytes, framing.tail_bytes
    starts, checksums = [shard.begin], list[int]()
    piece = source.read(shard.begin, head)
    while starts[-1] < source.size:
        found = _core.next_head(framing.name, piece, 0)
        if found is None or found[0]:
            return None
        end = starts[-1] + found[1]
        mean = (end - shard.begin) / len(starts)
        is_known = len(starts) in (1, _TRIES) or not len(starts) % 256
        if end > source.size or (is_known and not _TURNS.are_worth(mean)):
            return None
        # The end of this record and the beginning of the next.
        both = source.read(end - tail, tail + head)
        checksums.append(framing.stored(both.slice(0, tail).to_bytes()))
        piece = both.slice(tail, len(both) - tail)
        starts.append(end)
    return np.array(starts, np.uint64), np.array(checksums, np.uint32)
