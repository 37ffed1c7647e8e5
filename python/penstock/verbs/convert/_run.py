"""A conversion, part by part: written under names of their own, proved where asked, and named together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any
from uuid import uuid4

import pyarrow as pa

from penstock.contract.format import Format, Options, Summary
from penstock.contract.opening import open_shard
from penstock.datasets.dataset import open as open_dataset
from penstock.errors import PenstockError, SchemaError
from penstock.framing.format import FramedFormat
from penstock.framing.read.framed import FramedReader
from penstock.payloads.example.plans import is_raw
from penstock.storage.folder import size_of
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import refuse_device
from penstock.verbs.check import textindex
from penstock.verbs.convert._parts import Part, check_names
from penstock.verbs.convert._reading import Reading
from penstock.verbs.convert.journal import Journal, refuse_existing
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.shards import Names
from penstock.verbs.write.write import drop_old_indexes, write

Progress = Callable[[int, int, int], None]
"""Called now and then with the records done, the bytes of the source done, and those in all."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How files are written."""

    kind: Format
    options: Any
    format_options: dict[str, Any]
    index: bool | str
    threads: int | None

    def file(self, data: Incoming, path: str, **more: Any) -> Summary:
        """Write records to one file or to several."""
        return write(
            data,
            path,
            format=self.kind.info.name,
            compression=getattr(self.options, "compression", None),
            index=self.index,
            threads=self.threads,
            **more,
            **{k: v for k, v in self.format_options.items() if k != "compression"},
        )


class Telling:
    """Tells how far a job is, in records and bytes of the source."""

    def __init__(self, told: Progress | None, num_records: int, total_bytes: int) -> None:
        self._told = told
        self._num_records = max(1, num_records)
        self._total_bytes = total_bytes
        self._done = 0

    def add(self, num_records: int) -> None:
        """So many more records are done."""
        self._done += num_records
        if self._told is not None:
            done_bytes = self._total_bytes * min(self._done, self._num_records) // self._num_records
            self._told(self._done, done_bytes, self._total_bytes)

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they are taken."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)


def run(
    parts: list[Part],
    target: str,
    reading: Reading,
    writing: Writing,
    tell: Telling,
    *,
    prove: bool,
    overwrite: bool,
) -> Summary:
    """Write the parts that are not finished yet, and give all of them their names."""
    finals = [part.final for part in parts]
    cuts = [[part.number, part.first, part.last, part.final] for part in parts]
    place = os.path.dirname(finals[0])
    storage = reading.storage.no_more_open_than(finals)
    journal = _journal(target, place, cuts, reading, writing, storage)
    if not overwrite and not journal.is_publishing:
        refuse_existing(finals)
    for part in parts:
        if part.number in journal.done:
            tell.add(part.last - part.first)
            continue
        batches = tell.watch(reading.batches(part.first, part.last, lend=True))
        stream = Incoming(reading.schema, batches, None, reading.kept)
        path = journal.part_path(part.number)
        try:
            made = writing.file(
                stream,
                path,
                overwrite=True,
                storage=reading.storage.no_more_open_than([part.final]),
            )
        except PenstockError as error:
            if error.file == path:
                error.file = part.final  # nobody knows the part by its own name
            if isinstance(error, SchemaError):
                journal.forget()  # no other run of this job would come further
            raise
        journal.finish(part.number, made.num_bytes, made.notes)
    if prove:
        for part in parts:
            path = journal.part_path(part.number)
            try:
                _prove(part, path if os.path.exists(path) else part.final, reading, writing)
            except PenstockError:
                if not journal.is_publishing:
                    journal.forget()
                raise
    return _publish(journal, finals, reading, writing, overwrite=overwrite)


def run_by_bytes(
    target: str,
    limits: dict[str, int | None],
    reading: Reading,
    writing: Writing,
    tell: Telling,
    *,
    overwrite: bool,
) -> Summary:
    """Write shards that end by their bytes. How many there are is part of their names, and known at the end."""
    names = Names(target, writing.kind.info.extensions, is_sharded=True, total=None)
    first = names.provisional(0)
    place, cuts = os.path.dirname(target), [target, limits]
    storage = reading.storage.no_more_open_than(names.taken())
    journal = _journal(target, place, cuts, reading, writing, storage)
    try:
        if journal.is_whole:
            tell.add(reading.num_records)
        else:
            journal.forget()
            if not overwrite:
                refuse_existing([first])
            refuse_device(first)
            batches = tell.watch(reading.batches(0, reading.num_records, lend=True))
            stream = Incoming(reading.schema, batches, None, reading.kept)
            made = writing.file(
                stream, journal.part_pattern, overwrite=True, storage=storage, **limits
            )
            for number, path in enumerate(made.paths):
                journal.add(number, size_of(path), made.notes)
        total = len(journal.done)
        finals = [names.final(number, total) for number in range(total)]
        check_names(finals, target, reading)
        return _publish(journal, finals, reading, writing, overwrite=overwrite)
    except BaseException as error:
        if isinstance(error, PenstockError) and journal.is_part(error.file):
            error.file = target  # nobody knows the part by its own name
        if not journal.is_publishing:
            journal.forget()
        raise


