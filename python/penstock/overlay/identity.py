"""The identity of a shard, stored in its overlays. Values are joined by record number, so they must not be joined to
a shard whose records have changed or moved since.

A framed shard is identified by the position and stored checksum of every record, from its index, which is itself
compared with the file. Any other shard is identified by its size and a sample of its bytes, and an object also by its
ETag. An object with the ETag of the overlay is not examined further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _core
from penstock.contract.format import Reader
from penstock.errors import StaleIndexError
from penstock.framing.index.sampled import sample_of
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source

_PIECE = 1 << 20
_SAMPLE = "sample:"


@dataclass(frozen=True, slots=True)
class Identity:
    """One state of a shard. `digest` begins with its kind, "index" or "sample". `num_records` is None if the records
    were not counted."""

    num_bytes: int
    num_records: int | None
    digest: str
    tag: str = ""
    """What identifies the state of an object, such as its ETag; empty for a file."""

    def fits(self, other: Identity) -> bool:
        """Whether both identities can belong to the same state."""
        if self.tag and other.tag and self.digest.startswith(_SAMPLE):
            return self.tag == other.tag  # a sample does not show all changes
        counts = {self.num_records, other.num_records} - {None}
        same = (self.num_bytes, self.digest) == (other.num_bytes, other.digest)
        return same and len(counts) == 1


def identity_of(reader: Reader, source: Source, *, count: bool = True) -> Identity:
    """The identity of an open shard. A framed shard's index is built if needed. The records of other shards are counted
    only with `count`, because that may read the headers of all batches.

    Raises:
        StaleIndexError: the shard is damaged and has no index, so its record numbers are unknown.
    """
    index: Any = getattr(reader, "index", None)
    if not isinstance(index, Index):
        num_records = reader.num_records if count else None
        digest = f"{_SAMPLE}{sample_of(source).hex()}"
        return Identity(source.size, num_records, digest, source.tag)
    if index.gap_ends is not None:
        raise StaleIndexError(
            "the shard is damaged and has no index, so it is unknown to which records an overlay's "
            "values belong",
            file=source.path,
            hint="open(..., overlays=False), or penstock repair --no-overlays",
        )
    places = _crc(np.asarray(index.starts), "<u8")
    checksums = _crc(np.asarray(index.checksums), "<u4")
    digest = f"index:{places:08x}{checksums:08x}"
    return Identity(index.data_bytes, index.num_records, digest, source.tag)


def _crc(numbers: np.ndarray, kind: str) -> int:
    """The CRC-32C of an array of numbers, computed in pieces."""
    crc = 0
    for start in range(0, len(numbers), _PIECE):
        piece = np.ascontiguousarray(numbers[start : start + _PIECE], dtype=kind)
        crc = _core.Buffer.from_bytes(piece.tobytes()).crc32c(crc)
    return crc
