"""What an object store has listed so far: answers whether there are files, without further requests."""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from penstock.engine.locks import Lock
from penstock.engine.pipeline import in_order
from penstock.errors import StorageError
from penstock.storage.hidden import SIDECAR_SUFFIX, hidden, is_own

_MOST_OTHERS = 16
"""Names with a common start are listed together if at most this many times as many names can have that start."""


class Listings:
    """The listings of one storage, by prefix. None for a prefix that may not be listed."""

    def __init__(self) -> None:
        self._found: dict[str, list[str] | None] = {}
        self._own: dict[str, int] = {}
        """The size of each of penstock's own files."""
        self._lock = Lock()

    def add(self, prefix: str, found: Sequence[tuple[str, int]] | None) -> None:
        """Add a listing: the sorted paths and sizes of all files that begin with `prefix`."""
        with self._lock:
            self._found[prefix] = None if found is None else [path for path, _ in found]
            own = ((path, size) for path, size in found or () if is_own(os.path.basename(path)))
            self._own.update(own)

    def size(self, path: str) -> int | None:
        """The size of one of penstock's own files, if it was listed."""
        with self._lock:
            return self._own.get(path)

    def forget(self, path: str) -> None:
        """Forget the listings in which this file would be."""
        with self._lock:
            for prefix in [prefix for prefix in self._found if path.startswith(prefix)]:
                del self._found[prefix]
            self._own.pop(path, None)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """What to list to find penstock's own files next to these files, and was not listed yet."""
        prefixes = list(own_prefixes(paths))
        with self._lock:
            return [prefix for prefix in prefixes if self._prefix(prefix) is None]

    def fill(
        self, prefixes: Sequence[str], list_one: Callable[[str], object], at_once: int
    ) -> None:
        """Call `list_one`, which adds a listing, for each prefix. Those that may not be listed are noted."""

        def listed(prefix: str) -> Iterator[None]:
            try:
                list_one(prefix)
            except (StorageError, FileNotFoundError) as error:
                # There may be no such bucket; opening the file says so, with its name.
                if error.errno not in (errno.EACCES, errno.ENOENT):
                    raise
                self.add(prefix, None)
            yield None

        for _ in in_order([lambda: iter(prefixes)], listed, lambda _: 0, at_once):
            pass

    def below(self, start: str) -> list[str] | None:
        """The sorted paths that begin with `start`; None if they were not listed."""
        with self._lock:
            prefix = self._prefix(start)
            if prefix is None:
                return None
            found = self._found[prefix] or []
            first = bisect_left(found, start)
            return found[first : bisect_left(found, start + "\U0010ffff")]

    def lacks(self, path: str) -> bool:
        """Whether a listing shows that there is no such file."""
        with self._lock:
            prefix = self._prefix(path)
            found = None if prefix is None else self._found[prefix]
            return found is not None and not _has(found, path)

    def _prefix(self, start: str) -> str | None:
        ends = range(len(start), 0, -1)
        return next((start[:end] for end in ends if start[:end] in self._found), None)


def _has(found: Sequence[str], path: str) -> bool:
    at = bisect_left(found, path)
    return at < len(found) and found[at] == path


def own_prefixes(paths: Sequence[str]) -> Iterator[str]:
    """What to list to find penstock's own files next to these files: one prefix for the files of a folder whose names
    differ in their numbers only, and one for each other file."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    for folder, files in folders.items():
        names = [os.path.basename(path) for path in files]
        start = _numbered_start(names)
        if start is not None:
            yield f"{folder}/.{start}"
            continue
        for path in files:
            prefix = hidden(path, SIDECAR_SUFFIX)
            if prefix.endswith(
                os.path.basename(path) + SIDECAR_SUFFIX
            ):  # the name was not too long
                yield prefix


def _numbered_start(names: Sequence[str]) -> str | None:
    """The common start of names of one length that differ in digits only. None if many others may have this start."""
    if len(names) < 2 or len(set(map(len, names))) > 1:
        return None
    differing = [at for at, letters in enumerate(zip(*names, strict=True)) if len(set(letters)) > 1]
    if not all(name[at].isdecimal() for name in names for at in differing):
        return None
    start = names[0][: differing[0]] if differing else names[0]
    return start if 10 ** len(differing) <= _MOST_OTHERS * len(names) else None
