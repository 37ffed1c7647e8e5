"""Hints of split, dedupe and sort, and of fields that are replaced in some records."""

from __future__ import annotations

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


def key_of_a_text() -> Case:
    ps.write({"meta": ['{"iso": 3}', "{}"]}, "a.parquet")

    def advised() -> None:
        ds = ps.open("a.parquet", types={"meta": "json"})
        assert len(ds.filter("meta.iso == 3")) == 1

    return Case(lambda: len(ps.open("a.parquet").filter("meta.iso == 3")), advised)


def key_that_the_first_records_lack() -> Case:
    texts = ["{}"] * 1000 + ['{"n": 2}', '{"n": 1}']
    ps.write({"meta": texts}, "a.parquet")
    ds = ps.open("a.parquet", types={"meta": "json"})

    def advised() -> None:
        numbered = ds.with_columns({"n": 'cast(`meta.n`, "int64")'})
        ps.sort(numbered, "n", into="b.parquet")
        assert [row["n"] for row in ps.open("b.parquet")][:3] == [1, 2, None]

    hint = 'by= with the name of a column that is computed by cast(`meta.n`, "string")'
    return Case(lambda: ps.sort(ds, "meta.n", into="b.parquet"), advised, hint)


def word_in_capitals() -> Case:
    ps.write({"i": [1, 3], "x": [2, 4]}, "a.tfrecord")

    def advised() -> None:
        assert ps.open("a.tfrecord").count("not i == 3") == 1

    hint = "write `not` in small letters"
    return Case(lambda: ps.open("a.tfrecord").count("NOT == 3"), advised, hint)


def operator_without_blanks() -> Case:
    ps.write({"i": [1, 3]}, "a.tfrecord")

    def advised() -> None:
        assert ps.open("a.tfrecord").count("i / 2 == 1.5") == 1

    hint = "write blanks on both sides of an operator, as in i / 2"
    return Case(lambda: ps.open("a.tfrecord").count("i/2 == 1.5"), advised, hint)


CASES: Cases = {
    "hint_on_capitals(name) or _hint_on_operators(name, columns)": (
        word_in_capitals,
        operator_without_blanks,
    ),
    "f'{option}= with the name of a column that is computed by {cast}'": key_that_the_first_records_lack,
    'f\'open(..., types={{"{column}": "json"}}), if its values are JSON\'': key_of_a_text,
    "'sort by a column of numbers, strings, bytes, times or booleans'": sort_by_lists,
    "'without where= and missing=\"keep\", all values are replaced, and their type may change'": replaced_by_another_type,
}
