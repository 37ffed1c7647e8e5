"""The files of one split, such as train, found by the names of files and folders.

The names of a file are its own name without endings and number (`train` for `train-00000-of-00010.tfrecord`), and the
names of the folders that it is in. A split has the files with a name equal to the split's name. If there are none, it
has the files with a name that ends with it (`mnist-train.tfrecord-00000-of-00001`), and if there are none of these
either, the files with a name that contains it as a word (`data-train-part-7.tar`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.errors import UnsupportedError
from penstock.manifests.manifest import Paths
from penstock.manifests.names import expand
from penstock.storage.base import Storage
from penstock.storage.paths import Expanded

_NUMBER = re.compile(r"[-_.]?\d+(-of-\d+)?$")
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_MOST_LISTED = 20


def expand_split(
    source: Any,
    split: str | None,
    storage: Storage,
    *,
    is_folder: bool,
    follow_links: bool,
    as_table: bool,
    missing_shards: str,
    is_inside: Callable[[Sequence[str]], bool],
) -> Expanded:
    """Expand a source to its files, or to those of one split. If no name has the split, `is_inside` says whether it is
    inside each of the files.

    Raises:
        ValueError: there are no files of the split.
        The errors of `expand`.
    """
    found_by = partial(
        expand,
        storage=storage,
        is_folder=is_folder,
        follow_links=follow_links,
        as_table=as_table,
        missing_shards=missing_shards,
    )
    if split is None:
        return found_by(source)
    if isinstance(source, (str, os.PathLike)):
        folder = os.path.join(os.fsdecode(source), split)
        if os.path.isdir(folder):
            return found_by(folder)
    found = found_by(source)
    if isinstance(found.paths, Paths):
        raise UnsupportedError(
            "split= chooses files by their names, and a manifest lists them in the state of its time",
            file=found.paths.manifest.path,
            hint="a manifest of each split: penstock.manifest(penstock.open(..., split=...), path)",
        )
    start = _start_of(source, found.paths)
    names = [_names(os.path.relpath(path, start)) for path in found.paths]
    paths = _files_of(found.paths, names, split)
    if not paths:
        if is_inside(found.paths):
            return found
        raise _no_such_split(names, split)
    chosen = set(paths)
    sets = [[path for path in files if path in chosen] for files in found.sets]
    return Expanded(paths, found.skipped, [files for files in sets if files], None, (), found.jobs)


def folder_of_other_classes(source: Any, split: str) -> str | None:
    """Return the folder of another split in which a class has another number than in the folder of this split: classes
    are folders, and are numbered in the order of their names. Folders without a class in common are no splits of the
    same data."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    root = os.fsdecode(source)
    own = _folders_in(os.path.join(root, split))
    for name in _folders_in(root) if own else ():
        others = _folders_in(os.path.join(root, name))
        if set(own) & set(others) and any(a != b for a, b in zip(own, others, strict=False)):
            return name
    return None


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(entry.name for entry in found if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return []


def _files_of(paths: Sequence[str], names: Sequence[list[str]], split: str) -> list[str]:
    """Return the files of a split, in their order."""
    word = re.escape(split)
    ends_with = re.compile(rf"[^A-Za-z0-9]{word}")
    has_word = re.compile(rf"(^|.*[^A-Za-z0-9]){word}([^A-Za-z0-9].*|$)")
    rules: list[Callable[[str], Any]] = [
        lambda name: name == split,
        lambda name: ends_with.fullmatch(name[-len(split) - 1 :]),
        has_word.fullmatch,
    ]
    for holds in rules:
        found = [path for path, own in zip(paths, names, strict=True) if any(map(holds, own))]
        if found:
            return found
    return []


def _no_such_split(names: Sequence[list[str]], split: str) -> ValueError:
    """The error for a split without files. It lists the splits that were found."""
    folders = {own[0] for own in names if len(own) > 2}
    known = sorted(folders if len(folders) > 1 else {own[-1] or own[-2] for own in names})
    listed = ", ".join(known[:_MOST_LISTED]) + ", …" * (len(known) > _MOST_LISTED)
    return ValueError(f"no files of the split {split!r}; there are: {listed}")


def _start_of(source: Any, paths: Sequence[str]) -> str:
    """Return the folder of a source: the source itself, the start of a pattern, or the common folder of a list of
    files."""
    if not isinstance(source, (str, os.PathLike)):
        return os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    text = os.fsdecode(source)
    return text if os.path.isdir(text) else os.path.dirname(re.split(r"[*?[{]", text)[0]) or "."


def _names(path: str) -> list[str]:
    """Return the names of a file, as the module defines them: its folders, and its own name with and without number."""
    *folders, name = path.replace("\\", "/").split("/")
    while ending := _ENDING.search(_NUMBER.sub("", name)) or _ENDING.search(name):
        name = name[: ending.start()]
    return [*folders, name, _NUMBER.sub("", name)]
