"""Changes fields on the machines of a cluster (`on=`).

The lock and the journal stay with the process that called the verb. A worker gets one shard, reads it, and writes the
new file under the name that the journal gives it; in a store, which renames nothing, under its final name. The process
with the journal then gives the file its name, one after another, as it does with its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.datasets.dataset import Dataset
from penstock.datasets.scan import shard_batches
from penstock.engine.cluster import Failed, Machines, all_of
from penstock.engine.pipeline import checked_threads
from penstock.errors import FormatError, PenstockError
from penstock.framing.index import sidecar
from penstock.storage.base import Storage
from penstock.verbs.fields._edit import Edit, EditPart
from penstock.verbs.fields._job import Job
from penstock.verbs.fields._splicing import Output
from penstock.verbs.fields._values import NewFields, columns_of
from penstock.verbs.fields._work import Place, Ready, Work, edited_shard, is_spliced, verify_shard
from penstock.verbs.fields.rewrite_journal import bytes_of, contents_of
from penstock.verbs.machines import remove_attempts


class ShardTask(NamedTuple):
    """One shard to write."""

    old: Dataset
    """The shard alone, with the fields of the whole dataset."""
    new: NewFields | None
    """The new values of this shard alone; None for those that all shards have in common."""
    shard: int
    place: Place


@dataclass(frozen=True, slots=True)
class Common:
    """What all tasks of a job have in common."""

    edit: Edit
    verify: bool
    overwrite: bool
    index: bool | str


def write_on(on: Machines, job: Job, work: Work, old: Dataset, parts: Sequence[EditPart]) -> None:
    """Write the new files of some shards, and give each its name when it is complete."""
    new = job.edit.new
    tasks = [
        ShardTask(
            alone(old, part.place),
            None if new is None else new.of_shard(part.shard),
            part.shard,
            work.place(part.shard),
        )
        for part in parts
    ]
    edit = job.edit
    if all(task.new is not None for task in tasks):
        # A machine that loads this later would open files that were changed in place meanwhile.
        edit = replace(edit, new=None)
    common = Common(edit, job.verify, job.overwrite, job.index)

    def done(number: int, ready: Ready) -> None:
        work.accept(old, parts[number], ready)

    new_paths = [task.place.path for task in tasks]
    try:
        all_of(on.run(partial(_write, common), tasks, [*old.paths, *new_paths]), done)
    finally:
        remove_attempts(job.place, new_paths)


def alone(old: Dataset, place: int) -> Dataset:
    """One file of a dataset, with the fields of the whole."""
    return old.reopened(source=[old.paths[place]], schema=old.schema)


def check_on(on: Machines, new: NewFields, old: Dataset, shards: Sequence[int]) -> None:
    """Raise SchemaError if a record lacks a value, before the first of several files is written."""
    if len(shards) < 2 or not new.checked:
        return
    tasks = [(alone(old, place), new.of_shard(shard), shard) for place, shard in enumerate(shards)]
    all_of(on.run(partial(_check, new), tasks, old.files.read_paths))


def computed_on(
    on: Machines, dataset: Dataset, new: NewFields, shards: Sequence[int]
) -> Generator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the new values of some shards, as they are computed."""
    tasks = [(alone(dataset, shard), new.of_shard(shard), shard) for shard in shards]
    failed: Exception | None = None
    with closing(on.run(partial(_compute, new), tasks, dataset.files.read_paths)) as found:
        for place, result in found:
            if not isinstance(result, Failed):
                yield shards[place], result
            elif failed is None:
                failed = result.error
    if failed is not None:
        raise failed


# -- on a worker ----------------------------------------------------------------------------------


class OfShard(NewFields):
    """The values of one shard of several, where this shard has number 0."""

    def __init__(self, new: NewFields, shard: int) -> None:
        super().__init__(new.schema, new.reads)
        self._new, self._shard = new, shard

    def batch(self, shard: int, first: int, num_records: int, old: Any) -> pa.RecordBatch:
        return self._new.batch(self._shard, first, num_records, old)

    @property
    def checked(self) -> tuple[str, ...]:
        return self._new.checked

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        self._new.check(self._shard, first, old)


def _of(common: NewFields, own: NewFields | None, shard: int) -> NewFields:
    return OfShard(common, shard) if own is None else own


def _check(common: NewFields, task: tuple[Dataset, NewFields | None, int]) -> None:
    old, own, shard = task
    new, done = _of(common, own, shard), 0
    for _, batch in shard_batches(old, list(new.checked), None):
        new.check(0, done, batch)
        done += batch.num_rows


def _compute(
    common: NewFields, task: tuple[Dataset, NewFields | None, int]
) -> list[pa.RecordBatch]:
    dataset, own, shard = task
    return list(columns_of(dataset, 0, _of(common, own, shard), None))


def _write(common: Common, task: ShardTask) -> Ready:
    edit, entry = common.edit, task.place.entry
    if task.new is not None:
        edit = replace(edit, new=task.new)
    elif edit.new is not None:
        edit = replace(edit, new=OfShard(edit.new, task.shard))
    old = task.old if is_spliced(task.old, 0) else task.old.complete(is_found=True)
    with nullcontext(True) if entry is None else entry.writing(overwrite=common.overwrite) as may:
        job = Job(
            old,
            (task.place.path,),
            edit,
            in_place=False,
            overwrite=may,
            verify=common.verify,
            index=False if entry is None else common.index,
            threads=checked_threads(None),
            progress=None,
            place=task.place.storage,
        )
        try:
            return _Attempt(job).ready()
        except PenstockError as error:
            if error.file == task.place.path:
                error.file = task.place.target
            raise


class _Attempt(Work):
    """Writes one shard, which has number 0, under the name that the plan gives it."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._made: Ready | None = None

    def ready(self) -> Ready:
        old, part = self._job.dataset, EditPart(0, 0)
        if is_spliced(old, 0):
            self.splice(old, [part])
        else:
            self.decode_and_write(old, part)
        assert self._made is not None, "a shard was written"
        if self._job.verify:
            self._verify(old, part)
        return replace(self._made, notes=tuple(self.notes))

    def _verify(self, old: Dataset, part: EditPart) -> None:
        path, place = self._job.targets[0], self._job.place
        state = place.state(path)
        try:
            verify_shard(self._job, old, part, path, place)
        except FormatError:
            if place.state(path) == state:  # else it is somebody else's
                place.remove(path)
            raise

    def storage_for(self, shard: int) -> Storage:
        del shard
        return self._job.place

    def publish(self, old: Dataset, part: EditPart, output: Output) -> None:
        index, job = output.finish(), self._job
        if job.overwrite and job.index is not False:
            # A kill must not leave a new object with the old index.
            job.place.remove(sidecar.path_for(job.targets[0], self.index_folder))
        output.commit()
        count, size = index.num_records, index.data_bytes
        self._made = Ready(count, size, contents_of(index), index, ())

    def decode_and_write(self, old: Dataset, part: EditPart) -> None:
        job = self._job
        how = {"index": job.index, "overwrite": job.overwrite, "storage": job.place}
        made, lost = edited_shard(job, old, part, job.targets[0], how, iter)
        self.note(made.notes, lost, job.targets[0])
        is_here = job.place.changes_in_place
        contents = bytes_of(job.targets[0]) if is_here else ""
        self._made = Ready(made.num_records, made.num_bytes, contents, None, ())
