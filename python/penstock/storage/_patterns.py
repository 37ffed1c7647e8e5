"""Finds files by a pattern: `*`, `?` and `[…]` match within a name, and `**` matches folders at any depth.

As in a shell, a pattern matches hidden names only if it begins with a dot. Names that are not data (see `skipped`)
match only a pattern of the same kind, such as `*.tmp`. `**` does not follow links to folders.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from penstock.errors import LimitError
from penstock.limits import Limits
from penstock.storage.hidden import is_fields_job, is_own
from penstock.storage.skipped import HIDDEN, LINK, SkippedFile, why_not_data

_MAGIC = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    return _MAGIC.search(text) is not None


def matching(pattern: str, skipped: list[SkippedFile], jobs: list[str]) -> list[str]:
    """The files that match, sorted. Matching files that are not data are added to `skipped`, and journals of changes of
    fields in the folders that are listed to `jobs`.

    Raises:
        LimitError: folders are nested deeper than `Limits.nesting`.
    """
    parts = pattern.split("/")
    # Several `**` in a row are the same as one.
    parts = [p for n, p in enumerate(parts) if p != "**" or parts[n - 1 : n] != ["**"]]
    return sorted(set(_below("", parts, skipped, jobs)))


def _below(
    prefix: str, parts: list[str], skipped: list[SkippedFile], jobs: list[str]
) -> Iterator[str]:
    """The matches in a folder; `prefix` is empty or ends with a slash."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for folder in _folders(prefix, skipped, 0):
            yield from _below(folder, rest or ["*"], skipped, jobs)
    elif rest:
        for name in _names(prefix, part, skipped, None):
            yield from _below(f"{prefix}{name}/", rest, skipped, jobs)
    else:
        for name in _names(prefix, part, skipped, jobs):
            yield prefix + name


def _names(
    prefix: str, part: str, skipped: list[SkippedFile], jobs: list[str] | None
) -> Iterator[str]:
    """The names of the files in a folder that match one part of a pattern, or of the folders if `jobs` is None."""
    folders = jobs is None
    if not is_pattern(part):
        # The first part of an absolute path is empty: the root folder.
        path = prefix + part or "/"
        exists = os.path.isdir if folders else os.path.isfile
        if exists(path):
            yield part
        return
    matches = re.compile(fnmatch.translate(part)).match
    asked = why_not_data(part)
    for entry in _entries(prefix, jobs):
        name, is_kind = entry.name, entry.is_dir if folders else entry.is_file
        if not matches(name) or not is_kind():
            continue
        reason = why_not_data(name)
        if reason is None or reason == asked:
            yield name
        elif reason != HIDDEN:
            skipped.append(SkippedFile(prefix + name, reason))


def _folders(prefix: str, skipped: list[SkippedFile], depth: int) -> Iterator[str]:
    """A folder and all folders below it."""
    if depth > Limits().nesting:
        raise LimitError(f"folders are nested more than {Limits().nesting} deep", file=prefix)
    yield prefix
    for entry in _entries(prefix):
        if not entry.is_dir():
            continue
        reason = LINK if entry.is_symlink() else why_not_data(entry.name)
        if reason is None:
            yield from _folders(f"{prefix}{entry.name}/", skipped, depth + 1)
        elif reason != HIDDEN:
            skipped.append(SkippedFile(prefix + entry.name, reason))


def _entries(prefix: str, jobs: list[str] | None = None) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(prefix or ".") as entries:
            for entry in entries:
                if not is_own(entry.name):
                    found.append(entry)
                elif jobs is not None and is_fields_job(entry.name):
                    jobs.append(prefix + entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda entry: entry.name)
