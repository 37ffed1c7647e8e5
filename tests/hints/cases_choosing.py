"""Hints of split, dedupe and sort, and of fields that are replaced in some records."""

from __future__ import annotations

import json

import pyarrow as pa
from steps import Case, Cases

import penstock as ps


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


def condition_inside_json() -> Case:
    values = [json.dumps({"id": n}) for n in (1, 2)]
    table = pa.table({"a": pa.array(values, pa.json_())})
    for ending in ("tar", "parquet"):
        ps.write(table, f"j.{ending}")

    def of_batch(batch: pa.RecordBatch) -> list[bool]:
        return [json.loads(text)["id"] > 1 for text in batch["a"].to_pylist()]

    def advised() -> None:
        typed = ps.open("j.tar", types={"a": pa.struct([("id", pa.int64())])})
        assert typed.filter("a.id > 1").to_table()["a"].to_pylist() == [{"id": 2}]
        assert ps.open("j.parquet").count(of_batch) == 1
        assert ps.open("j.tar").count(of_batch) == 1

    return Case(lambda: ps.open("j.tar").count("a.id > 1"), advised)


CASES: Cases = {
    "f'types={{{inside!r}: pa.struct([({part!r}, pa.int64())])}} of open gives the fields of JSON in tars; for other formats, filter with a function of a batch'": condition_inside_json,
    "'sort by a column of numbers, strings, bytes, times or booleans'": sort_by_lists,
    "'without where= and missing=\"keep\", all values are replaced, and their type may change'": replaced_by_another_type,
}
