"""File systems of pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from penstock.storage._foreign import Driver, Facts

_WITH_TAGS = ("s3", "gcs", "abfs")


class PyarrowDriver(Driver):
    """Any `pyarrow.fs.FileSystem`."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def facts(self, path: str) -> Facts:
        if self._system.type_name in _WITH_TAGS:  # `get_file_info` has no ETag
            with self._system.open_input_file(path) as file:
                told = dict(file.metadata() or {})
                return Facts(
                    int(file.size()), str(told.get("ETag") or told.get("Last-Modified", ""))
                )
        found = self._system.get_file_info(path)
        if not found.is_file:
            raise FileNotFoundError(path)
        return Facts(int(found.size), "" if found.mtime_ns is None else str(found.mtime_ns))

    def read(self, path: str, start: int, length: int) -> object:
        with self._system.open_input_file(path) as file:
            return file.read_at(length, start)

    def names(self, folder: str, *, below: bool) -> Iterator[str]:
        from pyarrow.fs import FileSelector

        base = folder.rstrip("/")
        found = self._system.get_file_info(
            FileSelector(base, allow_not_found=True, recursive=below)
        )
        front = base + "/" if base else ""
        yield from (info.path.removeprefix(front) for info in found if info.is_file)

    def put(self, path: str, file: IO[bytes], size: int) -> None:
        if self._system.type_name not in _WITH_TAGS:  # stores need no folders
            self._system.create_dir(path.rpartition("/")[0], recursive=True)
        target = self._system.open_output_stream(path)
        try:
            while data := file.read(8 << 20):
                target.write(data)
        except BaseException:
            target.abort()
            raise
        target.close()

    def remove(self, path: str) -> None:
        self._system.delete_file(path)

    def made_of(self) -> object:
        return list(_made_of(self._system))


def _made_of(system: Any) -> Iterator[object]:
    """What a file system is made of, and those that it wraps."""
    yield system.__reduce__()
    if hasattr(system, "base_fs"):
        yield from _made_of(system.base_fs)
