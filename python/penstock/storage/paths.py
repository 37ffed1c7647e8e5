"""Expands a caller's source to a list of shards: paths, lists, globs, folders, name@N, braces."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import LimitError, UnsupportedError, not_local, shown
from penstock.limits import Limits
from penstock.storage._object_names import (
    has_signs,
    is_folder_name,
    is_object_pattern,
    matching_objects,
    objects_below,
)
from penstock.storage._patterns import is_pattern, matching
from penstock.storage.base import Storage, no_longer_names
from penstock.storage.hidden import is_fields_job, is_own
from penstock.storage.image_names import holds_images, is_companion
from penstock.storage.manifest_mark import without_manifests
from penstock.storage.mds_index import INDEX_NAME, listed_paths
from penstock.storage.numbered_sets import (
    COUNTED,
    MissingShard,
    complete,
    numbered,
    present,
)
from penstock.storage.shard_lists import ShardList, braces, has_braces, shard_list
from penstock.storage.skipped import (
    BROKEN_LINK,
    CYCLE,
    INDEX,
    LINK,
    NO_FILE,
    TEXT,
    UNLISTED,
    SkippedFile,
    why_not_data,
)
from penstock.storage.store_folder import folders_of_images
from penstock.storage.urls import is_url


class Expanded(NamedTuple):
    """The result of expanding a source."""

    paths: Sequence[str]
    skipped: list[SkippedFile]
    """Files in folders and matches of patterns that are not data."""
    sets: list[list[str]]
    """The files of each folder and each pattern. All files of a set must have the same format."""
    listed: ShardList | None
    """The index that lists the files and their record counts, if there is one."""
    missing: Sequence[MissingShard] = ()
    """The shards that numbered sets lack, if these are ignored."""
    jobs: Sequence[str] = ()
    """The journals of changes of fields in the local folders that were listed."""


def expand(
    source: Any,
    storage: Storage,
    *,
    is_folder: bool = False,
    follow_links: bool = False,
    missing_shards: str = "error",
) -> Expanded:
    """The files that `source` names, in reading order.

    A folder means all data files in it and in the folders below. They are sorted by path, or in the order of an
    `index.json`. The matches of a glob are sorted, too. A folder of images is one shard, and with `is_folder` any
    folder is. `name@10` means name-00000-of-00010 and the nine others; `name@*` takes the count from the existing
    files. `{000..099}`, `a::b` and a JSON index of shards mean the same as in WebDataset, except in the elements of a
    list. With `follow_links`, links to folders in a folder are followed. With `missing_shards="ignore"`, the shards that
    a numbered set lacks are listed in the result.

    Raises:
        FileNotFoundError: nothing matches, or a shard of a numbered set is missing.
    """
    missing = None if missing_shards == "error" else list[MissingShard]()
    how = _How(storage, is_folder, follow_links, [], [], [], missing, [])
    paths = _paths_of(source, how)
    whole = len(how.lists) == 1 and list(how.lists[0].paths) == paths
    skipped = sorted(set(how.skipped))
    listed = how.lists[0] if whole else None
    return Expanded(paths, skipped, how.sets, listed, missing or (), how.jobs)


def _paths_of(source: Any, how: _How) -> list[str]:
    if isinstance(source, (str, os.PathLike)):
        return _expand_text(os.fsdecode(source), how)
    if hasattr(source, "read") and hasattr(source, "name"):
        raise TypeError(f"an open file is not a path; pass its name, {source.name!r}")
    is_unordered = isinstance(source, (Mapping, set, frozenset))
    if isinstance(source, Iterable) and not is_unordered and not _is_table(source):
        paths = [path for item in source for path in _expand_item(item, how)]
        if not paths:
            raise FileNotFoundError("an empty list names no files")
        return _without_indexes(paths, how)
    if isinstance(source, (set, frozenset)):
        raise TypeError("files are read in order, and a set has no order; pass a list")
    raise TypeError(f"expected a path, a list of paths, a glob or a folder, not {type(source)}")


def _is_table(source: object) -> bool:
    """Whether this is a dataset or a table, whose items are not paths."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


