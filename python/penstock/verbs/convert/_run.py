"""The run of a conversion. Parts are written under temporary names, verified on request, and then all renamed."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from contextlib import closing
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from penstock.contract.format import Options
from penstock.contract.opening import open_shard
from penstock.contract.summary import Summary
from penstock.engine.cluster import Machines
from penstock.errors import PenstockError, SchemaError, UnsupportedError, known_as
from penstock.framing.format import FramedFormat
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Storage
from penstock.storage.folder import size_of
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import refuse_device
from penstock.storage.urls import is_url
from penstock.verbs.check import textindex
from penstock.verbs.convert._each_part import prove_parts, write_parts
from penstock.verbs.convert._reading import Reading
from penstock.verbs.convert._writing import PartJob, Writing
from penstock.verbs.convert.journal import Journal, refuse_existing
from penstock.verbs.convert.parts import OutputFile, check_names
from penstock.verbs.progress import Meter
from penstock.verbs.write.names import Names
from penstock.verbs.write.write import drop_old_indexes


def run(
    parts: list[OutputFile],
    target: str,
    place: str,
    reading: Reading,
    writing: Writing,
    meter: Meter,
    on: Machines | None,
    *,
    prove: bool,
    overwrite: bool,
) -> Summary:
    """Write the unfinished parts, then give all parts their final names. Until then they are in the folder `place`."""
    finals = [part.final for part in parts]
    cuts = [[part.number, part.first, part.last, part.final] for part in parts]
    storage = reading.storage.no_more_open_than(finals)
    journal = _journal(target, place, cuts, reading, writing, storage)
    if not overwrite and not journal.is_publishing:
        refuse_existing(finals)
    todo = unfinished(parts, journal.done, reading, meter)

    def finish(part: OutputFile, made: Summary) -> None:
        journal.finish(part.number, made.num_bytes, made.notes)

    jobs = [
        PartJob(part, journal.part_path(part.number), storage.no_more_open_than([part.final]))
        for part in todo
    ]
    try:
        write_parts(on, jobs, reading, writing, meter, finish)
    except SchemaError:
        journal.forget()  # another run would fail at the same record
        raise
    jobs = [PartJob(part, _path_of(part, journal), storage) for part in parts] if prove else []
    try:
        prove_parts(on, jobs, reading, writing)
    except PenstockError:
        if not journal.is_publishing:
            journal.forget()
        raise
    return _publish(journal, finals, reading, writing, overwrite=overwrite)


def unfinished(
    parts: Sequence[OutputFile], done: Container[int], reading: Reading, meter: Meter
) -> list[OutputFile]:
    """Return the parts that an earlier run has not done, and count the records of the others as done."""
    todo = [part for part in parts if part.number not in done]
    if len(todo) < len(parts):
        meter.add(reading.num_records - sum(part.last - part.first for part in todo))
    return todo


def _path_of(part: OutputFile, journal: Journal) -> str:
    path = journal.part_path(part.number)
    return path if os.path.exists(path) else part.final


def run_by_bytes(
    target: str,
    limits: dict[str, int | None],
    reading: Reading,
    writing: Writing,
    meter: Meter,
    *,
    overwrite: bool,
) -> Summary:
    """Write shards limited by bytes. Their names contain the number of shards, which is known only at the end."""
    names = Names(target, writing.kind.info.extensions, is_sharded=True, total=None)
    first = names.provisional(0)
    place, cuts = os.path.dirname(target), [target, limits]
    storage = reading.storage.no_more_open_than(names.taken())
    journal = _journal(target, place, cuts, reading, writing, storage)
    try:
        if journal.is_whole:
            meter.add(reading.num_records)
        else:
            journal.forget()
            if not overwrite:
                refuse_existing([first])
            refuse_device(first)
            batches = meter.watch(reading.batches(0, reading.num_records, lend=True))
            made = writing.file(
                reading, batches, journal.part_pattern, overwrite=True, storage=storage, **limits
            )
            for number, path in enumerate(made.paths):
                journal.add(number, size_of(path), made.notes)
        total = len(journal.done)
        finals = [names.final(number, total) for number in range(total)]
        check_names(finals, target, reading)
        return _publish(journal, finals, reading, writing, overwrite=overwrite)
    except BaseException as error:
        known_as(error, journal.is_part, target)
        if not journal.is_publishing:
            journal.forget()
        raise


def _journal(
    target: str,
    place: str,
    cuts: list[Any],
    reading: Reading,
    writing: Writing,
    storage: Storage,
) -> Journal:
    """Return the journal of a job. `cuts` lists the parts as [number, first record, last record, final name]."""
    folder = None if isinstance(writing.index, bool) else writing.index
    text = writing.kind.text_index if isinstance(writing.kind, FramedFormat) else None
    job = job_of(cuts, reading, writing)
    journal = Journal(target, place, job, folder, storage, text)
    journal.load()
    return journal


def _publish(
    journal: Journal, finals: list[str], reading: Reading, writing: Writing, *, overwrite: bool
) -> Summary:
    finished = [journal.done[number] for number in sorted(journal.done)]
    num_bytes = sum(part.num_bytes for part in finished)
    notes = tuple(dict.fromkeys(note for part in finished for note in part.notes))
    drop_old_indexes(finals, LocalStorage(), writing.index, overwrite=overwrite)
    if overwrite:
        for number, final in enumerate(finals):
            _keep_text_index(journal.part_path(number), final, writing)
    journal.publish(finals, overwrite=overwrite)
    text = reading.text_columns
    return Summary(tuple(finals), reading.num_records, num_bytes, notes, text)


def _keep_text_index(path: str, final: str, writing: Writing) -> None:
    """Make a text index for a part, if the file that it replaces has a text index next to it."""
    kind, storage = writing.kind, LocalStorage()
    text = textindex.kept(kind, final, storage)
    if text is None or not os.path.exists(path) or os.path.exists(text.path_for(path)):
        return
    kept_at = "never" if writing.index is False else "auto"
    kept_at = writing.index if isinstance(writing.index, str) else kept_at
    with closing(storage.source(path)) as source:
        reader = open_shard(kind, source, Options(raw=True, index=kept_at))
        assert isinstance(reader, FramedReader), "formats with text indexes are framed"
        if reader.index.compression:
            textindex.drop(text, final, storage)
        else:
            textindex.write(text, reader.index, path, storage)


def job_of(cuts: list[Any], reading: Reading, writing: Writing) -> dict[str, Any]:
    """Return everything that determines the output. A job with other facts must not reuse this job's parts."""
    files = reading.dataset.files
    sources: list[Any] = []
    for number, path in enumerate(files.paths):
        state = files.storage.opened_state(path)
        if state is None or not any(state[1:]):
            # Changes of this file cannot be detected, so a killed job starts again.
            state = [files.num_bytes(number), uuid4().hex]
        sources.append([path if is_url(path) else os.path.abspath(path), state])
    return {
        "version": version("penstock"),
        "sources": sources,
        "overlays": [files.added_digests(n) for n in range(len(sources))],
        "view": _view_of(reading),
        "read": reading.identity,
        "written": [writing.kind.info.name, repr(writing.options)],
        "index": writing.index,
        "cuts": cuts,
    }


def _view_of(reading: Reading) -> str:
    """Return a digest that identifies the records of a view. If the view skips damage, there is no digest, and a random
    text makes a killed job start again."""
    files = reading.dataset.files
    try:
        return files.choice_digest
    except UnsupportedError:
        return uuid4().hex
