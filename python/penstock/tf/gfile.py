"""`tf.io.gfile`: files and folders of the local file system, and objects in stores, with TensorFlow's names and errors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.tf import remote
from penstock.tf.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    of_system,
)
from penstock.tf.files import matched, name_of, paths_of
from penstock.tf.missing import absent_from
from penstock.tf.remote import created, is_remote, opened, unlike

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "GFile",
    "copy",
    "exists",
    "get_registered_schemes",
    "glob",
    "isdir",
    "join",
    "listdir",
    "makedirs",
    "mkdir",
    "remove",
    "rename",
    "rmtree",
    "stat",
    "walk",
]


@contextmanager
def _of(path: str) -> Generator[None]:
    """Raise the system's errors about a path as TensorFlow's errors."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OpError):
            raise
        raise of_system(error, path) from error


@dataclass(frozen=True)
class FileStatistics:
    """Facts of a file: length (bytes), mtime_nsec, is_directory."""

    length: int
    mtime_nsec: int
    is_directory: bool


class GFile:
    """A file that is opened on first use.

    Args:
        name: its path.
        mode: "r", "w", "a", "r+", "w+" or "a+", with "b" for bytes; without "b", text in UTF-8.

    Raises:
        InvalidArgumentError: another mode.

    Example:
        >>> import penstock.tf as tf
        >>> with tf.io.gfile.GFile("lines.txt", "w") as file:
        ...     file.write("one line")
        >>> tf.io.gfile.GFile("lines.txt", "rb").read()
        b'one line'
    """

    def __init__(self, name: Any, mode: str = "r") -> None:
        plain = mode.replace("b", "")
        if plain not in {"r", "w", "a", "r+", "w+", "a+"}:
            raise InvalidArgumentError(None, None, f"unknown mode {mode!r}")
        self.name = name
        self.mode = mode
        self._path = name_of(name)
        self._plain = plain
        self._is_text = "b" not in mode
        self._file: Any = None

    def _opened(self, *, reading: bool) -> Any:
        allowed = self._plain[0] == "r" if reading else self._plain[0] != "r"
        if not allowed and "+" not in self._plain:
            what = "reading" if reading else "writing"
            raise PermissionDeniedError(None, None, f"File isn't open for {what}")
        if self._file is None:
            with _of(self._path):
                self._file = self._open()
        return self._file

    def _open(self) -> Any:
        if not is_remote(self._path):
            return open(self._path, self._plain + "b")
        if self._plain not in ("r", "w"):
            raise unlike(self._path, f"mode {self.mode!r}")
        return opened(self._path) if self._plain == "r" else created(self._path)

    def _shown(self, data: bytes) -> Any:
        return data.decode() if self._is_text else data

    def read(self, n: int = -1) -> Any:
        """The rest, or at most n bytes of it: str, or bytes in a mode with "b"."""
        return self._shown(self._opened(reading=True).read(n))

    def readline(self) -> Any:
        """The next line with its end; empty at the end of the file."""
        return self._shown(self._opened(reading=True).readline())

    def readlines(self) -> list[Any]:
        """All remaining lines."""
        return list(self)

    def write(self, file_content: Any) -> None:
        """Write text, encoded as UTF-8, or bytes."""
        data = file_content.encode() if isinstance(file_content, str) else file_content
        self._opened(reading=False).write(data)

    def seek(self, offset: int = 0, whence: int = 0) -> None:
        """Go to a byte."""
        self._opened(reading=True).seek(offset, whence)

    def tell(self) -> int:
        """The position in bytes."""
        return self._file.tell() if self._file is not None else 0

    def size(self) -> int:
        """The size of the file in bytes."""
        return stat(self._path).length

    def seekable(self) -> bool:
        """Always True."""
        return True

    def flush(self) -> None:
        """Write buffered data to the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file. Using it again reopens it."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self._file is not None and self._plain == "w":
            remote.discard(self._file)
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()


def exists(path: Any) -> bool:
    """Whether a file or folder exists."""
    path = name_of(path)
    return remote.exists(path) if is_remote(path) else os.path.exists(path)


def isdir(path: Any) -> bool:
    """Whether a path is a folder."""
    path = name_of(path)
    return remote.is_folder(path) if is_remote(path) else os.path.isdir(path)


def glob(pattern: Any) -> list[str]:
    """The files that match one or several patterns, sorted for each pattern."""
    return [path for one in paths_of(pattern) for path in matched(one)]


def listdir(path: Any) -> list[str]:
    """The names in a folder, sorted. In a store, those of folders end with a slash, as in TensorFlow.

    Raises:
        NotFoundError: there is no such folder.
    """
    path = name_of(path)
    if is_remote(path):
        return sorted({"".join(name.partition("/")[:2]) for name in remote.below(path)})
    if not os.path.isdir(path):
        raise NotFoundError(None, None, f"Could not find directory {path}")
    return sorted(os.listdir(path))


def makedirs(path: Any) -> None:
    """Make a folder and the folders above it. It may exist already. A store has no folders, so there it does nothing."""
    path = name_of(path)
    if is_remote(path):
        return
    with _of(path):
        os.makedirs(path, exist_ok=True)


def mkdir(path: Any) -> None:
    """Make a folder; it may exist. A store has no folders, so there it does nothing.

    Raises:
        NotFoundError: the folder above it does not exist.
    """
    path = name_of(path)
    if is_remote(path):
        return
    with _of(path):
        if not os.path.isdir(path):
            os.mkdir(path)


def remove(path: Any) -> None:
    """Remove a file.

    Raises:
        NotFoundError: it does not exist.
    """
    path = name_of(path)
    if is_remote(path):
        remote.remove(path)
        return
    with _of(path):
        os.remove(path)


def rmtree(path: Any) -> None:
    """Remove a folder and everything in it.

    Raises:
        NotFoundError: it does not exist.
    """
    path = name_of(path)
    if is_remote(path):
        for name in remote.below(path):
            remote.remove(f"{path.rstrip('/')}/{name}")
        return
    if not os.path.isdir(path):
        raise NotFoundError(None, None, f"{path} not found")
    with _of(path):
        shutil.rmtree(path)


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Rename a file. A store cannot rename, so an object is copied and removed.

    Raises:
        AlreadyExistsError: there is a file of that name, and `overwrite` is False.
    """
    _onto(src, dst, _moved, overwrite=overwrite)


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file.

    Raises:
        AlreadyExistsError: there is a file of that name, and `overwrite` is False.
    """
    _onto(src, dst, _copied, overwrite=overwrite)


def _onto(src: Any, dst: Any, move: Callable[[str, str], Any], *, overwrite: bool) -> None:
    source, target = name_of(src), name_of(dst)
    if not overwrite and exists(target):
        raise AlreadyExistsError(None, None, f"{target}: file already exists")
    with _of(source):
        move(source, target)


def _copied(source: str, target: str) -> None:
    if is_remote(source) or is_remote(target):
        remote.copy(source, target)
    else:
        shutil.copyfile(source, target)


def _moved(source: str, target: str) -> None:
    if is_remote(source) or is_remote(target):
        remote.copy(source, target)
        remove(source)
    else:
        os.replace(source, target)


def stat(path: Any) -> FileStatistics:
    """Length, time and kind of a file.

    Raises:
        NotFoundError: it does not exist.
    """
    path = name_of(path)
    if is_remote(path):
        return FileStatistics(*remote.size_and_time(path), False)
    with _of(path):
        found = os.stat(path)
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


def walk(
    top: Any, topdown: bool = True, onerror: Callable[[OSError], Any] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder below a path, with the names of its folders and files."""
    top = name_of(top)
    walked = _remote_walk(top, topdown) if is_remote(top) else os.walk(top, topdown, onerror)
    for folder, folders, names in walked:
        folders.sort()
        yield folder, folders, sorted(names)


def _remote_walk(top: str, topdown: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    found: dict[str, tuple[set[str], list[str]]] = {top: (set(), [])}
    for name in remote.below(top):
        folder = top
        *parts, last = name.split("/")
        for part in parts:
            found[folder][0].add(part)
            folder = f"{folder.rstrip('/')}/{part}"
            found.setdefault(folder, (set(), []))
        found[folder][1].append(last)
    listed = [(folder, list(folders), names) for folder, (folders, names) in found.items()]
    yield from listed if topdown else reversed(listed)


def join(path: Any, *paths: Any) -> Any:
    """The parts of a path, joined."""
    return os.path.join(path, *paths)


def get_registered_schemes() -> list[str]:
    """The schemes of paths: that of local files, which is the empty string, and those of stores."""
    return ["", "file", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https", "hf"]


__getattr__ = absent_from("tf.io.gfile")
