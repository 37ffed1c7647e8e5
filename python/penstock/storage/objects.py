"""Files in object stores and on web servers, read by range requests of the client in Rust (`_core.RemoteStore`).

An object is pinned when it is opened: its first bytes, its size and what identifies its state come from one request, and
every later request is for that state only. If the object is replaced, reading raises a ChangedError and never mixes two
objects. There is no request to find out whether an object exists before it is read.

Threads that wait for requests need no core, so readers use more of them (`reads_at_once`).
"""

from __future__ import annotations

import errno
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock import _core
from penstock.engine.locks import Lock
from penstock.engine.threads import raise_if_left
from penstock.errors import UnsupportedError, shown
from penstock.storage._aws_profiles import resolved
from penstock.storage._cached import CachedObjects
from penstock.storage._left import Leftover
from penstock.storage._listings import Listings
from penstock.storage._object_errors import translated
from penstock.storage._object_sink import NOTE_BYTES, ObjectSink, StreamedSink, give_up, noted
from penstock.storage._object_source import (
    AHEAD,
    HEAD_BYTES,
    Claim,
    ObjectSource,
    identity_of,
    object_state,
    state_of,
)
from penstock.storage.base import FileState, Sink, Source, State, Storage, Traffic
from penstock.storage.cache import Cache
from penstock.storage.hidden import JOB_PREFIX, is_own
from penstock.storage.local import LocalStorage
from penstock.storage.storage_options import StorageOptions
from penstock.storage.store_folder import StoreFolder
from penstock.storage.urls import Url, has_plain_key, is_url, is_web, refuse_web_target, split_url

_KEPT_HEADS = 64
"""The first bytes of so many objects are kept, for opening them again."""
_SHORT_HEAD_BYTES = 64 << 10
"""So many of each that is being read whole, and is opened again only to look at its header."""
_LISTED_FROM = 64
"""If so many states of objects in one folder are asked for, the folder is listed."""
READS_AT_ONCE = 32
"""Shards that are read at the same time."""


_core.while_waiting(raise_if_left)  # so that a scan that is left does not wait for its requests


