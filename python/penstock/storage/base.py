"""Base classes for storage: a `Storage` opens a `Source` to read from and a `Sink` to write to.

Every read gives its position, so threads share no cursor. A written file gets its final name only when it is complete.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock import _core
from penstock.engine.pipeline import in_order
from penstock.errors import ChangedError, UnsupportedError, shown

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.storage._left import Leftover


class FileState(NamedTuple):
    """What identifies one state of a file. A storage that does not report one of these leaves it None."""

    size: int
    etag: str | None = None
    version: str | None = None
    modified_ns: int | None = None

    def fits(self, other: FileState) -> bool:
        """Whether both may be the same state: the size is the same, and the best sign that both have."""
        if self.size != other.size:
            return False
        for mine, its in zip(self[1:], other[1:], strict=True):
            if mine is not None and its is not None:
                return mine == its
        return True


class Source(ABC):
    """The bytes of one file, read by position, from several threads if needed. By default, they never change."""

    path: str
    size: int
    storage: Storage | None = None
    """Where it is, if that is not this machine."""
    announces: bool = False
    """Whether `want` asks for bytes."""
    mapped: _core.Buffer | None = None
    """The whole file, if it is mapped into memory."""

    @abstractmethod
    def read(self, start: int, length: int) -> _core.Buffer:
        """Bytes [start, start + length); fewer only at the end of the file."""
        ...

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        """Read several ranges (uint64 arrays) into one buffer, back to back."""
        pairs = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        return _core.Buffer.join([self.read(start, length) for start, length in pairs])

    def local_file(self) -> _core.File | None:
        """The file for kernels that read by themselves. If they cannot, `read` and `gather` still may."""
        return None

    @property
    def tag(self) -> str:
        """What identifies the state of an object, and is another for other bytes: its ETag or version. Empty if the
        storage has nothing of that kind."""
        return ""

    def want(self, starts: Sequence[int], lengths: Sequence[int]) -> Sequence[object] | None:
        """Begin to request ranges that are read soon, each of them once. They are given up when nothing holds the
        result. None if there is no room for them now. This is for storage with slow access; by default it does
        nothing."""
        del starts, lengths
        return ()

    def read_in_order(self, start: int = 0, end: int | None = None) -> None:
        """Prepare for reads that follow one another in the file, from `start` to `end`, by one thread or several. This
        is for storage with slow access, which reads ahead; by default it does nothing."""

    def check_unchanged(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the file was changed or replaced since it was opened. `may_grow` allows appended bytes,
        for files whose records are all verified when they are read."""

    def check_read(self, *, may_grow: bool) -> None:
        """Raise ChangedError if the open file was written to, so that the bytes that were read may mix old and new
        contents. Call this after the reads. `may_grow` allows appended bytes, if the bytes that were read were compared
        with checksums."""

    def identity(self) -> tuple[int, int, int, int]:
        """Four numbers that change with any write to the file: unsigned, unsigned, signed and signed 64 bit integers.
        All 0 if the storage reports nothing of that kind, or if the file was replaced."""
        return 0, 0, 0, 0

    def file_state(self) -> FileState:
        """What identifies the state that was opened."""
        return FileState(self.size)

    def state_name(self) -> str | None:
        """Names the state of the file beyond doubt: files of this path whose state has the same name have the same
        bytes. None if the storage cannot tell. By default it is made of `identity`."""
        numbers = self.identity()
        return "-".join(f"{number:x}" for number in numbers) if any(numbers) else None

    def first_bytes(self) -> _core.Buffer:
        """The first bytes of the file, as far as they are in memory already; by default none."""
        return _core.Buffer.from_bytes(b"")

    def was_rewritten(self) -> bool:
        """Whether the open file seems to have been written to, other than at its end. False if it was replaced."""
        return False

    def was_replaced(self) -> bool:
        """Whether the file's name now belongs to another file, or no longer exists."""
        return False

    def close(self) -> None:
        """Release the file."""


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
        """Overwrite written bytes, such as a header whose values are known only at the end."""
        ...

    def repeat(self, start: int, length: int) -> None:
        """Append a copy of written bytes, to make room for a longer header."""
        ...

    def finish(self) -> None:
        """Make the written bytes durable, and accept no more. `commit` calls it if the caller has not."""
        ...

    def commit(self, path: str | None = None) -> None:
        """Make the file durable and give it its final name, or `path` in the same folder."""
        ...

    def abort(self) -> None:
        """Discard the written bytes. Safe to call after a failed write or commit."""
        ...


