"""The folders of a conversion: what is made, and locked while it runs."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from penstock.storage.base import Storage
from penstock.storage.store_lock import StoreLock
from penstock.verbs.convert.journal import alone_at
from penstock.verbs.convert.parts import Piece, common_folder
from penstock.verbs.convert.store_journal import alone_with


def folders_of(to: str, is_folder: bool, pieces: Sequence[Piece]) -> tuple[str, list[str]]:
    """Return the folder of the lock and the journal, and the folders to be made."""
    if pieces:
        place = common_folder(pieces)
        return place, sorted({place}.union(*(_down(place, piece.target) for piece in pieces)))
    place = to if is_folder else os.path.dirname(to)
    return place, [place] if place else []


def _down(place: str, path: str) -> list[str]:
    """The folders of a file, below `place`."""
    found: list[str] = []
    while len(path := os.path.dirname(path)) > len(place):
        found.append(path)
    return found


@contextmanager
def alone(
    storage: Storage, to: str, place: str, folders: Sequence[str]
) -> Generator[StoreLock | None]:
    """Lock the target. The value is None if finished files can be renamed."""
    if storage.changes_in_place:
        with _made(folders), alone_at(to, place):
            yield None
        return
    with alone_with(storage, to, place) as lock:
        yield lock


@contextmanager
def _made(folders: Sequence[str]) -> Generator[None]:
    """Create folders, and remove at the end those that are new and empty."""
    new = [folder for folder in dict.fromkeys(folders) if folder and not os.path.isdir(folder)]
    for folder in new:
        os.makedirs(folder, exist_ok=True)
    try:
        yield
    finally:
        for folder in reversed(new):
            with suppress(OSError):
                os.rmdir(folder)
