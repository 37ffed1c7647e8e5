"""Files in object stores and on web servers, read by range requests of the client in Rust (`_core.RemoteStore`).

An object is pinned when it is opened: its first bytes, its size and what identifies its state come from one request, and
every later request is for that state only. If the object is replaced, reading raises a ChangedError and never mixes two
objects. There is no request to find out whether an object exists before it is read.

A source that is read in order reads ahead, in blocks. All blocks that wait to be read share `_AHEAD_BYTES`. Threads
that wait for requests need no core, so readers use more of them (`reads_at_once`).
"""

from __future__ import annotations

import errno
import hashlib
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, StorageError, UnsupportedError, shown
from penstock.storage._object_sink import ObjectSink
from penstock.storage.base import Sink, Source, Storage
from penstock.storage.hidden import is_own
from penstock.storage.local import LocalStorage
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import is_url, is_web, split_url

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
_KEPT_HEADS = 64
"""The first bytes of so many objects are kept, for opening them again."""
READS_AT_ONCE = 32
"""Shards that are read at the same time."""


class ObjectStorage(Storage):
    """The objects of any number of buckets and web servers. Paths that are not URLs are local files.

    Args:
        options: options of the client by name, such as `aws_endpoint_url`; see `storage_options=` of `penstock.open`.
    """

    reads_at_once = READS_AT_ONCE

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = options if isinstance(options, StorageOptions) else StorageOptions(options)
        self._local = LocalStorage()
        self._stores: dict[str, _core.RemoteStore] = {}
        self._opening: dict[str, tuple[_core.Fetch, int]] = {}
        self._listings: dict[str, list[str]] = {}
        """What was listed so far, by prefix."""
        self._states: dict[str, _core.ObjectState] = {}
        self._heads: OrderedDict[str, _core.Buffer] = OrderedDict()
        self._pid = os.getpid()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.options,)

    def store(self, path: str) -> tuple[_core.RemoteStore, str]:
        """The client for a path, and the key of the object."""
        url = split_url(path)
        with self._lock:
            found = self._stores.get(url.container)
            if found is None:
                found = _core.RemoteStore(url.container, dict(self.options))
                self._stores[url.container] = found
        return found, url.key

    def begin(self, paths: Sequence[str], length: int | None = None) -> None:
        size = max(length or 0, HEAD_BYTES)
        for path in paths:
            with self._lock:
                self._forget_after_fork()
                if not is_url(path) or path in self._opening or path in self._states:
                    continue
            if not _AHEAD.take(size):
                return
            store, key = self.store(path)
            with translated(path):
                opening = store.first(key, 0, size), size
            with self._lock:
                self._opening[path] = opening

    def source(self, path: str, *, mmap: bool = False) -> Source:
        """Open an object. As long as this storage is used, the same path is the same state of the object."""
        if not is_url(path):
            return self._local.source(path, mmap=mmap)
        if mmap:
            raise UnsupportedError(
                "an object cannot be mapped into memory",
                file=shown(path),
                hint="leave out mmap=True",
            )
        store, key = self.store(path)
        with self._lock:
            self._forget_after_fork()
            state, head = self._states.get(path), self._heads.get(path)
            fetch, size = self._opening.pop(path, (None, 0))
        first: _core.Buffer | None = head
        if state is None:
            with translated(path):
                fetch = fetch or store.first(key, 0, HEAD_BYTES)
                try:
                    first = fetch.wait()
                finally:
                    _AHEAD.give_back(size)
            state = fetch.state
        elif head is None:
            first = ObjectSource(self, store, path, key, state, None).request(
                [0], [min(HEAD_BYTES, state.size)]
            )
        source = ObjectSource(self, store, path, key, state, first)
        with self._lock:
            self._states[path] = state
            self._heads[path] = source.head
            while len(self._heads) > _KEPT_HEADS:
                self._heads.popitem(last=False)
        return source

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        if not is_url(path):
            return self._local.sink(path, overwrite=overwrite)
        if is_web(path):
            raise UnsupportedError(
                "penstock does not write to web servers",
                file=shown(path),
                hint="write to this machine, or to s3://, gs:// or az://",
            )
        return ObjectSink(path, self.store, translated, overwrite=overwrite)

    def exists(self, path: str) -> bool:
        if not is_url(path):
            return self._local.exists(path)
        store, key = self.store(path)
        try:
            with translated(path):
                store.head(key)
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """Full paths of the objects directly in a folder, sorted, without penstock's own. A web server lists none."""
        if not is_url(folder):
            return self._local.list(folder)
        if is_web(folder):
            return []
        folder = folder.rstrip("/") + "/"
        with self._lock:
            listed = next((p for p in self._listings if folder.startswith(p)), None)
            found = [] if listed is None else _between(self._listings[listed], folder)
        if listed is None:
            store, key = self.store(folder)
            with translated(folder):
                found = [_url(folder, key, name) for name, _ in store.list_folder(key)[0]]
        names = (path for path in found if "/" not in path[len(folder) :])
        return [path for path in names if not is_own(os.path.basename(path))]

    def list_below(self, prefix: str) -> list[str]:
        """Full paths of all objects in a folder and the folders below it, sorted."""
        if is_web(prefix):
            raise UnsupportedError(
                "a web server does not list its files",
                file=shown(prefix),
                hint="pass the address of each file",
            )
        prefix = prefix.rstrip("/") + "/"
        store, key = self.store(prefix)
        with translated(prefix):
            found = sorted(_url(prefix, key, name) for name, _ in store.list(key))
        with self._lock:
            self._listings[prefix] = found
        return found

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._opening.clear()


def _url(folder: str, prefix: str, key: str) -> str:
    """The full path of a key, in a folder whose own key is `prefix`."""
    return folder[: len(folder) - len(prefix)] + key


def _between(paths: Sequence[str], folder: str) -> list[str]:
    """Those of the sorted paths that begin with `folder`."""
    first = bisect_left(paths, folder)
    last = bisect_left(paths, folder + "\U0010ffff")
    return list(paths[first:last])


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
_AHEAD = _Budget(_AHEAD_BYTES)


class ObjectSource(Source):
    """One object, in the state in which it was opened."""

    def __init__(
        self,
        storage: ObjectStorage,
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
                _AHEAD.give_back(size)
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
            if not _AHEAD.take(size):
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
                _AHEAD.give_back(coming[1])
                self._kept[number] = block
                while len(self._kept) > _KEPT_BLOCKS:
                    self._kept.popitem(last=False)
        return block

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._coming.clear()


def storage_for(
    source: Any, options: Mapping[str, Any] | None = None
) -> ObjectStorage | LocalStorage:
    """The storage of a source as a user names it: a path, or a list of paths."""
    return ObjectStorage(options) if any(map(is_url, _texts(source))) else LocalStorage()


def _texts(source: Any) -> Iterator[str]:
    if isinstance(source, (str, os.PathLike)):
        yield os.fsdecode(source)
    elif isinstance(source, (list, tuple)):
        items: Iterable[Any] = source
        for item in items:
            yield from _texts(item)
