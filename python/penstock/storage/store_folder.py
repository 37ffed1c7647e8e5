"""Folders of images in object stores and other storage that is not on this machine. They are listed once; each image is
read in the state that it had then."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from penstock import _core
from penstock.errors import ChangedError, shown
from penstock.limits import Limits
from penstock.storage.base import FileState, Source, State, Storage
from penstock.storage.folder import Entry, Folder
from penstock.storage.hidden import is_own
from penstock.storage.image_names import (
    are_labels,
    goes_with_images_by_name,
    is_image_name,
    is_table_name,
)
from penstock.storage.skipped import SkippedFile, why_not_data


class StoreFolder(Folder):
    """A folder of another storage. `path` ends with a slash, which is how the name of a folder differs from that of a
    file. `listed` has the full paths of its files, if they were listed already."""

    def __init__(self, storage: Storage, path: str, listed: Sequence[str] | None = None) -> None:
        self._place = path
        self._in = storage
        self.path = shown(path.rstrip("/"))
        self.folders: list[str] = []
        self.skipped: list[SkippedFile] = []
        self.refused = None
        self.entries: list[Entry] = []
        self._states: list[FileState] = []
        for full in storage.list_below(path) if listed is None else listed:
            name = full[len(path) :]
            parts = name.split("/")
            if not parts[-1] or any(map(is_own, parts)):
                continue  # an object that marks a folder, or a file of penstock
            if (reason := _why_not_there(parts)) is not None:
                self.skipped.append(SkippedFile(shown(full), reason))
                continue
            state = storage.file_state(full)
            self.entries.append(Entry(name, state.size, state.modified_ns or 0))
            self._states.append(state)
        self.folders = sorted({name.split("/")[0] for name, _, _ in self.entries if "/" in name})
        self._listed = self.entries
        self._count()

    def file_state(self) -> FileState:
        size, digest = self.facts()
        return FileState(int(size), str(digest))

    def identity(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def facts(self) -> State:
        """What identifies the state of all files."""
        import hashlib  # costs 3 ms at import, and is rarely needed

        listed = [(one.name, *state) for one, state in zip(self.entries, self._states, strict=True)]
        return [self.size, hashlib.blake2b(repr(listed).encode(), digest_size=16).hexdigest()]

    def follow_links(self) -> None:
        """There are no links."""

    def opened(self, number: int) -> Source:
        return self._in.pinned(self._place + self.entries[number].name, self._states[number])

    def read_file(self, number: int) -> _core.Buffer:
        return self._whole([number])[0]

    def read_head(self, number: int, length: int) -> _core.Buffer:
        return self._part(number, 0, length)

    def read_files(self, numbers: Sequence[int], limits: Limits) -> tuple[_core.Buffer, np.ndarray]:
        self._check_sizes(numbers, limits)
        parts = self._whole(numbers)
        return _core.Buffer.join(list(parts)), np.array([len(part) for part in parts], np.int64)

    def _part(self, number: int, start: int, length: int) -> _core.Buffer:
        source = self.opened(number)
        try:
            return source.read(start, length)
        finally:
            source.close()

    def _whole(self, numbers: Sequence[int]) -> Sequence[_core.Buffer]:
        paths = [self._place + self.entries[number].name for number in numbers]
        found = self._in.read_whole(paths, [self._states[number] for number in numbers])
        for number, data in zip(numbers, found, strict=True):
            if len(data) != self.entries[number].size:
                raise ChangedError(
                    "the file was changed while the folder was open",
                    file=f"{self.path}/{self.entries[number].name}",
                    expected=f"{self.entries[number].size} bytes",
                    found=f"{len(data)} bytes",
                    hint="open the data again",
                )
        return found


def _why_not_there(parts: Sequence[str]) -> str | None:
    """Why a file of a folder of images is ignored, by its name and those of its folders."""
    for place, part in enumerate(parts):
        may_begin = place < len(parts) - 1 or is_image_name(part)
        if (reason := why_not_data(part, may_begin_with_underscore=may_begin)) is not None:
            return reason
    return None


def folders_of_images(folder: str, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folders of images among the files below `folder`, each with a slash at its end, and the files that are in none
    of them. As on this machine, a folder that is one is not searched for others. Only names decide: nothing is read."""
    names = [path[len(folder) :] for path in paths]
    if holds_images(names):
        return [folder], []
    found: list[str] = []
    rest = [path for path, name in zip(paths, names, strict=True) if "/" not in name]
    for first, inside in _by_folder(names).items():
        below = f"{folder}{first}/"
        more, files = folders_of_images(below, [below + name for name in inside])
        found += more
        rest += files
    return found, sorted(rest)


def holds_images(names: Sequence[str]) -> bool:
    """Whether files with these names, relative to their folder, form a folder of images; see `folder.holds_images`."""
    files = [name for name in names if "/" not in name]
    images, tables = ([*filter(kind, files)] for kind in (is_image_name, is_table_name))
    if any(not _is_beside(name) for name in set(files) - {*images, *tables}):
        return False
    return bool(images) or _folders_hold_images(_by_folder(names), tables)


def _folders_hold_images(folders: dict[str, list[str]], tables: list[str]) -> bool:
    if tables:
        return are_labels(tables, map(_first_file, folders.values()))
    direct = ([name for name in inside if "/" not in name] for inside in folders.values())
    return any(is_image_name(_first_file(inside) or "") for inside in direct)


def _by_folder(names: Sequence[str]) -> dict[str, list[str]]:
    """The names in each folder directly inside, relative to it."""
    found: dict[str, list[str]] = {}
    for name in names:
        first, slash, rest = name.partition("/")
        if slash:
            found.setdefault(first, []).append(rest)
    return found


def _first_file(names: Sequence[str]) -> str | None:
    """The name of the first file that may be data."""
    for name in sorted(names):
        own = os.path.basename(name)
        if not (_is_beside(own) or is_table_name(own)):
            return own
    return None


def _is_beside(name: str) -> bool:
    return not is_image_name(name) and goes_with_images_by_name(name)
