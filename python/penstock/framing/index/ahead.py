"""Writes the sidecar of a file before the file gets its final name, so that no sidecar is lost if the writer is killed.

Until then, the sidecar has a temporary name with the file's inode and modification time, which a rename does not
change. So the name belongs to that file only, even if another file has or gets the final name. A reader that finds no
sidecar looks for a temporary one of a killed writer, and renames it.
"""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress

from penstock.framing.index import sidecar
from penstock.framing.index.sidecar import Index
from penstock.storage.hidden import SIDECAR_SUFFIX, TEMPORARY_SUFFIX
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls, close_as, sync_path


class Ahead:
    """A sidecar that waits for its file. Use it as a context manager around the rename of the file."""

    def __init__(self, path: str, data_path: str, folder: str | None, calls: Calls) -> None:
        self._path = path
        self._data_path = data_path
        self._folder = folder
        self._calls = calls

    def end(self) -> None:
        """Give the sidecar its final name if its file has its final name. Otherwise remove it."""
        final = sidecar.path_for(self._data_path, self._folder)
        if _path_of(self._data_path, self._data_path, self._folder) != self._path:
            self._remove()
            return
        try:
            close_as(self._path, self._data_path)
            os.utime(self._path)  # makes it newer than its file
            # A power failure may undo the rename. Then the sidecar is found by its temporary name.
            self._calls.rename(self._path, final)
        except FileNotFoundError:
            if not os.path.exists(final):  # no reader has renamed it
                raise
        except OSError:
            self._remove()
            raise

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with nullcontext() if error is None else suppress(OSError):
            self.end()

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            self._calls.unlink(self._path)


def save(
    index: Index, finished: str, data_path: str, storage: LocalStorage, folder: str | None
) -> Ahead:
    """Write the sidecar of the finished file `finished`, which will be renamed to `data_path`."""
    path = _path_of(finished, data_path, folder)
    assert path is not None, "a finished file exists"
    sidecar.make_place(index, folder)
    final, calls = sidecar.path_for(data_path, folder), storage.calls
    with suppress(FileNotFoundError):
        os.unlink(path)
    sink = storage.sink(final, overwrite=True, like=finished, temporary=path)
    try:
        sidecar.write_to(sink, index)
        sink.finish()
        sync_path(calls, os.path.dirname(path))
    except BaseException:
        sink.abort()
        raise
    return Ahead(path, data_path, folder, calls)


def lay(sidecar_path: str, finished: str, data_path: str, folder: str | None) -> None:
    """Rename the sidecar of the file `finished`, if it has one, to its temporary name for `data_path`."""
    path = _path_of(finished, data_path, folder)
    if path is not None and os.path.exists(sidecar_path):
        close_as(sidecar_path, data_path)
        os.rename(sidecar_path, path)


def left_of(data_path: str, folder: str | None) -> str | None:
    """Find a sidecar that a killed writer left for this file, and rename it if possible. Returns its path, or None."""
    left = _path_of(data_path, data_path, folder)
    if left is None:
        return None
    final = sidecar.path_for(data_path, folder)
    try:
        os.utime(left)
        os.replace(left, final)
    except OSError:
        return left if os.path.exists(left) else None
    return final


def stem_of(data_path: str) -> str:
    """The common start of the temporary names of a file's sidecars."""
    return f"{os.path.basename(sidecar.path_for(data_path, None))}."


def _path_of(file: str, data_path: str, folder: str | None) -> str | None:
    """The temporary name of the sidecar of `file`, for the final path `data_path`; None if `file` does not exist."""
    try:
        told = os.stat(file)
    except OSError:
        return None
    which = f"{told.st_ino:x}-{told.st_mtime_ns:x}"
    return sidecar.path_for(data_path, folder, f"{SIDECAR_SUFFIX}.{which}{TEMPORARY_SUFFIX}")
