"""One object that is being read: requests for its bytes, those ahead of a reader, and errors of the client.

A source that is read in order reads ahead, in blocks. All blocks that wait to be read share `_AHEAD_BYTES`.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.engine.kept import Kept
from penstock.engine.locks import Lock
from penstock.errors import shown
from penstock.storage._identity import numbers_of
from penstock.storage._object_announced import PIECE_BYTES, Announced, Coming, merged
from penstock.storage._object_errors import translated
from penstock.storage.base import FileState, Source, Storage

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 256 << 10
"""The bytes of an object that the request that opens it asks for."""
_BLOCK_BYTES = PIECE_BYTES
"""The bytes of a request when an object is read in order."""
_AHEAD_BYTES = 80 << 20
"""Bytes that all sources together may have requested before they are read. With those that are kept: 96 MiB."""
_KEPT_BYTES = 16 << 20
"""Bytes of blocks that were read and are kept, of all sources: the next read of a thread often begins a little before the
end of one."""
_MOST_AHEAD = 8
"""Blocks that one source may read ahead."""
_NEAR_BYTES = 32 << 20
"""If an object is read in order, threads read windows at most this far from the furthest."""
_LEAST_WINDOW = 64 << 10
_NS_PER_MS = 1_000_000
_TAIL_BYTES = 64 << 10
"""So much is requested together when the last bytes of an object are read."""


class Claim:
    """Bytes that were requested ahead. They are free again when nothing holds this object."""

    def __init__(self, budget: Budget, count: int) -> None:
        self._budget = budget
        self._count = count

    def __del__(self) -> None:
        self._budget.free(self._count)


class Budget:
    """How many bytes are requested ahead, in all sources of this process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0
        self._lock = Lock()

    def claim(self, count: int) -> Claim | None:
        """Claim bytes; None if too many are claimed already."""
        with self._lock:
            if self.used + count > self._most:
                return None
            self.used += count
        return Claim(self, count)

    def free(self, count: int) -> None:
        with self._lock:
            self.used -= count


class _First:
    """The first bytes of an object that was opened to read all of it. They are kept until they were read."""

    def __init__(self, data: _core.Buffer, claim: Claim) -> None:
        self.data = data
        self._claim = claim


_EMPTY = _core.Buffer.from_bytes(b"")
_NUMBERS = itertools.count()
_KEPT: Kept[_core.Buffer] = Kept(_KEPT_BYTES)
"""The blocks that were read last, of all sources of this process, and the ends of objects."""
AHEAD = Budget(_AHEAD_BYTES)


def identity_of(state: _core.ObjectState) -> tuple[int, int, int, int]:
    """See `Source.identity`. A copy of an object has another version, and often the same ETag."""
    return numbers_of(state.etag or state.version or "", state.size)


