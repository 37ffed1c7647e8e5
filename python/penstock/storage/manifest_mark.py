"""Tells manifests from other files by a mark in their footer, without parsing it.

A manifest is a Parquet file that lists shards. The mark is a key in its footer, so any program may write one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from penstock import _core
from penstock.errors import UnsupportedError, shown
from penstock.storage._object_names import is_folder_name, is_object_pattern
from penstock.storage.base import Source, Storage
from penstock.storage.shard_lists import has_braces
from penstock.storage.skipped import MANIFEST, SkippedFile
from penstock.storage.urls import is_url

KEY = b"penstock.manifest"
"""The key in the footer of a manifest; its value is a JSON object."""
MOST_FOOTER_BYTES = 16 << 20
"""A footer of a manifest is not larger. One of a million shards has 100 KB."""
MAGIC = b"PAR1"
"""The first and last bytes of a manifest, as of any Parquet file."""
_COUNTED = re.compile(r"@(\d+|\*)[^/]*$")


class ManifestMetError(UnsupportedError):
    """A manifest was met where a shard was expected."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "this is a manifest, which lists shards, and not a shard",
            file=path,
            hint='open it by its name alone; or open(..., format="parquet"), which reads the list',
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ManifestMetError, (self.file,)


def marked_footer(source: Source) -> _core.Buffer | None:
    """The end of a file from its footer on, if it seems to be a manifest; else None. Only the footer says for sure."""
    size = source.size
    if size < 12 or source.read(0, 4).to_bytes() != MAGIC:
        return None
    end = source.read(size - 8, 8).to_bytes()
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length > min(size - 12, MOST_FOOTER_BYTES):
        return None
    footer = source.read(size - 8 - length, length + 8)
    return footer if KEY in footer.to_bytes() else None


def without_manifests(
    paths: Sequence[str], storage: Storage, skipped: list[SkippedFile]
) -> list[str]:
    """The files of a folder or a pattern without manifests, which are added to `skipped`. Only files that are called so
    are examined; a reader refuses the others."""
    found: list[str] = []
    for path in paths:
        if "manifest" in os.path.basename(path).lower() and _is_manifest(path, storage):
            skipped.append(SkippedFile(path, MANIFEST))
        else:
            found.append(path)
    if not found:
        raise FileNotFoundError(f"{shown(paths[0])}: {MANIFEST}; and there are no other files")
    return found


def _is_manifest(path: str, storage: Storage) -> bool:
    if os.path.isdir(path):
        return False
    source = storage.source(path)
    try:
        return marked_footer(source) is not None
    finally:
        source.close()


def names_one_file(path: str, storage: Storage) -> bool:
    """Whether a name is that of one file, and not a pattern, a list or a folder. Objects need not exist."""
    if is_url(path) and not storage.is_here(path):
        is_list = "::" in path or has_braces(path) or _COUNTED.search(path) is not None
        return not (is_list or is_object_pattern(path) or is_folder_name(path))
    return not is_url(path) and not os.path.isdir(path) and storage.exists(path)
