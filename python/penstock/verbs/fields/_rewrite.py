"""Rewriting of shards with changed fields. TFRecord payloads are copied without being parsed.

A job is a list of shards, each of which becomes one new file. A TFRecord shard is spliced: a kernel removes fields from
the frames and adds fields to them. Frames are written in order while later frames are read. A shard of any other
format is decoded and written again. Each file gets its name when it is complete. With the journal
(`rewrite_journal`), a killed job continues with the missing files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock import formats
from penstock.columns import kept_names
from penstock.contract.format import Format, Options
from penstock.contract.opening import open_shard
from penstock.contract.options import options_from
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.engine.pipeline import checked_threads, in_order
from penstock.errors import FormatError, PenstockError
from penstock.framing.format import FramedFormat
from penstock.framing.index import ahead, kept_schema, sidecar
from penstock.framing.read.framed import FramedReader
from penstock.limits import Limits
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.local_append import Tail
from penstock.storage.local_sink import Calls, close_as, sync_path
from penstock.verbs.check import textindex
from penstock.verbs.fields._edit import BAKING, Edit, EditPart, edited, names_after
from penstock.verbs.fields._job import Job, check
from penstock.verbs.fields._splicing import Output, Splicing, held_bytes
from penstock.verbs.fields._values import check_all
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


def old_of(dataset: Dataset, paths: list[str]) -> Dataset:
    """Return the dataset with all fields of its files. The caller's schema, which may leave out columns, is dropped,
    except for spliced Examples: their bytes are copied, whatever the schema is."""
    is_plain = dataset.columns is None and dataset.files.overlays is None
    if is_plain and paths == list(dataset.paths):
        old = dataset  # its index is already in memory
    else:
        old = dataset.reopened(source=paths, columns=None, overlays=False)
    if old.options.schema is None or is_spliced(old, 0):
        return old
    return dataset.reopened(source=paths, columns=None, overlays=False, schema=None)


def is_spliced(old: Dataset, place: int) -> bool:
    return old.files.info(place).holds_examples and isinstance(
        old.files.reader(place), FramedReader
    )


def journal_of_baking(paths: tuple[str, ...]) -> Journal:
    """Return the journal of baking overlays into these files. The files may be unreadable."""
    return Journal(paths, paths, BAKING, in_place=True)


_AHEAD_BYTES = 16 << 20
"""The most spliced bytes that wait to be written: enough to keep the writer busy, but few enough for CPU caches."""


class Work:
    """Writes the shards of a job, one after another. Subclasses give a file its name."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.index_folder = None if isinstance(job.index, bool) else job.index
        self._threads = checked_threads(job.threads)
        files = job.dataset.files
        self._source_bytes = [files.storage.num_bytes(path) for path in job.dataset.paths]
        self._total_bytes = sum(self._source_bytes)
        self._done_bytes = 0
        self.num_records = 0
        self.num_bytes = 0
        self.notes: dict[str, None] = {}
        """Notes of the writers on values that they have changed in this run."""

    def count(self, shard: int, num_records: int, num_bytes: int) -> None:
        self.num_records += num_records
        self.num_bytes += num_bytes
        self._done_bytes += self._source_bytes[shard]
        self._tell(0)

    def _tell(self, more_records: int) -> None:
        if self._job.progress is not None:
            done = self.num_records + more_records
            self._job.progress(done, self._done_bytes, self._total_bytes)

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a shard, and report their records."""
        done = 0
        for batch in batches:
            yield batch
            done += batch.num_rows
            self._tell(done)

    def note(self, notes: Sequence[str], lost: str, target: str) -> None:
        """Add the notes of a writer, and what a rewrite of the old file loses."""
        self.notes.update(dict.fromkeys([*notes, *([f"{target}: {lost}"] if lost else [])]))

    def splice(self, old: Dataset, parts: list[EditPart]) -> None:
        """Write TFRecord shards. Several are read in parallel, and one is written at a time."""
        if not parts:
            return
        job = self._job
        plan = Splicing(old, self._job.edit)
        streams = [partial(plan.tasks, part) for part in parts]
        output: Output | None = None
        try:
            results = in_order(streams, plan.run, held_bytes, self._threads, _AHEAD_BYTES)
            for part, framed in results:
                if output is None:
                    output = self.output(part.shard, overwrite=job.in_place or job.overwrite)
                if framed is not None:
                    output.add(framed)
                    self._tell(output.num_records)
                    continue
                self.publish(old, part, output)
                output = None
            self.notes.update(dict.fromkeys(plan.losses.notes))
        except BaseException:
            if output is not None:
                output.abort()
            raise

    def output(self, shard: int, *, overwrite: bool) -> Output:
        """Begin to write a spliced shard."""
        job = self._job
        return Output(
            formats.by_name(job.dataset.files.format_name(shard)),
            job.dataset.paths[shard],
            job.targets[shard],
            job.dataset.files.storage,
            self.storage_for(shard),
            overwrite=overwrite,
            threads=job.threads,
        )

    def storage_for(self, shard: int) -> Storage:
        """Return the storage of a new file."""
        raise NotImplementedError

    def publish(self, old: Dataset, part: EditPart, output: Output) -> None:
        """Give a complete file its name."""
        raise NotImplementedError

    def decode_and_write(self, old: Dataset, part: EditPart) -> None:
        """Write a shard whose records are decoded."""
        raise NotImplementedError


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
        from penstock.verbs.write.write import write

        job = self._job
        batches = edited(old, part, job.edit)
        first = next(batches)

        stream = pa.RecordBatchReader.from_batches(
            first.schema, self.counted(chain([first], batches))
        )
        path = self._journal.part(part.shard)
        how: dict[str, Any] = {"threads": job.threads, "index": False, "overwrite": True}
        how["storage"] = self.storage_for(part.shard)
        reader = old.files.reader(part.place)
        if isinstance(reader, FramedReader) and reader.index.compression:
            how["compression"] = reader.index.compression
        made = write(stream, path, format=format_name(old, part), **how)
        self.note(made.notes, reader.lost_in_a_rewrite, job.targets[part.shard])
        if job.verify:
            verify_shard(job, old, part, path)
        facts = {
            "num_records": made.num_records,
            "num_bytes": made.num_bytes,
            "contents": bytes_of(path),
        }
        kept = kept_after(old, part, job.edit)
        target = job.targets[part.shard]
        with self._types_of(old, part, path, kept), self._kept_from_others(part.shard):
            self._journal.begin(part.shard, path, facts)
            close_as(path, target)
            os.replace(path, target)
            # The rename must be on disk before the overlays with these values are removed.
            sync_path(Calls(), os.path.dirname(target))
            _move_text_index(format_name(old, part), path, target)
        self._journal.finish(part.shard)
        job.published(part.shard)
        self.count(part.shard, made.num_records, made.num_bytes)

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
                index = _index_of(kind, path, old.options.limits)
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


def _index_of(kind: Format, path: str, limits: Limits) -> sidecar.Index:
    with closing(LocalStorage().source(path)) as source:
        reader = open_shard(kind, source, Options(raw=True, index="never", limits=limits))
        assert isinstance(reader, FramedReader)
        return reader.index


def kept_after(old: Dataset, part: EditPart, edit: Edit) -> bytes:
    """Return the schema for the sidecar of a new shard, if the sidecar of the old shard has a schema. Other shards'
    sidecars are not used, because a killed job may have changed the fields of these shards."""
    path, kind = old.paths[part.place], formats.by_name(format_name(old, part))
    found = kept_schema.of_file(path, old.files.storage, old.options, lambda source: kind)
    kept = kept_schema.from_bytes(found)
    if kept is None:
        return b""
    fields = {
        new: kept.field(was).with_name(new) for new, was in names_after(kept.names, edit).items()
    }
    if edit.new is not None:
        fields |= {field.name: field for field in edit.new.schema}
    options = options_from(kind.write_options, {}, kind.info.name)
    names = {name: kept_names.names_of(field) for name, field in fields.items()}
    made = kept_schema.of_written(kind, pa.schema(list(fields.values())), options)
    return kept_schema.finished(kind, kept_schema.with_names(made, names))


def _move_text_index(format: str, path: str, target: str) -> None:
    kind = formats.by_name(format)
    text = textindex.kept(kind, path, LocalStorage())
    if text is not None:
        close_as(text.path_for(path), target)
        os.replace(text.path_for(path), text.path_for(target))


def format_name(old: Dataset, part: EditPart) -> str:
    return old.shards[part.place].format


def verify_shard(
    job: Job, old: Dataset, part: EditPart, path: str, place: Storage | None = None
) -> None:
    """Verify that the old fields are unchanged in a new file. If not, the FormatError names the record and field."""
    from penstock.verbs.convert.proof import as_stored, prove_equal

    info = old.files.info(part.place)
    kept = _unchanged_fields(old, job.edit, info.added_columns)
    how: dict[str, Any] = {"format": format_name(old, part), "index": "never", "storage": place}
    mine: dict[str, Any] = {"source": [old.paths[part.place]]}
    if not kept:
        _verify_count(old, part, open_dataset(path, **how), job.targets[part.shard])
        return
    if is_spliced(old, part.place):
        # A shard may lack fields that other shards have, so both are read by the dataset's schema.
        before = [old.schema.field(name) for name in kept.values()]
        mine["schema"] = pa.schema(before)
        how["schema"] = pa.schema(field.with_name(n) for n, field in zip(kept, before, strict=True))
    wanted = old.reopened(**mine).scan(list(kept.values()), threads=job.threads)
    renamed = (pa.RecordBatch.from_arrays(b.columns, names=list(kept)) for b in wanted)
    made = open_dataset(path, **how)
    if not info.lossless and "schema" not in how:
        renamed = map(partial(as_stored, schema=made.schema), renamed)
    found = made.scan(list(kept), threads=job.threads)
    prove_equal(renamed, found, job.targets[part.shard], 0)


def _unchanged_fields(old: Dataset, edit: Edit, added: Collection[str]) -> dict[str, str]:
    """Return the old fields whose values do not change, as {new name: old name}."""
    gone = set() if edit.new is None else set(edit.new.schema.names)
    names = names_after(old.schema.names, edit)
    return {new: was for new, was in names.items() if new not in gone and was not in added}


def _verify_count(old: Dataset, part: EditPart, found: Dataset, target: str) -> None:
    """Compare the number of records only, because no old field stays."""
    first, end = (int(n) for n in old.files.firsts[part.place : part.place + 2])
    if len(found) != end - first:
        raise FormatError(
            "the written file has a different number of records than the source",
            file=target,
            expected=end - first,
            found=len(found),
        )
