"""How many files of an object store are opened at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.contract.format import Reader
from penstock.engine.pipeline import in_order

AHEAD_SAMPLES = 4
"""Files that are opened together to find their schema."""
AHEAD_FILES = 64
"""Files that are opened together to count their records."""
_SOON_BYTES = 8 << 20
"""The most bytes of a file that are requested when it is opened, if all of it will be read."""
_MOST_SHARDS = 32
_AHEAD_BYTES = 48 << 20
_DECODED_AHEAD_BYTES = 32 << 20
"""The same for formats that take several times the bytes of a file to decode it."""


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


def shards_ahead(num_bytes: int | None, *, is_framed: bool) -> tuple[int, int]:
    """How many files a scan opens before it reads them, and how many bytes of each it requests then. `num_bytes`: the
    size of one of the files, if it is known. `is_framed`: see `FramedFormat`."""
    if num_bytes is None:
        return 1, _SOON_BYTES
    most = _AHEAD_BYTES if is_framed else _DECODED_AHEAD_BYTES
    length = min(num_bytes + num_bytes // 8 + 1, _SOON_BYTES)
    if num_bytes > most:
        return 1, length
    return min(most // length, _MOST_SHARDS), length
