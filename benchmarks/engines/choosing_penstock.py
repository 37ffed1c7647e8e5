"""penstock's jobs that choose records of a table; listed in `penstock.JOBS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.job import Job, Outcome
from benchmarks.tables import RECORDS, table_file, target

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


def _filter() -> int:
    import penstock as ps

    return ps.open(table_file()).filter("label < 500 and score > 0.2").to_table().num_rows


def _split(by: str | None) -> Callable[[], int]:
    def parts() -> int:
        import penstock as ps

        found = ps.split(ps.open(table_file()), SHARES, by=by)
        return sum(part.to_table().num_rows for part in found.values())

    return parts


def _dedupe(by: str | None) -> Callable[[], int]:
    def written() -> int:
        import penstock as ps

        into = target("penstock")
        return ps.dedupe(table_file(), by, into=into, overwrite=True, threads=2).num_records

    return written


def _sort(by: str) -> Callable[[], int]:
    def written() -> int:
        import penstock as ps

        into = target("penstock")
        return ps.sort(table_file(), by, into=into, overwrite=True, threads=2).num_records

    return written


def job(choose: Callable[[], int], expected: range) -> Callable[[Any], Job]:
    """A job whose work is to choose a number of records that is in a range."""

    def make(_: Any) -> Job:
        def work(check: bool) -> Outcome:
            found = choose()
            assert not check or found in expected, found
            return Outcome(RECORDS)

        return Job(work)

    return make


ALL = range(RECORDS, RECORDS + 1)
EXPECTED = {
    "choose-filter": range(390_000, 410_000),
    "choose-split": ALL,
    "choose-split-by": ALL,
    "choose-dedupe": range(530_000, 540_000),
    "choose-dedupe-whole": ALL,
    "choose-sort-number": ALL,
    "choose-sort-text": ALL,
}
_CHOICES = {
    "choose-filter": _filter,
    "choose-split": _split(None),
    "choose-split-by": _split("id"),
    "choose-dedupe": _dedupe("name"),
    "choose-dedupe-whole": _dedupe(None),
    "choose-sort-number": _sort("id"),
    "choose-sort-text": _sort("name"),
}
JOBS = {case: {"2 threads": job(choose, EXPECTED[case])} for case, choose in _CHOICES.items()}
