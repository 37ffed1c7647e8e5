"""Expands a caller's source to its shards, if it may be the name of a manifest."""

from __future__ import annotations

import os
from typing import Any

from penstock.manifests.manifest import Manifest
from penstock.storage import paths
from penstock.storage.base import Storage
from penstock.storage.manifest_mark import has_mark, names_one_file
from penstock.storage.paths import Expanded


def expand(
    source: Any,
    storage: Storage,
    *,
    is_folder: bool = False,
    follow_links: bool = False,
    as_table: bool = False,
) -> Expanded:
    """The files that `source` names: those that a manifest lists, or else what `storage.paths.expand` finds.

    Args:
        as_table: read a manifest as a file like others.

    Raises:
        FileNotFoundError: nothing matches, or a shard of a numbered set is missing.
        FormatError: the manifest is damaged.
    """
    manifest = None
    if isinstance(source, (str, os.PathLike)) and not (as_table or is_folder):
        manifest = manifest_at(os.fsdecode(source), storage)  # pyright: ignore[reportUnknownArgumentType]
    if manifest is not None:
        return Expanded(manifest.paths, [], [], None)
    return paths.expand(source, storage, is_folder=is_folder, follow_links=follow_links)


def manifest_at(path: str, storage: Storage) -> Manifest | None:
    """The manifest of this name; None if there is no such file, or it is another kind of file."""
    if not names_one_file(path, storage):
        return None
    try:
        source = storage.source(path)
    except (FileNotFoundError, KeyError):
        return None  # the caller finds out why
    try:
        if not has_mark(source):
            return None
    finally:
        source.close()
    return Manifest.found(path, storage)
