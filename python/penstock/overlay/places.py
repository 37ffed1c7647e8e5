"""Where the overlays of a shard are: in a folder next to it, and in a folder that the user names (`overlays=`)."""

from __future__ import annotations

import errno
import os
import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.errors import StorageError, UnsupportedError, command, shown
from penstock.storage.base import Storage
from penstock.storage.hidden import hidden
from penstock.storage.journal import token_of
from penstock.storage.local import LocalStorage
from penstock.storage.urls import is_url

FOLDER_SUFFIX = ".penstock-fields"
SUFFIX = ".overlay"
UNFINISHED_SUFFIX = ".unfinished"
"""Of files with values of an overlay that is not written for all files yet."""


@dataclass(frozen=True, slots=True)
class OverlayFolder:
    """The folder that `overlays=` names."""

    path: str
    """Absolute, or a URL."""
    may_be_missing: bool = False
    """Whether it may be created, by a verb that writes overlays."""


def overlays_option(overlays: Any, *, may_be_missing: bool = False) -> bool | OverlayFolder:
    """Check the `overlays=` argument of `open`.

    Raises:
        TypeError: it is neither a bool nor a path.
        ValueError: it is an empty text.
        NotADirectoryError: it is the path of a file.
    """
    if isinstance(overlays, (bool, OverlayFolder)):
        return overlays
    if not isinstance(overlays, (str, os.PathLike)):
        raise TypeError(f"overlays= must be True, False or a folder, not {overlays!r}")
    path = os.fsdecode(overlays)  # pyright: ignore[reportUnknownArgumentType]
    if not path:
        raise ValueError("overlays='' is not a folder; it must be True, False or a folder")
    if is_url(path):
        return OverlayFolder(path, may_be_missing)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise NotADirectoryError(f"overlays={path!r} is a file; it takes a folder")
    return OverlayFolder(os.path.abspath(path), may_be_missing)


def folder_option(overlays: Any, *, may_be_missing: bool = False) -> OverlayFolder | None:
    """Check the `overlays=` argument of a verb that takes only a folder, or None."""
    if overlays is None:
        return None
    folder = overlays_option(overlays, may_be_missing=may_be_missing)
    if isinstance(folder, bool):
        raise TypeError(f"overlays= takes a folder here, not {folder}")
    return folder


