"""Hints of packed rows, and of hosts that do not share the same records."""

from __future__ import annotations

from typing import Any

from steps import Case, Cases

import penstock as ps


def an_end_without_a_token() -> Case:
    ps.write({"ids": [[5, 6], [7]], "labels": [[1, 2], [3]]}, "a.parquet")

    def packed(**ends: Any) -> Any:
        return ps.pieces(ps.open("a.parquet"), ["ids", "labels"], 3, **ends)

    def advised() -> None:
        assert packed(eos={"ids": 9, "labels": 8})[0]["labels"] == [1, 2, 8]

    return Case(lambda: packed(eos={"labels": 8}), advised, "eos={'ids': token, ...}")


def lists_of_one_value() -> Case:
    ps.write({"ids": [[5], [6]]}, "a.tfrecord", index=False)

    def packed(**options: Any) -> Any:
        return ps.pieces(ps.open("a.tfrecord", index="never", **options), "ids", 1)

    def advised() -> None:
        assert [row["ids"] for row in packed(types={"ids": "list<int32>"})] == [[5], [6]]

    hint = 'if these are lists of one value, penstock.open(..., types={"ids": "list<int32>"})'
    return Case(packed, advised, hint)


CASES: Cases = {
    "f'{argument}={{{columns[0]!r}: token, ...}}'": an_end_without_a_token,
    "_hint_of_lists(column, type_)": lists_of_one_value,
}
