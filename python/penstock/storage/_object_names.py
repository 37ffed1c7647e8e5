"""Finds files of a storage by a pattern or in a folder, with one listing for each pattern: an object store has no
folders, only keys, and lists all that begin with a prefix."""

from __future__ import annotations

import fnmatch
import os
import re

from penstock.storage._patterns import is_pattern
from penstock.storage.base import Storage
from penstock.storage.hidden import is_own
from penstock.storage.skipped import HIDDEN, UNREADABLE, SkippedFile, why_not_data
from penstock.storage.urls import is_web


def is_object_pattern(path: str) -> bool:
    """Whether a name is a pattern. In a web address, `?` begins the query."""
    return is_pattern(path.replace("?", "") if is_web(path) else path)


def has_signs(path: str) -> bool:
    """Whether a name may mean other files than the one of this name."""
    return is_object_pattern(path) or "@" in path or is_folder_name(path)


def is_folder_name(path: str) -> bool:
    """Whether a name must be a folder or may be one: it ends with a slash, or its last part has no ending."""
    return not is_web(path) and not os.path.splitext(path.rsplit("/", 1)[-1])[1]


def matching_objects(pattern: str, storage: Storage, skipped: list[SkippedFile]) -> list[str]:
    """The objects that match, sorted. `*`, `?` and `[…]` match within a name, and `**` matches folders at any depth."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    folder = fixed[: fixed.rfind("/") + 1]
    matches = re.compile(_regex(pattern[len(folder) :])).fullmatch
    asked = why_not_data(os.path.basename(pattern))
    found: list[str] = []
    listed = storage.list_below(folder)
    if pattern in listed:
        return [pattern]  # the name of an object has such letters
    for path in listed:
        below = path[len(folder) :]
        if matches(below) and _is_data(path, below, skipped, asked, storage):
            found.append(path)
    return found


def objects_below(folder: str, storage: Storage, skipped: list[SkippedFile]) -> list[str]:
    """The objects of a folder and the folders below it that may be data, sorted."""
    folder = folder.rstrip("/") + "/"
    paths = storage.list_below(folder)
    return [path for path in paths if _is_data(path, path[len(folder) :], skipped, None, storage)]


def _is_data(
    path: str, below: str, skipped: list[SkippedFile], asked: str | None, storage: Storage
) -> bool:
    """Whether an object may be data, by its name and those of its folders. Others are added to `skipped`."""
    parts = below.split("/")
    if not parts[-1] or any(map(is_own, parts)):
        return False  # an empty object that marks a folder, or a file of penstock
    if not storage.can_read_name(path):
        skipped.append(SkippedFile(path, UNREADABLE))
        return False
    for part in parts:
        reason = why_not_data(part)
        if reason is not None and (part != parts[-1] or reason != asked):
            if reason != HIDDEN:
                skipped.append(SkippedFile(path, reason))
            return False
    return True


def _regex(pattern: str) -> str:
    parts = pattern.split("/")
    found = ""
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**":
            found += ".*" if is_last else "(?:.*/)?"
            continue
        found += _within_name(part) + ("" if is_last else "/")
    return found


def _within_name(part: str) -> str:
    """A regular expression for one part of a pattern. `fnmatch` lets `*` match slashes, too."""
    pieces = re.split(r"(\*+|\?)", part)
    return "".join(
        "[^/]*" if piece.startswith("*") else "[^/]" if piece == "?" else _literal(piece)
        for piece in pieces
    )


def _literal(text: str) -> str:
    # fnmatch knows the rules of [...]. Its result looks like (?s:...)\Z.
    return re.sub(r"^\(\?s:(.*)\)\\Z$", r"\1", fnmatch.translate(text), flags=re.DOTALL)
