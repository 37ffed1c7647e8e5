"""Hints about JSON, and about functions that compute fields."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from steps import Case, Cases, cli, rows

import penstock as ps


def key_of_other_texts() -> Case:
    ps.write({"t": ['{"c": 1}', '{"c": 2}']}, "a.parquet")

    def advised() -> None:
        ds = ps.open("a.parquet", types={"t": "json"})
        ps.replace_fields(ds, {"t.c": 7}, where="t.c == 1")
        assert rows("a.parquet") == [{"t": '{"c": 7}'}, {"t": '{"c": 2}'}]

    return Case(lambda: ps.replace_fields("a.parquet", {"t.c": 7}), advised)


def a_text_for_json() -> Case:
    ps.write({"j": pa.array(['{"c": 1}'], pa.json_())}, "a.parquet")

    def advised() -> None:
        ps.replace_fields("a.parquet", {"j": json.dumps("cat")}, into="b.parquet")
        assert rows("b.parquet") == [{"j": '"cat"'}]

    return Case(lambda: ps.replace_fields("a.parquet", {"j": "cat"}, in_place=True), advised)


def several_kinds() -> Case:
    ps.write({"j": pa.array(['{"c": 1}', '{"c": "2"}', '{"c": "x"}'], pa.json_())}, "a.parquet")

    def advised() -> None:
        assert ps.open("a.parquet").count('cast(j.c, "string") == "2"') == 1
        assert ps.open("a.parquet").count('try_cast(j.c, "float64") > 0') == 2

    return Case(lambda: ps.open("a.parquet").count("j.c > 0"), advised)


def a_changed_function() -> Case:
    paths = ps.write({"a": range(40)}, "a.parquet", num_shards=2).paths

    def one(batch: pa.RecordBatch) -> dict[str, Any]:
        ids = batch["a"].to_pylist()
        if 39 in ids:
            raise KeyboardInterrupt
        return {"b": ids}

    def other(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"b": [2 * n for n in batch["a"].to_pylist()]}

    def fails() -> None:
        try:
            ps.add_fields(paths, one, reads=["a"], threads=1)
        except KeyboardInterrupt:
            ps.add_fields(paths, other, reads=["a"])

    def advised() -> None:
        cli("fields remove a-*.parquet b")
        ps.add_fields(paths, other, reads=["a"])
        assert rows(paths)[39] == {"a": 39, "b": 78}

    hint = "repeat that call with the function as it was; or penstock fields remove SOURCE b starts again"
    return Case(fails, advised, hint)


CASES: Cases = {
    "f'open(..., types={{{column!r}: \"json\"}}), if it has texts of JSON; a struct has no other fields'": (
        key_of_other_texts
    ),
    "'json.dumps makes JSON of a value; for other texts, drop_fields first, then add_fields'": (
        a_text_for_json
    ),
    "f'cast({name}, \"float64\") or another type takes values of several kinds; with try_cast, those that do not fit are null'": (
        several_kinds
    ),
    "f\"repeat that call with the function as it was; or {removal('SOURCE', self._name, self._place.folder)} starts again\"": (
        a_changed_function
    ),
}
