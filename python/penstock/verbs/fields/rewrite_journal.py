"""The journal of a rewrite. It lists the written shards, so that a killed job continues with the others.

Every file must be in a state that the journal knows: as it was when the job began, or as the job has left it.
Otherwise the job does not change the file again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.errors import ChangedError, PenstockError, UnsupportedError
from penstock.framing.index import ahead
from penstock.framing.index.sidecar import Index, path_for
from penstock.storage import journal
from penstock.storage.base import State, Storage
from penstock.storage.folder import state_of
from penstock.storage.hidden import TEMPORARY_SUFFIX, fields_job_of, is_fields_job
from penstock.storage.journal import Entries, Made
from penstock.storage.local import LocalStorage
from penstock.storage.urls import real_path

_LOCK = ".penstock-fields.lock"


@contextmanager
def alone_in(folder: str) -> Generator[None]:
    """Lock a folder against other jobs until the process ends, or raise BlockingIOError."""
    message = "another job is changing fields in this folder"
    with journal.alone_with(os.path.join(folder, _LOCK), message, folder):
        yield


class Journal(journal.Journal):
    """The shards of one job. Only one thread of one process may use it at a time."""

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        job: Any,
        near: Storage | None = None,
        *,
        in_place: bool,
    ) -> None:
        """`near` is where the sources are; None for this machine, where the targets are."""
        files = [os.path.realpath(target) for target in targets]
        paths = [real_path(source) for source in sources]
        super().__init__(
            os.path.join(os.path.dirname(targets[0]) or ".", fields_job_of(files)),
            [job, paths, in_place],
            LocalStorage().no_more_open_than(sources),
        )
        self._sources, self._targets = list(sources), list(targets)
        self._in_place = in_place
        self._files = files
        self._near = near or LocalStorage()
        self.before = [self._near.opened_state(source) for source in sources]

    def part(self, shard: int) -> str:
        folder, name = os.path.split(self._targets[shard])
        return os.path.join(folder, f".{name}.{journal.token_of(self._path)}{TEMPORARY_SUFFIX}")

    def load(self) -> None:
        """Read which shards an earlier run of this job has written, and remove its unfinished files.

        Raises:
            UnsupportedError: another job on these files is unfinished.
            ChangedError: a file is neither in its original state nor in the state that this job left.
        """
        self._refuse_others()
        stored = self._own()
        if stored is None or not (stored.job == self._job or self.written()):
            self._tidy()  # after a job that was killed before it had changed anything
            self._save()
            return
        if stored.job != self._job:
            raise self._unfinished(self._path, stored)
        now, self.before = self.before, stored.before
        for shard, made in sorted(stored.made.items()):
            if self._is_written(shard, made, now[shard]):
                self.done[shard] = made
        for shard, state in enumerate(now):
            if shard in self.done or state == self.before[shard]:
                continue
            if self._in_place:
                message = (
                    "the file is neither in its original state nor in the state that this job left"
                )
                raise ChangedError(
                    message,
                    file=self._sources[shard],
                    hint="move the original file back (a copy does not count), or delete "
                    f"{self._path} to start again with the current files",
                )
            self.before[shard] = state
        self._tidy()

    def _own(self) -> Entries | None:
        """Return the stored entries, or None if there is no journal or it is about other files."""
        stored = _stored(self._path)
        return stored if stored is not None and stored.files == self._files else None

    def is_of_this_job(self) -> bool:
        stored = self._own()
        return stored is not None and stored.job == self._job

    def stop(self) -> None:
        """Remove the journal of a failed job that has changed nothing."""
        if not self.done and self._begun is None:
            with suppress(OSError):  # raise the job's error instead
                self._tidy()
                self.forget()

    def _is_written(self, shard: int, made: Made, source: State | None) -> bool:
        """Whether this job has made a shard's file from the present state of the source."""
        if not self._in_place and source != self.before[shard]:
            return False
        return _is_made(self._targets[shard], made)

    def _refuse_others(self) -> None:
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            if not os.path.isdir(folder):
                continue
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if not is_fields_job(name):
                    continue
                stored = None if path == self._path else _stored(path)
                if stored is None or not stored.made:
                    continue  # that job has changed nothing
                if not set(stored.files).isdisjoint(self._files):
                    raise self._unfinished(path, stored)

    def _unfinished(self, path: str, stored: Entries) -> UnsupportedError:
        return UnsupportedError(
            f"an earlier change of fields of these files is unfinished: up to {len(stored.made)} "
            f"of {len(stored.files)} are written",
            file=self._targets[0],
            hint="repeat that call with the same files in the same order, the same values and the same function "
            f"(its code may not have changed), or delete {path} to keep each file as it is now",
        )

    def _tidy(self) -> None:
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            mine: set[str] = set()
            for target in (*self._targets, *map(self.part, range(len(self._targets)))):
                if (os.path.dirname(target) or ".") == folder:
                    mine |= {os.path.basename(path) for path in (target, path_for(target, None))}
            for target in self._targets:
                if (os.path.dirname(target) or ".") == folder:
                    ahead.left_of(target, None)  # left by a file that has its name
                    mine.add(ahead.stem_of(target)[1:-1])
            journal.clear(folder, journal.temporaries_of(mine))

    def written(self) -> list[int]:
        """Return the shards that any unfinished job on these files has written."""
        stored = self._own()
        made = {} if stored is None else stored.made
        return [shard for shard in made if _is_made(self._targets[shard], made[shard])]

    def check(self, shard: int) -> None:
        """Raise ChangedError if a source file has changed since the job began."""
        if self._near.state(self._sources[shard]) != self.before[shard]:
            message = "the file changed while its fields were being changed"
            raise ChangedError(message, file=self._sources[shard])

    def begin(self, shard: int, temporary: str, facts: dict[str, Any]) -> None:
        self._begun = shard, Made(state_of(temporary), **facts)
        self._save()

    def finish(self, shard: int) -> None:
        """Note that a shard's file has its name. This is saved when the next shard begins."""
        assert self._begun is not None
        self.done[shard] = self._begun[1]


def _stored(path: str) -> Entries | None:
    """Return the entries of a journal file, or None if the file does not exist or is inconsistent."""
    stored = journal.load(path)
    if stored is None or len(stored.before) != len(stored.files):
        return None
    return stored if all(shard < len(stored.files) for shard in stored.made) else None


def contents_of(index: Index) -> str:
    """Return an identifier of a file's records, made from the positions and checksums of its frames."""
    places, checksums = (
        _core.Buffer.from_values(as_arrow(part)).crc32c()
        for part in (index.starts, index.checksums)
    )
    return f"records {index.num_records} {places:08x} {checksums:08x}"


def bytes_of(path: str) -> str:
    """Return an identifier of a file's bytes."""
    facts = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            facts.update(part)
    return f"bytes {facts.hexdigest()}"


def _is_made(path: str, made: Made) -> bool:
    """Whether the job has made this file, or the file has the same contents."""
    if made.is_at(path):
        return True
    state = state_of(path)
    if state is None or state[1] != made.num_bytes:
        return False
    if made.contents.startswith("bytes"):
        return bytes_of(path) == made.contents
    from penstock.datasets.open import open as open_dataset
    from penstock.framing.read.framed import FramedReader

    try:
        reader = open_dataset(path, raw=True, index="never").files.reader(0)
        return isinstance(reader, FramedReader) and contents_of(reader.index) == made.contents
    except PenstockError:
        return False
