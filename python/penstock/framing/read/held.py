"""Loaded frames of a chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock import _core
from penstock.contract.format import Chunk, SkippedRegion
from penstock.framing.framings import Framing
from penstock.framing.index.sidecar import Index, as_uint64


@dataclass(frozen=True, slots=True)
class Held:
    """Loaded frames of a chunk, and facts about them."""

    frames: _core.Frames
    checksums: np.ndarray | None = None
    """The index's checksum of each frame, uint32."""
    records: np.ndarray | None = None
    """The number of each frame in the shard, int64, -1 if unknown. None for all frames of the chunk in order."""
    skipped: tuple[SkippedRegion, ...] = ()
    verified: bool = False
    """Whether the payloads have been compared with their checksums."""

    def select(self, places: np.ndarray, first_record: int) -> Held:
        """Select frames by their positions in this set; `first_record` is the chunk's."""
        records = first_record + places if self.records is None else self.records[places]
        checksums = None if self.checksums is None else self.checksums[places]
        frames = self.frames.select(as_uint64(places))
        return Held(frames, checksums, records, self.skipped, self.verified)

    def slice(self, first: int, last: int) -> Held:
        records = None if self.records is None else self.records[first:last]
        checksums = None if self.checksums is None else self.checksums[first:last]
        frames = self.frames[first:last]
        return Held(frames, checksums, records, self.skipped, self.verified)


FrameChunk = Chunk[Index] | Chunk[Held]
"""A chunk of frames. `data` is the index with their positions, or the loaded frames."""


def frames_in(
    framing: Framing, data: _core.Buffer, places: np.ndarray, sizes: np.ndarray
) -> _core.Frames:
    """Frames stored back to back in a buffer, with `places` as their offsets in the stream."""
    inside = np.cumsum(sizes) - sizes
    return _core.frames_at(
        framing.name, data, as_uint64(inside), as_uint64(sizes), as_uint64(places)
    )