@dataclass(frozen=True, slots=True)
class _How:
    """Options and results that are shared by all parts of a source."""

    storage: Storage
    is_folder: bool
    follow_links: bool
    skipped: list[SkippedFile]
    sets: list[list[str]]
    lists: list[ShardList]
    missing: list[MissingShard] | None
    """The missing shards of numbered sets. If None, they are an error."""
    jobs: list[str]


def _expand_item(item: Any, how: _How) -> list[str]:
    if isinstance(item, (str, os.PathLike)):
        return _expand_one(os.fsdecode(item), how)  # pyright: ignore[reportUnknownArgumentType]
    return _paths_of(item, how)


# Complexity: one branch for each kind of name.
def _expand_text(path: str, how: _How) -> list[str]:
    if is_url(path) and not how.storage.is_here(path):
        named = [name for part in path.split("::") for name in braces(part)]
        return [found for name in named for found in _expand_elsewhere(name, how)]
    if how.storage.exists(path):
        if (named := _listed(path, how)) is not None:
            return named
        return _expand_one(path, how) if how.storage.is_here(path) else [path]
    if path.startswith("pipe:"):
        raise UnsupportedError(
            "pipe: would run a command, which penstock never does",
            hint='open(...) the files it reads, or open(ps.Pipe(["gsutil", "cat", …])), a list of arguments',
        )
    if "::" in path:
        parts = path.split("::")
        return [found for part in parts for found in _expand_text(part, how)]
    names = braces(path) if has_braces(path) else [path]
    return [found for name in names for found in _expand_one(name, how)]


# Complexity: one branch for each kind of name.
def _expand_elsewhere(path: str, how: _How) -> list[str]:
    """The files that a name means if they are not on this machine. A name without signs is trusted: nothing is requested
    to see whether the file exists."""
    storage = how.storage
    counted = COUNTED.match(path)
    if counted is not None and counted["count"] != "*":
        return _counted_elsewhere(path, counted, how)
    if counted is not None:
        stem, rest = counted["stem"], counted["rest"]
        fellow = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(rest)}")
        listed = matching_objects(f"{stem}-*-of-*{rest}", storage, how.skipped)
        found = [name for name in listed if fellow.fullmatch(name)]
        if not found and storage.exists(path):
            return [path]  # the name of an object has such letters
        if not found:
            raise FileNotFoundError(f"{path}: no object matches")
        return complete(found, None, how.missing)
    if (named := _listed(path, how)) is not None:
        return named
    if is_object_pattern(path):
        found = matching_objects(path, storage, how.skipped)
        if not found:
            raise FileNotFoundError(f"{shown(path)}: no object matches{_left_out(how)}")
        return _one_set(found, how, path)
    if is_folder_name(path):
        folder = path.rstrip("/") + "/"
        listed = objects_below(folder, storage, how.skipped)
        images, files = [folder], list[str]()
        if not (how.is_folder and listed):
            images, files = folders_of_images(folder, listed)
        found = _named_by_indexes(files, how)
        if found:
            found = _one_set(_without_companions(found, how) or found, how)
        if found or images:
            return sorted([*found, *images])
        if path.endswith("/"):
            raise FileNotFoundError(f"{path}: no data in this folder{_left_out(how)}")
    return [path]


