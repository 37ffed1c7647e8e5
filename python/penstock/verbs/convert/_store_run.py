"""The run of a conversion into a store. Each shard gets its name when it is finished, because a store renames nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.contract.summary import Summary
from penstock.errors import FormatError, SchemaError
from penstock.framing.format import FramedFormat
from penstock.framing.index import sidecar
from penstock.storage.journal import Made
from penstock.storage.store_lock import StoreLock
from penstock.verbs.convert._reading import Reading
from penstock.verbs.convert._run import Writing, job_of, prove_part
from penstock.verbs.convert.parts import OutputFile
from penstock.verbs.convert.store_journal import StoreJournal, folder_of
from penstock.verbs.progress import Meter
from penstock.verbs.write.incoming import Incoming


def run_in_store(
    parts: list[OutputFile],
    target: str,
    place: str,
    reading: Reading,
    writing: Writing,
    meter: Meter,
    lock: StoreLock,
    *,
    prove: bool,
    overwrite: bool,
) -> Summary:
    """Write the unfinished parts. `lock` is held."""
    storage, finals = reading.storage, [part.final for part in parts]
    cuts = [[part.number, part.first, part.last, part.final] for part in parts]

    def beside(final: str) -> Iterator[str]:
        if not isinstance(writing.index, str):
            yield sidecar.path_for(final, None)
        if isinstance(writing.kind, FramedFormat) and writing.kind.text_index is not None:
            yield writing.kind.text_index.path_for(final)

    job = job_of(cuts, reading, writing)
    journal = StoreJournal(storage, folder_of(target, place), job, finals, beside)
    journal.load(overwrite=overwrite)
    for part in parts:
        lock.check()
        if part.number in journal.done:
            meter.add(part.last - part.first)
            continue
        try:
            _write_part(part, journal, reading, writing, meter, prove=prove, overwrite=overwrite)
        except SchemaError:
            journal.undo()  # another run would fail at the same record
            raise
    lock.check()
    journal.forget()
    finished = [journal.done[part.number] for part in parts]
    num_bytes = sum(made.num_bytes for made in finished)
    notes = tuple(dict.fromkeys(note for made in finished for note in made.notes))
    return Summary(tuple(finals), reading.num_records, num_bytes, notes, reading.text_columns)


def _write_part(
    part: OutputFile,
    journal: StoreJournal,
    reading: Reading,
    writing: Writing,
    meter: Meter,
    *,
    prove: bool,
    overwrite: bool,
) -> None:
    batches = meter.watch(reading.batches(part.first, part.last, lend=True))
    stream = Incoming(reading.schema, batches, None, reading.kept)
    storage = reading.storage
    with journal.writing(part.number, overwrite=overwrite) as may_replace:
        made = writing.file(stream, part.final, overwrite=may_replace, storage=storage)
    state = storage.state(part.final)
    if prove:
        try:
            prove_part(part, part.final, reading, writing, storage)
        except FormatError:
            if storage.state(part.final) == state:  # else it is somebody else's
                storage.remove(part.final)
            raise
    journal.finish(part.number, Made(state, made.num_bytes, notes=made.notes))


def run_by_bytes_in_store(
    target: str,
    limits: dict[str, int | None],
    reading: Reading,
    writing: Writing,
    meter: Meter,
    *,
    overwrite: bool,
) -> Summary:
    """Write shards limited by bytes. Their names contain the number of shards, which is known only at the end, so a
    killed job starts again."""
    batches = meter.watch(reading.batches(0, reading.num_records, lend=True))
    stream = Incoming(reading.schema, batches, None, reading.kept)
    more: dict[str, Any] = {"overwrite": overwrite, "storage": reading.storage, **limits}
    made = writing.file(stream, target, **more)
    return Summary(made.paths, made.num_records, made.num_bytes, made.notes, reading.text_columns)