class ObjectSource(Source):
    """One object, in the state in which it was opened."""

    announces = True

    def __init__(
        self,
        storage: Storage,
        store: _core.RemoteStore,
        path: str,
        key: str,
        state: _core.ObjectState,
        first: _core.Buffer | None = None,
        claim: Claim | None = None,
    ) -> None:
        """`first` has the first bytes of the object, if they are here already. With a `claim`, they are kept until they
        were read."""
        self.path = shown(path)
        self.storage = storage
        self._store = store
        self._key = key
        self._state = state
        self.size = state.size
        self._blocks = _Blocks(self, _EMPTY if first is None else first, claim)
        self._announced = Announced()

    def read(self, start: int, length: int) -> _core.Buffer:
        end = min(start + length, self.size)
        if start >= end:
            return _EMPTY
        here = self._blocks.first_bytes()
        self._blocks.passed(start, end)
        if end <= len(here):
            return here.slice(start, end - start)
        parts = self._announced_bytes(start, end) or self._blocks.read(start, end)
        if parts is None:
            return self._tail(start, end) or self.request([start], [end - start])
        return parts[0] if len(parts) == 1 else _core.Buffer.join(parts)

    def _tail(self, start: int, end: int) -> _core.Buffer | None:
        """The end of the object, where formats have footers in several parts: it is requested once. None if these bytes
        are elsewhere."""
        key = (self.path, self._state), -1
        tail = _KEPT.get(key)
        if tail is None or start < self.size - len(tail):
            # Who has read the last bytes and now reads more up to the end reads a footer.
            most = HEAD_BYTES if tail is None else _BLOCK_BYTES
            if end < self.size or end - start > most:
                return None
            begin = max(min(start, self.size - _TAIL_BYTES), 0)
            tail = self.request([begin], [self.size - begin])
            _KEPT.put(key, tail, len(tail))
        return tail.slice(start - (self.size - len(tail)), end - start)

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        here = self._blocks.first_bytes()
        ends = as_numpy(starts) + as_numpy(lengths)
        is_here = not len(ends) or int(ends.max()) <= len(here)
        if is_here or self._announced:
            pairs = _runs(as_numpy(starts), ends)
            if is_here:
                parts = [here.slice(start, length) for start, length in pairs]
                return _core.Buffer.join(parts)
            if (known := self._gathered(pairs)) is not None:
                return known
        with translated(self.path, is_open=True):
            return self._store.fetch(self._key, self._state, starts, lengths).wait()

    def _gathered(self, pairs: list[tuple[int, int]]) -> _core.Buffer | None:
        """Ranges of which some were announced, back to back. None if none were."""
        parts = [self._known(start, start + length) for start, length in pairs]
        missing = [pair for pair, part in zip(pairs, parts, strict=True) if part is None]
        if len(missing) == len(pairs):
            return None
        found: list[_core.Buffer] = []
        with translated(self.path, is_open=True):
            others = self.begin(*zip(*missing, strict=True)) if missing else None
            at = 0
            for (_, length), part in zip(pairs, parts, strict=True):
                if part is None:
                    assert others is not None, "it was requested"
                    found.append(others.wait().slice(at, length))
                    at += length
                else:
                    found += [wait() for wait in part]
        return _core.Buffer.join(found)

    def _announced_bytes(self, start: int, end: int) -> list[_core.Buffer] | None:
        parts = self._known(start, end) if self._announced else None
        if parts is None:
            return None
        with translated(self.path, is_open=True):
            return [wait() for wait in parts]

    def _known(self, start: int, end: int) -> list[Callable[[], _core.Buffer]] | None:
        """Functions that wait for the parts of a range, if it is among the first bytes and what was announced."""
        here = self._blocks.first_bytes()
        if start >= len(here):
            return self._announced.parts(start, end)
        first = here.slice(start, end - start)
        others = self._announced.parts(len(here), end) if end > len(here) else []
        return None if others is None else [lambda: first, *others]

    def want(self, starts: Sequence[int], lengths: Sequence[int]) -> Sequence[object] | None:
        here = len(self._blocks.first_bytes())
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        first = self._blocks.lent_first() if min(starts, default=here) < here else None
        ranges = [(max(s, here), end) for s, end in zip(starts, ends, strict=True) if end > here]
        pieces = merged(ranges)
        if (claim := AHEAD.claim(sum(end - start for start, end in pieces))) is None:
            return None if first is None else [first]  # the others are requested when they are read
        held: list[object] = [claim, first]
        for start, end in pieces:
            coming = Coming(start, end, self.begin([start], [end - start]))
            self._announced.add(coming)
            held.append(coming)
        return held

    def read_in_order(self, start: int = 0, end: int | None = None) -> None:
        self._blocks.read_in_order(start, self.size if end is None else end)

    def request(self, starts: Sequence[int], lengths: Sequence[int]) -> _core.Buffer:
        """The bytes of these ranges, by requests of their own."""
        with translated(self.path, is_open=True):
            return self.begin(starts, lengths).wait()

    def begin(self, starts: Sequence[int], lengths: Sequence[int]) -> _core.Fetch:
        """Begin to request these ranges."""
        arrays = (as_arrow(np.array(values, np.uint64)) for values in (starts, lengths))
        return self._store.fetch(self._key, self._state, *arrays)

    @property
    def tag(self) -> str:
        return self._state.etag or self._state.version or ""

    def identity(self) -> tuple[int, int, int, int]:
        return identity_of(self._state)

    def state_name(self) -> str | None:
        version, etag = self._state.version, self._state.etag
        # Two states of an object may have the same weak ETag.
        if version is None and (etag is None or etag.startswith("W/")):
            return None
        return f"{version or ''} {etag or ''}"

    def first_bytes(self) -> _core.Buffer:
        return self._blocks.first_bytes()

    def file_state(self) -> FileState:
        return state_of(self._state)

    def close(self) -> None:
        self._announced.clear()
        self._blocks.close()


