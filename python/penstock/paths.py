"""From what a caller names to the list of shards: paths, lists, globs, folders, name@N, braces."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from typing import Any

from penstock.errors import UnsupportedError
from penstock.folders import holds_images
from penstock.listing import INDEX_NAME, listed_paths
from penstock.shard_lists import braces, has_braces, shard_list
from penstock.storage import Storage, is_own

_COUNTED = re.compile(r"^(?P<stem>.+)@(?P<count>\d+|\*)(?P<rest>[^/]*)$")
_OF = re.compile(r"-(\d{5,})-of-(\d{5,})")


def expand(source: Any, storage: Storage, *, is_folder: bool = False) -> list[str]:
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
    if isinstance(source, (str, os.PathLike)):
        return _expand_text(os.fspath(source), storage, is_folder)
    if isinstance(source, Iterable):
        paths = [path for item in source for path in _expand_item(item, storage, is_folder)]
        if not paths:
            raise FileNotFoundError("an empty list names no files")
        return paths
    raise TypeError(f"open takes a path, a list of paths, a glob or a folder, not {type(source)}")


def _expand_item(item: Any, storage: Storage, is_folder: bool) -> list[str]:
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)  # pyright: ignore[reportUnknownArgumentType]
        return _expand_one(path, storage, is_folder=is_folder)
    return expand(item, storage, is_folder=is_folder)


def _expand_text(path: str, storage: Storage, is_folder: bool) -> list[str]:
    """What one text names: several where it has braces or `::`."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if storage.exists(path):
        listed = shard_list(path, storage)
        if listed is None:
            return _expand_one(path, storage, is_folder=is_folder)
        return list(listed.paths)
    if path.startswith("pipe:"):
        raise UnsupportedError(
            "pipe: runs a command, which penstock never does", hint="open(...) the files it reads"
        )
    if "::" in path:
        parts = path.split("::")
        return [found for part in parts for found in _expand_text(part, storage, is_folder)]
    names = braces(path) if has_braces(path) else [path]
    return [found for name in names for found in _expand_one(name, storage, is_folder=is_folder)]


def _expand_one(path: str, storage: Storage, *, is_folder: bool) -> list[str]:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if os.path.isdir(path):
        if is_folder or holds_images(path):
            return [path.rstrip("/") or path]
        found = [p for p in storage.list(path) if not os.path.basename(p).startswith((".", "_"))]
        if not found:
            with os.scandir(path) as entries:
                deeper = sorted(e.name for e in entries if e.is_dir() and e.name[0] not in "._")
            hint = f", only folders; open one of them: {', '.join(deeper[:5])}" if deeper else ""
            raise FileNotFoundError(f"{path}: no files in this folder{hint}")
        listed = listed_paths(path, found, storage)
        if listed is not None:
            return listed
        index = os.path.join(path, INDEX_NAME)
        if index in found and (named := shard_list(index, storage)) is not None:
            return list(named.paths)
        return _complete(_without_indexes(found))
    if storage.exists(path):
        return [path]
    counted = _COUNTED.match(path)
    if counted is not None:
        return _counted(path, counted)
    if any(sign in path for sign in "*?["):
        found = sorted(
            p for p in glob.glob(path) if os.path.isfile(p) and not is_own(os.path.basename(p))
        )
        if not found:
            raise FileNotFoundError(f"{path}: no file matches")
        return _complete(_without_indexes(found))
    if "://" in path:
        raise UnsupportedError(f"{path}: only local files are read so far")
    raise FileNotFoundError(f"{path}: no such file")


def _without_indexes(paths: list[str]) -> list[str]:
    """The same paths without the text indexes of files that are among them: DALI's `x.idx` of a
    file `x`; MXNet's `x.idx` of `x.rec`, and the list `x.lst` that `x.rec` was made from."""
    names = set(paths)

    def is_beside(path: str) -> bool:
        stem, end = os.path.splitext(path)
        return (end == ".idx" and stem in names) or (
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
    width = max(5, len(str(total)))
    names = [f"{stem}-{n:0{width}}-of-{total:0{width}}{rest}" for n in range(total)]
    for name in names:
        if not os.path.exists(name):
            raise FileNotFoundError(f"{name}: no such file, wanted by {path}")
    return names


def _complete(paths: list[str]) -> list[str]:
    """The same paths, if no numbered set among them lacks a shard."""
    sets: dict[str, tuple[int, set[int]]] = {}
    for path in paths:
        match = _OF.search(os.path.basename(path))
        if match is not None:
            name = (
                path[: path.rindex(match[0])] + "@" + path[path.rindex(match[0]) + len(match[0]) :]
            )
            sets.setdefault(f"{name}:{match[2]}", (int(match[2]), set()))[1].add(int(match[1]))
    for name, (total, present) in sets.items():
        missing = sorted(set(range(total)) - present) if total <= 10_000_000 else []
        if missing and "*" not in name:
            stem = name.rsplit(":", 1)[0]
            raise FileNotFoundError(
                f"{stem}: shard {missing[0]} of {total} is missing ({len(missing)} in all); "
                "name the files one by one to read a part"
            )
    return paths
