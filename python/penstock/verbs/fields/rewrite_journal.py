"""Which shards of a job are written, so that a killed job goes on with the others.

A shard gets its name by one rename, and the journal cannot be written in the same moment. So it
says beforehand what the new file is; after a restart the file itself tells whether the rename has
happened. Every file has to be in a state that the journal knows: as it was when the job began, or
as the job has left it. Whatever else it may be, the job does not touch it again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from penstock import _core
from penstock.columns.facts import Facts, is_count, parsed_object
from penstock.columns.numbers import as_arrow
from penstock.errors import (
    ChangedError,
    FormatError,
    LimitError,
    PenstockError,
    UnsupportedError,
    no_folder,
)
from penstock.framing.index import ahead
from penstock.framing.index.sidecar import Index, path_for
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.local import LocalStorage

PREFIX = ".penstock-fields-"
_LOCK = ".penstock-fields.lock"
_MOST_BYTES = 64 << 20
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
""""There are no locks here", as file systems say it."""

State = list[int]
"""What tells a file from another one of its name, and from itself in another state."""


def state_of(path: str) -> State | None:
    """The state of a file; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


@contextmanager
def alone_in(folder: str) -> Generator[None]:
    """Keep other jobs out of a folder. The lock ends with the process.

    Raises:
        BlockingIOError: another job is under way there.
    """
    message = "another change of fields is under way in this folder"
    with alone_with(os.path.join(folder, _LOCK), message, folder):
        yield


@contextmanager
def alone_with(path: str, message: str, about: str) -> Generator[None]:
    """Have the lock of a small hidden file, made for it and removed behind it. It ends with the process: a file
    that a kill leaves locks nobody out. On a file system without locks nobody is kept out.

    Raises:
        BlockingIOError: somebody else has it; the error has this message, and is about this file or folder.
    """
    while True:
        lock = _lock_file(path)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(errno.EAGAIN, message, about) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            if not _is_at(lock, path):
                continue  # the one who had it before has removed it
            try:
                yield
                return
            finally:
                with suppress(OSError):  # what was done is done, and nobody waits for it to go
                    os.unlink(path)
        finally:
            os.close(lock)


def _lock_file(path: str) -> int:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    folder = os.path.dirname(path) or "."
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except FileNotFoundError as error:
        raise no_folder(error.errno, folder, path) from None
    except PermissionError as error:
        with suppress(OSError):  # one that a kill of somebody else's program has left
            return os.open(path, os.O_RDONLY | flags)
        raise PermissionError(error.errno, "no file can be made in this folder", folder) from None


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


