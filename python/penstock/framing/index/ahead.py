"""A sidecar that is on disk before its file has its name, so that no kill between the two loses what it keeps.

Until then it lies under a name that says which file it is of: by the inode and the time of the last write, neither
of which a rename changes. So it counts for that file alone, whatever else has the file's name before or after. A reader
that knows nothing of a file looks for what a killed writer left ahead of it, and gives that its name.
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
    """One sidecar on its way; as a context it ends with what gives its file its name, or fails to."""

    def __init__(self, path: str, data_path: str, folder: str | None, calls: Calls) -> None:
        self._path = path
        self._data_path = data_path
        self._folder = folder
        self._calls = calls

    def end(self) -> None:
        """Give it its name, if its file has its own; else remove it."""
        final = sidecar.path_for(self._data_path, self._folder)
        if _path_of(self._data_path, self._data_path, self._folder) != self._path:
            self._remove()
            return
        try:
            close_as(self._path, self._data_path)
            os.utime(self._path)  # younger than its file, which is untouched since
            # A power cut may undo this: it is found by the name that it has now.
            self._calls.rename(self._path, final)
        except FileNotFoundError:
            if not os.path.exists(final):  # no reader has done it
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
    """Write the sidecar of a file that is whole under the name `finished`, and is to be `data_path`."""
    path = _path_of(finished, data_path, folder)
    assert path is not None, "a finished file is there"
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
    """Put the sidecar of the file `finished`, if it has one, where it lies ahead of `data_path`."""
    path = _path_of(finished, data_path, folder)
    if path is not None and os.path.exists(sidecar_path):
        close_as(sidecar_path, data_path)
        os.rename(sidecar_path, path)


def left_of(data_path: str, folder: str | None) -> str | None:
    """Where the sidecar of a file is that a killed writer left ahead of it: by now under its name, if it can get that.
    None where there is none."""
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
    """What the names begin with that sidecars have ahead of a file."""
    return f"{os.path.basename(sidecar.path_for(data_path, None))}."


def _path_of(file: str, data_path: str, folder: str | None) -> str | None:
    """Where the sidecar lies ahead of `data_path` that is of this file, if that is there."""
    try:
        told = os.stat(file)
    except OSError:
        return None
    which = f"{told.st_ino:x}-{told.st_mtime_ns:x}"
    return sidecar.path_for(data_path, folder, f"{SIDECAR_SUFFIX}.{which}{TEMPORARY_SUFFIX}")
