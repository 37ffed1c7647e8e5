"""Begins to open many files of a storage with slow access, and to read their sidecars, before they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import shown
from penstock.framing.index import sidecar
from penstock.storage.base import Storage
from penstock.storage.urls import is_url

_WHOLE_BYTES = 1 << 20
"""The bytes of a sidecar that one request of an object store asks for."""
_SMALL_BYTES = 4 << 20
"""Sidecars of up to so many bytes together are read before it is known whether they are needed."""
_INDEXED_HEAD_BYTES = 32 << 10
"""The first bytes of an object that are read if it has a sidecar."""


def begin_listed(paths: Sequence[str], storage: Storage, kept: str) -> None:
    """Begin to open files of a storage with slow access that are known to have a sidecar, and to read these, as long as
    they are small."""
    room = _SMALL_BYTES if storage.reads_at_once is not None and kept in ("auto", "beside") else 0
    for path in paths if room else ():
        if (size := storage.listed_bytes(sidecar.path_for(path, None))) is not None:
            room -= size
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
        is_begun = here or storage.begin(list(filter(is_url, places)), _WHOLE_BYTES)
        storage.begin([path], _INDEXED_HEAD_BYTES if is_begun else None)