class Journal:
    """The shards of one job. Used by one thread, of one process at a time."""

    def __init__(
        self, sources: Sequence[str], targets: Sequence[str], job: Any, *, in_place: bool
    ) -> None:
        self._sources, self._targets = list(sources), list(targets)
        self._in_place = in_place
        self._folder = os.path.dirname(targets[0]) or "."
        self._files = [os.path.realpath(target) for target in targets]
        self._path = os.path.join(self._folder, f"{PREFIX}{_digest(chr(0).join(self._files))}.json")
        paths = [os.path.realpath(source) for source in sources]
        self._job = _digest(json.dumps([job, paths, in_place], sort_keys=True, default=str))
        self._storage = LocalStorage().no_more_open_than(sources)
        self.before: list[State | None] = [state_of(source) for source in sources]
        """The state of each source when the job began."""
        self.done: dict[int, dict[str, Any]] = {}
        self._begun: tuple[int, dict[str, Any]] | None = None

    def part(self, shard: int) -> str:
        """Where a file that another verb writes lies until it gets its name."""
        folder, name = os.path.split(self._targets[shard])
        return os.path.join(folder, f".{name}.{_digest(self._path)}{TEMPORARY_SUFFIX}")

    def load(self) -> None:
        """Find out what an earlier run of this job has written, and drop what it left half done.

        Raises:
            UnsupportedError: another job on these files has not been finished.
            ChangedError: a file is neither as it was nor as this job has left it.
        """
        self._refuse_others()
        stored = self._own()
        if stored is None or not (stored["job"] == self._job or self.written()):
            self._tidy()  # of a job that was killed before it had changed anything
            self._save()
            return
        if stored["job"] != self._job:
            raise self._unfinished(self._path, stored)
        begun = stored["begun"]
        known = dict(stored["done"])
        if begun is not None:
            known[begun[0]] = begun[1]
        now, self.before = self.before, stored["before"]
        for shard, facts in sorted(known.items()):
            if self._is_written(shard, facts, now[shard]):
                self.done[shard] = facts
        for shard, state in enumerate(now):
            if shard in self.done or state == self.before[shard]:
                continue
            if self._in_place:
                message = (
                    "the file is not as it was when this change of fields began, nor as it left it"
                )
                raise ChangedError(
                    message,
                    file=self._sources[shard],
                    hint="move the file that was there back (a copy is another file), or delete "
                    f"{self._path} to begin anew with the files as they are",
                )
            self.before[shard] = state
        self._tidy()

    def _own(self) -> dict[str, Any] | None:
        """What the journal of these files says; None where there is none, or it is about others."""
        stored = _stored(self._path)
        return stored if stored is not None and stored["files"] == self._files else None

    def is_of_this_job(self) -> bool:
        """Whether it is this very job that is unfinished."""
        stored = self._own()
        return stored is not None and stored["job"] == self._job

    def stop(self) -> None:
        """The job failed: nothing is to be remembered where nothing was done."""
        if not self.done and self._begun is None:
            with suppress(OSError):  # what stopped the job is told
                self._tidy()
                self.forget()

    def _is_written(self, shard: int, facts: dict[str, Any], source: State | None) -> bool:
        """Whether a shard's file is the one that this job has made of the source as it is."""
        if not self._in_place and source != self.before[shard]:
            return False
        target = self._targets[shard]
        return state_of(target) == facts["state"] or _holds(target, facts)

    def _refuse_others(self) -> None:
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            if not os.path.isdir(folder):
                continue
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if not (name.startswith(PREFIX) and name.endswith(".json")):
                    continue
                stored = None if path == self._path else _stored(path)
                if stored is None or (not stored["done"] and stored["begun"] is None):
                    continue  # it has changed nothing
                if not set(stored["files"]).isdisjoint(self._files):
                    raise self._unfinished(path, stored)

    def _unfinished(self, path: str, stored: dict[str, Any]) -> UnsupportedError:
        number = len(stored["done"]) + (stored["begun"] is not None)
        return UnsupportedError(
            f"another change of the fields of these files was not finished: up to {number} of "
            f"{len(stored['files'])} are written",
            file=self._targets[0],
            hint="call it again the same way, with the same files in the same order; or delete "
            f"{path} to leave each file as it is now",
        )

    def _tidy(self) -> None:
        """Remove temporary files of this job's: nobody else writes them while it lasts."""
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            mine = {
                f".{os.path.basename(path)}."
                for target in (*self._targets, *map(self.part, range(len(self._targets))))
                if (os.path.dirname(target) or ".") == folder
                for path in (target, path_for(target, None))
            }
            for target in self._targets:
                if (os.path.dirname(target) or ".") == folder:
                    ahead.left_of(target, None)  # of a file that has its name
                    mine.add(ahead.stem_of(target))
            clear(folder, mine)

    def written(self) -> list[int]:
        """The shards that an unfinished job on these files has written, whichever job it is."""
        stored = self._own()
        if stored is None:
            return []
        known = [*stored["done"].items()]
        if stored["begun"] is not None:
            known.append(stored["begun"])
        return [
            shard
            for shard, facts in known
            if state_of(self._targets[shard]) == facts["state"]
            or _holds(self._targets[shard], facts)
        ]

    def check(self, shard: int) -> None:
        """Raise ChangedError if a source is not as it was when the job began."""
        if state_of(self._sources[shard]) != self.before[shard]:
            message = "the file was changed while its fields were"
            raise ChangedError(message, file=self._sources[shard])

    def begin(self, shard: int, temporary: str, facts: dict[str, Any]) -> None:
        """Note what a shard will be, before it gets its name."""
        self._begun = shard, {**facts, "state": state_of(temporary)}
        self._save()

    def finish(self, shard: int) -> None:
        """Note that a shard has its name. It is written down with the next one's beginning."""
        assert self._begun is not None
        self.done[shard] = self._begun[1]

    def _save(self) -> None:
        stored = {
            "job": self._job,
            "files": self._files,
            "before": self.before,
            "begun": self._begun,
            "done": self.done,
        }
        sink = self._storage.sink(self._path, overwrite=True)
        try:
            sink.write(json.dumps(stored).encode())
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def forget(self) -> None:
        """All is done, or nothing was. What a kill left of the journal itself goes, too."""
        clear(self._folder, {f".{os.path.basename(self._path)}."})
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def _stored(path: str) -> dict[str, Any] | None:
    """What a journal says; None where there is none, or none that says anything."""
    try:
        with open(path, "rb") as file:
            stored = parsed_object(file.read(_MOST_BYTES + 1), _MOST_BYTES)
        files = stored.paths("files")
        before = [_state(state) for state in stored.list("before")]
        written = stored.facts("done")
        done = {int(shard): _made(written.any(shard)) for shard in written}
        begun = stored.any("begun")
        if begun is not None:
            shard, facts = stored.list("begun")
            begun = shard, _made(facts)
        shards = [*done, *([] if begun is None else [begun[0]])]
        if len(before) != len(files) or not all(is_count(s, len(files)) for s in shards):
            return None
        job = stored.text("job")
        return {"job": job, "files": files, "before": before, "done": done, "begun": begun}
    except LimitError as error:
        raise error.at(file=path) from None
    except (OSError, ValueError):
        return None


