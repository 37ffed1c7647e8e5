"""Journals: records of the finished files of a job, so that a job that was killed can continue.

A job is one call of a verb that makes several files (`convert`, changes of fields). Its journal is a JSON file:

| key | what |
|---|---|
| job | a digest of the task: a job with another source or other options has another digest |
| files | the files that the job will create |
| before | the state of each source when the job began; empty if no source is replaced |
| begun | the number of a file that is about to be renamed, and its new state; or null |
| done | the finished files by number: state, bytes, records, contents, and the writer's changes |

A file gets its final name by one rename, and the journal cannot be written in the same moment. Therefore the journal
describes the new file before the rename. After a restart, the file itself shows whether the rename has happened. A
journal alone verifies nothing: its entries count only for files in the states that it lists.

Appending uses another kind of note (`append_journal`, docs/decisions/0020-one-journal.md).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from penstock.columns.facts import Facts, is_count, parsed_object
from penstock.errors import FormatError, LimitError, no_folder
from penstock.storage.base import Storage
from penstock.storage.folder import remove, size_of
from penstock.storage.hidden import TEMPORARY_SUFFIX

_MOST_BYTES = 64 << 20
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
"""Errors of file systems without locks."""

State = list[int]
"""Identifies a file in one state: inode, bytes, time. The device number is left out because it may change after a
restart."""


def state_of(path: str) -> State | None:
    """The state of a file or folder, or None if it does not exist."""
    try:
        found = os.stat(path)
        return [found.st_ino, size_of(path), found.st_mtime_ns]
    except FileNotFoundError:
        return None


def token_of(text: str) -> str:
    """A short digest of a text, for the names of hidden files."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# -- locks ----------------------------------------------------------------------------------------


def is_at(file: int, path: str) -> bool:
    """Whether an open file is the file that now has this name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def lock(file: int) -> bool:
    """Lock an open file for this process, until it closes the file or ends. False if another process has the lock.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone_with(path: str, message: str, about: str) -> Generator[None]:
    """Hold a lock for the block. The lock is a small hidden file, created for this purpose and removed afterwards. If a
    killed process leaves the file behind, it blocks no other process. Without locks in the file system, nothing is
    locked.

    Raises:
        BlockingIOError: another process has the lock. The error has this message and names this file or folder.
    """
    while True:
        file = _lock_file(path)
        try:
            try:
                is_mine = lock(file)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                is_mine = True
            if not is_mine:
                raise BlockingIOError(errno.EAGAIN, message, about)
            if not is_at(file, path):
                continue  # the previous holder of the lock has removed the file
            try:
                yield
                return
            finally:
                with suppress(
                    OSError
                ):  # the work is done, so a failure to remove the file does not matter
                    os.unlink(path)
        finally:
            os.close(file)


def _lock_file(path: str) -> int:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    folder = os.path.dirname(path) or "."
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except FileNotFoundError as error:
        raise no_folder(error.errno, folder, path) from None
    except PermissionError as error:
        with suppress(OSError):  # left behind by another user's killed program
            return os.open(path, os.O_RDONLY | flags)
        raise PermissionError(error.errno, "no file can be made in this folder", folder) from None


# -- what a kill leaves ---------------------------------------------------------------------------


def clear(folder: str, is_left: Callable[[str], bool]) -> None:
    """Remove the files and folders in a folder whose names `is_left` accepts."""
    for name in os.listdir(folder):
        if is_left(name):
            remove(os.path.join(folder, name))


def temporaries_of(names: Collection[str]) -> Callable[[str], bool]:
    """Return a test for names of temporary files that would have become files of these names."""
    stems = {f".{name}" for name in names}

    def is_left(name: str) -> bool:
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        return stem != name and stem.rpartition(".")[0] in stems

    return is_left


# -- the journal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """A finished file or folder."""

    state: State | None
    num_bytes: int
    num_records: int = 0
    contents: str = ""
    """Identifies the contents, for files that may have been copied since."""
    notes: tuple[str, ...] = ()
    """The changes that its writer made to values."""

    def is_at(self, path: str) -> bool:
        """Whether this file is at a path."""
        with suppress(OSError, FormatError):
            return self.state is not None and state_of(path) == self.state
        return False


@dataclass(frozen=True, slots=True)
class Entries:
    """The contents of a journal."""

    job: str
    files: list[str]
    before: list[State | None]
    begun: tuple[int, Made] | None
    done: dict[int, Made]

    @property
    def made(self) -> dict[int, Made]:
        """The finished files, including a file whose rename has begun and may have happened."""
        return self.done if self.begun is None else {**self.done, self.begun[0]: self.begun[1]}


class Journal:
    """The journal of one job. Used by one thread, of one process at a time."""

    def __init__(self, path: str, job: Any, storage: Storage) -> None:
        self._path = path
        self._job = token_of(json.dumps(job, sort_keys=True, default=str))
        self._storage = storage
        self._files: list[str] = []
        self.before: list[State | None] = []
        self.done: dict[int, Made] = {}
        self._begun: tuple[int, Made] | None = None

    def _save(self) -> None:
        entries = Entries(self._job, self._files, self.before, self._begun, self.done)
        sink = self._storage.sink(self._path, overwrite=True)
        try:
            sink.write(json.dumps(asdict(entries)).encode())
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def forget(self) -> None:
        """Remove the journal and what a killed process left of it, when the job is done or did nothing."""
        folder, name = os.path.split(self._path)
        clear(folder or ".", temporaries_of([name]))
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def load(path: str) -> Entries | None:
    """Read a journal. None if it is missing or invalid.

    Raises:
        LimitError: the journal is too large.
    """
    try:
        with open(path, "rb") as file:
            stored = parsed_object(file.read(_MOST_BYTES + 1), _MOST_BYTES)
        done = stored.facts("done")
        begun = stored.any("begun")
        if begun is not None:
            number, facts = stored.list("begun")
            begun = _number(number), _made(facts)
        return Entries(
            stored.text("job"),
            stored.paths("files"),
            [_state(state) for state in stored.list("before")],
            begun,
            {_number(int(number)): _made(done.any(number)) for number in done},
        )
    except LimitError as error:
        raise error.at(file=path) from None
    except (OSError, ValueError):
        return None


def _number(value: Any) -> int:
    if not is_count(value):
        raise FormatError("no number of a file")
    return value


def _state(value: Any) -> State | None:
    # Times before 1970 are negative, and an inode may use all 64 bits.
    if value is None or (isinstance(value, list) and [type(part) for part in value] == [int] * 3):  # pyright: ignore[reportUnknownVariableType]
        return value  # pyright: ignore[reportUnknownVariableType]
    raise FormatError("no state of a file")


def _made(value: Any) -> Made:
    facts = Facts.of(value, "a file that was made")
    return Made(
        _state(facts.any("state")),
        facts.count("num_bytes"),
        facts.count("num_records"),
        facts.text("contents"),
        tuple(facts.texts("notes")),
    )
