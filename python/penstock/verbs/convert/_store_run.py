"""The run of a conversion into a store. Each shard gets its name when it is finished, because a store renames nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.contract.summary import Summary
from penstock.engine.cluster import Machines
from penstock.errors import SchemaError
from penstock.framing.format import FramedFormat
from penstock.framing.index import sidecar
from penstock.storage.journal import Made
from penstock.storage.store_lock import StoreLock
from penstock.verbs.convert._each_part import write_parts_in_store
from penstock.verbs.convert._reading import Reading
from penstock.verbs.convert._run import job_of, unfinished
from penstock.verbs.convert._writing import PartJob, Writing
from penstock.verbs.convert.parts import OutputFile
from penstock.verbs.convert.store_journal import StoreJournal, folder_of
from penstock.verbs.progress import Meter


def run_in_store(
    parts: list[OutputFile],
    target: str,
    place: str,
    reading: Reading,
    writing: Writing,
    meter: Meter,
    lock: StoreLock,
    on: Machines | None,
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
    todo = unfinished(parts, journal.done, reading, meter)
    jobs = [PartJob(part, part.final, storage) for part in todo]
    whole = {"prove": prove, "overwrite": overwrite}

    def finish(part: OutputFile, made: Made) -> None:
        journal.finish(part.number, made)
        lock.check()

    try:
        lock.check()
        write_parts_in_store(on, jobs, journal.entry, reading, writing, meter, finish, **whole)
    except SchemaError:
        journal.undo()  # another run would fail at the same record
        raise
    lock.check()
    journal.forget()
    finished = [journal.done[part.number] for part in parts]
    num_bytes = sum(made.num_bytes for made in finished)
    notes = tuple(dict.fromkeys(note for made in finished for note in made.notes))
    return Summary(tuple(finals), reading.num_records, num_bytes, notes, reading.text_columns)


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
    more: dict[str, Any] = {"overwrite": overwrite, "storage": reading.storage, **limits}
    made = writing.file(reading, batches, target, **more)
    return Summary(made.paths, made.num_records, made.num_bytes, made.notes, reading.text_columns)
