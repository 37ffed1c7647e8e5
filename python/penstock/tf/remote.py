"""Files in object stores for TensorFlow's functions: `s3://bucket/key` and the other names that penstock reads.

Options come from the environment, as TensorFlow's own file systems take them. An object is written when its file is
closed, and appears whole.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from penstock.errors import PenstockError, UnsupportedError
from penstock.storage.base import Sink, Source, Storage
from penstock.storage.local import LocalStorage
from penstock.storage.objects import ObjectStorage
from penstock.storage.places import storage_of
from penstock.storage.urls import has_client, is_url
from penstock.tf.errors import (
    FailedPreconditionError,
    NotFoundError,
    OpError,
    UnimplementedError,
    of_system,
)
from penstock.tf.patterns import expression

_BUFFER_BYTES = 1 << 20
_OBJECTS = ObjectStorage()
_MAGIC = "*?[\\"


def is_remote(path: str) -> bool:
    """Whether a name is that of a store that penstock reads."""
    return is_url(path) and has_client(path)


def place_of(path: str) -> Storage:
    """The storage of a file. Each call sees the present state of an object."""
    if not is_remote(path):
        return LocalStorage()
    return storage_of(path) if path.startswith("hf://") else _OBJECTS.anew()


@contextmanager
def told(path: str) -> Generator[None]:
    """Raise errors about a file as TensorFlow's."""
    try:
        yield
    except OpError:
        raise
    except UnsupportedError as error:
        raise UnimplementedError(None, None, error.message, **error.facts()) from error
    except OSError as error:
        raise of_system(error, path) from error
    except PenstockError as error:
        raise FailedPreconditionError(None, None, error.message, **error.facts()) from error


def opened(path: str) -> io.BufferedReader:
    """A file for reading bytes."""
    with told(path):
        return io.BufferedReader(_Reading(place_of(path).source(path)), _BUFFER_BYTES)


def created(path: str) -> io.BufferedWriter:
    """A file for writing bytes, which replaces one of this name when it is closed."""
    with told(path):
        return io.BufferedWriter(
            _Writing(place_of(path).stream(path, overwrite=True)), _BUFFER_BYTES
        )


class _Reading(io.RawIOBase):
    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0
        source.read_in_order()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        with told(self._source.path):
            found = self._source.read(self._at, len(buffer))
        buffer[: len(found)] = memoryview(found)
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Writing(io.RawIOBase):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.is_given_up = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.is_given_up:
            with told(self._sink.path):
                self._sink.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with told(self._sink.path):
                self._sink.abort() if self.is_given_up else self._sink.commit()
        super().close()


def discard(file: Any) -> None:
    """Let closing a new object give it up, because writing failed. Files of this machine stay as they are."""
    raw = getattr(file, "raw", None)
    if isinstance(raw, _Writing):
        raw.is_given_up = True


def exists(path: str) -> bool:
    """Whether there is an object of this name, or a folder."""
    with told(path):
        return (not path.endswith("/") and place_of(path).exists(path)) or is_folder(path)


def is_folder(path: str) -> bool:
    """Whether there are objects in this folder."""
    with told(path):
        return bool(place_of(path).list_below(path.rstrip("/") + "/"))


def below(path: str) -> list[str]:
    """The names of the objects in a folder and in those below it, sorted; they have slashes.

    Raises:
        NotFoundError: there are none.
    """
    folder = path.rstrip("/") + "/"
    with told(path):
        found = [name[len(folder) :] for name in place_of(path).list_below(folder)]
    if not found:
        raise NotFoundError(None, None, f"Could not find directory {path}")
    return [name for name in found if name]


def matching(pattern: str) -> list[str]:
    """The objects that match a pattern of TensorFlow."""
    at = min((pattern.find(sign) for sign in _MAGIC if sign in pattern), default=-1)
    with told(pattern):
        storage = place_of(pattern)
        if at < 0:
            return [pattern] if storage.exists(pattern) else []
        folder = pattern[: pattern.rindex("/", 0, at) + 1]
        wanted = expression(pattern[len(folder) :])
        listed = storage.list_below(folder)
        return [path for path in listed if wanted.fullmatch(path[len(folder) :])]


def size_and_time(path: str) -> tuple[int, int]:
    """The size of an object, and when it was written, in nanoseconds."""
    with told(path):
        state = place_of(path).file_state(path)
    return state.size, state.modified_ns or 0


def remove(path: str) -> None:
    """Remove an object. Raises NotFoundError."""
    with told(path):
        storage = place_of(path)
        if not storage.exists(path):
            raise NotFoundError(None, None, f"{path}; No such file or directory", file=path)
        storage.remove(path)


def copy(source: str, target: str) -> None:
    """Copy a file from anywhere to anywhere."""
    reading = opened(source) if is_remote(source) else open(source, "rb")  # noqa: SIM115
    with reading:
        writing = created(target) if is_remote(target) else open(target, "wb")  # noqa: SIM115
        with writing:
            try:
                while data := reading.read(8 << 20):
                    writing.write(data)
            except BaseException:
                discard(writing)
                raise


def unlike(path: str, what: str) -> OpError:
    """The error for what a store cannot do."""
    return UnimplementedError(
        None,
        None,
        f"{what} cannot be done in an object store",
        file=path,
        hint="tf.io.gfile.copy and remove, or a new file",
    )
