"""Journals of the finished files of a job, so that a killed job can continue.

A job is one call of a verb that makes several files (`convert`, changes of fields). Its journal is a JSON file:

| key | value |
|---|---|
| job | a digest of the source and the options |
| files | the files that the job will create |
| before | the state of each source when the job began; empty if no source is replaced |
| begun | the number of a file that is about to be renamed, and its new state; or null |
| done | the finished files by number: state, bytes, records, contents, and the writer's changes |

The journal describes a new file before the file is renamed to its final name. After a restart, the state of the file at
that name shows whether the rename happened. An entry counts only for a file in the state that it lists.

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

from penstock.columns.facts import Facts, is_count, parsed, parsed_object
from penstock.errors import FormatError, LimitError, no_folder
from penstock.storage.base import State, Storage
from penstock.storage.folder import remove, state_of
from penstock.storage.hidden import TEMPORARY_SUFFIX

_MOST_BYTES = 64 << 20
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
"""Errors of file systems without locks."""


def token_of(text: str) -> str:
    """A short digest of a text, for the names of hidden files."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# -- locks ----------------------------------------------------------------------------------------


def is_at(file: int, path: str) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def lock(file: int) -> bool:
    """Lock an open file until this process closes it or ends. False if another process holds the lock. Raises OSError
    if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone_with(path: str, message: str, about: str) -> Generator[None]:
    """Lock the hidden file `path` during the block; it is created and removed for this. A file that a killed process
    left does not block others. If the file system has no locks, nothing is locked.

    Raises:
        BlockingIOError: another process holds the lock. The error has this message, and names the file `about`.
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
                continue  # the last holder of the lock removed the file
            try:
                yield
                return
            finally:
                with suppress(OSError):  # a remaining file does not block others
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
        raise PermissionError(error.errno, "cannot create a file in this folder", folder) from None


# -- files left by a killed process ---------------------------------------------------------------


def clear(folder: str, is_left: Callable[[str], bool]) -> None:
    """Remove the files and folders in a folder whose names `is_left` accepts."""
    for name in os.listdir(folder):
        if is_left(name):
            remove(os.path.join(folder, name))


def temporaries_of(names: Collection[str]) -> Callable[[str], bool]:
    """A test for the names of temporary files that were to become files of these names."""
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
    """Identifies the contents, even if the file was copied since."""
    notes: tuple[str, ...] = ()
    """Changes of values by its writer."""

    def is_at(self, path: str) -> bool:
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
        """The finished files, and the file whose rename has begun and may have happened."""
        return self.done if self.begun is None else {**self.done, self.begun[0]: self.begun[1]}


class Journal:
    """The journal of one job. Used by one thread of one process at a time."""

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
        """Remove the journal and its temporary files, once the job is done or did nothing."""
        folder, name = os.path.split(self._path)
        clear(folder or ".", temporaries_of([name]))
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def text_of(made: Made) -> bytes:
    """An entry of its own, for storage in which each finished file has an object of the journal."""
    return json.dumps(asdict(made)).encode()


def made_from(text: bytes) -> Made | None:
    """The same as an entry; None if the text is none."""
    try:
        return _made(parsed(text, _MOST_BYTES))
    except ValueError:
        return None


def load(path: str) -> Entries | None:
    """Read a journal; None if it is missing or invalid. Raises LimitError if it is too large."""
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
        raise FormatError("the journal has an invalid file number")
    return value


def _state(value: Any) -> State | None:
    # Times before 1970 are negative, and an inode may use all 64 bits.
    parts: set[type] = {type(part) for part in value} if isinstance(value, list) else {dict}  # pyright: ignore[reportUnknownVariableType]
    if value is None or parts <= {int, str}:
        return value
    raise FormatError("the journal has an invalid file state")


def _made(value: Any) -> Made:
    facts = Facts.of(value, "a finished file")
    return Made(
        _state(facts.any("state")),
        facts.count("num_bytes"),
        facts.count("num_records"),
        facts.text("contents"),
        tuple(facts.texts("notes")),
    )
