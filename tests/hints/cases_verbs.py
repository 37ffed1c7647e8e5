"""Hints of the verbs that change files."""

from __future__ import annotations

from steps import Case, Cases, rows

import penstock as ps


def unknown_field() -> Case:
    ps.write({"a": [1]}, "a.tfrecord")

    def added() -> None:
        ps.add_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord")
        assert rows("b.tfrecord") == [{"a": 1, "b": 1}]

    return Case(lambda: ps.replace_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord"), added)


CASES: Cases = {
    "'add_fields adds new ones'": unknown_field,
}
