"""Objects that are read through a cache on a local disk.

A block that the cache does not have is filled in one of two ways. If many bytes of it are needed, or the object is read in
order, the whole block is requested, and kept on the way. Otherwise only the needed bytes are requested, and a thread
requests the block later, behind the loop: one block at a time, in the order of the files.

An object is in the cache under its address without a query, its size, its tag, and a checksum of its first bytes, which
come with the request that opens it: two objects whose addresses differ only in the query may have the same tag.
"""

from __future__ import annotations

import atexit
import heapq
import re
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.engine.locks import Lock
from penstock.errors import PenstockError, shown
from penstock.storage._cache_files import BLOCK_BYTES, Block, Kept
from penstock.storage._object_source import HEAD_BYTES
from penstock.storage._whole_blocks import WholeBlocks
from penstock.storage.base import Source
from penstock.storage.cache import Cache
from penstock.storage.source_views import SourceView

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_BYTES = 16 << 10
"""The bytes whose checksum belongs to the key. An open never requests fewer."""
_BULK_BYTES = 1 << 20
"""If a read needs so many bytes of a block, it requests the whole block."""
_BULK_IN_ORDER = 64 << 10
"""The same for all blocks of a read in order, from this length on."""
_ADJOINING_BYTES = 1 << 20
"""A read that begins so near behind the last one is one in order."""
_LOOP_BYTES = 256 << 10
"""When so many bytes of an object were missing, its blocks are filled. Opening it needs fewer."""
_FULL_SECONDS = 60.0
"""How long nothing is written after the cache was full of blocks that are in use."""
_EXIT_SECONDS = 10.0
_EMPTY = _core.Buffer.from_bytes(b"")
_Place = tuple[str, int, bytes]
"""Path, number and key of a block, sorted as they are filled."""


@dataclass
class CacheCounts:
    """What the cache did for one dataset in this process.

    Attributes:
        reads: counts the ranges that were read from the cache.
        misses: parts of blocks that it did not have.
        filled: blocks that were written.
    """

    reads: _core.CacheHits = field(default_factory=_core.CacheHits)
    misses: int = 0
    filled: int = 0
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def hits(self) -> int:
        """The ranges that were read from the cache."""
        return self.reads.count


