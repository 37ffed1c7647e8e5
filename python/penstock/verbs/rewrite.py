"""Shards written again with other fields: old payloads are copied, never parsed.

A job is a list of shards, each of which becomes one new file. A TFRecord shard is spliced: frames
are read, cut and added to by a kernel, and put out in order while others are read. A shard of any
other format is decoded and written again. Each file gets its name when it is whole; a journal
(`rewrite_journal`) lets a killed job go on with those that are missing.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock import _core
from penstock.dataset import Dataset
from penstock.dataset import open as open_dataset
from penstock.errors import FormatError, PenstockError, SchemaError, UnsupportedError
from penstock.faults import error_from
from penstock.format import Chunk, Summary
from penstock.formats.tfrecord import compression_of
from penstock.formats.tfrecord_columns import RECORD, PayloadPlan, plan_payload
from penstock.framing import sidecar
from penstock.framing.framed import FramedReader
from penstock.pipeline import default_threads, in_order
from penstock.schema import IN_LISTS_KEY
from penstock.storage import LocalStorage
from penstock.verbs.new_fields import Baked, NewFields
from penstock.verbs.rewrite_journal import Journal, bytes_of, contents_of

if TYPE_CHECKING:
    from penstock.formats.tfrecord_writer import TFRecordWriter

Progress = Callable[[int, int, int], None]
"""Called now and then with the records done, the bytes of the source done, and those in all."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of the fields of every record."""

    new: NewFields | None = None
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    replace: bool = False
    """New fields take the place of old ones of their name."""

    def facts(self) -> Any:
        """What tells this edit from others."""
        new = None if self.new is None else self.new.facts()
        return [new, self.drop, self.rename, self.replace]


@dataclass(frozen=True, slots=True)
class Job:
    """One call: what is read, what becomes of it, and how."""

    dataset: Dataset
    targets: tuple[str, ...]
    edit: Edit
    in_place: bool
    overwrite: bool
    verify: bool
    index: bool | str
    threads: int | None
    progress: Progress | None
    published: Callable[[int], None] = lambda shard: None
    """Called with each shard that has its new file, in this run or an earlier one."""


def rewrite(job: Job) -> Summary:
    """Write every shard of a job that is not written yet."""
    targets = [os.path.realpath(target) for target in job.targets]
    if len(set(targets)) < len(targets):
        raise ValueError("two of the shards would be written to the same file")
    folder = None if isinstance(job.index, bool) else job.index
    journal = _journal(job.targets, job.edit.facts(), job.dataset.paths, job.in_place)
    journal.load()
    todo = [shard for shard in range(len(job.targets)) if not journal.is_done(shard)]
    work = _Work(job, journal, folder)
    for shard in range(len(job.targets)):
        if shard not in todo:
            work.passed(shard)
            job.published(shard)
    if todo:
        # What is replaced already has the new fields: the others tell what the old ones are.
        paths = [job.dataset.paths[shard] for shard in todo]
        old = job.dataset.reopened(source=paths, columns=None, overlays=False)
        _check(job, old, todo)
        for folder in {os.path.dirname(target) for target in job.targets}:
            os.makedirs(folder or ".", exist_ok=True)
        framed = [isinstance(old.reader(n), FramedReader) for n in range(len(todo))]
        parts = [Part(n, shard) for n, shard in enumerate(todo)]
        journal.start()
        try:
            work.splice(old, [part for part in parts if framed[part.place]])
            for part in parts:
                if not framed[part.place]:
                    work.decode_and_write(old, part)
        except BaseException:
            journal.stop()
            raise
    journal.forget()
    return Summary(job.targets, work.num_records, work.num_bytes)


def _journal(
    targets: tuple[str, ...], edit: Any, paths: tuple[str, ...], in_place: bool
) -> Journal:
    return Journal(targets, [edit, paths, in_place])


def journal_of_baking(paths: tuple[str, ...]) -> Journal:
    """What says how far overlays were baked into these files; for that none has to be readable."""
    return _journal(paths, [Baked.FACTS, (), (), True], paths, in_place=True)


@dataclass(frozen=True, slots=True)
class Part:
    """A shard that is to be written: its place among those that are, and among all."""

    place: int
    shard: int


