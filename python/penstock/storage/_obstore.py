"""Stores of obstore, which has the same client as penstock. They are made again in penstock's core, from what they were
made of, so requests are pinned, and forks work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import IO, Any

from penstock.errors import UnsupportedError
from penstock.storage._foreign import Driver, Facts, ForeignStorage
from penstock.storage.base import Sink, Source, Storage, Traffic
from penstock.storage.cache import Cache
from penstock.storage.local import LocalStorage
from penstock.storage.objects import ObjectStorage
from penstock.storage.urls import is_url

_SCHEMES = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}
_CONTAINERS = ("bucket", "bucket_name", "container_name", "container")


def of_obstore(store: Any, cache: Cache | None = None) -> Storage:
    """The storage for a store of obstore. Its names begin at the store's prefix."""
    kind = type(store).__name__
    if kind == "MemoryStore":
        return ForeignStorage(_MemoryDriver(store), cache)
    if kind == "LocalStore":
        if store.prefix is not None:
            raise UnsupportedError(
                "a store of files on this machine with a prefix is not taken",
                hint="the path of the files, without storage=",
            )
        return LocalStorage()
    options: dict[str, Any] = dict(store.client_options or {})
    if kind == "HTTPStore":
        return Prefixed(ObjectStorage(options, cache), store.url)
    if kind not in _SCHEMES:
        raise TypeError(f"storage= takes no {kind} of obstore")
    options |= store.config
    container = next(options.pop(name) for name in _CONTAINERS if name in options)
    credentials = store.credential_provider
    storage = ObjectStorage(
        options, cache, credentials=None if credentials is None else _Asked(credentials)
    )
    base = f"{_SCHEMES[kind]}://{container}/"
    prefix = str(store.prefix or "").strip("/")
    return Prefixed(storage, base + prefix + "/" * bool(prefix))


class _Asked:
    """A credential provider of obstore, as the core asks for credentials."""

    def __init__(self, provider: Callable[[], Any]) -> None:
        if inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(
            type(provider).__call__
        ):
            raise UnsupportedError(
                "a credential provider must be a plain function, and not a coroutine"
            )
        self._provider = provider

    def __call__(self) -> dict[str, str]:
        given = dict(self._provider())
        end = given.pop("expires_at", None)
        found = {name: str(value) for name, value in given.items() if value is not None}
        if "token" in found:
            found["session_token"] = found["bearer_token"] = found.pop("token")
        if isinstance(end, datetime):
            found["expires_at"] = str(end.timestamp())
        return found


class Prefixed(Storage):
    """Objects under shorter names: those behind a prefix. Their sources have the full names."""

    def __init__(self, storage: ObjectStorage, base: str) -> None:
        self._storage = storage
        self._base = base
        self.reads_at_once = storage.reads_at_once

    def __reduce__(self) -> tuple[Any, ...]:
        return Prefixed, (self._storage, self._base)

    def full(self, path: str) -> str:
        """The full name of an object."""
        if not is_url(path):
            return self._base + path.lstrip("/")
        if not path.startswith(self._base):
            raise UnsupportedError("the store has another bucket or prefix", file=path)
        return path

    def source(self, path: str, *, mmap: bool = False) -> Source:
        return self._storage.source(self.full(path), mmap=mmap)

    def traffic(self) -> Traffic:
        return self._storage.traffic()

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        return _PrefixedSink(self, path, self._storage.sink(self.full(path), overwrite=overwrite))

    def stream(self, path: str, *, overwrite: bool = False) -> Sink:
        sink = self._storage.stream(self.full(path), overwrite=overwrite)
        return _PrefixedSink(self, path, sink)

    def remove(self, path: str) -> None:
        self._storage.remove(self.full(path))

    def give_up(self, path: str) -> None:
        self._storage.give_up(self.full(path))

    def own_files(self, folder: str) -> Sequence[str]:
        return self._short(folder, self._storage.own_files(self.full(folder)))

    def exists(self, path: str) -> bool:
        return not path.endswith("/") and self._storage.exists(self.full(path))

    def list(self, folder: str) -> list[str]:
        return self._short(folder, self._storage.list(self.full(folder)))

    def list_below(self, prefix: str) -> list[str]:
        return self._short(prefix, self._storage.list_below(self.full(prefix)))

    def look_beside(self, paths: Sequence[str]) -> None:
        self._storage.look_beside([self.full(path) for path in paths])

    def begin(self, paths: Sequence[str], length: int | None = None) -> bool:
        return self._storage.begin([self.full(path) for path in paths], length)

    def _short(self, asked: str, found: Sequence[str]) -> list[str]:
        return list(found) if is_url(asked) else [path[len(self._base) :] for path in found]


class _PrefixedSink(Sink):
    """An object being written, under a shorter name."""

    def __init__(self, storage: Prefixed, path: str, sink: Sink) -> None:
        self.path = path
        self._storage, self._sink = storage, sink
        self.write, self.write_all = sink.write, sink.write_all
        self.patch, self.repeat = sink.patch, sink.repeat
        self.finish, self.abort = sink.finish, sink.abort

    def commit(self, path: str | None = None) -> None:
        self.path = path or self.path
        self._sink.commit(self._storage.full(self.path))


class _MemoryDriver(Driver):
    """obstore's store in the memory of this process."""

    survives_forks = True
    is_in_memory = True

    def __init__(self, store: Any) -> None:
        self._store = store

    def facts(self, path: str) -> Facts:
        found = self._store.head(path)
        return Facts(int(found["size"]), str(found.get("e_tag") or found["last_modified"]))

    def read(self, path: str, start: int, length: int) -> object:
        return self._store.get_range(path, start=start, length=length)

    def names(self, folder: str, *, below: bool) -> Iterator[str]:
        front = folder.rstrip("/") + "/" if folder else ""
        for page in self._store.list(front or None):
            for entry in page:
                name: str = entry["path"].removeprefix(front)
                if below or "/" not in name:
                    yield name

    def put(self, path: str, file: IO[bytes], size: int) -> None:
        self._store.put(path, file.read())

    def remove(self, path: str) -> None:
        self._store.delete(path)

    def made_of(self) -> object:
        raise UnsupportedError("what is in the memory of this process cannot be pickled")