class CachedObjects:
    """What the sources of one storage share: the cache, what is to be filled, and the thread that fills it."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.counts = CacheCounts()
        self._since_ns = time.time_ns()
        self._keys: dict[str, tuple[str, bytes]] = {}
        """The tag and the key of each object that was opened, by the path as it was given."""
        self._has_warned = False
        self._full_until = 0.0
        self._lock = Lock()
        self._missing: list[_Place] = []
        self._sources: dict[_Place, CachedSource] = {}
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        _ALL.add(self)

    def view(self, source: Source, path: str) -> Source:
        """A source that is read through the cache. An object without a tag is returned as it is. `path` is its path as
        it was given."""
        tag = source.state_name()
        if tag is None:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"{shown(source.path)}: the server sends no version and no strong ETag, so objects like this are "
                    "not kept in the cache",
                    stacklevel=2,
                )
            return source
        with self._lock:
            known, key = self._keys.get(path, ("", b""))
        if known != tag:
            first = source.read(0, _FIRST_BYTES)
            facts = f"{_without_secrets(source.path)}\0{source.size}\0{tag}\0{first.crc32c():x}"
            key = facts.encode("utf-8", "surrogateescape")
            with self._lock:
                self._keys[path] = tag, key
        view = CachedSource(source, key, self)
        if 0 < source.size <= len(first := source.first_bytes()) and not self.has(
            view.blocks.block(0)
        ):
            self.keep(view.blocks.block(0), first.slice(0, source.size))
        return view

    def has_start(self, path: str, size: int) -> bool:
        """Whether the first block of an object that was opened before is in the cache."""
        with self._lock:
            key = self._keys.get(path)
        block = None if key is None else Block(key[1], 0, min(size, BLOCK_BYTES))
        return block is not None and self.has(block)

    # -- blocks -----------------------------------------------------------------------------------

    @property
    def accepts(self) -> bool:
        """Whether blocks can be written."""
        return not self.cache.is_stopped and time.monotonic() >= self._full_until

    def has(self, block: Block) -> bool:
        """Whether there is a file for this block."""
        return self.cache.files.has(block)

    def opened(self, key: bytes, size: int) -> _core.File:
        """The bytes of an object as far as they are in the cache."""
        return self.cache.files.opened(key, size, self.counts.reads)

    def missed(self, count: int) -> None:
        """Count parts of blocks that the cache does not have."""
        with self.counts.lock:
            self.counts.misses += count

    def keep(self, block: Block, data: _core.Buffer) -> None:
        """Write a block, if there is room."""
        if not self.accepts:
            return
        try:
            kept = self.cache.files.write(block, data, self._since_ns)
        except OSError as error:
            self.cache.stop(error)
            return
        if kept is Kept.YES:
            with self.counts.lock:
                self.counts.filled += 1
        elif kept is Kept.FULL:
            self._full_until = time.monotonic() + _FULL_SECONDS
            with self._lock:
                self._forget()

    def claim(self, block: Block) -> bool:
        """Claim to request a block. False if another process has claimed it."""
        return self.cache.files.claim(block)

    def release(self, block: Block) -> None:
        """Give up a claim."""
        self.cache.files.release(block)

    # -- filling behind the loop ------------------------------------------------------------------

    def fill_later(self, source: CachedSource, numbers: Sequence[int]) -> None:
        """Let the thread request these blocks, and the first one: each reader begins with it."""
        with self._lock:
            for number in (0, *numbers):
                place = source.path, number, source.key
                if place not in self._sources:
                    self._sources[place] = source
                    heapq.heappush(self._missing, place)
            if self._missing and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(
                    target=_fill, args=(weakref.ref(self),), name="penstock-cache", daemon=True
                )
                self._thread.start()

    @property
    def num_missing(self) -> int:
        """How many blocks the thread has still to request."""
        with self._lock:
            return len(self._sources)

    def fill_one(self) -> bool:
        """Request the next block. False if there is none."""
        with self._lock:
            if not self._missing or self._stopped.is_set() or not self.accepts:
                self._forget()
                self._thread = None
                return False
            place = heapq.heappop(self._missing)
            source = self._sources[place]
        try:
            # The loop meets the same error, if it needs these bytes.
            with suppress(OSError, PenstockError):
                source.blocks.alone(place[1], self._stopped)
        finally:
            with self._lock:
                self._sources.pop(place, None)
        return True

    def stop(self) -> None:
        """End the thread before the interpreter exits."""
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(_EXIT_SECONDS)

    def _forget(self) -> None:
        self._missing.clear()
        self._sources.clear()


_ALL: weakref.WeakSet[CachedObjects] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for objects in list(_ALL):
        objects.stop()


def _fill(reference: weakref.ref[CachedObjects]) -> None:
    while (objects := reference()) is not None and objects.fill_one():
        del objects


class CachedSource(SourceView):
    """One object that is read through a cache."""

    def __init__(self, source: Source, key: bytes, objects: CachedObjects) -> None:
        super().__init__(source)
        self.announces = False
        self.key = key
        self._kept = objects.opened(key, source.size)
        self.blocks = WholeBlocks(source, key, objects, self._kept)
        self._objects = objects
        self._is_in_order = False
        self._reached = 0
        self._missed_bytes = 0
        self._touched: set[int] = set()
        self._lock = Lock()

    def read_in_order(self, start: int = 0, end: int | None = None) -> None:
        self._is_in_order = True
        super().read_in_order(start, end)

    def want(self, starts: Sequence[int], lengths: Sequence[int]) -> Sequence[object] | None:
        if not self._objects.accepts:
            return self._source.want(starts, lengths)
        needed = _by_block(zip(starts, lengths, strict=True))
        bulk = [number for number, cuts in needed.items() if self._is_bulk(number, cuts)]
        held = self.blocks.want(bulk)
        alone = self._missing({n: cuts for n, cuts in needed.items() if n not in bulk})
        if held is None or not alone:
            return held
        others = self._source.want([low for low, _ in alone], [high - low for low, high in alone])
        return None if others is None else [*held, *others]

    def _missing(self, needed: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
        """The parts that are in no block of the cache."""
        missing = (n for n in needed if not self._objects.has(self.blocks.block(n)))
        return sorted(cut for number in missing for cut in needed[number])

    def local_file(self) -> _core.File | None:
        return self._kept

    def read(self, start: int, length: int) -> _core.Buffer:
        end = min(start + length, self.size)
        if start >= end:
            return _EMPTY
        adjoins = 0 <= start - self._reached <= _ADJOINING_BYTES and self._reached > 0
        self._reached = end
        with suppress(OSError):
            return self._kept.read(start, length)
        is_in_order = (adjoins or self._is_in_order) and end - start >= _BULK_IN_ORDER
        parts = self._parts([(start, end)], is_in_order=is_in_order)
        return parts[0] if len(parts) == 1 else _core.Buffer.join(parts)

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        with suppress(OSError, ValueError):
            return self._kept.gather(starts, lengths)
        pairs = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        ranges = [(start, start + length) for start, length in pairs]
        if any(end > self.size for _, end in ranges):
            return self._source.gather(starts, lengths)
        return _core.Buffer.join(self._parts(ranges, is_in_order=False))

    def close(self) -> None:
        self.blocks.close()
        super().close()

    def _parts(self, ranges: Sequence[tuple[int, int]], *, is_in_order: bool) -> list[_core.Buffer]:
        """The bytes of these ranges, in one or more parts each."""
        cuts = [cut for start, end in ranges for cut in _cuts(start, end)]
        found = [_EMPTY] * len(cuts)
        first = self._source.first_bytes()
        blocks: dict[int, list[int]] = {}
        for at, (low, high) in enumerate(cuts):
            if high <= len(first):
                found[at] = first.slice(low, high - low)
            elif high > low:
                blocks.setdefault(low // BLOCK_BYTES, []).append(at)
        missing: dict[int, list[int]] = {}
        for number, inside in blocks.items():
            try:
                for at in inside:
                    low, high = cuts[at]
                    found[at] = self._kept.read(low, high - low)
            except OSError:
                self._objects.missed(len(inside))
                missing[number] = inside
        if missing:
            self._request(missing, cuts, found, is_in_order=is_in_order)
        return found

    def _request(
        self,
        missing: dict[int, list[int]],
        cuts: Sequence[tuple[int, int]],
        found: list[_core.Buffer],
        *,
        is_in_order: bool,
    ) -> None:
        """Find the cuts that are in missing blocks. `missing` has the numbers of those in each block."""
        bulk = self._bulk(missing, cuts, is_in_order=is_in_order)
        whole = self.blocks.get(bulk, is_in_order=is_in_order) if bulk else {}
        for number, data in whole.items():
            for at in missing[number]:
                low, high = cuts[at]
                found[at] = data.slice(low - number * BLOCK_BYTES, high - low)
        touched = missing.keys() - whole.keys()
        rest = sorted(at for number in touched for at in missing[number])
        for at, data in zip(rest, self._alone([cuts[at] for at in rest]), strict=True):
            found[at] = data
        self._fill_later(touched, sum(len(found[at]) for at in rest))

    def _bulk(
        self,
        missing: dict[int, list[int]],
        cuts: Sequence[tuple[int, int]],
        *,
        is_in_order: bool,
    ) -> list[int]:
        """The missing blocks that are requested as a whole."""
        if not self._objects.accepts:
            return []
        return [
            number
            for number, inside in missing.items()
            if is_in_order or self._is_bulk(number, [cuts[at] for at in inside])
        ]

    def _is_bulk(self, number: int, cuts: Sequence[tuple[int, int]]) -> bool:
        """Whether so much of a block is needed that it is requested as a whole."""
        num_bytes = sum(high - low for low, high in cuts)
        return num_bytes >= min(_BULK_BYTES, self.blocks.block(number).num_bytes)

    def _fill_later(self, numbers: AbstractSet[int], num_bytes: int) -> None:
        """Let blocks be filled behind the loop, of which `num_bytes` bytes were requested."""
        if not numbers or not self._objects.accepts:
            return
        with self._lock:
            self._missed_bytes += num_bytes
            self._touched |= numbers
            if self._missed_bytes < min(_LOOP_BYTES, (self.size - HEAD_BYTES) // 2):
                return
            touched, self._touched = self._touched, set()
        self._objects.fill_later(self, sorted(touched))

    def _alone(self, cuts: Sequence[tuple[int, int]]) -> list[_core.Buffer]:
        """Request ranges and not the blocks around them."""
        if not cuts:
            return []
        start = cuts[0][0]
        if all(end == begin for (_, end), (begin, _) in pairwise(cuts)):
            data = self._source.read(start, cuts[-1][1] - start)
            return [data.slice(low - start, high - low) for low, high in cuts]
        low_high = np.array(cuts, np.uint64)
        starts, ends = low_high[:, 0], low_high[:, 1]
        data, at = self._source.gather(as_arrow(starts), as_arrow(ends - starts)), 0
        found: list[_core.Buffer] = []
        for low, high in cuts:
            found.append(data.slice(at, high - low))
            at += high - low
        return found


def _cuts(start: int, end: int) -> list[tuple[int, int]]:
    """The parts of a range in each block."""
    borders = range((start // BLOCK_BYTES + 1) * BLOCK_BYTES, end, BLOCK_BYTES)
    return list(pairwise([start, *borders, end]))


def _by_block(ranges: Iterable[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
    """The parts of ranges (start, length) in each block."""
    found: dict[int, list[tuple[int, int]]] = {}
    for start, length in ranges:
        for cut in _cuts(start, start + length):
            found.setdefault(cut[0] // BLOCK_BYTES, []).append(cut)
    return found


def _without_secrets(path: str) -> str:
    """The address of an object without what may be a secret: the query, and the password of a web address."""
    bare = shown(path).removesuffix("?…")
    return re.sub(r"^(https?://)[^/@]*@", r"\1", bare)