def _check(job: Job, old: Dataset, todo: list[int]) -> None:
    """Refuse what cannot be done before anything is written."""
    edit, path, known = job.edit, old.paths[0], old.schema.names
    if old.options.damage != "error":
        raise UnsupportedError(
            f"fields are not changed under damage={old.options.damage!r}: records would be lost",
            hint="penstock repair first",
        )
    if known == [RECORD] and isinstance(old.reader(0), FramedReader):
        message = "these records are no Examples, and have no fields to change"
        raise UnsupportedError(message, file=path)
    for name in [*edit.drop, *(before for before, _ in edit.rename)]:
        if name not in known:
            message = f"no such field; there are: {', '.join(known)}"
            raise SchemaError(message, field=name, file=path)
    staying = {name for name in known if name not in dict(edit.rename)}
    for _, after in edit.rename:
        if after in staying:
            raise SchemaError("there is such a field already", field=after, file=path)
    for name in () if edit.new is None else edit.new.schema.names:
        if name in known and not edit.replace:
            message = "there is such a field already"
            raise SchemaError(message, field=name, file=path, hint=_REPLACE_HINT)
    if not job.in_place:
        sources = {os.path.realpath(source) for source in job.dataset.paths}
        for target in job.targets:
            if os.path.realpath(target) in sources:
                raise ValueError(f"{target} would be written over itself; use in_place=True")
        for shard in () if job.overwrite else todo:
            if os.path.lexists(job.targets[shard]):
                message = f"{job.targets[shard]} exists; pass overwrite=True to replace it"
                raise FileExistsError(message)
    _check_space(job, old, todo)


_REPLACE_HINT = "replace=True puts the new values in the place of the old ones"
_SPARE_BYTES = 16 << 20
"""Room that is left for others when space is counted."""


def _check_space(job: Job, old: Dataset, todo: list[int]) -> None:
    """Refuse a job that the disk has no room for. In place only one new file is there at a time
    besides the old ones; of those that replace nothing, all are."""
    sizes = [os.path.getsize(path) for path in old.paths]
    wanted = max(sizes) if job.in_place else sum(sizes)
    folder = os.path.dirname(job.targets[todo[0]]) or "."
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    free = shutil.disk_usage(folder).free
    if free < wanted + _SPARE_BYTES:
        message = f"{wanted:,} bytes and more are needed, and {free:,} are free"
        raise OSError(errno.ENOSPC, message, folder)


Task = tuple[Part, FramedReader, Chunk | None]
Spliced = tuple[Part, _core.Framed | None]
"""The new frames of some records of a shard; None after the last."""


class _Work:
    """What has been done of a job."""

    def __init__(self, job: Job, journal: Journal, index_folder: str | None) -> None:
        self._job = job
        self._journal = journal
        self._index_folder = index_folder
        self._storage = LocalStorage()
        self._threads = default_threads() if job.threads is None else job.threads
        self._source_bytes = [os.path.getsize(path) for path in job.dataset.paths]
        self._total_bytes = sum(self._source_bytes)
        self._done_bytes = 0
        self.num_records = 0
        self.num_bytes = 0

    def passed(self, shard: int) -> None:
        """Count a shard that an earlier run has written."""
        facts = self._journal.done[shard]
        self._count(shard, facts["num_records"], facts["num_bytes"])

    def _count(self, shard: int, num_records: int, num_bytes: int) -> None:
        self.num_records += num_records
        self.num_bytes += num_bytes
        self._done_bytes += self._source_bytes[shard]
        self._tell(0)

    def _tell(self, more_records: int) -> None:
        if self._job.progress is not None:
            done = self.num_records + more_records
            self._job.progress(done, self._done_bytes, self._total_bytes)

    # -- splicing -------------------------------------------------------------------------------

    def splice(self, old: Dataset, parts: list[Part]) -> None:
        """Write TFRecord shards: several read at once, one written."""
        if not parts:
            return
        plan = _Plan(old, self._job.edit)
        streams = [partial(plan.tasks, part) for part in parts]
        output: _Output | None = None
        try:
            for part, framed in in_order(streams, plan.run, _held_bytes, self._threads):
                if output is None:
                    output = _Output(self._job, part.shard, self._storage)
                if framed is not None:
                    output.add(framed)
                    self._tell(output.num_records)
                    continue
                self._publish(old, part, output)
                output = None
        except BaseException:
            if output is not None:
                output.abort()
            raise

    def _publish(self, old: Dataset, part: Part, output: _Output) -> None:
        """Give a whole file its name, so that a restart knows whether it has it."""
        shard, index = part.shard, output.finish()
        if self._job.verify:
            _verify(self._job, old, part, output.temporary)
        facts = {
            "num_records": index.num_records,
            "num_bytes": index.data_bytes,
            "contents": contents_of(index),
        }
        self._journal.begin(shard, facts)
        output.commit()
        if self._job.index is not False:
            sidecar.save(index, self._job.targets[shard], self._storage, self._index_folder)
        self._journal.finish(shard)
        self._job.published(shard)
        self._count(shard, index.num_records, index.data_bytes)

    # -- other formats --------------------------------------------------------------------------

    def decode_and_write(self, old: Dataset, part: Part) -> None:
        """Write a shard whose records have no bytes of their own to copy."""
        from penstock.verbs.write import write

        job = self._job
        batches = _edited(old, part, job.edit)
        first = next(batches)

        def told() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in chain([first], batches):
                yield batch
                done += batch.num_rows
                self._tell(done)

        stream = pa.RecordBatchReader.from_batches(first.schema, told())
        path = self._journal.part(part.shard)
        how: dict[str, Any] = {"threads": job.threads, "index": False, "overwrite": True}
        made = write(stream, path, format=_format_name(old, part), **how)
        if job.verify:
            _verify(job, old, part, path)
        facts = {
            "num_records": made.num_records,
            "num_bytes": made.num_bytes,
            "contents": bytes_of(path),
        }
        self._journal.begin(part.shard, facts)
        os.replace(path, job.targets[part.shard])
        self._journal.finish(part.shard)
        job.published(part.shard)
        self._count(part.shard, made.num_records, made.num_bytes)


