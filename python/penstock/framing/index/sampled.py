"""A digest of a sample of a file's bytes, for formats that store no record checksums."""

from __future__ import annotations

import numpy as np

from penstock.columns.numbers import as_arrow
from penstock.storage.base import Source

WHOLE_BYTES = 1 << 20
"""Up to this size, the whole file is read."""
SAMPLES = 64
SAMPLE_BYTES = 4096
TAIL_BYTES = 64 << 10
"""This much of the end of a larger file is read, because formats store footers there."""


def sample_of(source: Source) -> bytes:
    """The digest, 16 bytes."""
    import hashlib  # costs 3 ms at import, and is rarely needed

    if source.size <= WHOLE_BYTES:
        found = source.read(0, source.size)
    else:
        last = source.size - SAMPLE_BYTES
        ranges = [(i * last // (SAMPLES - 1), SAMPLE_BYTES) for i in range(SAMPLES)]
        ranges.append((source.size - TAIL_BYTES, TAIL_BYTES))
        starts, lengths = (
            as_arrow(np.array(part, np.uint64)) for part in zip(*ranges, strict=True)
        )
        found = source.gather(starts, lengths)
    return hashlib.blake2b(found.to_bytes(), digest_size=16).digest()
