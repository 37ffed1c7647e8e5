"""From what a caller names to the list of shards: paths, lists, globs, folders, name@N, braces."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import UnsupportedError
from penstock.folders import holds_images, is_companion, is_hidden
from penstock.listing import INDEX_NAME, listed_paths
from penstock.shard_lists import MOST_NAMES, ShardList, braces, has_braces, shard_list
from penstock.storage import SIDECAR_SUFFIX, Storage, is_own

_COUNTED = re.compile(r"^(?P<stem>.+)@(?P<count>\d+|\*)(?P<rest>[^/]*)$")
_OF = re.compile(r"-(\d{5,})-of-(\d{5,})")


class Expanded(NamedTuple):
    """What a source means."""

    paths: list[str]
    passed_over: list[str]
    """Text beside the data of a folder, such as a README (`folders.is_companion`)."""
    listed: ShardList | None
    """The index that named the files, where one did, and how many records it says that each has."""


def expand(source: Any, storage: Storage, *, is_folder: bool = False) -> Expanded:
    """The files that `source` means, in the order they are read.

    A glob or a folder is sorted by name, but for a folder whose `index.json` lists its shards. A
    folder of images is one shard, and so is any folder with `is_folder`. `name@10` is
    name-00000-of-00010 and its nine fellows;
    `name@*` takes the count from the files that are there. A numbered set that lacks a shard is an
    error, since data that is silently not there is worse than none. `{000..099}` and `a::b` are
    those of WebDataset, and so is a JSON index of shards; an element of a list is taken as it is.

    Raises:
        FileNotFoundError: nothing matches, or a shard of a numbered set is missing.
    """
    how = _How(storage, is_folder, [], [])
    paths = _paths_of(source, how)
    whole = len(how.lists) == 1 and list(how.lists[0].paths) == paths
    return Expanded(paths, how.passed_over, how.lists[0] if whole else None)


def _paths_of(source: Any, how: _How) -> list[str]:
    if isinstance(source, (str, os.PathLike)):
        return _expand_text(os.fspath(source), how)
    if hasattr(source, "read") and hasattr(source, "name"):
        raise TypeError(f"an open file is no path; pass its name, {source.name!r}")
    is_unordered = isinstance(source, (Mapping, set, frozenset))
    if isinstance(source, Iterable) and not is_unordered and not _is_table(source):
        paths = [path for item in source for path in _expand_item(item, how)]
        if not paths:
            raise FileNotFoundError("an empty list names no files")
        return _without_indexes(paths)
    if isinstance(source, (set, frozenset)):
        raise TypeError("files are read in an order, which a set does not have; pass a list")
    raise TypeError(f"files are a path, a list of paths, a glob or a folder, not {type(source)}")


def _is_table(source: object) -> bool:
    """Whether it has records itself: a dataset, a table. What iterating it gives are no paths."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


@dataclass(frozen=True, slots=True)
class _How:
    """What is the same for all parts of a source."""

    storage: Storage
    is_folder: bool
    passed_over: list[str]
    lists: list[ShardList]
    """The indexes of shards that were met."""


def _expand_item(item: Any, how: _How) -> list[str]:
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)  # pyright: ignore[reportUnknownArgumentType]
        return _expand_one(path, how)
    return _paths_of(item, how)


def _expand_text(path: str, how: _How) -> list[str]:
    """What one text names: several where it has braces or `::`."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if how.storage.exists(path):
        listed = shard_list(path, how.storage)
        if listed is None:
            return _expand_one(path, how)
        how.lists.append(listed)
        return list(listed.paths)
    if path.startswith("pipe:"):
        raise UnsupportedError(
            "pipe: runs a command, which penstock never does", hint="open(...) the files it reads"
        )
    if "::" in path:
        parts = path.split("::")
        return [found for part in parts for found in _expand_text(part, how)]
    names = braces(path) if has_braces(path) else [path]
    return [found for name in names for found in _expand_one(name, how)]


def _expand_one(path: str, how: _How) -> list[str]:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if os.path.isdir(path):
        if how.is_folder or holds_images(path):
            return [path.rstrip("/") or path]
        found = [
            p for p in how.storage.list(path) if not os.path.basename(p).startswith((".", "_"))
        ]
        listed = listed_paths(path, found, how.storage)
        if listed is not None:
            return listed
        index = os.path.join(path, INDEX_NAME)
        if index in found and (named := shard_list(index, how.storage)) is not None:
            how.lists.append(named)
            return list(named.paths)
        data = _without_companions(_without_indexes(found), how)
        deeper = [] if data else _folders_in(path)
        if not found or deeper:
            hint = f", only folders; open one of them: {', '.join(deeper[:5])}" if deeper else ""
            raise FileNotFoundError(f"{path}: no data in this folder{hint}")
        return _complete(data or found)
    if how.storage.exists(path):
        return [path]
    counted = _COUNTED.match(path)
    if counted is not None:
        return _counted(path, counted)
    if any(sign in path for sign in "*?["):
        # As in a folder, hidden files are not there, unless the pattern asks for them.
        last = os.path.basename(path)[:1]
        is_unseen = is_hidden if last in ("*", "?", "[") else is_own
        found = sorted(
            p for p in glob.glob(path) if os.path.isfile(p) and not is_unseen(os.path.basename(p))
        )
        if not found:
            raise FileNotFoundError(f"{path}: no file matches")
        return _complete(_without_indexes(found))
    if "://" in path:
        raise UnsupportedError(f"{path}: only local files are read so far")
    raise FileNotFoundError(errno.ENOENT, "no such file", path)


def _folders_in(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.name for e in entries if e.is_dir() and e.name[0] not in "._")


def _without_companions(paths: list[str], how: _How) -> list[str]:
    """The files of a folder without the text that goes with them. An `index.json` that was no list of shards may
    be a damaged one."""
    beside = {
        path
        for path in paths
        if os.path.basename(path) != INDEX_NAME
        and is_companion(path, partial(_first_bytes, path, how))
    }
    if len(beside) < len(paths):
        how.passed_over.extend(sorted(beside))
    return [path for path in paths if path not in beside]


def _first_bytes(path: str, how: _How, length: int) -> bytes:
    source = how.storage.source(path)
    try:
        return source.read(0, length).to_bytes()
    finally:
        source.close()


def _without_indexes(paths: list[str]) -> list[str]:
    """The same paths without the indexes of files that are among them: penstock's own; DALI's `x.idx` of a
    file `x`; MXNet's `x.idx` of `x.rec`, and the list `x.lst` that `x.rec` was made from."""
    names = set(paths)

    def is_beside(path: str) -> bool:
        stem, end = os.path.splitext(path)
        return (end in (".idx", SIDECAR_SUFFIX) and stem in names) or (
            end in (".idx", ".lst") and f"{stem}.rec" in names
        )

    return [path for path in paths if not is_beside(path)]