def _named_by_indexes(paths: list[str], how: _How) -> list[str]:
    """Replace the objects of each folder with an index.json by those that it lists."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    found: list[str] = []
    for folder, files in folders.items():
        named = _named_by_index(folder, files, how)
        if named is not None:
            _note_unlisted(files, named, how)
        found.extend(files if named is None else named)
    return found


# Complexity: one branch for each kind of name.
def _expand_one(path: str, how: _How) -> list[str]:
    if not how.storage.is_here(path):
        is_there = not is_url(path) and has_signs(path) and how.storage.exists(path)
        return [path] if is_there else _expand_elsewhere(path, how)
    if is_url(path):
        raise not_local(path)
    if os.path.isdir(path):
        if how.is_folder or holds_images(path):
            return [path.rstrip("/") or path]
        return _in_folder(path, how)
    if how.storage.exists(path):
        return [path]
    counted = COUNTED.match(path)
    if counted is not None:
        return _counted(path, counted, how)
    if not is_pattern(path):
        raise FileNotFoundError(errno.ENOENT, "no such file", path)
    found = matching(path, how.skipped, how.jobs)
    if os.path.basename(path) in ("*", "**"):
        found = _without_companions(found, how) or found
    if not found:
        raise FileNotFoundError(f"{path}: no file matches{_left_out(how)}")
    return _one_set(found, how, path)


def _in_folder(path: str, how: _How) -> list[str]:
    parts: list[tuple[str, list[str]]] = []
    _gather(path, how, parts, (os.path.realpath(path),))
    found = [file for _, files in sorted(parts) for file in files]
    if not found:
        raise FileNotFoundError(f"{path}: no data in this folder{_left_out(how)}")
    return _one_set(_without_companions(found, how) or found, how)


def _left_out(how: _How) -> str:
    """Describe the skipped files. This is added to the message that no other files were found."""
    some = [f"{os.path.basename(path)} ({reason})" for path, reason in how.skipped[:5]]
    return f"; left out: {', '.join(some)}" if some else ""


def _gather(
    folder: str, how: _How, parts: list[tuple[str, list[str]]], within: tuple[str, ...]
) -> None:
    """Add pairs of a sort key and files to `parts`, for a folder and the folders below it. `within` has the real paths
    of this folder and those that it is in."""
    depth = len(within) - 1
    if depth > Limits().nesting:
        raise LimitError(f"folders are nested more than {Limits().nesting} deep", file=folder)
    if depth and holds_images(folder):
        parts.append((folder + "/", [folder]))
        return
    files, folders = _entries(folder, how)
    named = _named_by_index(folder, files, how)
    if named is not None:
        parts.append((folder + "/", named))
        _note_unlisted([*files, *_files_below(folders, how, depth + 1)], named, how)
        return
    parts.extend((file, [file]) for file in files)
    for other in folders:
        real = os.path.realpath(other)
        if real in within:
            how.skipped.append(SkippedFile(other, CYCLE))
        else:
            _gather(other, how, parts, (*within, real))


def _files_below(folders: list[str], how: _How, depth: int) -> Iterator[str]:
    for folder in folders if depth <= Limits().nesting else ():
        files, deeper = _entries(folder, how)
        yield from files
        yield from _files_below(deeper, how, depth + 1)


def _entries(folder: str, how: _How) -> tuple[list[str], list[str]]:
    """The files that may be data, and the folders, directly in a folder."""
    files: list[str] = []
    folders: list[str] = []
    with no_longer_names(folder), os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if is_own(entry.name):
            if is_fields_job(entry.name):
                how.jobs.append(entry.path)
            continue
        reason = why_not_data(entry.name)
        if reason is None:
            if entry.is_file():
                files.append(entry.path)
                continue
            if entry.is_dir(follow_symlinks=how.follow_links):
                folders.append(entry.path)
                continue
            reason = NO_FILE
            if entry.is_symlink():
                reason = LINK if entry.is_dir() else BROKEN_LINK
        how.skipped.append(SkippedFile(entry.path, reason))
    return sorted(files), sorted(folders)


def _named_by_index(folder: str, files: list[str], how: _How) -> list[str] | None:
    """The shards that a folder's index.json lists; None without such an index."""
    listed = listed_paths(folder, files, how.storage)
    if listed is not None:
        return listed
    index = os.path.join(folder, INDEX_NAME)
    return _listed(index, how) if index in files else None


def _listed(path: str, how: _How) -> list[str] | None:
    """The shards that a JSON index names; None if the file is no such index."""
    if (listed := shard_list(path, how.storage)) is None:
        return None
    how.lists.append(listed)
    return list(listed.paths)


def _note_unlisted(files: list[str], named: list[str], how: _How) -> None:
    # If a shard exists both plain and compressed, only one is read.
    known = {*named, *(os.path.splitext(path)[0] for path in named)}
    for path in _without_companions(files, how):
        is_known = path in known or os.path.splitext(path)[0] in known
        if not is_known and os.path.basename(path) != INDEX_NAME:
            how.skipped.append(SkippedFile(path, UNLISTED))


def _one_set(paths: list[str], how: _How, pattern: str | None = None) -> list[str]:
    """The files of a folder or a pattern, without indexes, as one set. Numbered sets must be complete."""
    paths = _without_indexes(without_manifests(paths, how.storage, how.skipped), how)
    complete(paths, pattern, how.missing)
    how.sets.append(paths)
    return paths


