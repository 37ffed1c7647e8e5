"""Treats a folder of many small files as one unit: read file by file, and written completely or not at all.

A format whose datasets are folders (`FormatInfo.is_folder`) receives a `Folder`. It is a `Source` of the bytes of its
files, back to back, in the order of their names. Names are relative to the folder, with `/` between their parts.

A link to a file inside the folder counts as a file. Any other link is refused, unless `Folder.follow_links` is called.
Penstock's own files, and files whose names show that they are not data (`skipped.why_not_data`), are ignored. Names of
images and classes may begin with `_`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from penstock import _core
from penstock.errors import ChangedError, FormatError, LimitError, no_folder
from penstock.limits import Limits, raise_limit
from penstock.storage.base import FileState, Source, State
from penstock.storage.hidden import TEMPORARY_SUFFIX, is_own
from penstock.storage.image_names import is_image_name, is_table_name, why_not_there
from penstock.storage.local_sink import (
    Calls,
    naming,
    openness,
    sync_path,
    temporary_beside,
    write_all,
)
from penstock.storage.skipped import CYCLE, SkippedFile


def size_of(path: str) -> int:
    """The size of a file, or of all files in a folder."""
    return Folder(path).size if os.path.isdir(path) else os.stat(path).st_size


def state_of(path: str) -> State | None:
    """The state of a file or folder: inode, size, modification time. The device number may change after a restart. None
    if it does not exist."""
    try:
        found = os.stat(path)
        return [found.st_ino, size_of(path), found.st_mtime_ns]
    except FileNotFoundError:
        return None


def refuse_other_files(path: str) -> None:
    """Raise FileExistsError for a folder that must not be replaced because it holds files other than images and tables,
    which would be deleted."""
    if os.path.islink(path) or not os.path.isdir(path):
        raise FileExistsError(f"{path} is not a folder, and a folder does not replace a file")
    for folder, _, names in os.walk(path):
        for name in names:
            if not (is_image_name(name) or is_table_name(name) or is_own(name)):
                other = os.path.join(folder, name)
                raise FileExistsError(f"{other} is not an image, so {path} is not replaced")


def _remove_folder(path: str, *, ignore_errors: bool = False) -> None:
    import shutil  # imports three codecs, and is rarely needed

    shutil.rmtree(path, ignore_errors=ignore_errors)


def remove(path: str) -> None:
    """Delete a file, or a folder with its contents."""
    if os.path.isdir(path) and not os.path.islink(path):
        _remove_folder(path)
    else:
        os.unlink(path)


def put_in_place(calls: Calls, new: str, path: str) -> None:
    """Rename a complete and durable folder to `path`, and delete the old folder there. If the file system can exchange
    names, there is always a complete folder at `path`."""
    if not calls.exchange(new, path):
        old = path.rstrip("/") + ".old" + TEMPORARY_SUFFIX
        if os.path.lexists(old):
            remove(old)  # left over from a killed run
        calls.rename(path, old)
        try:
            calls.rename(new, path)
        except BaseException:
            calls.rename(old, path)
            raise
        new = old
    sync_path(calls, os.path.dirname(path))
    _remove_folder(new)


class Entry(NamedTuple):
    """A file in a folder, with its size and modification time when the folder was opened."""

    name: str
    size: int
    written_ns: int


class Folder(Source):
    """A folder on a local file system."""

    def __init__(self, path: str, limits: Limits | None = None) -> None:
        self.path = path
        self._deepest = (limits or Limits()).nesting
        self._root = os.path.realpath(path)
        self._list(follow_links=False)
        self._listed = self.entries

    def identity(self) -> tuple[int, int, int, int]:
        now = os.stat(self.path)
        return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns

    def file_state(self) -> FileState:
        """The size, and a digest of the names, sizes and times of the files, without those to which links lead."""
        import hashlib  # costs 3 ms at import, and is rarely needed

        digest = hashlib.blake2b(digest_size=16)
        for entry in self._listed:
            digest.update(repr(entry).encode("utf-8", "backslashreplace"))
        return FileState(sum(entry.size for entry in self._listed), digest.hexdigest())

    def follow_links(self) -> None:
        """List the folder again, with the files and folders to which links lead, wherever they are. A link to a folder
        that it is in is skipped."""
        self._list(follow_links=True)

    def _list(self, *, follow_links: bool) -> None:
        self._follows = follow_links
        self.folders: list[str] = []
        """Names of the folders directly inside, sorted."""
        self.skipped: list[SkippedFile] = []
        """Files whose names show that they are not data."""
        self.refused: FormatError | None = None
        """The error about a link that is not followed, which is not among the entries."""
        self.entries = sorted(self._walk(self.path, "", (self._root,)))
        self.folders.sort()
        self.skipped.sort()
        self._count()

    def _count(self) -> None:
        sizes = np.array([entry.size for entry in self.entries], np.int64)
        self.ends: np.ndarray = np.cumsum(sizes)
        self.size = int(self.ends[-1]) if len(sizes) else 0

    def _walk(self, folder: str, prefix: str, within: tuple[str, ...]) -> Iterator[Entry]:
        """Yield the files of a folder. `within` has the real paths of this folder and those that it is in."""
        depth = len(within) - 1
        if depth > self._deepest:
            raise LimitError(f"folders are nested more than {self._deepest} deep", file=folder)
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not is_own(entry.name)]
        for entry in found:
            real = os.path.realpath(entry.path) if entry.is_symlink() else ""
            if not self._is_read(entry, real, within):
                continue
            name = prefix + entry.name
            if entry.is_dir():
                if not depth:
                    self.folders.append(entry.name)
                inside = real or f"{within[-1]}/{entry.name}"
                yield from self._walk(entry.path, name + "/", (*within, inside))
            elif entry.is_file():
                stat = entry.stat()
                yield Entry(name, stat.st_size, stat.st_mtime_ns)
            else:
                raise FormatError("is neither a file nor a folder", file=entry.path)

    def _is_read(self, entry: os.DirEntry[str], real: str, within: tuple[str, ...]) -> bool:
        """Whether a file or folder is read. `real` is the real path of a link, and empty for anything else."""
        reason = why_not_there(entry)
        if self._follows and real in within:
            reason = reason or CYCLE
        if reason is not None:
            self.skipped.append(SkippedFile(entry.path, reason))
            return False
        return not real or self._may_follow(entry, real)

    def _may_follow(self, entry: os.DirEntry[str], real: str) -> bool:
        """Whether a link counts as the file or folder to which it leads. If not, `refused` has the error."""
        if self._follows:
            if os.path.exists(real):
                return True
            raise FormatError("is a link to a missing file", file=entry.path, found=real)
        if os.path.commonpath([real, self._root]) == self._root and os.path.isfile(real):
            return True
        self.refused = self.refused or FormatError(
            "is a link to a place outside the dataset, or not to a file",
            file=entry.path,
            found=real,
            hint="open(..., follow_links=True), or put the file itself there, or remove the link",
        )
        return False

    def opened(self, number: int) -> Source | None:
        """Open one file; None if it is one of this machine, which its path opens."""
        del number
        return None

    def read_file(self, number: int) -> _core.Buffer:
        """Read one file completely, as it is now."""
        file = _core.File(os.path.join(self.path, self.entries[number].name))
        return file.read(0, file.size)

    def read_head(self, number: int, length: int) -> _core.Buffer:
        """Read the first bytes of one file."""
        return _core.File(os.path.join(self.path, self.entries[number].name)).read(0, length)

    def read_files(self, numbers: Sequence[int], limits: Limits) -> tuple[_core.Buffer, np.ndarray]:
        """Read some files completely. Returns their bytes, joined, and the length of each (int64). Raises ChangedError
        if a file was written to since the folder was opened."""
        some = self._check_sizes(numbers, limits)
        names = [entry.name for entry in some]
        expected = sum(entry.size for entry in some)
        try:
            data, lengths, times = _core.read_files(self.path, names, expected, limits.record_bytes)
        except _core.KernelError as error:
            fault: Any = error.args[0]
            large = some[fault.record]
            raise self._too_large(large.name, fault.record, fault.found, limits) from None
        for entry, length, time in zip(some, lengths, times, strict=True):
            if (entry.size, entry.written_ns) != (length, time):
                raise ChangedError(
                    "the file was changed while the folder was open",
                    file=f"{self.path}/{entry.name}",
                    expected=f"{entry.size} bytes, last written at {entry.written_ns} ns",
                    found=f"{length} bytes, last written at {time} ns",
                    hint="open the data again",
                )
        limits.check_batch(len(data))
        return data, np.array(lengths, np.int64)

    def _check_sizes(self, numbers: Sequence[int], limits: Limits) -> list[Entry]:
        some = [self.entries[number] for number in numbers]
        for row, entry in enumerate(some):
            if entry.size > limits.record_bytes:
                raise self._too_large(entry.name, row, entry.size, limits)
        limits.check_batch(sum(entry.size for entry in some))
        return some

    def _too_large(self, name: str, row: int, size: int, limits: Limits) -> LimitError:
        message = f"asks for {size} bytes, beyond the limit record_bytes={limits.record_bytes}"
        hint = raise_limit("record_bytes", size)
        return LimitError(message, file=f"{self.path}/{name}", record=row, hint=hint)

    def read(self, start: int, length: int) -> _core.Buffer:
        parts: list[_core.Buffer] = []
        number = int(np.searchsorted(self.ends, start, "right"))
        while length > 0 and number < len(self.entries):
            entry = self.entries[number]
            inside = start - (int(self.ends[number]) - entry.size)
            part = self._part(number, inside, min(length, entry.size - inside))
            parts.append(part)
            start, length, number = start + len(part), length - len(part), number + 1
        return _core.Buffer.join(parts)

    def _part(self, number: int, start: int, length: int) -> _core.Buffer:
        return _core.File(os.path.join(self.path, self.entries[number].name)).read(start, length)


class FolderSink:
    """A folder that is being written, next to its final place. Like a `Sink`, it has `finish`, `commit` and `abort`."""

    def __init__(self, path: str, *, overwrite: bool, calls: Calls, most: int = 0o777) -> None:
        self.path = path
        self._calls = calls
        self._overwrite = overwrite
        self._refuse_what_is_there(path)
        self._parent = os.path.dirname(path) or "."
        self._temporary = temporary_beside(path)
        # The new folder gets only permissions that the replaced folder and all its files have.
        self._mode = most & openness([path])
        self._made = {""}
        self._root: int | None = None
        try:
            calls.mkdir(self._temporary, self._mode)
        except FileNotFoundError as error:
            raise no_folder(error.errno, self._parent, self.path) from None
        # From now on, the system reports write errors through this descriptor.
        self._root = calls.open(self._temporary, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def _refuse_what_is_there(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        if not self._overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        refuse_other_files(path)

    def make_folder(self, name: str) -> None:
        """Create a folder inside, with its parent folders."""
        if name not in self._made:
            self.make_folder(name.rpartition("/")[0])
            self._calls.mkdir(os.path.join(self._temporary, name), self._mode)
            self._made.add(name)

    def add(self, name: str, parts: Sequence[object]) -> None:
        """Add a file. Raises FileExistsError if there is a file of this name."""
        self.make_folder(name.rpartition("/")[0])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        fd = self._calls.open(os.path.join(self._temporary, name), flags, self._mode & 0o666)
        with naming(os.path.join(self.path, name)):
            try:
                write_all(self._calls, fd, parts)
            finally:
                self._calls.close(fd)

    def _refuse_bytes(self, *_: object, **__: object) -> None:
        raise TypeError("bytes can be written only to the files of a folder, not to the folder")

    write = write_all = patch = repeat = _refuse_bytes

    def finish(self) -> None:
        root = self._root
        if root is None:
            return
        with naming(self.path):
            # One call for the whole file system is faster than one for each of a million files.
            if not self._calls.sync_file_system(root):
                for folder, _, names in os.walk(self._temporary):
                    for name in (*names, ""):
                        sync_path(self._calls, os.path.join(folder, name))
            self._root = None
            self._calls.close(root)

    def commit(self, path: str | None = None) -> None:
        self.finish()
        self.path = path or self.path
        self._refuse_what_is_there(self.path)
        if os.path.isdir(self.path):
            put_in_place(self._calls, self._temporary, self.path)
        else:
            self._calls.rename(self._temporary, self.path)
            sync_path(self._calls, self._parent)

    def abort(self) -> None:
        root, self._root = self._root, None
        if root is not None:
            with suppress(OSError):  # the temporary folder must still be removed
                self._calls.close(root)
        _remove_folder(self._temporary, ignore_errors=True)
