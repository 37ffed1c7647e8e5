"""One object that is being read: requests for its bytes, those ahead of a reader, and errors of the client.

A source that is read in order reads ahead, in blocks. All blocks that wait to be read share `_AHEAD_BYTES`.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, StorageError, UnsupportedError, shown
from penstock.storage.base import Source, Storage

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 256 << 10
"""The bytes of an object that the request that opens it asks for."""
_BLOCK_BYTES = 8 << 20
"""The bytes of a request when an object is read in order."""
_AHEAD_BYTES = 96 << 20
"""Bytes that all sources together may have requested before they are read."""
_MOST_AHEAD = 8
"""Blocks that one source may read ahead."""
_KEPT_BLOCKS = 3
"""Blocks that were read and are kept: the next read of a thread often begins a little before the end of one."""
_NEAR_BYTES = 32 << 20
"""Reads at most this far from the end of the earlier ones continue them: threads read windows in any order."""
_LEAST_IN_ORDER = 128 << 10
"""Smaller reads are in order only if they begin where another one ended."""


@contextmanager
def translated(path: str, *, is_open: bool = False) -> Generator[None]:
    """Convert errors of the client. `is_open`: the object was there before."""
    try:
        yield
    except _core.StoreError as error:
        raise _translated(error.args, path, is_open=is_open) from None


def _translated(facts: Sequence[Any], path: str, *, is_open: bool) -> Exception:
    kind, message, _, start, end, tries, seconds = facts
    name = shown(path)
    if kind == "missing":
        if not is_open:
            return FileNotFoundError(errno.ENOENT, "no such object", name)
        return ChangedError(
            "the object was removed while it was open",
            file=name,
            hint="put it back and open the data again",
        )
    if kind == "changed":
        return ChangedError(
            "the object was changed or replaced while it was open",
            file=name,
            hint="open the data again",
        )
    if kind == "exists":
        return FileExistsError(errno.EEXIST, "the object exists", name)
    if kind == "unsupported":
        return UnsupportedError(message, file=name)
    hint = None
    if kind == "denied":
        hint = "credentials in the environment, or storage_options="
    where = "" if end is None else f" at bytes {start} to {end}"
    how_often = "" if not tries else f" ({tries} attempt{'s' * (tries > 1)} in {seconds:.1f} s)"
    error = StorageError(f"the store failed{where}{how_often}: {message}", file=name, hint=hint)
    error.errno = errno.EACCES if kind == "denied" else None
    return error


class _Budget:
    """Bytes that were requested ahead, in all sources of this process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._lock = Lock()

    def take(self, count: int) -> bool:
        with self._lock:
            if self._lock.was_cut_short():
                self._used = 0
            if self._used + count > self._most:
                return False
            self._used += count
            return True

    def give_back(self, count: int) -> None:
        with self._lock:
            self._used = max(0, self._used - count)


_EMPTY = _core.Buffer.from_bytes(b"")
AHEAD = _Budget(_AHEAD_BYTES)


class ObjectSource(Source):
    """One object, in the state in which it was opened."""

    def __init__(
        self,
        storage: Storage,
        store: _core.RemoteStore,
        path: str,
        key: str,
        state: _core.ObjectState,
        first: _core.Buffer | None,
    ) -> None:
        """`first` has the first bytes of the object. None only for requests by range."""
        self.path = shown(path)
        self.storage = storage
        self._store = store
        self._key = key
        self._state = state
        self.size = state.size
        first = _EMPTY if first is None else first
        self.head = first
        if len(first) > HEAD_BYTES:
            # The rest is a block, which is dropped when it has been read.
            self.head = _core.Buffer.join([first.slice(0, HEAD_BYTES)])
        self._blocks = _Blocks(self, first)

    @property
    def state(self) -> _core.ObjectState:
        """What identifies the object's state: size, ETag and version."""
        return self._state

    def read(self, start: int, length: int) -> _core.Buffer:
        end = min(start + length, self.size)
        if end <= len(self.head):
            return self.head.slice(min(start, len(self.head)), max(end - start, 0))
        parts = self._blocks.read(start, end)
        if parts is None:
            return self.request([start], [end - start])
        return parts[0] if len(parts) == 1 else _core.Buffer.join(parts)

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        held = self._blocks.first_bytes()
        ends = as_numpy(starts) + as_numpy(lengths)
        if not len(ends) or int(ends.max()) <= len(held):
            pairs = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
            return _core.Buffer.join([held.slice(start, length) for start, length in pairs])
        with translated(self.path, is_open=True):
            return self._store.fetch(self._key, self._state, starts, lengths).wait()

    def request(self, starts: Sequence[int], lengths: Sequence[int]) -> _core.Buffer:
        """The bytes of these ranges, by requests of their own."""
        with translated(self.path, is_open=True):
            return self.begin(starts, lengths).wait()

    def begin(self, starts: Sequence[int], lengths: Sequence[int]) -> _core.Fetch:
        """Begin to request these ranges."""
        import pyarrow as pa  # not loaded by `import penstock`

        arrays = (pa.array(values, pa.uint64()) for values in (starts, lengths))
        return self._store.fetch(self._key, self._state, *arrays)

    def identity(self) -> tuple[int, int, int, int]:
        tag = self._state.version or self._state.etag
        if tag is None:
            return 0, 0, 0, 0
        digest = hashlib.blake2b(tag.encode(), digest_size=16).digest()
        return (
            int.from_bytes(digest[:8], "little"),
            self.size,
            int.from_bytes(digest[8:], "little", signed=True),
            0,
        )

    def close(self) -> None:
        self._blocks.close()


