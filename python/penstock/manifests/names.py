"""Expands a caller's source to its shards, if it may be the name of a manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.manifests.manifest import Manifest, NoManifestError
from penstock.storage import paths, places
from penstock.storage.base import Storage
from penstock.storage.manifest_mark import MAGIC, ManifestMetError, names_one_file
from penstock.storage.paths import Expanded
from penstock.storage.urls import is_url

if TYPE_CHECKING:
    from penstock.storage.cache import Cache


def expand(
    source: Any,
    storage: Storage,
    *,
    is_folder: bool = False,
    follow_links: bool = False,
    as_table: bool = False,
    missing_shards: str = "error",
) -> Expanded:
    """The files that `source` names: those that a manifest lists, or else what `storage.paths.expand` finds.

    Args:
        as_table: read a manifest as a file like others.
        missing_shards: "error" raises if a numbered set lacks a shard; "ignore" lists it in the result.

    Raises:
        FileNotFoundError: nothing matches, or a shard of a numbered set is missing.
        FormatError: the manifest is damaged.
    """
    manifest = None
    if isinstance(source, (str, os.PathLike)) and not (as_table or is_folder):
        manifest = manifest_at(os.fsdecode(source), storage)  # pyright: ignore[reportUnknownArgumentType]
    if manifest is not None:
        return Expanded(manifest.paths, [], [], None)
    for name in [] if as_table else _named_so(source):
        if manifest_at(name, storage) is not None:
            raise ManifestMetError(name)
    return paths.expand(
        source,
        storage,
        is_folder=is_folder,
        follow_links=follow_links,
        missing_shards=missing_shards,
    )


def _named_so(source: Any) -> Iterator[str]:
    """The paths in a list that may be manifests, by their names."""
    for one in source if isinstance(source, (list, tuple)) else ():
        if isinstance(one, (str, os.PathLike)):
            path = os.fsdecode(one)  # pyright: ignore[reportUnknownArgumentType]
            if "manifest" in os.path.basename(path).lower():
                yield path


def storage_of(
    source: Any,
    storage: Any = None,
    options: Mapping[str, Any] | None = None,
    cache: Cache | None = None,
) -> Storage:
    """The storage of a source as a user names it. A manifest on this machine may list objects of stores."""
    place = places.storage_of(source, storage, options, cache)
    if (
        storage is None
        and isinstance(source, (str, os.PathLike))
        and not is_url(os.fsdecode(source))
    ):  # pyright: ignore[reportUnknownArgumentType]
        manifest = manifest_at(os.fsdecode(source), place)  # pyright: ignore[reportUnknownArgumentType]
        if manifest is not None and manifest.footer.has_objects:
            from penstock.storage.objects import ObjectStorage

            return ObjectStorage(options, cache)
    return place


def manifest_at(path: str, storage: Storage) -> Manifest | None:
    """The manifest of this name; None if there is no such file, or it is another kind of file."""
    if not names_one_file(path, storage):
        return None
    try:
        return Manifest(path, storage) if storage.starts_with(path, MAGIC) else None
    except (NoManifestError, FileNotFoundError, KeyError):
        return None  # if there is no file, the caller finds out why
