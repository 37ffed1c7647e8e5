"""Which shards of a change of fields are written, so that a killed one continues with the others.

Every file has to be in a state that the journal knows: as it was when the job began, or as the job has left it.
Otherwise the job does not touch it again.
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
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.journal import Entries, Made, State
from penstock.storage.local import LocalStorage

PREFIX = ".penstock-fields-"
_LOCK = ".penstock-fields.lock"


@contextmanager
def alone_in(folder: str) -> Generator[None]:
    """Keep other jobs out of a folder. The lock ends with the process.

    Raises:
        BlockingIOError: another job is under way there.
    """
    message = "another change of fields is under way in this folder"
    with journal.alone_with(os.path.join(folder, _LOCK), message, folder):
        yield


class Journal(journal.Journal):
    """The shards of one job. Used by one thread, of one process at a time."""

    def __init__(
        self, sources: Sequence[str], targets: Sequence[str], job: Any, *, in_place: bool
    ) -> None:
        files = [os.path.realpath(target) for target in targets]
        paths = [os.path.realpath(source) for source in sources]
        name = f"{PREFIX}{journal.token_of(chr(0).join(files))}.json"
        super().__init__(
            os.path.join(os.path.dirname(targets[0]) or ".", name),
            [job, paths, in_place],
            LocalStorage().no_more_open_than(sources),
        )
        self._sources, self._targets = list(sources), list(targets)
        self._in_place = in_place
        self._files = files
        self.before = [journal.state_of(source) for source in sources]

    def part(self, shard: int) -> str:
        """The temporary name of a file that another verb writes."""
        folder, name = os.path.split(self._targets[shard])
        return os.path.join(folder, f".{name}.{journal.token_of(self._path)}{TEMPORARY_SUFFIX}")

    def load(self) -> None:
        """Read what an earlier run of this job has written, and remove its unfinished files.

        Raises:
            UnsupportedError: another job on these files has not been finished.
            ChangedError: a file is neither as it was nor as this job has left it.
        """
        self._refuse_others()
        stored = self._own()
        if stored is None or not (stored.job == self._job or self.written()):
            self._tidy()  # of a job that was killed before it had changed anything
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

    def _own(self) -> Entries | None:
        """The journal of these files; None if there is none, or it is about others."""
        stored = _stored(self._path)
        return stored if stored is not None and stored.files == self._files else None

    def is_of_this_job(self) -> bool:
        """Whether the unfinished job is this one."""
        stored = self._own()
        return stored is not None and stored.job == self._job

    def stop(self) -> None:
        """The job failed: forget it if it has done nothing."""
        if not self.done and self._begun is None:
            with suppress(OSError):  # the error of the job is raised
                self._tidy()
                self.forget()

    def _is_written(self, shard: int, made: Made, source: State | None) -> bool:
        """Whether this job has made a shard's file from the present source."""
        if not self._in_place and source != self.before[shard]:
            return False
        return _is_made(self._targets[shard], made)

    def _refuse_others(self) -> None:
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            if not os.path.isdir(folder):
                continue
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if not (name.startswith(PREFIX) and name.endswith(".json")):
                    continue
                stored = None if path == self._path else _stored(path)
                if stored is None or not stored.made:
                    continue  # it has changed nothing
                if not set(stored.files).isdisjoint(self._files):
                    raise self._unfinished(path, stored)

    def _unfinished(self, path: str, stored: Entries) -> UnsupportedError:
        return UnsupportedError(
            f"another change of the fields of these files was not finished: up to {len(stored.made)} "
            f"of {len(stored.files)} are written",
            file=self._targets[0],
            hint="call it again the same way, with the same files in the same order; or delete "
            f"{path} to leave each file as it is now",
        )

    def _tidy(self) -> None:
        """Remove temporary files of this job."""
        for folder in {os.path.dirname(target) or "." for target in self._targets}:
            mine: set[str] = set()
            for target in (*self._targets, *map(self.part, range(len(self._targets)))):
                if (os.path.dirname(target) or ".") == folder:
                    mine |= {os.path.basename(path) for path in (target, path_for(target, None))}
            for target in self._targets:
                if (os.path.dirname(target) or ".") == folder:
                    ahead.left_of(target, None)  # of a file that has its name
                    mine.add(ahead.stem_of(target)[1:-1])
            journal.clear(folder, journal.temporaries_of(mine))

    def written(self) -> list[int]:
        """The shards that an unfinished job on these files has written, whichever job it is."""
        stored = self._own()
        made = {} if stored is None else stored.made
        return [shard for shard in made if _is_made(self._targets[shard], made[shard])]

    def check(self, shard: int) -> None:
        """Raise ChangedError if a source is not as it was when the job began."""
        if journal.state_of(self._sources[shard]) != self.before[shard]:
            message = "the file was changed while its fields were"
            raise ChangedError(message, file=self._sources[shard])

    def begin(self, shard: int, temporary: str, facts: dict[str, Any]) -> None:
        """Note what a shard will be, before it gets its name."""
        self._begun = shard, Made(journal.state_of(temporary), **facts)
        self._save()

    def finish(self, shard: int) -> None:
        """Note that a shard has its name; saved when the next one begins."""
        assert self._begun is not None
        self.done[shard] = self._begun[1]


def _stored(path: str) -> Entries | None:
    """A journal of shards; None if there is none, or it is not consistent."""
    stored = journal.load(path)
    if stored is None or len(stored.before) != len(stored.files):
        return None
    return stored if all(shard < len(stored.files) for shard in stored.made) else None


def contents_of(index: Index) -> str:
    """A name for the records of a file, from the positions and checksums of its frames."""
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


def _is_made(path: str, made: Made) -> bool:
    """Whether a file is one that the job has made, or has its contents."""
    if made.is_at(path):
        return True
    state = journal.state_of(path)
    if state is None or state[1] != made.num_bytes:
        return False
    if made.contents.startswith("bytes"):
        return bytes_of(path) == made.contents
    from penstock.datasets.dataset import open as open_dataset
    from penstock.framing.read.framed import FramedReader

    try:
        reader = open_dataset(path, raw=True, index="never").files.reader(0)
        return isinstance(reader, FramedReader) and contents_of(reader.index) == made.contents
    except PenstockError:
        return False
