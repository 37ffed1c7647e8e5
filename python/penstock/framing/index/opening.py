"""Begins to open many files of a storage with slow access, and to read their sidecars, before they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import shown
from penstock.framing.index import sidecar
from penstock.framing.index._by_ranges import HEAD_BYTES, MOST_WHOLE_BYTES
from penstock.storage.base import Storage
from penstock.storage.urls import is_url

_SMALL_BYTES = 4 << 20
"""Sidecars of up to so many bytes together are read before it is known whether they are needed."""
_INDEXED_HEAD_BYTES = 32 << 10
"""The first bytes of an object that are read if it has a sidecar."""


def _first_bytes(size: int | None) -> int:
    """The bytes of a sidecar of this size that are read first."""
    return MOST_WHOLE_BYTES if size is None or size <= MOST_WHOLE_BYTES else HEAD_BYTES


def begin_listed(paths: Sequence[str], storage: Storage, kept: str) -> None:
    """Begin to open files of a storage with slow access that are known to have a sidecar, and to read these, as long as
    they are small."""
    room = _SMALL_BYTES if storage.reads_at_once is not None and kept in ("auto", "beside") else 0
    for path in paths if room else ():
        if (size := storage.listed_bytes(sidecar.path_for(path, None))) is not None:
            room -= min(size, _first_bytes(size))
            if room < 0:
                break
            begin([path], storage, kept)


def begin(paths: Sequence[str], storage: Storage, kept: str) -> None:
    """Begin to open files of a storage with slow access, and to read their sidecars. With a sidecar, few bytes of the
    file are needed."""
    if storage.reads_at_once is None:
        return
    for path in paths:
        name = shown(path) if is_url(path) else path
        places = (
            []
            if kept == "never"
            else [sidecar.path_for(name, folder) for folder in sidecar.folders(kept)]
        )
        here = any(storage.is_here(place) and storage.exists(place) for place in places)
        is_begun = here or any(
            storage.begin([place], _first_bytes(storage.listed_bytes(place)))
            for place in places
            if is_url(place)
        )
        storage.begin([path], _INDEXED_HEAD_BYTES if is_begun else None)
