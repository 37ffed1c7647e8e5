"""Where bytes live: readers see a `Source`, writers a `Sink`; both come from a `Storage`.

Reads are positional, so there is no cursor to share. A written file appears under its final name whole or not at all.
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

    The checks for files that change while they are read pass by default: bytes in memory, for
    example, never change.
    """

    path: str
    size: int

    @abstractmethod
    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length); shorter only where the file ends."""
        ...

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Several ranges (uint64 arrays), one after another, in one buffer."""
        pairs = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        return _core.Buffer.join([self.read(start, length) for start, length in pairs])

    def check_unchanged(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the file is not as it was opened.

        Args:
            may_grow: every record is verified when it is read, so appended bytes do no harm.
        """

    def check_read(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the open file was written to since it was opened, so that what was read may mix old
        and new bytes. Call it after the reads. A file that another has replaced still reads as it was.

        Args:
            may_grow: what was read was compared with checksums, so appended bytes do no harm.
        """

    def was_rewritten(self) -> bool:
        """Whether the open file was written to, and not only at its end, as far as the system reports. A file that
        another has replaced still reads as it was."""
        return False

    def was_replaced(self) -> bool:
        """Whether the file's name now belongs to another file, or to none."""
        return False

    def close(self) -> None:
        """Release the file."""


class SourceView(Source):
    """Part of another source, or a checked view of it: all but the reads is that source's."""

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
    """A file being written. Nothing is visible under `path` before `commit` returns."""

    path: str

    def write(self, data: object) -> None:
        """Append a bytes-like object."""
        ...

    def write_all(self, parts: Sequence[object]) -> None:
        """Append several, as one write where the storage can."""
        ...

    def patch(self, start: int, data: object) -> None:
        """Write over bytes that were written before: a header that is known only at the end."""
        ...

    def repeat(self, start: int, length: int) -> None:
        """Append bytes that were written before once more, to make room for a longer header."""
        ...

    def finish(self) -> None:
        """Make what was written durable, and take no more. `commit` does it where nobody has."""
        ...

    def commit(self, path: str | None = None) -> None:
        """Make the file durable and visible under its final name, or under another one in the
        same folder that was not known before."""
        ...

    def abort(self) -> None:
        """Forget what was written. Safe to call after a failed write or commit."""
        ...


class Storage(Protocol):
    """A place that holds files."""

    def source(self, path: str, *, mmap: bool = False) -> Source: ...

    def sink(self, path: str, *, overwrite: bool = False) -> Sink: ...

    def list(self, folder: str) -> list[str]:
        """Full paths of the files directly in a folder, sorted, without penstock's own files."""
        ...

    def exists(self, path: str) -> bool: ...


@contextmanager
def no_longer_names(path: str) -> Generator[None]:
    """Treat a name that is too long for a file as one of a missing file: a file with the longest possible name has
    nothing beside it."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(errno.ENOENT, "no such file; its name is too long", path) from None