def _journal(
    target: str,
    place: str,
    cuts: list[Any],
    reading: Reading,
    writing: Writing,
    storage: LocalStorage,
) -> Journal:
    """What is finished of a job; `cuts` say which records become which files."""
    folder = None if isinstance(writing.index, bool) else writing.index
    text = writing.kind.text_index if isinstance(writing.kind, FramedFormat) else None
    job = _job(cuts, reading, writing)
    journal = Journal(target, place, job, folder, storage, text)
    journal.load()
    return journal


def _publish(
    journal: Journal, finals: list[str], reading: Reading, writing: Writing, *, overwrite: bool
) -> Summary:
    """Give whole parts their names."""
    finished = [journal.done[number] for number in sorted(journal.done)]
    num_bytes = sum(part.num_bytes for part in finished)
    notes = tuple(dict.fromkeys(note for part in finished for note in part.notes))
    drop_old_indexes(finals, LocalStorage(), writing.index, overwrite=overwrite)
    if overwrite:
        for number, final in enumerate(finals):
            _keep_text_index(journal.part_path(number), final, writing)
    journal.publish(finals, overwrite=overwrite)
    return Summary(tuple(finals), reading.num_records, num_bytes, notes)


def _keep_text_index(path: str, final: str, writing: Writing) -> None:
    """Where a text index is kept beside a file that is to be replaced, give the part one that takes its place."""
    kind, storage = writing.kind, LocalStorage()
    text = textindex.kept(kind, final, storage)
    if text is None or not os.path.exists(path) or os.path.exists(text.path_for(path)):
        return
    kept_at = "never" if writing.index is False else "auto"
    kept_at = writing.index if isinstance(writing.index, str) else kept_at
    source = storage.source(path)
    try:
        reader = open_shard(kind, source, Options(raw=True, index=kept_at))
        assert isinstance(reader, FramedReader), "formats with text indexes are framed"
        if reader.index.compression:
            textindex.drop(text, final, storage)
        else:
            textindex.write(text, reader.index, path, storage)
    finally:
        source.close()


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("penstock")


def _job(cuts: list[Any], reading: Reading, writing: Writing) -> dict[str, Any]:
    """All that decides what is written. Another job must not use what this one has finished."""
    files = reading.dataset.files
    sources: list[Any] = []
    for number, path in enumerate(files.paths):
        if isinstance(files.storage, LocalStorage):
            state = os.stat(path)
            sources.append([os.path.abspath(path), state.st_size, state.st_mtime_ns])
        else:
            # Nobody knows whether a file elsewhere is still what it was: a killed job starts again.
            sources.append([path, files.num_bytes(number), uuid4().hex])
    return {
        "version": _version(),
        "sources": sources,
        "overlays": [files.overlay_digests(n) for n in range(len(sources))],
        "read": reading.told,
        "written": [writing.kind.info.name, repr(writing.options)],
        "index": writing.index,
        "cuts": cuts,
    }


def _prove(part: Part, path: str, reading: Reading, writing: Writing) -> None:
    """Compare a finished part with the records that it was made of."""
    # Only here: who does not ask for a proof need not wait for pyarrow.compute.
    from penstock.verbs.convert.proof import Wire, as_stored, prove_equal

    wanted = reading.batches(part.first, part.last)
    how: dict[str, Any] = {"format": writing.kind.info.name, "index": "never"}
    if writing.kind.info.holds_examples:
        wire = Wire(reading.schema, getattr(writing.options, "payload", None))
        wanted = (wire.convert(batch) for batch in wanted)
        how |= {"raw": True} if wire.is_raw else {"schema": wire.schema}
    elif is_raw(reading.schema) and getattr(writing.options, "payload", "") in (
        None,
        "raw",
    ):
        how["raw"] = True
    added = writing.kind.info.added_columns
    if set(added) & set(reading.schema.names):
        written = [name for name in reading.schema.names if name not in added]
        wanted = (batch.select(written) for batch in wanted)
    if "infer_records" in {field.name for field in fields(writing.kind.read_options)}:
        how["infer_records"] = "all"  # what is proved is all of it
    found = open_dataset(path, **how)
    if not writing.kind.info.lossless and "schema" not in how:
        wanted = (as_stored(batch, found.schema) for batch in wanted)
    prove_equal(wanted, found.scan(), part.final, part.first)
