"""What a job that changes fields does with each shard, wherever the new file gets its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import formats
from penstock.columns import kept_names
from penstock.contract.options import options_from
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.engine.pipeline import checked_threads, in_order
from penstock.errors import FormatError
from penstock.framing.index import kept_schema
from penstock.framing.index.sidecar import Index
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Storage
from penstock.verbs.convert.store_journal import Entry
from penstock.verbs.fields._edit import Edit, EditPart, edited, names_after
from penstock.verbs.fields._job import Job
from penstock.verbs.fields._splicing import Output, Splicing, held_bytes


def old_of(dataset: Dataset, paths: list[str]) -> Dataset:
    """Return the dataset with all fields of its files: a field that only later records have is an error. The caller's
    schema, which may leave out columns, is dropped. Neither is needed for spliced Examples, whose bytes are copied."""
    is_plain = dataset.columns is None and dataset.files.overlays is None
    if is_plain and paths == list(dataset.paths):
        old = dataset  # its index is already in memory
    else:
        old = dataset.reopened(source=paths, columns=None, overlays=False)
    if is_spliced(old, 0):
        return old
    if old.options.schema is not None:
        old = dataset.reopened(source=paths, columns=None, overlays=False, schema=None)
    return old.complete()


def is_spliced(old: Dataset, place: int) -> bool:
    return old.files.info(place).holds_examples and isinstance(
        old.files.reader(place), FramedReader
    )


class Place(NamedTuple):
    """Where a worker writes a shard."""

    path: str
    target: str
    """Its final name."""
    storage: Storage
    entry: Entry | None
    """Its entry in the journal of a store."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A new file that is complete, but for its name or its index."""

    num_records: int
    num_bytes: int
    contents: str
    index: Index | None
    """If the shard was spliced."""
    notes: tuple[str, ...]


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

    def place(self, shard: int) -> Place:
        """Return where a worker writes a shard."""
        raise NotImplementedError

    def accept(self, old: Dataset, part: EditPart, ready: Ready) -> None:
        """Give the file that a worker has written its name."""
        raise NotImplementedError


def edited_shard(
    job: Job,
    old: Dataset,
    part: EditPart,
    path: str,
    how: dict[str, Any],
    counted: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> tuple[Summary, str]:
    """Write a shard whose records are decoded. Return also what a rewrite of the old file loses."""
    from penstock.verbs.write.write import write

    batches = edited(old, part, job.edit)
    first = next(batches)
    stream = pa.RecordBatchReader.from_batches(first.schema, counted(chain([first], batches)))
    reader = old.files.reader(part.place)
    if isinstance(reader, FramedReader) and reader.index.compression:
        how = {**how, "compression": reader.index.compression}
    made = write(stream, path, format=format_name(old, part), threads=job.threads, **how)
    kind = formats.by_name(format_name(old, part))
    known = kind.advice(reader.schema)
    notes = (*made.notes, *(note for note in kind.advice(first.schema) if note not in known))
    return replace(made, notes=notes), reader.lost_in_a_rewrite


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
