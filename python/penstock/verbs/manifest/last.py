"""`manifest=` of verbs that write: the manifest of what they wrote, which appears last."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from penstock.contract.summary import Summary
from penstock.errors import shown
from penstock.storage.base import Storage
from penstock.storage.places import storage_of
from penstock.storage.urls import refuse_web_target
from penstock.verbs.manifest.manifest import manifest


class Last:
    """The manifest that is written last, if one was asked for.

    Args:
        path: the manifest; None for none.
        target: the files that are written before.
        storage: where both are; None for where their names say.
        options: `storage_options` of the target.
        overwrite: whether to replace a file with the name of the manifest.

    Raises:
        FileExistsError: there is such a file, and `overwrite` is False.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        target: str,
        storage: Storage | None,
        options: Mapping[str, Any] | None,
        *,
        overwrite: bool,
    ) -> None:
        self._path = None if path is None else os.fspath(path)
        self._overwrite = overwrite
        if self._path is None:
            return
        refuse_web_target(self._path)
        self._storage = storage_of([target, self._path], storage, options)
        if not overwrite and self._storage.exists(self._path):
            message = "the manifest exists; pass overwrite=True to replace it"
            raise FileExistsError(errno.EEXIST, message, shown(self._path))

    def of(self, made: Summary) -> Summary:
        """Write the manifest of these files, and return their summary."""
        if self._path is not None:
            manifest(
                list(made.paths),
                self._path,
                overwrite=self._overwrite,
                storage=self._storage,
                target_storage=self._storage,
            )
        return made
