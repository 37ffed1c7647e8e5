"""What ties an overlay to its shard: values are joined by record number, so a shard whose records differ or have moved
must be distinguished from the shard that the values were made for.

Time stamps are not looked at. A framed shard is told by its index: the place and the stored
checksum of every record. The index is itself tied to the file, and each record read through it is
compared with it. Any other shard is told by its size and a sample of its bytes.
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


@dataclass(frozen=True, slots=True)
class Identity:
    """One state of a shard. `digest` begins with the word for what it was made of; `num_records`
    is None where nobody has counted."""

    num_bytes: int
    num_records: int | None
    digest: str

    def fits(self, other: Identity) -> bool:
        """Whether both are of the same state, as far as both know it."""
        counts = {self.num_records, other.num_records} - {None}
        same = (self.num_bytes, self.digest) == (other.num_bytes, other.digest)
        return same and len(counts) == 1


def identity_of(reader: Reader, source: Source, *, count: bool = True) -> Identity:
    """What an open shard is. Makes the index of a framed shard that has none. Other shards are
    counted only where that is asked for, since it may mean reading the heads of all batches.

    Raises:
        StaleIndexError: the shard is damaged and has no index, so that nobody knows the numbers of
            its records.
    """
    index: Any = getattr(reader, "index", None)
    if not isinstance(index, Index):
        num_records = reader.num_records if count else None
        return Identity(source.size, num_records, f"sample:{sample_of(source).hex()}")
    if index.gap_ends is not None:
        raise StaleIndexError(
            "the shard is damaged and its index is lost: nobody knows which record an overlay's "
            "values belong to",
            file=source.path,
            hint="open(..., overlays=False), or penstock repair",
        )
    places = _crc(np.asarray(index.starts), "<u8")
    checksums = _crc(np.asarray(index.checksums), "<u4")
    return Identity(index.data_bytes, index.num_records, f"index:{places:08x}{checksums:08x}")


def _crc(numbers: np.ndarray, kind: str) -> int:
    """CRC-32C of some numbers, a piece at a time."""
    crc = 0
    for start in range(0, len(numbers), _PIECE):
        piece = np.ascontiguousarray(numbers[start : start + _PIECE], dtype=kind)
        crc = _core.Buffer.from_bytes(piece.tobytes()).crc32c(crc)
    return crc
