"""Warns of files of which a change of fields in place is unfinished: some have the new fields, others the old ones."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.errors import LimitError
from penstock.storage import journal
from penstock.storage.hidden import fields_job_of
from penstock.storage.urls import is_url

_IS_EXPECTED: ContextVar[bool] = ContextVar("_IS_EXPECTED", default=False)
_WARNED_OF: set[tuple[str, int]] = set()


@contextmanager
def expected() -> Generator[None]:
    """Warn of nothing in this block: the caller continues the change, or refuses to."""
    token = _IS_EXPECTED.set(True)
    try:
        yield
    finally:
        _IS_EXPECTED.reset(token)


def warn_if_unfinished(paths: Sequence[str], jobs: Sequence[str], stacklevel: int) -> None:
    """Warn, once, if a change of fields of these local files is unfinished. `jobs` are the journals that were met when
    the files were listed. Of files that were not listed, only the journal of a change of exactly these files is looked
    for."""
    if len(paths) < 2 or _IS_EXPECTED.get() or is_url(paths[0]):
        return
    for path in jobs or [_job_of(paths)]:
        message = _unfinished(path, paths)
        if message is not None:
            warnings.warn(message, stacklevel=stacklevel + 1)


def _job_of(paths: Sequence[str]) -> str:
    """The path of the journal of a change of these files."""
    folders: dict[str, str] = {}
    real: list[str] = []
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in folders:  # cheaper than for each path
            folders[folder] = os.path.realpath(folder)
        real.append(os.path.join(folders[folder], name))
    return os.path.join(os.path.dirname(paths[0]), fields_job_of(real))


def _unfinished(path: str, paths: Sequence[str]) -> str | None:
    try:
        stored = journal.load(path)
    except LimitError:
        return None
    if stored is None or not 0 < len(stored.made) < len(stored.files):
        return None
    key = os.path.abspath(path), len(stored.made)
    names = set(map(os.path.basename, paths))
    if key in _WARNED_OF or names.isdisjoint(map(os.path.basename, stored.files)):
        return None
    _WARNED_OF.add(key)
    return (
        f"{os.path.dirname(path) or '.'}: a change of the fields of these files is unfinished: {len(stored.made)} of "
        f"{len(stored.files)} files have it; repeat that call to finish it, or delete {path} to keep each file as it is"
    )
