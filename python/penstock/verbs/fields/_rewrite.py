"""Rewriting of shards with changed fields. TFRecord payloads are copied without being parsed.

A job is a list of shards, each of which becomes one new file. A TFRecord shard is spliced: a kernel removes fields from
the frames and adds fields to them. Frames are written in order while later frames are read. A shard of any other
format is decoded and written again. Each file gets its name when it is complete. With the journal
(`rewrite_journal`), a killed job continues with the missing files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import starmap
from typing import Any

from penstock import formats
from penstock.contract.format import Format, Options
from penstock.contract.opening import open_shard
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.errors import PenstockError
from penstock.framing.format import FramedFormat
from penstock.framing.index import ahead, kept_schema, sidecar
from penstock.framing.read.framed import FramedReader
from penstock.limits import Limits
from penstock.overlay.places import OverlayFolder
from penstock.storage.local import LocalStorage
from penstock.storage.local_append import Tail
from penstock.storage.local_sink import Calls, close_as, sync_path
from penstock.verbs.check import textindex
from penstock.verbs.fields._edit import EditPart, facts_of_baking
from penstock.verbs.fields._job import Job, check
from penstock.verbs.fields._on_machines import check_on, write_on
from penstock.verbs.fields._splicing import Output
from penstock.verbs.fields._values import check_all
from penstock.verbs.fields._work import (
    Place,
    Ready,
    Work,
    edited_shard,
    format_name,
    is_spliced,
    kept_after,
    old_of,
    verify_shard,
)
from penstock.verbs.fields.rewrite_journal import Journal, alone_in, bytes_of, contents_of


def rewrite(job: Job) -> Summary:
    targets = [os.path.realpath(target) for target in job.targets]
    if len(set(targets)) < len(targets):
        raise ValueError("two of the shards would be written to the same file")
    folders = {os.path.dirname(target) or "." for target in job.targets}
    made = [folder for folder in folders if not os.path.isdir(folder)]
    for folder in made:
        os.makedirs(folder)
    try:
        with alone_in(os.path.dirname(job.targets[0]) or "."):
            return _rewrite_alone(job)
    finally:
        for folder in made:
            with suppress(OSError):  # the folder is not empty
                os.rmdir(folder)


def _rewrite_alone(job: Job) -> Summary:
    paths, facts = job.dataset.paths, job.edit.facts()
    near = job.dataset.files.storage
    journal = Journal(paths, job.targets, facts, near, in_place=job.in_place)
    journal.load()
    try:
        work = _Here(job, journal)
        todo = [shard for shard in range(len(job.targets)) if shard not in journal.done]
        for shard in journal.done:
            work.count_earlier(shard)
            job.published(shard)
        if todo:
            write_missing(job, work, todo)
    except BaseException:
        journal.stop()
        raise
    journal.forget()
    return Summary(job.targets, work.num_records, work.num_bytes, tuple(work.notes))


def write_missing(job: Job, work: Work, todo: list[int]) -> None:
    # Only these shards have the old schema: replaced shards already have the new fields.
    old = old_of(job.dataset, [job.dataset.paths[shard] for shard in todo])
    check(job, old, todo)
    if job.on is not None:
        if job.edit.new is not None:
            check_on(job.on, job.edit.new, old, todo)
        for place in range(len(todo)):
            old.files.check_whole(place)
        write_on(job.on, job, work, old, list(starmap(EditPart, enumerate(todo))))
        return
    if job.edit.new is not None:
        check_all(job.edit.new, old, todo, job.threads)
    spliced: list[EditPart] = []
    decoded: list[EditPart] = []
    for place, shard in enumerate(todo):
        old.files.check_whole(place)
        (spliced if is_spliced(old, place) else decoded).append(EditPart(place, shard))
    work.splice(old, spliced)
    for part in decoded:
        work.decode_and_write(old, part)


def journal_of_baking(paths: tuple[str, ...], folder: OverlayFolder | None) -> Journal:
    """Return the journal of baking overlays into these files. The files may be unreadable."""
    return Journal(paths, paths, facts_of_baking(folder), in_place=True)


class _Here(Work):
    """Writes files on this machine. The journal notes each of them, before and after it gets its name."""

    def __init__(self, job: Job, journal: Journal) -> None:
        super().__init__(job)
        self._journal = journal

    def count_earlier(self, shard: int) -> None:
        made = self._journal.done[shard]
        self.count(shard, made.num_records, made.num_bytes)

    def storage_for(self, shard: int) -> LocalStorage:
        """Return storage whose new file has permissions no wider than those of the old file and the target."""
        names = self._job.dataset.paths[shard], self._job.targets[shard]
        return LocalStorage().no_more_open_than(names)

    def publish(self, old: Dataset, part: EditPart, output: Output) -> None:
        """Give a complete file its name, and note it in the journal before and after."""
        shard, index = part.shard, output.finish()
        if self._job.verify:
            verify_shard(self._job, old, part, output.temporary)
        facts = {
            "num_records": index.num_records,
            "num_bytes": index.data_bytes,
            "contents": contents_of(index),
        }
        # Read the old sidecar now: a commit in place replaces the old file.
        kept = kept_after(old, part, self._job.edit)
        index, target = replace(index, schema=kept), self._job.targets[shard]
        beside: AbstractContextManager[Any] = nullcontext()
        if self._job.index is not False:
            storage, folder = LocalStorage(), self.index_folder
            beside = ahead.save(index, output.temporary, target, storage, folder)
        with beside, self._kept_from_others(shard):
            self._journal.begin(shard, output.temporary, facts)
            output.commit()
        kind = formats.by_name(format_name(old, part))
        textindex.follow(kind, index, target, LocalStorage())
        self._journal.finish(shard)
        self._job.published(shard)
        self.count(shard, index.num_records, index.data_bytes)

    @contextmanager
    def _kept_from_others(self, shard: int) -> Generator[None]:
        """Lock a file against appends while it is replaced, and check that no process has changed it."""
        in_place = self._job.in_place
        with Tail(self._job.targets[shard], Calls()) if in_place else nullcontext():
            self._journal.check(shard)
            yield

    # -- other formats --------------------------------------------------------------------------

    def decode_and_write(self, old: Dataset, part: EditPart) -> None:
        job, path = self._job, self._journal.part(part.shard)
        storage = self.storage_for(part.shard)
        how = {"index": False, "overwrite": True, "storage": storage}
        made, lost = edited_shard(job, old, part, path, how, self.counted)
        self.note(made.notes, lost, job.targets[part.shard])
        if job.verify:
            verify_shard(job, old, part, path)
        facts = made.num_records, made.num_bytes, bytes_of(path)
        self.accept(old, part, Ready(*facts, None, ()))

    def place(self, shard: int) -> Place:
        storage = self.storage_for(shard)
        return Place(self._journal.part(shard), self._job.targets[shard], storage, None)

    def accept(self, old: Dataset, part: EditPart, ready: Ready) -> None:
        job, shard, path = self._job, part.shard, self._journal.part(part.shard)
        target, kind = job.targets[shard], formats.by_name(format_name(old, part))
        facts = {
            "num_records": ready.num_records,
            "num_bytes": ready.num_bytes,
            "contents": ready.contents,
        }
        kept = kept_after(old, part, job.edit)
        index = None if ready.index is None else replace(ready.index, schema=kept)
        with self._index_of(old, part, path, kept, index), self._kept_from_others(shard):
            self._journal.begin(shard, path, facts)
            close_as(path, target)
            os.replace(path, target)
            # The rename must be on disk before the overlays with these values are removed.
            sync_path(Calls(), os.path.dirname(target))
            if index is None:
                _move_text_index(kind, path, target)
        if index is not None:
            textindex.follow(kind, index, target, LocalStorage())
        self._journal.finish(shard)
        self.notes.update(dict.fromkeys(ready.notes))
        job.published(shard)
        self.count(shard, ready.num_records, ready.num_bytes)

    def _index_of(
        self, old: Dataset, part: EditPart, path: str, kept: bytes, index: sidecar.Index | None
    ) -> AbstractContextManager[Any]:
        """Write the index of a spliced shard, or the types of another, before the shard gets its name."""
        if index is None:
            return self._types_of(old, part, path, kept)
        if self._job.index is False:
            return nullcontext()
        target = self._job.targets[part.shard]
        return ahead.save(index, path, target, LocalStorage(), self.index_folder)

    def _types_of(
        self, old: Dataset, part: EditPart, path: str, kept: bytes
    ) -> AbstractContextManager[Any]:
        """Write the sidecar with the types of a shard that cannot hold them, before the shard gets its name."""
        if not kept or self._job.index is False:
            return nullcontext()
        kind = formats.by_name(format_name(old, part))
        target, storage = self._job.targets[part.shard], LocalStorage()
        try:
            if isinstance(kind, FramedFormat):
                index = _own_index(kind, path, old.options.limits)
                index = replace(index, schema=kept)
            else:
                index = kept_schema.index_of_others(path, storage, kept)
            return ahead.save(index, path, target, storage, self.index_folder)
        except (OSError, PenstockError) as error:
            # The data is complete, so a warning is enough.
            warnings.warn(
                f"{target} is written, but no index with its types: {error}", stacklevel=4
            )
            return nullcontext()


def _own_index(kind: Format, path: str, limits: Limits) -> sidecar.Index:
    with closing(LocalStorage().source(path)) as source:
        reader = open_shard(kind, source, Options(raw=True, index="never", limits=limits))
        assert isinstance(reader, FramedReader)
        return reader.index


def _move_text_index(kind: Format, path: str, target: str) -> None:
    text = textindex.kept(kind, path, LocalStorage())
    if text is not None:
        close_as(text.path_for(path), target)
        os.replace(text.path_for(path), text.path_for(target))