def _without_companions(paths: list[str], how: _How) -> list[str]:
    """The files of a folder without accompanying text. An `index.json` is kept, because it may be a damaged list of
    shards."""
    beside = {
        path
        for path in paths
        if os.path.basename(path) != INDEX_NAME
        and is_companion(path, partial(_first_bytes, path, how))
    }
    how.skipped.extend(SkippedFile(path, TEXT) for path in beside)
    return [path for path in paths if path not in beside]


def _first_bytes(path: str, how: _How, length: int) -> bytes:
    return how.storage.load(path, length) or b""


def _without_indexes(paths: list[str], how: _How) -> list[str]:
    """The paths without penstock's own files and without indexes of other paths: DALI's `x.idx` for a file `x`, MXNet's
    `x.idx` for `x.rec`, and the list `x.lst` from which `x.rec` was made. If nothing remains, all paths."""
    names = set(paths)

    def is_beside(path: str) -> bool:
        stem, end = os.path.splitext(path)
        return (
            is_own(os.path.basename(path))
            or (end == ".idx" and stem in names)
            or (end in (".idx", ".lst") and f"{stem}.rec" in names)
        )

    beside = {path for path in paths if is_beside(path)}
    if len(beside) == len(names):
        return paths
    how.skipped.extend(SkippedFile(path, INDEX) for path in beside)
    return [path for path in paths if path not in beside]


def _counted(path: str, match: re.Match[str], how: _How) -> list[str]:
    stem, count, rest = match["stem"], match["count"], match["rest"]
    if count == "*":
        fellow = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(rest)}")
        named = glob.glob(f"{glob.escape(stem)}-*-of-*{glob.escape(rest)}")
        found = sorted(path for path in named if fellow.fullmatch(path))
        if not found:
            raise FileNotFoundError(f"{path}: no file matches")
        return complete(found, None, how.missing)
    names = numbered(path, match)
    return present(names, match, set(filter(os.path.exists, names)), how.missing)


def _counted_elsewhere(path: str, match: re.Match[str], how: _How) -> list[str]:
    names = numbered(path, match)
    if how.missing is None:
        return names
    try:
        there = set(how.storage.list_below(os.path.dirname(path)))
    except UnsupportedError:  # a web server
        there = set(filter(how.storage.exists, names))
    return present(names, match, there, how.missing)


_INDEX_WORDS = ("auto", "beside", "never", "true", "false", "none")


def index_option(index: Any, *words: str) -> Any:
    """Check the `index=` argument of a verb: one of these words (True or False if there are none), or a folder.

    Raises:
        TypeError: it is neither a word nor a path.
        ValueError: it is similar to a word of this or another verb, and no folder has that name.
        NotADirectoryError: it is the path of a file.
    """
    if isinstance(index, bool) and not words:
        return index
    known = " or ".join(map(repr, words or (True, False)))
    folder_too = f"{known.replace(' or ', ', ')} or a folder"
    if not isinstance(index, (str, os.PathLike)):
        raise TypeError(f"index= must be {folder_too}, not {index!r}")
    word = os.fspath(index)  # pyright: ignore[reportUnknownVariableType]
    if not word:
        raise ValueError(f"index='' is not a folder; it must be {folder_too}")
    if not isinstance(word, str):
        raise TypeError(f"index= takes the path of a folder as text, not {word!r}")
    if word in words or os.path.isdir(word):
        return word
    if os.path.exists(word):
        raise NotADirectoryError(f"index={word!r} is a file; it takes {folder_too}")
    from difflib import get_close_matches  # slow to import, and rarely needed

    if get_close_matches(word.lower(), _INDEX_WORDS, cutoff=0.75):
        raise ValueError(
            f"index={word!r} is not {known}; for a folder of that name, pass './{word}'"
        )
    return word


def reading_index(index: Any) -> str:
    """Check the `index=` argument of a verb that reads, as `index_option` does. The environment variable
    PENSTOCK_INDEX, if set, replaces "auto"."""
    words = ("auto", "beside", "never")
    chosen = index_option(index, *words)
    if chosen != "auto":
        return chosen
    try:
        return index_option(os.environ.get("PENSTOCK_INDEX") or "auto", *words)
    except (ValueError, NotADirectoryError) as error:
        raise type(error)(f"PENSTOCK_INDEX: {error}") from None
