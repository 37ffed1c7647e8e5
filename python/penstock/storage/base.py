"""Base classes for storage: a `Storage` opens a `Source` to read from and a `Sink` to write to.

Every read names its position, so threads share no cursor. A written file appears under its final name only when it is
complete.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from penstock import _core

if TYPE_CHECKING:
    import pyarrow as pa


class Source(ABC):
    """The bytes of one file, read by position. Safe to use from several threads.

    By default, the checks for files that change while they are read do nothing, because bytes in memory, for example,
    never change.
    """

    path: str
    size: int

    @abstractmethod
    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length). The result is shorter only at the end of the file."""
        ...

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Read several ranges (uint64 arrays) into one buffer, back to back."""
        pairs = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        return _core.Buffer.join([self.read(start, length) for start, length in pairs])

    def check_unchanged(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the file has changed since it was opened.

        Args:
            may_grow: allow appended bytes, because every record is verified when it is read.
        """

    def check_read(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the open file was written to since it was opened, so that the bytes read may mix old
        and new contents. Call it after the reads. If the name now belongs to another file, the open file is still
        unchanged.

        Args:
            may_grow: allow appended bytes, because the bytes read were compared with checksums.
        """

    def was_rewritten(self) -> bool:
        """Whether the open file was written to other than at its end, as far as the system reports. A file whose name
        was given to another file is unchanged."""
        return False

    def was_replaced(self) -> bool:
        """Whether the file's name now belongs to another file, or no longer exists."""
        return False

    def close(self) -> None:
        """Release the file."""


class SourceView(Source):
    """Part of another source, or a checked view of it. Everything except reading is passed on to that source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.size = source.size

    def check_unchanged(self, *, may_grow: bool) -> None:
        self._source.check_unchanged(may_grow=may_grow)

    def check_read(self, *, may_grow: bool) -> None:
        self._source.check_read(may_grow=may_grow)

    def was_rewritten(self) -> bool:
        return self._source.was_rewritten()

    def was_replaced(self) -> bool:
        return self._source.was_replaced()

    def close(self) -> None:
        self._source.close()


class Sink(Protocol):
    """A file being written. Nothing is visible at `path` before `commit` returns."""

    path: str

    def write(self, data: object) -> None:
        """Append a bytes-like object."""
        ...

    def write_all(self, parts: Sequence[object]) -> None:
        """Append several bytes-like objects, in one write if the storage can."""
        ...

    def patch(self, start: int, data: object) -> None:
        """Overwrite bytes that were written before, such as a header whose values are known only at the end."""
        ...

    def repeat(self, start: int, length: int) -> None:
        """Append a copy of bytes that were written before, to make room for a longer header."""
        ...

    def finish(self) -> None:
        """Make the written bytes durable, and accept no more. `commit` calls it if the caller has not."""
        ...

    def commit(self, path: str | None = None) -> None:
        """Make the file durable and visible under its final name, or under another name in the same folder that was not
        known earlier."""
        ...

    def abort(self) -> None:
        """Discard the written bytes. Safe to call after a failed write or commit."""
        ...


class Storage(Protocol):
    """A place that stores files."""

    def source(self, path: str, *, mmap: bool = False) -> Source: ...

    def sink(self, path: str, *, overwrite: bool = False) -> Sink: ...

    def list(self, folder: str) -> list[str]:
        """Full paths of the files directly in a folder, sorted, without penstock's own files."""
        ...

    def exists(self, path: str) -> bool: ...


@contextmanager
def no_longer_names(path: str) -> Generator[None]:
    """Treat a name that is too long as the name of a missing file. A file with the longest possible name cannot have
    companion files, because their names would be too long."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(errno.ENOENT, "no such file; its name is too long", path) from None