def _counted(path: str, match: re.Match[str]) -> list[str]:
    stem, count, rest = match["stem"], match["count"], match["rest"]
    if count == "*":
        fellow = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(rest)}")
        named = glob.glob(f"{glob.escape(stem)}-*-of-*{glob.escape(rest)}")
        found = sorted(path for path in named if fellow.fullmatch(path))
        if not found:
            raise FileNotFoundError(f"{path}: no file matches")
        return _complete(found)
    total = int(count)
    if not 0 < total <= MOST_NAMES:
        raise FileNotFoundError(
            f"{path}: no such file (a set of shards has 1 to {MOST_NAMES} of them)"
        )
    width = max(5, len(str(total)))
    names = [f"{stem}-{n:0{width}}-of-{total:0{width}}{rest}" for n in range(total)]
    for name in names:
        if not os.path.exists(name):
            raise FileNotFoundError(errno.ENOENT, f"no such file, wanted by {path}", name)
    return names


def _complete(paths: list[str]) -> list[str]:
    """The same paths, if no numbered set among them lacks a shard, and no two have one name: of those, one is
    likely left over from before the other was written."""
    sets: dict[tuple[str, str], dict[int, set[int]]] = {}
    for path in paths:
        match = _OF.search(os.path.basename(path))
        if match is not None:
            at = path.rindex(match[0])
            name = path[:at], path[at + len(match[0]) :]
            sets.setdefault(name, {}).setdefault(int(match[2]), set()).add(int(match[1]))
    for (front, back), counts in sets.items():
        named = [f"{front}@{total}{back}" for total in sorted(counts)]
        if len(named) > 1:
            raise ValueError(
                f"{' and '.join(named)} are {len(named)} sets of one name, of which some may be left over; "
                "open one of them"
            )
        ((total, present),) = counts.items()
        missing = sorted(set(range(total)) - present) if total <= 10_000_000 else []
        if missing and "*" not in front + back:
            many = "" if len(missing) == 1 else f", and {len(missing) - 1} more"
            raise FileNotFoundError(
                f"{named[0]}: shard {missing[0]} of {total} is missing{many}; "
                "name the files one by one to read a part"
            )
    return paths


_INDEX_WORDS = ("auto", "never", "true", "false", "none")


def index_option(index: Any, *words: str) -> Any:
    """What `index=` of a verb says: one of its words, which are True and False where none are given, or a folder
    as text.

    Raises:
        TypeError: it is neither a word nor the name of anything.
        ValueError: it is nearly a word, or one of another verb, and there is no folder of that name.
        NotADirectoryError: it is a file.
    """
    if isinstance(index, bool) and not words:
        return index
    known = " or ".join(map(repr, words or (True, False)))
    folder_too = f"{known.replace(' or ', ', ')} or a folder"
    if not isinstance(index, (str, os.PathLike)):
        raise TypeError(f"index= is {folder_too}, not {index!r}")
    word = os.fspath(index)  # pyright: ignore[reportUnknownVariableType]
    if not word:
        raise ValueError(f"index='' names no folder; it is {folder_too}")
    if not isinstance(word, str):
        raise TypeError(f"index= names a folder by text, not {word!r}")
    if word in words or os.path.isdir(word):
        return word
    if os.path.exists(word):
        raise NotADirectoryError(f"index={word!r} is a file; it takes {folder_too}")
    from difflib import get_close_matches  # costs time at import, and is rarely needed

    if get_close_matches(word.lower(), _INDEX_WORDS, cutoff=0.75):
        raise ValueError(f"index={word!r} is not {known}; a folder of that name is './{word}'")
    return word