def _format_name(old: Dataset, part: Part) -> str:
    return old.shards[part.place].format


def _held_bytes(result: Spliced) -> int:
    return 0 if result[1] is None else len(result[1].data)


class _Plan:
    """How the records of a job's shards are read and spliced."""

    def __init__(self, old: Dataset, edit: Edit) -> None:
        self._old = old
        self._edit = edit
        in_lists = any(IN_LISTS_KEY in (field.metadata or {}) for field in old.schema)
        self._kind: Literal["example", "sequence"] = "sequence" if in_lists else "example"
        self._payload: PayloadPlan | None = None
        if edit.new is not None:
            self._payload = plan_payload(edit.new.schema, self._kind)
        self._prove = old.options.checksums == "all"

    def tasks(self, part: Part) -> Iterator[Task]:
        """The chunks of a shard, then None."""
        reader = self._old.reader(part.place)
        assert isinstance(reader, FramedReader)
        for chunk in reader.chunks():
            yield part, reader, chunk
        yield part, reader, None

    def run(self, task: Task) -> Iterator[Spliced]:
        """The new frames of a chunk."""
        part, reader, chunk = task
        if chunk is None:
            yield part, None
            return
        try:
            yield part, self._spliced(part.shard, reader, chunk)
        except SchemaError as error:
            raise error.at(file=reader.source.path) from None

    def _spliced(self, shard: int, reader: FramedReader, chunk: Chunk) -> _core.Framed:
        frames = reader.frames(chunk)
        added = self._added(shard, reader, chunk, len(frames))
        edit = self._edit
        cuts: dict[str, Any] = {"drop": list(edit.drop), "rename": list(edit.rename)}
        try:
            framed, _ = _core.splice_fields(
                frames, added, self._kind, **cuts, replace=edit.replace, verify=self._prove
            )
        except _core.KernelError as error:
            raise self._located(error.args[0], chunk, reader.source.path) from None
        return framed

    def _added(
        self, shard: int, reader: FramedReader, chunk: Chunk, num_records: int
    ) -> pa.RecordBatch | None:
        new, payload = self._edit.new, self._payload
        if new is None or payload is None:
            return None
        old = reader.decode(chunk, None, list(new.reads)) if new.reads else None
        batch = new.batch(shard, chunk.first_record, num_records, old)
        try:
            return payload.convert(batch)
        except SchemaError as error:
            if error.record is not None:
                error.record += chunk.first_record
            raise

    @staticmethod
    def _located(fault: Any, chunk: Chunk, path: str) -> PenstockError:
        record = None if fault.record is None else chunk.first_record + fault.record
        error = error_from(fault, file=path, record=record)
        if isinstance(error, SchemaError):
            error.hint = _REPLACE_HINT
        return error