State = list[int | str]
"""Identifies a file in one state, as JSON can hold it."""


class Traffic(NamedTuple):
    """What was asked of a storage with slow access, in this process."""

    num_requests: int = 0
    num_fetched_bytes: int = 0
    num_retries: int = 0
    store_wait_seconds: float = 0.0
    """How long threads waited for answers, all threads together."""
    num_cache_hits: int = 0
    """Reads that a cache on this machine answered."""


class Storage(ABC):
    """A place that stores files. What a storage cannot do has a default, which does it in another way, does nothing or
    raises an UnsupportedError."""

    changes_in_place: bool = False
    """Whether a finished file can be renamed, and a file be replaced under a lock while others wait for it, as verbs with
    `in_place=True` do."""
    reads_at_once: int | None = None
    """How many files to read at the same time. None if reading needs a core, so that one per core is right."""

    @abstractmethod
    def source(self, path: str, *, mmap: bool = False) -> Source:
        """Open a file."""
        ...

    @abstractmethod
    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        """Create a file to write."""
        ...

    def stream(self, path: str, *, overwrite: bool = False) -> Sink:
        """Create a file whose bytes are written in order: none is patched or repeated, and the file gets the name
        `path`. An object store sends the bytes while they are written."""
        return self.sink(path, overwrite=overwrite)

    def sink_for(self, path: str, data_path: str, *, overwrite: bool = True) -> Sink:
        """Create a file that describes the file `data_path`, and is not more open to other users than that file."""
        del data_path
        return self.sink(path, overwrite=overwrite)

    def folder_sink(self, path: str, *, overwrite: bool = False) -> Sink:
        """Create a folder to write."""
        del overwrite
        raise UnsupportedError(
            "folders can be written on this machine only",
            file=path,
            hint="write a file of another format, such as a tar, or a folder on this machine",
        )

    def no_more_open_than(self, paths: Iterable[str]) -> Storage:
        """The same storage, but written files get only permissions that all these files have."""
        del paths
        return self

    def make_folder(self, path: str, *, like: str) -> None:
        """Make a folder for files that describe the file `like`. By default this does nothing, which is right for
        storage that knows only the names of files."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """Full paths of the files directly in a folder, sorted, without penstock's own files."""
        ...

    def list_below(self, prefix: str) -> Sequence[str]:
        """Full paths of all files in a folder and the folders below it, sorted. By default those directly in it, which
        is right for storage without folders in folders."""
        return self.list(prefix.rstrip("/"))

    def can_read_name(self, path: str) -> bool:
        """Whether a listed file can be opened, judged by its name. Some clients cannot say all names of a store."""
        del path
        return True

    def check_pickled_names(self, paths: Sequence[str]) -> None:
        """Raise UnsupportedError if the names of these files are secrets, which must not be written into a pickle."""
        del paths

    def check_reach(self) -> None:
        """Raise UnsupportedError if other processes, to which a pickle of this storage is sent, would see other files."""

    def is_here(self, path: str) -> bool:
        """Whether this names a file or folder of this machine's file system."""
        del path
        return False

    def leftovers(self, folder: str) -> Sequence[Leftover]:
        """What killed processes left directly in a folder. Empty if the storage cannot list it."""
        del folder
        return []

    def discard(self, left: Leftover) -> None:
        """Remove a leftover, and what it stands for."""
        self.give_up(left.path)

    def own_files(self, folder: str) -> Sequence[str]:
        """Full paths of penstock's own files directly in a folder, sorted. Empty if the storage cannot list them."""
        del folder
        return []

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file with this path."""
        ...

    def pinned(self, path: str, state: FileState, *, mmap: bool = False) -> Source:
        """Open a file, if it is in this state; else raise ChangedError. If only the size is known, only that is
        compared."""
        source = self.source(path, mmap=mmap)
        found = source.file_state()
        if not state.fits(found):
            source.close()
            raise ChangedError("the file is in another state", file=shown(path))
        return source

    def file_state(self, path: str) -> FileState:
        """What identifies the state of a file, from a listing or as it is now. Raises FileNotFoundError if there is
        none."""
        with closing(self.source(path)) as source:
            return source.file_state()

    def will_ask_states(self, paths: Sequence[str]) -> None:
        """Prepare for `file_state` of these files. This is for storage with slow access; by default it does nothing."""

    def starts_with(self, path: str, magic: bytes) -> bool:
        """Whether a file starts with these bytes. Raises FileNotFoundError if there is none."""
        with closing(self.source(path)) as source:
            return source.read(0, min(len(magic), source.size)).to_bytes() == magic

    def num_bytes(self, path: str) -> int:
        """The size of a file, or of a folder that is a shard."""
        with closing(self.source(path)) as source:
            return source.size

    def state(self, path: str) -> State | None:
        """The state of a file as it is now, and not as it was when it was opened. None if there is no such file. By
        default this is what `Source.identity` says, and only the size if that says nothing."""
        try:
            source = self.source(path)
        except (FileNotFoundError, KeyError):
            return None
        return [source.size, *source.identity()]

    def opened_state(self, path: str) -> State | None:
        """The state of a file as this storage opens it."""
        return self.state(path)

    def written(self, path: str) -> float | None:
        """When a file was last written, in seconds by the clock of the storage. None if there is no file or no clock."""
        del path
        return None

    def remove(self, path: str) -> None:
        """Remove a file for good. It is no error if there is none."""
        raise UnsupportedError("this storage removes no files", file=path)

    def remove_empty_folder(self, path: str) -> None:
        """Remove a folder if it is empty. By default this does nothing, as `make_folder`."""

    def give_up(self, path: str) -> None:
        """Remove a temporary file that a killed process left, and what it wrote so far. It is no error if there is
        none."""
        self.remove(path)

    def save(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        """Write a small file. Raises FileExistsError if there is one and `overwrite` is False."""
        sink = self.sink(path, overwrite=overwrite)
        try:
            sink.write(data)
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def load(self, path: str, most: int) -> bytes | None:
        """The bytes of a small file as it is now, at most `most` of them. None if there is no such file."""
        try:
            source = self.source(path)
        except (FileNotFoundError, KeyError):
            return None
        try:
            return source.read(0, min(most, source.size)).to_bytes()
        finally:
            source.close()

    def look_beside(self, paths: Sequence[str]) -> None:
        """Find out which of penstock's own files there are next to these files, for all together, and begin to open the
        first. `list`, `begin` and `source` then need no requests for files that are not there. This is for storage
        with slow access; by default it does nothing."""

    def identity(self, path: str) -> tuple[int, int, int, int]:
        """`Source.identity` of a file, as it is or was opened."""
        with closing(self.source(path)) as source:
            return source.identity()

    def listed_bytes(self, path: str) -> int | None:
        """The size of a file that `look_beside` has found; else None."""
        del path

    def read_whole(
        self, paths: Sequence[str], states: Sequence[FileState]
    ) -> Sequence[_core.Buffer]:
        """Read small files completely, many at once, each in the given state. ChangedError: one is in another."""

        def read(number: int) -> Iterator[_core.Buffer]:
            source = self.pinned(paths[number], states[number])
            try:
                yield source.read(0, source.size)
            finally:
                source.close()

        numbers = range(len(paths))
        return list(in_order([lambda: iter(numbers)], read, len, self.reads_at_once))

    def traffic(self) -> Traffic:
        """What was asked of it so far. By default nothing is counted."""
        return Traffic()

    def begin(self, paths: Sequence[str], length: int | None = None) -> bool:
        """Begin to open files that `source` will open soon, and to read their first `length` bytes. Returns whether
        any of them may exist and was begun. This is for storage with slow access; by default it does nothing."""
        del paths, length
        return False


def file_beside(storage: Storage, path: str, name: str) -> Source | None:
    """Open the file of this name that is in the same folder as another file. None if there is no such file."""
    other = os.path.join(os.path.dirname(path), name)
    try:
        return storage.source(other)
    except (FileNotFoundError, KeyError):
        return None


@contextmanager
def no_longer_names(path: str) -> Generator[None]:
    """Treat a name that is too long as that of a missing file: a file with the longest possible name cannot have files
    of penstock next to it."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(errno.ENOENT, "no such file; its name is too long", path) from None