def _runs(starts: np.ndarray, ends: np.ndarray) -> list[tuple[int, int]]:
    """The starts and lengths of the same bytes in as few ranges as possible."""
    if not len(starts):
        return []
    is_first = np.append(True, starts[1:] != ends[:-1])
    first, last = starts[is_first], ends[np.append(is_first[1:], True)]
    return list(zip(first.tolist(), (last - first).tolist(), strict=True))


def state_of(state: _core.ObjectState) -> FileState:
    """The state of an object, as it is kept in files."""
    modified = None if state.modified_ms is None else state.modified_ms * _NS_PER_MS
    return FileState(state.size, state.etag, state.version, modified)


def object_state(state: FileState) -> _core.ObjectState:
    """The reverse of `state_of`."""
    modified = None if state.modified_ns is None else state.modified_ns // _NS_PER_MS
    return _core.ObjectState(state.size, state.etag, state.version, modified)


class _Block:
    """A block on its way, or here, until all of it was read."""

    def __init__(self, start: int, length: int, fetch: _core.Fetch, claim: Claim | None) -> None:
        self.fetch = fetch
        self._claim = claim
        self._unread = [(start, start + length)]

    def read(self, low: int, high: int) -> bool:
        """Note that these bytes were read. Returns whether all are."""
        parts = [part for a, b in self._unread for part in ((a, min(b, low)), (max(a, high), b))]
        self._unread = [(a, b) for a, b in parts if a < b]
        return not self._unread


