"""`clean` finds and removes what killed processes left in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.storage.base import Storage
from penstock.storage.places import storage_of

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Left:
    """Something that a killed process left."""

    path: str
    kind: str
    """"temporary file", "upload" (the parts of an object that was not completed), "journal" and "part" (of a job that
    the same call would continue) or "lock"."""
    num_bytes: int
    """Its bytes. 0 if unknown, as for an upload."""
    age_s: float
    """Seconds since it was last written."""
    is_removed: bool


def clean(
    folder: str | os.PathLike[str],
    *,
    remove: bool = False,
    older_than: float = _DAY,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Left]:
    """Find what killed processes left in a folder, and remove it if asked to.

    These are temporary files, journals of unfinished jobs, and uploads to an object store that were neither completed
    nor given up, whose parts cost money. Data, indexes and overlays are never touched, nor is what belongs to a job that
    seems to run. Once its journal is removed, a killed job cannot go on: the same call starts again.

    Args:
        folder: a folder of this machine or of an object store. Folders below it are not looked at.
        remove: remove what is found.
        older_than: only what was last written so many seconds ago. A process that still runs may have files of any age
            below that of its start.
        storage: the storage of the folder, as for `open`.
        storage_options: as for `open`.

    Returns:
        What was found, sorted by path. In S3, uploads without a note of penstock are found only if botocore is
        installed, those of other programs too.

    Raises:
        FileNotFoundError: there is no such folder on this machine.

    Example:
        >>> from pathlib import Path
        >>> import penstock as ps
        >>> Path("data").mkdir()
        >>> Path("data/.x.tfrecord.0123456789ab.penstock-tmp").touch()
        >>> [left.kind for left in ps.clean("data", remove=True, older_than=0)]
        ['temporary file']
        >>> list(Path("data").iterdir())
        []
    """
    place = os.fspath(folder)
    storage = storage_of(place, storage, storage_options)
    found: list[Left] = []
    now = time.time()
    for left in sorted(storage.leftovers(place), key=lambda one: one.path):
        age = max(0.0, now - left.written)
        if left.is_used or age < older_than:
            continue
        if remove:
            storage.discard(left)
        found.append(Left(left.path, left.kind, left.num_bytes, age, is_removed=remove))
    return found
