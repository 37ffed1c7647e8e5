"""Rewriting of shards with changed fields into a store. Each shard becomes one new object, which appears whole under its
final name: a store renames nothing. The journal lists the finished shards, so that a killed job continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from penstock import formats
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.errors import ChangedError, FormatError, PenstockError, StorageError
from penstock.framing.format import FramedFormat
from penstock.framing.index import sidecar
from penstock.storage.base import State, Storage
from penstock.storage.hidden import JOB_PREFIX
from penstock.storage.journal import Made, token_of
from penstock.storage.store_lock import StoreLock, alone_in
from penstock.storage.urls import real_path
from penstock.verbs.check import textindex
from penstock.verbs.convert.store_journal import StoreJournal
from penstock.verbs.fields._edit import EditPart
from penstock.verbs.fields._job import Job, refuse_sources
from penstock.verbs.fields._rewrite import write_missing
from penstock.verbs.fields._splicing import Output
from penstock.verbs.fields._work import (
    Place,
    Ready,
    Work,
    edited_shard,
    format_name,
    kept_after,
    verify_shard,
)

_BUSY = "another change of fields is writing these files; wait until that ends, or 2 minutes if it was killed"


def rewrite_elsewhere(job: Job) -> Summary:
    """Write the shards of a job into a store."""
    if len(set(map(real_path, job.targets))) < len(job.targets):
        raise ValueError("two of the shards would be written to the same file")
    refuse_sources(job)
    name = f"{JOB_PREFIX}fields-{token_of(chr(0).join(job.targets))}"
    folder = os.path.join(os.path.dirname(job.targets[0]), name)
    with alone_in(job.place, folder, _BUSY, job.targets[0]) as lock:
        return _rewrite_alone(job, folder, lock)


def _rewrite_alone(job: Job, folder: str, lock: StoreLock) -> Summary:
    paths, near = job.dataset.paths, job.dataset.files.storage
    before = [near.opened_state(path) for path in paths]
    facts = [job.edit.facts(), paths, before]
    journal = StoreJournal(job.place, folder, facts, job.targets, lambda final: _beside(job, final))
    journal.load(overwrite=job.overwrite)
    work = _Elsewhere(job, journal, lock, before)
    todo = [shard for shard in range(len(job.targets)) if shard not in journal.done]
    for shard in journal.done:
        work.count_earlier(shard)
    try:
        if todo:
            write_missing(job, work, todo)
    except StorageError:
        raise  # another run goes on
    except (PenstockError, ValueError):
        journal.undo()  # another run would fail in the same way
        raise
    lock.check()
    journal.forget()
    return Summary(job.targets, work.num_records, work.num_bytes, tuple(work.notes))


def _beside(job: Job, target: str) -> Iterator[str]:
    """The names of the files that belong to a new shard."""
    if not isinstance(job.index, str):
        yield sidecar.path_for(target, None)
    kind = formats.by_name(job.dataset.files.format_name(0))
    if isinstance(kind, FramedFormat) and kind.text_index is not None:
        yield kind.text_index.path_for(target)


class _Elsewhere(Work):
    """Writes shards under their final names."""

    def __init__(
        self, job: Job, journal: StoreJournal, lock: StoreLock, before: list[State | None]
    ) -> None:
        super().__init__(job)
        self._journal, self._lock, self._before = journal, lock, before
        self._writing = ExitStack()
        """The shard that is being written, in the journal."""

    def count_earlier(self, shard: int) -> None:
        made = self._journal.done[shard]
        self.notes.update(dict.fromkeys(made.notes))
        self.count(shard, made.num_records, made.num_bytes)

    def storage_for(self, shard: int) -> Storage:
        return self._job.place

    def _begin(self, shard: int) -> bool:
        """Note in the journal that a shard is being written, and return whether it may replace an object."""
        self._lock.check()
        self._writing = ExitStack()
        writing = self._journal.entry(shard).writing(overwrite=self._job.overwrite)
        return self._writing.enter_context(writing)

    def output(self, shard: int, *, overwrite: bool) -> Output:
        may_replace = self._begin(shard)
        with ExitStack() as stack:
            stack.push(self._writing)
            found = super().output(shard, overwrite=may_replace)
            stack.pop_all()
        return found

    def publish(self, old: Dataset, part: EditPart, output: Output) -> None:
        index = output.finish()
        index = replace(index, schema=kept_after(old, part, self._job.edit))
        target, place = self._job.targets[part.shard], self._job.place
        if self._job.overwrite:
            # A kill must not leave a new object with the old index.
            place.remove(sidecar.path_for(target, self.index_folder))
        with self._writing:
            output.commit()
        self._beside(old, part, index)
        self._finish(old, part, index.num_records, index.data_bytes, ())

    def decode_and_write(self, old: Dataset, part: EditPart) -> None:
        job, target = self._job, self._job.targets[part.shard]
        may_replace = self._begin(part.shard)
        how = {"index": job.index, "storage": job.place, "overwrite": may_replace}
        with self._writing:
            made, lost = edited_shard(job, old, part, target, how, self.counted)
        self.note(made.notes, lost, target)
        notes = (*made.notes, *([f"{target}: {lost}"] if lost else []))
        self._finish(old, part, made.num_records, made.num_bytes, notes)

    def place(self, shard: int) -> Place:
        self._lock.check()
        entry = self._journal.entry(shard)._replace(has_begun=None)
        target = self._job.targets[shard]
        return Place(target, target, self._job.place, entry)

    def accept(self, old: Dataset, part: EditPart, ready: Ready) -> None:
        self._lock.check()
        if ready.index is not None:
            self._beside(
                old, part, replace(ready.index, schema=kept_after(old, part, self._job.edit))
            )
        facts = ready.num_records, ready.num_bytes, ready.notes
        self._finish(old, part, *facts, is_verified=True)

    def _beside(self, old: Dataset, part: EditPart, index: sidecar.Index) -> None:
        """Write the indexes of a spliced shard."""
        target, place = self._job.targets[part.shard], self._job.place
        if self._job.index is not False:
            sidecar.save(index, target, place, self.index_folder)
        textindex.follow(formats.by_name(format_name(old, part)), index, target, place)

    def _finish(
        self,
        old: Dataset,
        part: EditPart,
        num_records: int,
        num_bytes: int,
        notes: tuple[str, ...],
        *,
        is_verified: bool = False,
    ) -> None:
        """Verify a shard that has its name, and note in the journal that it is finished."""
        job, target = self._job, self._job.targets[part.shard]
        state = job.place.state(target)
        try:
            self._check_source(part.shard)
            if job.verify and not is_verified:
                verify_shard(job, old, part, target, job.place)
        except (ChangedError, FormatError):
            if job.place.state(target) == state:  # else it is somebody else's
                job.place.remove(target)
            raise
        written = Made(state, num_bytes, num_records, notes=notes)
        self._journal.entry(part.shard).finish(written)
        self._journal.finish(part.shard, written)
        self.notes.update(dict.fromkeys(notes))
        job.published(part.shard)
        self.count(part.shard, num_records, num_bytes)

    def _check_source(self, shard: int) -> None:
        path = self._job.dataset.paths[shard]
        if self._job.dataset.files.storage.state(path) != self._before[shard]:
            raise ChangedError("the file changed while its fields were being changed", file=path)