class ObjectStorage(Storage):
    """The objects of any number of buckets and web servers. Paths that are not URLs are local files.

    Args:
        options: options of the client by name, such as `aws_endpoint_url`; see `storage_options=` of `penstock.open`.
        cache: keeps what was read on a local disk.
        credentials: a function that returns credentials, instead of those of the options and the environment.
    """

    reads_at_once = READS_AT_ONCE

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        cache: Cache | None = None,
        credentials: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        self.cached = None if cache is None else CachedObjects(cache)
        self.options = options if isinstance(options, StorageOptions) else StorageOptions(options)
        self._credentials = credentials
        self._local = LocalStorage()
        self._stores: dict[str, _core.RemoteStore] = {}
        self._opening: dict[str, tuple[_core.Fetch, Claim | None, int]] = {}
        """By path: the first bytes on their way, and how many."""
        self._listings = Listings()
        self._listed: dict[str, dict[str, _core.ObjectState]] = {}
        """The states of the objects of each listing, by the rest of their paths."""
        self._states: dict[str, _core.ObjectState] = {}
        self._heads: OrderedDict[str, _core.Buffer] = OrderedDict()
        self._pid = os.getpid()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        cache = None if self.cached is None else self.cached.cache
        return ObjectStorage, (self.options, cache, self._credentials)

    def anew(self) -> ObjectStorage:
        """The same storage with the same connections, which does not know yet in what state objects are."""
        cache = None if self.cached is None else self.cached.cache
        other = ObjectStorage(self.options, cache, self._credentials)
        with self._lock:
            other._stores = dict(self._stores)
        return other

    def store(self, path: str) -> tuple[_core.RemoteStore, str]:
        """The client for a path, and the key of the object."""
        url = split_url(path)
        with self._lock:
            found = self._stores.get(url.container)
        if found is None:
            made = self._client(url)
            with self._lock:
                found = self._stores.setdefault(url.container, made)
        return found, url.key

    def _client(self, url: Url) -> _core.RemoteStore:
        options, credentials = dict(self.options), self._credentials
        if url.scheme == "s3":
            options, found = resolved(options)
            credentials = credentials or found
        return _core.RemoteStore(
            url.container, options, credentials=credentials, **self.options.times
        )

    def can_read_name(self, path: str) -> bool:
        return not is_url(path) or has_plain_key(path)

    def check_pickled_names(self, paths: Sequence[str]) -> None:
        if any(is_web(path) and shown(path) != path for path in paths):
            self.options.refuse_signed()

    def is_here(self, path: str) -> bool:
        return not is_url(path)

    def look_beside(self, paths: Sequence[str]) -> None:
        wanted = [path for path in paths if _is_listed(path)]
        if prefixes := self._listings.missing(wanted):
            self.begin(paths[:1])
            self._listings.fill(prefixes, self._list, READS_AT_ONCE)

    def listed_bytes(self, path: str) -> int | None:
        return self._listings.size(path)

    def traffic(self) -> Traffic:
        with self._lock:
            found = [store.stats() for store in self._stores.values()]
        return Traffic(
            sum(one["requests"] for one in found),
            sum(one["bytes"] for one in found),
            sum(one["retries"] for one in found),
            sum(one["waiting_ns"] for one in found) / 1e9,
            0 if self.cached is None else self.cached.counts.hits,
        )

    def begin(self, paths: Sequence[str], length: int | None = None) -> bool:
        most = length or HEAD_BYTES
        if self.cached is not None:
            most = min(most, HEAD_BYTES)  # what follows may be on this machine already
        is_begun = False
        for path in paths:
            if not is_url(path) or path.endswith("/") or self._is_missing(path):
                continue
            listed = self.listed_bytes(path)
            size = most if listed is None else min(most, max(listed, 1))
            if not self._begun(path, size):
                return is_begun
            is_begun = True
        return is_begun

    def _begun(self, path: str, size: int) -> bool:
        """Begin to request the first bytes of an object, unless they are here or on their way. False if there is no
        room for them."""
        # In one step, because several threads begin to open the same files.
        with self._lock:
            self._forget_after_fork()
            if path in self._states:
                return True
            if (opening := self._opening.get(path)) is not None:
                _, claim, coming = opening
                # A small part is requested again, with what follows, unless a reader waits for it.
                if claim is None or 2 * coming >= size:
                    return True
            if (claim := AHEAD.claim(size)) is None:
                return False
            store, key = self.store(path)
            with translated(path):
                self._opening[path] = store.first(key, 0, size), claim, size
        return True

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
        if path.endswith("/") and not is_web(path):
            return StoreFolder(self, path, self._listings.below(path))
        if self._is_missing(path):
            raise FileNotFoundError(errno.ENOENT, "no such object", shown(path))
        return self._object(path)

    def _object(self, path: str) -> Source:
        store, key = self.store(path)
        with self._lock:
            self._forget_after_fork()
            state, first = self._states.get(path), self._heads.get(path)
            opening = self._opening.get(path)
            if state is None and opening is None:
                # Noted, so that no other thread asks for the same meanwhile.
                with translated(path):
                    opening = store.first(key, 0, HEAD_BYTES), None, HEAD_BYTES
                self._opening[path] = opening
        if state is None:
            assert opening is not None, "it was just begun"
            try:
                with translated(path):
                    first = opening[0].wait()
            except BaseException:
                with self._lock:
                    self._opening.pop(path, None)  # so that it can be requested again
                raise
            state = opening[0].state
        elif first is None:
            bare = ObjectSource(self, store, path, key, state)
            if self.cached is not None and self.cached.has_start(path, state.size):
                return self.cached.view(bare, path)
            first = bare.request([0], [min(HEAD_BYTES, state.size)])
        self._keep(path, state, first)
        claim = None if opening is None or len(first) <= HEAD_BYTES else opening[1]
        source = ObjectSource(self, store, path, key, state, first, claim)
        return source if self.cached is None else self.cached.view(source, path)

    def _keep(self, path: str, state: _core.ObjectState, first: _core.Buffer) -> None:
        """Keep the state and the first bytes of an object, for opening it again."""
        is_long = len(first) > HEAD_BYTES
        head = _core.Buffer.join([first.slice(0, _SHORT_HEAD_BYTES)]) if is_long else first
        with self._lock:
            self._opening.pop(path, None)
            self._states[path] = state
            self._heads[path] = head
            while len(self._heads) > _KEPT_HEADS:
                self._heads.popitem(last=False)

    def pinned(self, path: str, state: FileState, *, mmap: bool = False) -> Source:
        """Open an object by a request for this state only. An older version is read, if the store keeps it."""
        if not is_url(path) or mmap or state == FileState(state.size):
            return super().pinned(path, state, mmap=mmap)
        with self._lock:
            self._forget_after_fork()
            known, opening = self._states.get(path), self._opening.get(path)
        if known is None and opening is not None:
            with translated(path, is_open=True):
                opening[0].wait()
            known = opening[0].state
        if known is None or not state.fits(state_of(known)):
            with self._lock:
                self._opening.pop(path, None)
                self._heads.pop(path, None)
                self._states[path] = object_state(state)
        try:
            return self.source(path)
        except BaseException:
            with self._lock:
                self._states.pop(path, None)
            raise

    def read_whole(
        self, paths: Sequence[str], states: Sequence[FileState]
    ) -> Sequence[_core.Buffer]:
        if self.cached is not None or not all(map(is_url, paths)):
            return super().read_whole(paths, states)
        coming: list[_core.Fetch | None] = []
        for path, state in zip(paths, states, strict=True):
            store, key = self.store(path)
            source = ObjectSource(self, store, path, key, object_state(state))
            with translated(path, is_open=True):
                coming.append(source.begin([0], [state.size]) if state.size else None)
        found: list[_core.Buffer] = []
        for path, fetch in zip(paths, coming, strict=True):
            with translated(path, is_open=True):
                found.append(_core.Buffer.from_bytes(b"") if fetch is None else fetch.wait())
        return found

    def will_ask_states(self, paths: Sequence[str]) -> None:
        folders = Counter(path.rpartition("/")[0] + "/" for path in paths if not is_web(path))
        for folder, count in folders.items():
            if count >= _LISTED_FROM and folder not in self._listed and is_url(folder):
                self._list(folder)

    def file_state(self, path: str) -> FileState:
        if not is_url(path):
            return self._local.file_state(path)
        with self._lock:
            folder = next((one for one in self._listed if path.startswith(one)), None)
            listed = None if folder is None else self._listed[folder].get(path[len(folder) :])
        if listed is not None:
            return state_of(listed)
        store, key = self.store(path)
        with translated(path):
            return state_of(store.head(key))

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        if not is_url(path):
            return self._local.sink(path, overwrite=overwrite)
        refuse_web_target(path)
        self._forget(path)
        return ObjectSink(path, self.store, translated, self._written, overwrite=overwrite)

    def _written(self, path: str, state: _core.ObjectState) -> None:
        """Know the state of an object that was written."""
        self._forget(path)
        with self._lock:
            self._states[path] = state

    def identity(self, path: str) -> tuple[int, int, int, int]:
        with self._lock:
            state = self._states.get(path)
        return super().identity(path) if state is None else identity_of(state)

    def num_bytes(self, path: str) -> int:
        return super().num_bytes(path) if is_url(path) else self._local.num_bytes(path)

    def stream(self, path: str, *, overwrite: bool = False) -> Sink:
        if not is_url(path):
            return self._local.stream(path, overwrite=overwrite)
        refuse_web_target(path)
        self._forget(path)
        return StreamedSink(path, self.store, translated, self._written, overwrite=overwrite)

    def sink_for(self, path: str, data_path: str, *, overwrite: bool = True) -> Sink:
        if not is_url(path):
            return self._local.sink_for(path, data_path, overwrite=overwrite)
        return self.sink(path, overwrite=overwrite)

    def make_folder(self, path: str, *, like: str) -> None:
        if not is_url(path):
            self._local.make_folder(path, like=like)

    def state(self, path: str) -> State | None:
        if not is_url(path):
            return self._local.state(path)
        if path.endswith("/"):
            return StoreFolder(self, path).facts()
        found = self._head(path)
        return None if found is None else _facts(found)

    def opened_state(self, path: str) -> State | None:
        with self._lock:
            found = self._states.get(path)
        return self.state(path) if found is None else _facts(found)

    def written(self, path: str) -> float | None:
        found = self._head(path) if is_url(path) else None
        return None if found is None or found.modified_ms is None else found.modified_ms / 1000

    def _head(self, path: str) -> _core.ObjectState | None:
        store, key = self.store(path)
        try:
            with translated(path):
                return store.head(key)
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        if not is_url(path):
            self._local.remove(path)
            return
        self._forget(path)
        store, key = self.store(path)
        with translated(path):
            store.delete(key)

    def remove_empty_folder(self, path: str) -> None:
        if not is_url(path):
            self._local.remove_empty_folder(path)

    def give_up(self, path: str) -> None:
        if is_url(path):
            give_up(path, self.store, translated)
        else:
            self._local.give_up(path)

    def save(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        if not is_url(path):
            self._local.save(path, data, overwrite=overwrite)
            return
        refuse_web_target(path)
        self._forget(path)
        store, key = self.store(path)
        with translated(path):
            store.put(key, data, create=not overwrite)

    def load(self, path: str, most: int) -> bytes | None:
        if not is_url(path):
            return self._local.load(path, most)
        store, key = self.store(path)
        try:
            with translated(path):
                return store.first(key, 0, most).wait().to_bytes()
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        if not is_url(path):
            return self._local.exists(path)
        return self._head(path) is not None

    def list(self, folder: str) -> list[str]:
        """Full paths of the objects directly in a folder, sorted, without penstock's own. A web server lists none."""
        if not is_url(folder):
            return self._local.list(folder)
        if is_web(folder):
            return []
        is_job = os.path.basename(folder.rstrip("/")).startswith(JOB_PREFIX)  # others change it
        folder = folder.rstrip("/") + "/"
        found = None if is_job else self._listings.below(folder)
        if found is None:
            store, key = self.store(folder)
            with translated(folder):
                found = [_url(folder, key, name) for name, _ in store.list_folder(key)[0]]
        # An empty object may mark the folder itself.
        names = (path for path in found if path != folder and "/" not in path[len(folder) :])
        return [path for path in names if not is_own(os.path.basename(path))]

    def leftovers(self, folder: str) -> list[Leftover]:
        """Those directly in a folder, and uploads without a note if botocore is installed."""
        from penstock.storage import _object_left as left

        if not is_url(folder):
            return self._local.leftovers(folder)
        folder = folder.rstrip("/")
        refuse_web_target(folder)
        with translated(folder):
            found = list(left.of_store(folder, self.store, self.load))
        notes = [self.load(one.path, NOTE_BYTES) for one in found if one.kind == "upload"]
        known = {noted(note or b"")[1] for note in notes}
        more = left.open_uploads(folder, self.options)
        return [*found, *(one for one in more if one.upload not in known)]

    def discard(self, left: Leftover) -> None:
        from penstock.storage import _object_left

        if is_url(left.path):
            _object_left.discard(left, self.store, translated)
        else:
            self._local.discard(left)

    def own_files(self, folder: str) -> list[str]:
        if not is_url(folder):
            return self._local.own_files(folder)
        if is_web(folder):
            return []
        begin = folder.rstrip("/") + "/."
        store, key = self.store(begin)
        with translated(folder):
            found = [_url(begin, key, name) for name, _ in store.list_folder(key)[0]]
        return sorted(path for path in found if is_own(os.path.basename(path)))

    def list_below(self, prefix: str) -> list[str]:
        """Full paths of all objects in a folder and the folders below it, sorted."""
        if is_web(prefix):
            raise UnsupportedError(
                "a web server does not list its files",
                file=shown(prefix),
                hint="pass the address of each file",
            )
        return self._list(prefix.rstrip("/") + "/")

    def _list(self, prefix: str) -> list[str]:
        """All objects whose paths begin like this, sorted. They are kept."""
        store, key = self.store(prefix)
        with translated(prefix):
            listed = {name[len(key) :]: state for name, state in store.list(key)}
        found = sorted((prefix + name, state.size) for name, state in listed.items())
        self._listings.add(prefix, found)
        with self._lock:
            self._listed[prefix] = listed
        return [path for path, _ in found]

    def _is_missing(self, path: str) -> bool:
        """Whether this is a file of penstock's own, and a listing has shown that there is none."""
        return is_own(os.path.basename(path)) and self._listings.lacks(path)

    def _forget(self, path: str) -> None:
        """Forget what is known about an object that is about to be written or removed."""
        with self._lock:
            self._states.pop(path, None)
            self._heads.pop(path, None)
            self._opening.pop(path, None)
            self._listed.clear()
        self._listings.forget(path)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._opening.clear()


def _facts(found: _core.ObjectState) -> State:
    return [found.size, found.etag or found.version or str(found.modified_ms)]


def _url(folder: str, prefix: str, key: str) -> str:
    """The full path of a key, in a folder whose own key is `prefix`."""
    return folder[: len(folder) - len(prefix)] + key


def _is_listed(path: str) -> bool:
    """Whether the files beside an object can be listed. A folder has none."""
    return is_url(path) and not is_web(path) and not path.endswith("/")
