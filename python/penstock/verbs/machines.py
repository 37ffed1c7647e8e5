"""`on=` of verbs: runs their tasks on the machines of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from penstock.engine.cluster import Failed, all_of, machines_of
from penstock.engine.pipeline import in_order
from penstock.errors import PenstockError
from penstock.storage.base import Storage
from penstock.storage.journal import temporaries_of
from penstock.verbs.progress import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")

TASK_BYTES = 128 << 20
"""Small files are read together in one task, up to these bytes."""
_AGE_SECONDS = 2.0


def run_on(
    on: Any,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *places: tuple[Storage, Iterable[str]],
) -> Generator[tuple[int, Result | Failed]]:
    """Run a function on each task, on the machines of `on=`; see `Machines.run`. `places` are the files and folders that
    the tasks read and write, and where they are.

    Raises:
        UnsupportedError: other machines cannot reach these files.
    """
    machines = machines_of(on)
    here: list[str] = []
    for storage, paths in places:
        storage.check_reach()
        paths = list(paths)
        storage.check_pickled_names(paths)
        here += [path for path in paths if storage.is_here(path)]
    return machines.run(function, tasks, here)


def all_done(
    found: Generator[tuple[int, Result | Failed]],
    names: Sequence[str],
    done: Callable[[int, Result], None],
) -> list[Result]:
    """`all_of`, for tasks that each belong to a file. The error of a task of which the workers died names it."""
    return all_of(_named(found, names), done)


def each_done(
    found: Generator[tuple[int, Result | Failed]],
    names: Sequence[str],
    done: Callable[[int, Result], None],
) -> None:
    """The same for results that are used up by `done`, so that they are not kept."""

    def used() -> Generator[tuple[int, Failed | None]]:
        with closing(_named(found, names)) as results:
            for number, result in results:
                if isinstance(result, Failed):
                    yield number, result
                else:
                    done(number, result)

    all_of(used())


def _named(
    found: Generator[tuple[int, Result | Failed]], names: Sequence[str]
) -> Generator[tuple[int, Result | Failed]]:
    with closing(found):
        for number, result in found:
            if isinstance(result, Failed) and isinstance(result.error, PenstockError):
                result.error.at(file=names[number])
            yield number, result


class Counter:
    """Reports the progress of tasks, which end in any order."""

    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._num_records = self._num_bytes = 0

    def add(self, num_records: int, num_bytes: int) -> None:
        self._num_records += num_records
        self._num_bytes += num_bytes
        if self._progress is not None:
            done = min(self._num_bytes, self._total_bytes)
            self._progress(self._num_records, done, self._total_bytes)


def remove_attempts(storage: Storage, finals: Iterable[str]) -> None:
    """Remove the temporary files of workers that were killed while they wrote these files, once no task writes them.
    Younger ones may be of another process, which gets the time to finish."""
    folders: dict[str, set[str]] = {}
    for path in finals:
        folder, name = os.path.split(path)
        folders.setdefault(folder, set()).add(name)

    def left() -> list[str]:
        return [
            path
            for folder, names in folders.items()
            for path in storage.own_files(folder or ".")
            if temporaries_of(names)(os.path.basename(path))
        ]

    if found := left():
        time.sleep(_AGE_SECONDS)
        for path in set(found) & set(left()):
            storage.give_up(path)


def remove_all(storage: Storage, paths: Iterable[str]) -> None:
    """Remove small files, as many at a time as the storage takes."""

    def remove(path: str) -> Iterable[None]:
        yield storage.remove(path)

    list(in_order([lambda: iter(paths)], remove, lambda _: 0, storage.reads_at_once or 1))
