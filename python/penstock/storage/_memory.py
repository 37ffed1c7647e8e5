"""A storage that holds its files in memory, for tests and for data that is not in a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from penstock import _core
from penstock.errors import UnsupportedError
from penstock.storage.base import Source, State, Storage
from penstock.storage.hidden import is_own
from penstock.storage.store_folder import StoreFolder


def in_this_process() -> UnsupportedError:
    """The error of a storage whose files only this process sees."""
    return UnsupportedError(
        "the files are in the memory of this process, and the machines of a cluster do not see them",
        hint="write them to a store or to a folder first, or leave out on=",
    )


class MemorySource(Source):
    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.size = len(data)
        self._buffer = _core.Buffer.from_bytes(data)

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._buffer.slice(start, length)


class MemoryStorage(Storage):
    """Files in memory, by path. To simulate a changed file, change `files` and open the file again.

    Example:
        >>> import penstock as ps
        >>> from penstock.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> _ = ps.write({"id": [1, 2]}, "a.tfrecord", storage=storage)
        >>> ps.open("a.tfrecord", storage=storage)[1]
        {'id': 2}
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = dict(files or {})

    def check_reach(self) -> None:
        raise in_this_process()

    def source(self, path: str, *, mmap: bool = False) -> Source:
        if path.endswith("/"):
            return StoreFolder(self, path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return MemorySource(path, self.files[path])

    def sink(self, path: str, *, overwrite: bool = False) -> MemorySink:
        if path in self.files and not overwrite:
            raise FileExistsError(path)
        return MemorySink(self, path)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def list(self, folder: str) -> list[str]:
        return sorted(path for path in self._in(folder) if not is_own(os.path.basename(path)))

    def own_files(self, folder: str) -> list[str]:
        return sorted(path for path in self._in(folder) if is_own(os.path.basename(path)))

    def state(self, path: str) -> State | None:
        data = self.files.get(path)
        return None if data is None else [len(data), hashlib.blake2b(data).hexdigest()]

    def _in(self, folder: str) -> list[str]:
        return [path for path in self.files if os.path.dirname(path) == folder]

    def list_below(self, prefix: str) -> Sequence[str]:
        folder = prefix and prefix.rstrip("/") + "/"
        return sorted(path for path in self.files if path.startswith(folder))

    def exists(self, path: str) -> bool:
        return path in self.files


class MemorySink:
    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self.path = path
        self._storage = storage
        self._parts: list[bytes] = []

    def write(self, data: object) -> None:
        self._parts.append(bytes(memoryview(data)))  # type: ignore[arg-type]

    def write_all(self, parts: Sequence[object]) -> None:
        for part in parts:
            self.write(part)

    def patch(self, start: int, data: object) -> None:
        whole = bytearray(b"".join(self._parts))
        new = bytes(memoryview(data))  # type: ignore[arg-type]
        assert start + len(new) <= len(whole), "nothing was written there before"
        whole[start : start + len(new)] = new
        self._parts = [bytes(whole)]

    def repeat(self, start: int, length: int) -> None:
        whole = b"".join(self._parts)
        assert start + length <= len(whole), "nothing was written there before"
        self._parts = [whole, whole[start : start + length]]

    def finish(self) -> None:
        pass

    def commit(self, path: str | None = None) -> None:
        self.path = path or self.path
        self._storage.files[self.path] = b"".join(self._parts)

    def abort(self) -> None:
        self._parts.clear()
