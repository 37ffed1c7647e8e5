"""How many files of an object store are opened at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.contract.format import Reader
from penstock.engine.pipeline import in_order

AHEAD_SAMPLES = 4
"""Files that are opened together to find their schema."""
AHEAD_FILES = 64
"""Files that are opened together to count their records."""
SOON_BYTES = 8 << 20
"""Bytes of a file that are requested when it is opened, if all of it will be read."""
_MOST_SHARDS = 12
_AHEAD_BYTES = 64 << 20


def counts_of(
    num_files: int, reader: Callable[[int], Reader], at_once: int | None
) -> Iterator[int]:
    """The number of records of each file. `at_once`: how many are read together; None: one after another."""
    shards = range(num_files)
    if at_once is None:
        return (reader(shard).num_records for shard in shards)
    return in_order(
        [lambda: iter(shards)], lambda shard: [reader(shard).num_records], lambda count: 0, at_once
    )


def shards_ahead(num_bytes: int) -> int:
    """How many files a scan opens before it reads them, if a file has so many bytes."""
    return max(1, min(_MOST_SHARDS, _AHEAD_BYTES // max(num_bytes, 1)))