def _state(value: Any) -> State | None:
    """A state as a journal has it."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 4:  # pyright: ignore[reportUnknownArgumentType]
        raise FormatError("no state of a file")
    state: State = value
    # A time before 1970 is below zero, and an inode may have all 64 bits.
    if not all(isinstance(part, int) and not isinstance(part, bool) for part in state):
        raise FormatError("no state of a file")
    return state


def _made(value: Any) -> dict[str, Any]:
    """What a journal says of a file that the job has made."""
    facts = Facts.of(value, "a file that was made")
    state = _state(facts.any("state"))
    return {
        "num_records": facts.count("num_records"),
        "num_bytes": facts.count("num_bytes"),
        "contents": facts.text("contents"),
        "state": state,
    }


def clear(folder: str, stems: set[str]) -> None:
    """Remove the temporary files whose names begin so, up to what tells them apart."""
    for name in os.listdir(folder):
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        if stem != name and stem.rpartition(".")[0] + "." in stems:
            os.unlink(os.path.join(folder, name))


def contents_of(index: Index) -> str:
    """A name for the records of a file, from what its frames say of them."""
    places, checksums = (
        _core.Buffer.from_values(as_arrow(part)).crc32c()
        for part in (index.starts, index.checksums)
    )
    return f"records {index.num_records} {places:08x} {checksums:08x}"


def bytes_of(path: str) -> str:
    """A name for the bytes of a file."""
    facts = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            facts.update(part)
    return f"bytes {facts.hexdigest()}"


def _holds(path: str, facts: dict[str, Any]) -> bool:
    """Whether a file has the contents of one that the job has made."""
    state = state_of(path)
    if state is None or state[2] != facts["num_bytes"]:
        return False
    if facts["contents"].startswith("bytes"):
        return bytes_of(path) == facts["contents"]
    from penstock.datasets.dataset import open as open_dataset
    from penstock.framing.read.framed import FramedReader

    try:
        reader = open_dataset(path, raw=True, index="never").files.reader(0)
        return isinstance(reader, FramedReader) and contents_of(reader.index) == facts["contents"]
    except PenstockError:
        return False


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
