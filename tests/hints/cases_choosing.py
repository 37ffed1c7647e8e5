"""Hints of split, dedupe and sort, and of fields that are replaced in some records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps import Case, Cases

import penstock as ps
from damaging import flipped


def numbered(verb: Callable[[ps.Dataset], Any]) -> Case:
    """A verb that needs record numbers, on data in which a damaged record is skipped."""
    ps.write({"id": [1, 2, 3], "more": [4, 5, 6]}, "a.tfrecord")
    data = Path("a.tfrecord").read_bytes()
    Path("a.tfrecord").write_bytes(flipped(data, data.index(b"more", len(data) // 3) * 8))

    def advised() -> None:
        ps.repair("a.tfrecord", into="b.tfrecord")
        verb(ps.open("b.tfrecord"))
        ps.convert(ps.open("a.tfrecord", damage="skip"), "c.tfrecord")
        verb(ps.open("c.tfrecord"))

    return Case(lambda: verb(ps.open("a.tfrecord", damage="skip")), advised)


def split_of_what_is_damaged() -> Case:
    return numbered(lambda ds: ps.split(ds, {"a": 0.5, "b": 0.5}))


def dedupe_of_what_is_damaged() -> Case:
    return numbered(lambda ds: ps.dedupe(ds, into="out.tfrecord", overwrite=True))


def sort_of_what_is_damaged() -> Case:
    return numbered(lambda ds: ps.sort(ds, "id", into="out.tfrecord", overwrite=True))


def sort_by_lists() -> Case:
    ps.write({"id": [2, 1], "tokens": [[1], [2]]}, "a.arrow")

    def advised() -> None:
        ps.sort("a.arrow", "id", into="b.arrow")
        assert [record["id"] for record in ps.open("b.arrow")] == [1, 2]

    return Case(lambda: ps.sort("a.arrow", "tokens", into="b.arrow"), advised)


def replaced_by_another_type() -> Case:
    ps.write({"id": [1, 2], "label": [3, 4]}, "a.parquet")

    def advised() -> None:
        ps.replace_fields("a.parquet", {"label": "text"}, into="b.parquet")
        assert ps.open("b.parquet")[1] == {"id": 2, "label": "text"}

    def fails() -> None:
        ps.replace_fields("a.parquet", {"label": "text"}, into="b.parquet", where="id == 1")

    return Case(fails, advised)


CASES: Cases = {
    "'penstock.repair first, or convert the undamaged records'": (
        split_of_what_is_damaged,
        dedupe_of_what_is_damaged,
        sort_of_what_is_damaged,
    ),
    "'sort by a column of numbers, strings, bytes, times or booleans'": sort_by_lists,
    "'without where= and missing=\"keep\", all values are replaced, and their type may change'": replaced_by_another_type,
}
