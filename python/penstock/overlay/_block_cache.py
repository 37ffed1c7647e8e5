"""The blocks of overlays that were used last, and their open files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pyarrow as pa

from penstock.engine.locks import Lock
from penstock.storage.base import Source

CACHED_FILES = 64
CACHE_BYTES = 32 << 20
"""Bytes of blocks that a dataset caches for all its overlays. Blocks are larger than chunks."""


class BlockCache:
    """A cache of recently used blocks and open files, because a dataset of many shards must not keep all files open.
    Safe to use from several threads."""

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._num_bytes = 0
        self._blocks: OrderedDict[tuple[str, int], tuple[pa.RecordBatch, int]] = OrderedDict()
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._lock = Lock()

    def source(self, key: str, open_file: Callable[[], Source]) -> Source:
        """An open file, reopened if it was dropped. A dropped file stays open until its last reader is done."""
        with self._lock:
            found = self._sources.pop(key, None)
            if found is None:
                found = open_file()
            self._sources[key] = found
            if len(self._sources) > CACHED_FILES:
                self._sources.popitem(last=False)
            return found

    def drop_source(self, key: str) -> None:
        with self._lock:
            self._sources.pop(key, None)

    def get(self, key: tuple[str, int]) -> pa.RecordBatch | None:
        with self._lock:
            found = self._blocks.get(key)
            if found is None:
                return None
            self._blocks.move_to_end(key)
            return found[0]

    def put(self, key: tuple[str, int], batch: pa.RecordBatch, num_bytes: int) -> None:
        """Add a block, and drop the least recently used blocks if the cache is full."""
        with self._lock:
            if key in self._blocks:
                return
            self._blocks[key] = batch, num_bytes
            self._num_bytes += num_bytes
            while self._num_bytes > self._most_bytes and len(self._blocks) > 1:
                self._num_bytes -= self._blocks.popitem(last=False)[1][1]
