"""Rewriting of shards with changed fields, from a store or into one. Each shard becomes one new file, which appears
whole under its final name: a store has no locks and no renames."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock import formats
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.framing.index import sidecar
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Storage
from penstock.storage.urls import real_path
from penstock.verbs.check import textindex
from penstock.verbs.fields._edit import EditPart, edited
from penstock.verbs.fields._job import Job
from penstock.verbs.fields._rewrite import (
    Work,
    format_name,
    kept_after,
    verify_shard,
    write_missing,
)
from penstock.verbs.fields._splicing import Output


def rewrite_elsewhere(job: Job) -> Summary:
    """Write the shards of a job that reads from a store or writes to one."""
    if len(set(map(real_path, job.targets))) < len(job.targets):
        raise ValueError("two of the shards would be written to the same file")
    if job.place.changes_in_place:
        for folder in {os.path.dirname(target) or "." for target in job.targets}:
            os.makedirs(folder, exist_ok=True)
    work = _Elsewhere(job)
    write_missing(job, work, list(range(len(job.targets))))
    return Summary(job.targets, work.num_records, work.num_bytes, tuple(work.notes))


class _Elsewhere(Work):
    """Writes shards under their final names."""

    @property
    def _place(self) -> Storage:
        return self._job.place

    def storage_for(self, shard: int) -> Storage:
        return self._place

    def publish(self, old: Dataset, part: EditPart, output: Output) -> None:
        index = output.finish()
        index = replace(index, schema=kept_after(old, part, self._job.edit))
        target = self._job.targets[part.shard]
        self._drop_old_index(target)
        output.commit()
        self._verify(old, part)
        if self._job.index is not False:
            sidecar.save(index, target, self._place, self.index_folder)
        textindex.follow(formats.by_name(format_name(old, part)), index, target, self._place)
        self._finish(old, part, index.num_records, index.data_bytes)

    def decode_and_write(self, old: Dataset, part: EditPart) -> None:
        from penstock.verbs.write.write import write

        job, target = self._job, self._job.targets[part.shard]
        batches = edited(old, part, job.edit)
        first = next(batches)
        stream = pa.RecordBatchReader.from_batches(
            first.schema, self.counted(chain([first], batches))
        )
        reader = old.files.reader(part.place)
        how: dict[str, Any] = {"threads": job.threads, "index": job.index, "storage": self._place}
        if isinstance(reader, FramedReader) and reader.index.compression:
            how["compression"] = reader.index.compression
        made = write(stream, target, format=format_name(old, part), overwrite=job.overwrite, **how)
        self.note(made.notes, reader.lost_in_a_rewrite, target)
        self._verify(old, part)
        self._finish(old, part, made.num_records, made.num_bytes)

    def _drop_old_index(self, target: str) -> None:
        """Remove the index of an object that is about to be replaced: a kill must not leave a new object with it."""
        if self._job.overwrite:
            self._place.remove(sidecar.path_for(target, self.index_folder))

    def _verify(self, old: Dataset, part: EditPart) -> None:
        if not self._job.verify:
            return
        target = self._job.targets[part.shard]
        try:
            verify_shard(self._job, old, part, target, self._place)
        except BaseException:
            self._place.remove(target)
            raise

    def _finish(self, old: Dataset, part: EditPart, num_records: int, num_bytes: int) -> None:
        old.files.check_unchanged(part.place)
        self._job.published(part.shard)
        self.count(part.shard, num_records, num_bytes)
