"""Writes the parts of a conversion, one after another here or side by side on the machines of a cluster (`on=`).

On a cluster, the plan, the lock and the journal stay with the process that called `convert`. A worker gets a part, the tasks that
read it, and the name that the plan gives it. It gives the file this name when it is complete, so that a part that is
written twice, because a worker died, is never seen half written, and has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from penstock.contract.summary import Summary
from penstock.engine.cluster import Machines, all_of
from penstock.storage.journal import Made
from penstock.verbs.convert._reading import Part, Reading
from penstock.verbs.convert._text_columns import TextColumns
from penstock.verbs.convert._writing import (
    PartJob,
    Writing,
    prove_part,
    write_in_store,
    write_part,
)
from penstock.verbs.convert.parts import OutputFile
from penstock.verbs.convert.store_journal import Entry
from penstock.verbs.progress import Meter

Result = TypeVar("Result")


class _Task(NamedTuple):
    job: PartJob
    reading: Part


class _StoreTask(NamedTuple):
    job: PartJob
    reading: Part
    entry: Entry


def write_parts(
    on: Machines | None,
    jobs: Sequence[PartJob],
    reading: Reading,
    writing: Writing,
    meter: Meter,
    finish: Callable[[OutputFile, Summary], None],
) -> None:
    """Write parts under their temporary names. `finish` is called with each one that is complete."""
    if on is None:
        for job in jobs:
            finish(job.part, write_part(job, reading, writing, meter))
        return

    def done(number: int, result: tuple[Summary, TextColumns | None]) -> None:
        finish(jobs[number].part, result[0])
        _count(jobs[number], reading, meter, result[1])

    tasks = [_Task(job, _alone(job, reading)) for job in jobs]
    all_of(on.run(partial(_write, _there(writing)), tasks, _paths(jobs, reading)), done)


def prove_parts(
    on: Machines | None, jobs: Sequence[PartJob], reading: Reading, writing: Writing
) -> None:
    """Compare the files with the values that were read."""
    if on is None:
        for job in jobs:
            prove_part(job, reading, writing)
        return
    tasks = [_Task(job, _alone(job, reading)) for job in jobs]
    all_of(on.run(partial(_prove, _there(writing)), tasks, _paths(jobs, reading)))


def write_parts_in_store(
    on: Machines | None,
    jobs: Sequence[PartJob],
    entry: Callable[[int], Entry],
    reading: Reading,
    writing: Writing,
    meter: Meter,
    finish: Callable[[OutputFile, Made], None],
    *,
    prove: bool,
    overwrite: bool,
) -> None:
    """Write parts into a store, under their final names. `entry` gives what the journal says of a part, and `finish` is
    called with each one that is complete."""
    if on is None:
        whole = {"prove": prove, "overwrite": overwrite}
        for job in jobs:
            noted = entry(job.part.number)
            finish(job.part, write_in_store(job, noted, reading, writing, meter, **whole))
        return

    def done(number: int, result: tuple[Made, TextColumns | None]) -> None:
        finish(jobs[number].part, result[0])
        _count(jobs[number], reading, meter, result[1])

    tasks = [
        _StoreTask(job, _alone(job, reading), entry(job.part.number)._replace(has_begun=None))
        for job in jobs
    ]
    function = partial(_write_in_store, _there(writing), prove, overwrite)
    all_of(on.run(function, tasks, _paths(jobs, reading)), done)


def _alone(job: PartJob, reading: Reading) -> Part:
    return reading.part(job.part.first, job.part.last)


def _there(writing: Writing) -> Writing:
    """The same with as many threads as a task has cores."""
    return replace(writing, threads=None)


def _paths(jobs: Sequence[PartJob], reading: Reading) -> list[str]:
    return [*reading.dataset.files.read_paths, *(job.path for job in jobs)]


def _count(job: PartJob, reading: Reading, meter: Meter, text: TextColumns | None) -> None:
    meter.add(job.part.last - job.part.first)
    if reading.text is not None and text is not None:
        reading.text.join(text)


# -- on a worker ----------------------------------------------------------------------------------


def _write(writing: Writing, task: _Task) -> tuple[Summary, TextColumns | None]:
    made = write_part(task.job, task.reading, writing, Meter(None, 0, 0))
    return made, task.reading.text


def _prove(writing: Writing, task: _Task) -> None:
    prove_part(task.job, task.reading, writing)


def _write_in_store(
    writing: Writing, prove: bool, overwrite: bool, task: _StoreTask
) -> tuple[Made, TextColumns | None]:
    made = write_in_store(
        task.job,
        task.entry,
        task.reading,
        writing,
        Meter(None, 0, 0),
        prove=prove,
        overwrite=overwrite,
    )
    return made, task.reading.text