class _Blocks:
    """The blocks of an object that is read in order: those on the way, and the last ones that were read."""

    def __init__(self, source: ObjectSource, first: _core.Buffer) -> None:
        self._source = source
        self._first = len(first)
        """Where block 0 begins: after the bytes that came when the object was opened."""
        self._reached = len(first)
        self._ends = {0}
        self._ahead = 1
        self._coming: dict[int, tuple[_core.Fetch, int]] = {}
        self._kept: OrderedDict[int, _core.Buffer] = OrderedDict({-1: first})
        self._lock = Lock()
        self._pid = os.getpid()

    def read(self, start: int, end: int) -> list[_core.Buffer] | None:
        """The parts of a range that is read in order. None if it should be requested by itself."""
        with self._lock:
            self._forget_after_fork()
            if not self._is_in_order(start, end):
                return None
            wanted = range(self._number(start), self._number(end - 1) + 1)
            self._request(wanted)
        parts: list[_core.Buffer] = []
        for number in wanted:
            block = self._block(number)
            begin = self._begin(number)
            low, high = max(start, begin), min(end, begin + len(block))
            parts.append(block.slice(low - begin, high - low))
        return parts

    def first_bytes(self) -> _core.Buffer:
        """The first bytes of the object, as far as they are here."""
        return self._kept.get(-1, self._source.head)

    def close(self) -> None:
        with self._lock:
            for _, size in self._coming.values():
                AHEAD.give_back(size)
            self._coming.clear()
            self._kept.clear()

    def _is_in_order(self, start: int, end: int) -> bool:
        continues = start in self._ends
        if len(self._ends) > 64:
            self._ends.clear()
        self._ends.add(end)
        is_near = abs(start - self._reached) <= _NEAR_BYTES
        return is_near and (continues or end - start >= _LEAST_IN_ORDER)

    def _number(self, at: int) -> int:
        return (at - self._first) // _BLOCK_BYTES if at >= self._first else -1

    def _begin(self, number: int) -> int:
        return max(self._first + number * _BLOCK_BYTES, 0) if number >= 0 else 0

    def _size(self, number: int) -> int:
        begin = self._begin(number)
        end = self._first if number < 0 else min(begin + _BLOCK_BYTES, self._source.size)
        return end - begin

    def _request(self, wanted: range) -> None:
        """Request blocks that are needed now, and some ahead. The further a source was read, the more."""
        reached = wanted.stop - 1
        if self._begin(reached) >= self._reached:
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        self._reached = max(self._reached, min(self._begin(wanted.stop), self._source.size))
        for number in wanted:
            if number not in self._coming and number not in self._kept:
                self._begin_one(number, 0)
        for number in range(wanted.stop, wanted.stop + self._ahead):
            size = self._size(number)
            if size <= 0:
                break
            if number in self._coming or number in self._kept:
                continue
            if not AHEAD.take(size):
                break
            self._begin_one(number, size)

    def _begin_one(self, number: int, counted: int) -> None:
        fetch = self._source.begin([self._begin(number)], [self._size(number)])
        self._coming[number] = fetch, counted

    def _block(self, number: int) -> _core.Buffer:
        with self._lock:
            kept = self._kept.get(number)
            coming = self._coming.get(number)
            if kept is None and coming is None:  # other threads have moved on
                self._begin_one(number, 0)
                coming = self._coming[number]
        if kept is not None:
            return kept
        assert coming is not None, "it was requested above"
        with translated(self._source.path, is_open=True):
            block = coming[0].wait()
        with self._lock:
            if self._coming.pop(number, None) is not None:
                AHEAD.give_back(coming[1])
                self._kept[number] = block
                while len(self._kept) > _KEPT_BLOCKS:
                    self._kept.popitem(last=False)
        return block

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._coming.clear()
