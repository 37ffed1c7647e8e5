"""The tasks of `verify`: in threads, of which several share a file, or on a cluster, where each checks one file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.contract.report import Finding
from penstock.engine.cluster import Failed, all_of
from penstock.engine.pipeline import in_order
from penstock.storage.base import Storage
from penstock.verbs.machines import Counter, run_on


@dataclass(frozen=True, slots=True)
class Tally:
    """The results that one task adds to the report."""

    num_records: int
    findings: tuple[Finding, ...]
    num_bytes: int


Task = Callable[[], Iterable[Tally]]
Examine = Callable[[str], Iterator[Task]]
"""Finds the tasks of a file."""


def tallies_here(
    examine: Examine, paths: Sequence[str], threads: int | None, counter: Counter
) -> Iterator[Tally]:
    """Run all tasks of these files in threads, and yield their results in order."""
    streams = [partial(examine, path) for path in paths]
    for tally in in_order(streams, lambda task: task(), lambda tally: 0, threads):
        counter.add(tally.num_records, tally.num_bytes)
        yield tally


def tallies_on(
    on: Any,
    examine: Examine,
    paths: Sequence[str],
    threads: int | None,
    counter: Counter,
    storage: Storage,
) -> Iterator[Tally]:
    """Check these files on a cluster, and yield their results in order. A file of which workers died is a finding."""

    def found() -> Generator[tuple[int, Tally | Failed]]:
        whole = partial(_whole, examine, threads)
        with closing(run_on(on, whole, paths, (storage, paths))) as results:
            for number, result in results:
                if isinstance(result, Failed) and result.num_deaths:
                    yield number, _unchecked(paths[number], result, storage)
                else:
                    yield number, result

    yield from all_of(found(), lambda _, tally: counter.add(tally.num_records, tally.num_bytes))


def _whole(examine: Examine, threads: int | None, path: str) -> Tally:
    """Check one file."""
    num_records, num_bytes, findings = 0, 0, list[Finding]()
    for tally in tallies_here(examine, [path], threads, Counter(None, 0)):
        num_records += tally.num_records
        num_bytes += tally.num_bytes
        findings.extend(tally.findings)
    return Tally(num_records, tuple(findings), num_bytes)


def _unchecked(path: str, failed: Failed, storage: Storage) -> Tally:
    size = storage.num_bytes(path)
    message = f"the file was not checked: {failed.error}"
    return Tally(0, (Finding("unchecked", path, None, 0, size, message, None),), size)
