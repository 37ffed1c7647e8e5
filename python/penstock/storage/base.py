"""Where bytes live: readers see a `Source`, writers a `Sink`; both come from a `Storage`.

Reads are positional, so there is no cursor to share. A written file appears under its final name whole or not at all.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock import _core

if TYPE_CHECKING:
    import pyarrow as pa


class Source(Protocol):
    """The bytes of one file, read by position. Safe to use from several threads."""

    path: str
    size: int

    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length); shorter only where the file ends."""
        ...

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Several ranges (uint64 arrays), one after another, in one buffer."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Watched(Protocol):
    """A Source of a file that somebody may change while it is read."""

    def check_unchanged(self, *, proves: bool) -> None:
        """Raise ChangedError where the file is not as it was opened. `proves` says that its
        records are proved one by one as they are read, so that it may have grown."""
        ...

    def check_read(self, *, may_grow: bool) -> None:
        """Raise ChangedError where the open file was written to since it was opened, so that what was read of it
        may be a mix of both. Called after the reads. One that another has replaced is read on as it was. `may_grow`:
        what was read was compared with checksums."""
        ...

    def was_rewritten(self) -> bool:
        """Whether what is read is no longer what was opened, as far as the system tells: the file was written
        to, and not only at its end. One that another has replaced is read on as it was."""
        ...

    def was_replaced(self) -> bool:
        """Whether another file, or none, has its name by now."""
        ...


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
    """A name that is longer than a file can have is one of a file that is not there: beside a file of the longest
    name nothing with a longer one is kept."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(errno.ENOENT, "no such file; its name is too long", path) from None
