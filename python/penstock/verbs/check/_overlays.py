"""The overlays of files that are repaired. Their values belong to record numbers, which a repair changes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.errors import UnsupportedError, command, shown
from penstock.overlay.places import Place, name_in
from penstock.storage.base import Storage


def refuse_overlays(paths: Sequence[str], storage: Storage) -> None:
    """Raise UnsupportedError if fields are stored next to a file, because its repair would not have them."""
    place = Place(storage)
    place.look(paths)
    for path in paths:
        kept_at = place.paths_of(path)
        if kept_at:
            new = f"whole-{os.path.basename(path)}"
            again = command("penstock", "convert", shown(path), new, "--damage", "skip")
            raise UnsupportedError(
                f"a repair would lose the overlay {name_in(kept_at[0])!r}, which is stored next to this file",
                file=path,
                hint=f"{again} writes the intact records with its fields, if the index still fits the file; "
                "overlays=False repairs without them",
            )


def remove_overlays(path: str, storage: Storage) -> None:
    """Remove the overlays of a file that was replaced."""
    place = Place(storage)
    for kept_at in place.paths_of(path):
        storage.remove(kept_at)
        place.remove_if_empty(path)