class _Output:
    """One spliced shard on its way to the disk."""

    def __init__(self, job: Job, shard: int, storage: LocalStorage) -> None:
        from penstock.formats.tfrecord_raw import RAW_SCHEMA
        from penstock.formats.tfrecord_writer import TFRecordWriteOptions, TFRecordWriter

        head = storage.source(job.dataset.paths[shard]).read(0, 64).to_bytes()
        compression: Any = compression_of(head) or None
        options = TFRecordWriteOptions(compression=compression, payload="raw")
        replaces = job.in_place or job.overwrite
        self._sink = storage.sink(job.targets[shard], overwrite=replaces)
        self.num_records = 0
        try:
            self._writer: TFRecordWriter = TFRecordWriter(
                self._sink, RAW_SCHEMA, options, job.threads
            )
        except BaseException:
            self._sink.abort()
            raise

    @property
    def temporary(self) -> str:
        """Where the bytes lie before they have a name."""
        return self._sink.temporary

    def add(self, framed: _core.Framed) -> None:
        """Append whole frames."""
        lengths = pa.array(framed.lengths).to_numpy()
        checksums = pa.array(framed.checksums).to_numpy()
        self._writer.write_frames(framed.data, lengths, checksums)
        self.num_records += len(lengths)

    def finish(self) -> sidecar.Index:
        """Make all bytes durable; where the records lie."""
        self._writer.close()
        self._sink.finish()
        return self._writer.index()

    def commit(self) -> None:
        self._sink.commit()

    def abort(self) -> None:
        try:
            self._writer.abort()
        finally:
            self._sink.abort()


# -- decoded --------------------------------------------------------------------------------------


def _edited(old: Dataset, part: Part, edit: Edit) -> Iterator[pa.RecordBatch]:
    """The records of a shard with the fields that an edit makes; at least one batch."""
    reader = old.reader(part.place)
    names = _names_after(old.schema.names, edit)
    found = False
    for chunk in reader.chunks():
        batch = reader.decode(chunk, None, None)
        yield _apply(batch, names, edit, part.shard, chunk.first_record)
        found = True
    if not found:
        empty = pa.RecordBatch.from_pylist([], schema=old.schema)
        yield _apply(empty, names, edit, part.shard, 0)


def _names_after(names: list[str], edit: Edit) -> dict[str, str]:
    """The old fields that stay, {new name: old name}."""
    renamed = dict(edit.rename)
    after = {renamed.get(name, name): name for name in names if name not in edit.drop}
    if len(after) < len(names) - len(set(edit.drop)):
        raise SchemaError("two fields would have the same name")
    return after


def _apply(
    batch: pa.RecordBatch, names: dict[str, str], edit: Edit, shard: int, first: int
) -> pa.RecordBatch:
    columns = {new: batch.column(batch.schema.get_field_index(old)) for new, old in names.items()}
    fields = {new: batch.schema.field(old).with_name(new) for new, old in names.items()}
    if edit.new is not None:
        old = batch.select(list(edit.new.reads)) if edit.new.reads else None
        added = edit.new.batch(shard, first, batch.num_rows, old)
        for field, column in zip(added.schema, added.columns, strict=True):
            columns[field.name], fields[field.name] = column, field
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema(list(fields.values()))
    )


def _verify(job: Job, old: Dataset, part: Part, path: str) -> None:
    """Prove that a new file has the old fields as they were.

    Raises:
        FormatError: names the first record and field that differ.
    """
    from penstock.verbs.proof import prove_equal

    edit = job.edit
    new = set() if edit.new is None else set(edit.new.schema.names)
    names = _names_after(old.schema.names, edit)
    kept = {after: before for after, before in names.items() if after not in new}
    fields = [old.schema.field(before).with_name(after) for after, before in kept.items()]
    how: dict[str, Any] = {"format": _format_name(old, part), "index": "never"}
    mine: dict[str, Any] = {"source": [old.paths[part.place]]}
    if not kept:
        _verify_count(old, part, open_dataset(path, **how), job.targets[part.shard])
        return
    if isinstance(old.reader(part.place), FramedReader):
        # A shard may lack fields that others have, so neither side tells them by itself.
        how["schema"] = pa.schema(fields)
        mine["schema"] = pa.schema([old.schema.field(before) for before in kept.values()])
    wanted = old.reopened(**mine).scan(list(kept.values()), threads=job.threads)
    renamed = (pa.RecordBatch.from_arrays(b.columns, names=list(kept)) for b in wanted)
    found = open_dataset(path, **how).scan(list(kept), threads=job.threads)
    prove_equal(renamed, found, job.targets[part.shard], 0)


def _verify_count(old: Dataset, part: Part, found: Dataset, target: str) -> None:
    """All that is to be proved where no old field stays."""
    first, end = (int(n) for n in old.firsts[part.place : part.place + 2])
    if len(found) != end - first:
        raise FormatError(
            "what was written holds another number of records than what was read",
            file=target,
            expected=end - first,
            found=len(found),
        )