@dataclass(frozen=True, slots=True)
class Place:
    """A place for overlays: next to the shards, or in a folder. There each shard has its own folder."""

    storage: Storage
    """The storage of the overlays."""
    folder: str | None = None
    """None: next to the shards."""
    are_here: bool = True
    """Whether the shards are on this machine, unless their names are URLs."""

    def folder_of(self, shard: str) -> str:
        """The folder of a shard's overlays. In a folder of the user it has the whole path of the shard, so that files
        of the same name do not share overlays."""
        if self.folder is not None:
            shard = os.path.join(self.folder, _below(shard, is_here=self.are_here))
        return hidden(shard, FOLDER_SUFFIX)

    def path_of(self, shard: str, name: str) -> str:
        """The path of the overlay with this name. Bytes that are unsafe in a file name become %XX."""
        if not name:
            raise ValueError("an overlay needs a name")
        data = name.encode("utf-8")
        plain = frozenset(string.ascii_letters + string.digits + "-_. ")
        safe = "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in data)
        if safe.startswith("."):
            safe = f"%2E{safe[1:]}"
        return os.path.join(self.folder_of(shard), safe + SUFFIX)

    def unfinished_path(self, shard: str, name: str, job: str) -> str:
        """The path of the values that a job has computed for the overlay with this name."""
        return os.path.join(
            self.folder_of(shard), f"{token_of(name)}-{token_of(job)}{UNFINISHED_SUFFIX}"
        )

    def unfinished_of(self, shard: str, name: str) -> list[str]:
        """The files with values that unfinished jobs have computed for the overlay with this name."""
        start = f"{token_of(name)}-"
        found = [path for path in self._listed(shard) if path.endswith(UNFINISHED_SUFFIX)]
        return [path for path in found if os.path.basename(path).startswith(start)]

    def paths_of(self, shard: str) -> list[str]:
        """The files of a shard's overlays, valid or not."""
        return [path for path in self._listed(shard) if path.endswith(SUFFIX)]

    def _listed(self, shard: str) -> list[str]:
        try:
            return self.storage.list(self.folder_of(shard))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except StorageError as error:
            if error.errno == errno.EACCES:
                return []  # whoever may read an object may not be allowed to list objects
            error.file = shown(shard)
            raise

    def look(self, shards: Sequence[str]) -> None:
        """Find out for all shards together whether they have overlays here; see `Storage.look_beside`."""
        if self.folder is None:
            self.storage.look_beside(shards)

    def make_folder(self, shard: str) -> None:
        """Make the folder of a shard's overlays, and the folders above it that are missing."""
        path = self.folder_of(shard)
        missing = [path]
        if self.folder is not None and not is_url(path):
            while not os.path.isdir(above := os.path.dirname(missing[-1])):
                missing.append(above)
        for one in reversed(missing):
            with suppress(FileExistsError):  # made by another process meanwhile
                self.storage.make_folder(one, like=shard)

    def remove_if_empty(self, shard: str) -> None:
        """Remove the folder of a shard's overlays if it is empty, and then the empty folders between it and the folder
        of the user."""
        path = self.folder_of(shard)
        self.storage.remove_empty_folder(path)
        while self.folder is not None and len(path := os.path.dirname(path)) > len(self.folder):
            self.storage.remove_empty_folder(path)


def places_of(storage: Storage, folder: OverlayFolder | None) -> tuple[Place, ...]:
    """Where overlays of the files of a storage are looked for. Those of a later place are applied after those of an
    earlier one, and new ones are written to the last.

    Raises:
        FileNotFoundError: there is no such folder.
        UnsupportedError: the folder is in a store, but the files are not.
    """
    beside = Place(storage)
    if folder is None:
        return (beside,)
    if is_url(folder.path):
        from penstock.storage.objects import ObjectStorage  # not loaded for files of this machine

        if not isinstance(storage, ObjectStorage):
            raise UnsupportedError(
                "only overlays of objects in a store can be kept in a store",
                file=folder.path,
                hint="overlays= with a folder on this machine",
            )
        return beside, Place(storage, folder.path)
    if not (folder.may_be_missing or os.path.isdir(folder.path)):
        raise FileNotFoundError(errno.ENOENT, "no such folder for overlays", folder.path)
    return beside, Place(LocalStorage(), folder.path, storage.is_here(""))


def has_overlays(shards: Sequence[str], place: Place) -> bool:
    """Whether any of the shards has an overlay, valid or not."""
    return any(place.paths_of(shard) for shard in shards)


def removal(source: str, name: str, folder: str | None) -> str:
    """The command that removes an overlay which is in this folder, or next to the files."""
    where = () if folder is None else ("--overlays", folder)
    return command("penstock", "fields", "remove", source, name, *where)


def name_in(path: str) -> str:
    """The name of the overlay at a path."""
    from urllib.parse import unquote  # needed only for errors

    return unquote(os.path.basename(path).removesuffix(SUFFIX))


def _below(shard: str, *, is_here: bool) -> str:
    """The whole name of a shard as a relative path: `s3:/bucket/key` for an object, without the query of a web
    address, which may be a signature."""
    if is_here and not is_url(shard):
        return os.path.realpath(shard).lstrip("/")
    scheme, mark, rest = shown(shard).removesuffix("?…").rpartition("://")
    parts = rest.rstrip("/").split("/")
    # Parts that cannot be names of files are written in another way.
    names = [part.replace(".", "%2E") or "%" if part in ("", ".", "..") else part for part in parts]
    return "/".join([scheme + ":", *names] if mark else names)