class _Blocks:
    """The blocks of an object that is read in order: those that were not read completely, and the last ones that were.

    Block -1 has the bytes that came when the object was opened. The others follow, `_BLOCK_BYTES` each, from `_grid` to
    `_end`: all other bytes, or those that are read in order.
    """

    def __init__(self, source: ObjectSource, first: _core.Buffer, claim: Claim | None) -> None:
        self._is_read_in_order = False
        self._path, self._end, self._begin = source.path, source.size, source.begin
        self._first = self._grid = len(first)
        self._source = next(_NUMBERS)
        self._reached = len(first)
        self._ahead = 1
        self._coming: dict[int, _Block] = {}
        self._read: set[int] = set()
        """Blocks that were read completely. Of these, only the bytes that are read again are requested."""
        self._lock = Lock()
        self._pid = os.getpid()
        self._needed = len(first)
        """Where the first bytes end that were not read yet, apart from a footer."""
        self._unread: _First | None = None
        """The first bytes, if they are many and were not read to `_needed` yet."""
        self._lent: Callable[[], _First | None] = lambda: None
        """The first bytes, while a holder of what it wants (`Source.want`) keeps them."""
        if claim is None:
            _KEPT.put((self._source, -1), first, len(first))
        else:
            self._unread = _First(first, claim)

    def first_bytes(self) -> _core.Buffer:
        """The first bytes of the object, as far as they are here."""
        unread = self._unread or self._lent()
        return _KEPT.get((self._source, -1)) or _EMPTY if unread is None else unread.data

    def read_in_order(self, start: int, end: int) -> None:
        """Read ahead from here on, up to `end`."""
        with self._lock:
            self._is_read_in_order = True
            self._read.clear()
            if start > self._first and not self._coming:
                self._grid = self._reached = start
            self._end = end

    def passed(self, start: int, end: int) -> None:
        """These bytes were read. When the first bytes were, in order, they are only kept as other blocks are."""
        if (unread := self._unread) is None or end < self._needed:
            return
        if not self._is_read_in_order:
            self._needed = min(self._needed, start)  # a footer, before the records
            return
        _KEPT.put((self._source, -1), unread.data, len(unread.data))
        self._unread = None

    def lent_first(self) -> _First | None:
        """The first bytes, if they were not read yet, for a caller that keeps them as long as it needs them."""
        with self._lock:
            if (unread := self._unread) is not None:
                self._lent = weakref.ref(unread)
                self._unread = None
            return unread or self._lent()

    def read(self, start: int, end: int) -> list[_core.Buffer] | None:
        """The parts of a range that is read in order. None if it should be requested by itself."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._coming.clear()
            if not self._is_in_order(start, end):
                return None
            wanted = range(self._number(start), self._number(end - 1) + 1)
            self._request(wanted)
        parts: list[_core.Buffer] = []
        for number in wanted:
            begin = self._start(number)
            low, high = max(start, begin), min(end, begin + self._length(number))
            parts.append(self._part(number, low, high))
        return parts

    def close(self) -> None:
        """Forget all blocks."""
        with self._lock:
            self._coming.clear()
            self._unread = None
        _KEPT.drop_all_of(self._source)

    def __del__(self) -> None:
        _KEPT.drop_all_of(self._source)

    def _is_in_order(self, start: int, end: int) -> bool:
        is_here = end <= self._end and (start >= self._grid or self._grid == self._first)
        is_window = self._is_read_in_order and is_here and end - start >= _LEAST_WINDOW
        return is_window and abs(start - self._reached) <= _NEAR_BYTES

    def _number(self, at: int) -> int:
        return (at - self._grid) // _BLOCK_BYTES if at >= self._first else -1

    def _start(self, number: int) -> int:
        return self._grid + number * _BLOCK_BYTES if number >= 0 else 0

    def _length(self, number: int) -> int:
        begin = self._start(number)
        return self._first if number < 0 else min(begin + _BLOCK_BYTES, self._end) - begin

    def _request(self, wanted: range) -> None:
        """Request blocks that are needed now, and some ahead. The further a source was read, the more."""
        if self._start(wanted.stop - 1) >= self._reached:
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        self._reached = max(self._reached, min(self._start(wanted.stop), self._end))
        for number in wanted:
            if not self._is_here(number) and number not in self._read:
                self._begin_one(number, None)
        for number in range(wanted.stop, wanted.stop + self._ahead):
            if (length := self._length(number)) <= 0:
                break
            if self._is_here(number) or number in self._read:
                continue
            if (claim := AHEAD.claim(length)) is None:
                break
            self._begin_one(number, claim)

    def _is_here(self, number: int) -> bool:
        is_first = number < 0 and (self._unread or self._lent()) is not None
        return is_first or number in self._coming or _KEPT.get((self._source, number)) is not None

    def _begin_one(self, number: int, claim: Claim | None) -> _Block:
        start, length = self._start(number), self._length(number)
        block = _Block(start, length, self._begin([start], [length]), claim)
        self._coming[number] = block
        return block

    def _part(self, number: int, low: int, high: int) -> _core.Buffer:
        """The bytes [low, high) of the object, which are in this block."""
        at, length, key = low - self._start(number), high - low, (self._source, number)
        with self._lock:
            if (coming := self._coming.get(number)) is None:
                if number < 0 and (unread := self._unread or self._lent()) is not None:
                    return unread.data.slice(at, length)
                if (kept := _KEPT.get(key)) is not None:
                    return kept.slice(at, length)
                if number not in self._read:
                    coming = self._begin_one(number, None)
        with translated(self._path, is_open=True):
            if coming is None:
                return self._begin([low], [length]).wait()
            try:
                block = coming.fetch.wait()
            except BaseException:
                with self._lock:
                    self._coming.pop(number, None)  # so that it can be requested again
                raise
        with self._lock:
            if coming.read(low, high) and self._coming.pop(number, None) is not None:
                _KEPT.put(key, block, len(block))
                self._read.add(number)
        return block.slice(at, length)
