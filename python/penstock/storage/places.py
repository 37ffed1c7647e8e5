"""Where the files of a call are: what `storage=`, `storage_options=` and their names say together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.pipes import Pipe, PipeStorage, pipes_in
from penstock.storage.urls import is_url, texts

if TYPE_CHECKING:
    from penstock.storage.cache import Cache


def storage_of(
    source: Any,
    storage: Any = None,
    options: Mapping[str, Any] | None = None,
    cache: Cache | None = None,
) -> Storage:
    """The storage of a source as a user names it.

    Args:
        source: a path, or a list of paths.
        storage: a `Storage`, a file system of fsspec or pyarrow, or a store of obstore. None: what the names say.
        options: options of the client for names such as s3://bucket/key.
        cache: keeps what was read from other machines.

    Raises:
        TypeError: it is no storage.
        ValueError: there are options for a storage that already has its own.
        UnsupportedError: the storage cannot be read through a cache.
    """
    if pipes := list(pipes_in(source)):
        return _of_pipes(source, pipes)
    if storage is None and any(name.startswith("hf://") for name in texts(source)):
        return _of_hub(source, options, cache)
    if storage is None:
        if not any(map(is_url, texts(source))):
            return LocalStorage()
        from penstock.storage.objects import ObjectStorage  # not loaded for files of this machine

        return ObjectStorage(options, cache)
    if options:
        raise ValueError(
            "storage_options= are for names such as s3://bucket/key; pass storage= or storage_options=, not both"
        )
    return adapted(storage, cache)


def _of_pipes(source: Any, pipes: list[Pipe]) -> Storage:
    if len(pipes) != sum(1 for _ in texts(source)):
        raise ValueError("a ps.Pipe and names of files cannot be opened together")
    return PipeStorage({os.fspath(pipe): pipe.arguments for pipe in pipes})


def _of_hub(source: Any, options: Mapping[str, Any] | None, cache: Cache | None) -> Storage:
    from penstock.storage._hub import SCHEME, HubDriver

    if not all(name.startswith(SCHEME) for name in texts(source)):
        raise ValueError("hf:// names and other names cannot be opened together")
    from penstock.storage._foreign import ForeignStorage

    return ForeignStorage(HubDriver(options), cache)


def adapted(storage: Any, cache: Cache | None = None) -> Storage:
    """penstock's storage for that of another library. Each is told by what it can do, so none is imported."""
    if isinstance(storage, Storage):
        if cache is not None and not isinstance(storage, LocalStorage):
            raise UnsupportedError(
                f"a {type(storage).__name__} cannot be read through a cache",
                hint="leave out cache=; it is for names such as s3://bucket/key, and for storage= of obstore, fsspec and pyarrow",
            )
        return storage
    if hasattr(storage, "cat_file") and hasattr(storage, "_strip_protocol"):
        return _of_fsspec(storage, cache)
    if hasattr(storage, "open_input_file") and hasattr(storage, "get_file_info"):
        if storage.type_name == "local":
            return LocalStorage()
        if hasattr(storage, "handler"):  # fsspec's, wrapped by pyarrow
            return adapted(getattr(storage.handler, "fs", None), cache)
        from penstock.storage._foreign import ForeignStorage
        from penstock.storage._pyarrow_systems import PyarrowDriver

        return ForeignStorage(PyarrowDriver(storage), cache)
    if hasattr(storage, "get_ranges") and hasattr(storage, "list_with_delimiter"):
        from penstock.storage._obstore import of_obstore

        return of_obstore(storage, cache)
    kind = type(storage)
    raise TypeError(
        "storage= takes a penstock.storage.Storage, a file system of fsspec or pyarrow, or a store of obstore, "
        f"not {kind.__module__}.{kind.__qualname__}"
    )


def _of_fsspec(system: Any, cache: Cache | None) -> Storage:
    from penstock.storage._fsspec import FsspecDriver

    protocols = system.protocol
    if "file" in ((protocols,) if isinstance(protocols, str) else protocols):
        return LocalStorage()
    from penstock.storage._foreign import ForeignStorage

    return ForeignStorage(FsspecDriver(system), cache)
