"""Four numbers that identify the state of a file which a storage names by a text."""

from __future__ import annotations

import hashlib


def numbers_of(tag: str, size: int) -> tuple[int, int, int, int]:
    """`Source.identity` for a file with this ETag, version or time; all 0 if there is none."""
    if not tag:
        return 0, 0, 0, 0
    digest = hashlib.blake2b(tag.encode(), digest_size=16).digest()
    low, high = digest[:8], digest[8:]
    return int.from_bytes(low, "little"), size, int.from_bytes(high, "little", signed=True), 0
