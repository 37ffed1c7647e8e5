"""Frames of a chunk that are in hand, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.framing.framings import Framing
from penstock.framing.index.sidecar import as_uint64


@dataclass(frozen=True, slots=True)
class Held:
    """Frames of a chunk that are in hand."""

    frames: _core.Frames
    unproved: bool | np.ndarray = False
    """Whether they, or which of them, may be the contents of a larger, broken record."""
    checksums: np.ndarray | None = None
    """What an index has for the checksum of each, uint32."""
    records: np.ndarray | None = None
    """The number of each in the shard, int64, -1 where nobody knows it; None where they follow the
    chunk's first record."""

    def select(self, places: np.ndarray, first_record: int) -> Held:
        """Some of them, by their places here; `first_record` is the chunk's."""
        records = first_record + places if self.records is None else self.records[places]
        checksums = None if self.checksums is None else self.checksums[places]
        unproved = self.unproved if isinstance(self.unproved, bool) else self.unproved[places]
        return Held(self.frames.select(as_uint64(places)), unproved, checksums, records)

    def slice(self, first: int, last: int) -> Held:
        """Neighbouring ones. What is known of them stays known."""
        records = None if self.records is None else self.records[first:last]
        checksums = None if self.checksums is None else self.checksums[first:last]
        unproved = self.unproved if isinstance(self.unproved, bool) else self.unproved[first:last]
        return Held(self.frames[first:last], unproved, checksums, records)


def frames_in(
    framing: Framing, data: _core.Buffer, places: np.ndarray, sizes: np.ndarray
) -> _core.Frames:
    """Frames that lie one behind the other in a buffer, and in their stream at these places."""
    inside = np.cumsum(sizes) - sizes
    return _core.frames_at(
        framing.name, data, as_uint64(inside), as_uint64(sizes), as_uint64(places)
    )
