"""Hints about the columns of several files that are opened together."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from steps import Case, Cases, rows, twice

import penstock as ps
from penstock.datasets import _one_set as one_set
from penstock.datasets import _shared_schema


def late_file_of_another_kind() -> Case:
    Path("d").mkdir()
    for n in range(3):
        ps.write({"p": [n]}, f"d/p-{n}.tfrecord", index=False)
    ps.write({"q": [2]}, "d/q-0.tfrecord", index=False)

    def fails() -> None:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is left out")
            # Otherwise more than 1000 files would be needed.
            patch.setattr(_shared_schema, "_SAMPLED_FILES", 2)
            patch.setattr(one_set, "_MOST_FILES", 2)
            rows("d/*.tfrecord")

    def advised() -> None:
        both = pa.schema([("p", pa.int64()), ("q", pa.int64())])
        first = [{"p": n, "q": None} for n in range(3)]
        assert rows("d/*.tfrecord", schema=both) == [*first, {"p": None, "q": 2}]
        assert rows("d/p-*.tfrecord") == [{"p": n} for n in range(3)]
        assert rows("d/q-*.tfrecord") == [{"q": 2}]

    return Case(fails, advised)


def _two_of_columns() -> Any:
    ps.write({"a": [1], "b": [2]}, "all.parquet")
    ps.write({"a": [3]}, "few.parquet")
    return lambda **options: rows(["all.parquet", "few.parquet"], **options)


def column_of_some_files() -> Case:
    both = [{"a": 1, "b": 2}, {"a": 3, "b": None}]
    return twice(_two_of_columns(), gives=both, infer_records="all")


def further_column_of_a_later_file() -> Case:
    ps.write({"a": [3]}, "few.parquet")
    ps.write({"a": [1], "b": [2]}, "more.parquet")
    files = ["few.parquet", "more.parquet"]

    def advised() -> None:
        every = {"infer_records": "all"}
        assert rows(files, **every) == [{"a": 3, "b": None}, {"a": 1, "b": 2}]
        assert ps.convert(ps.open(files, **every), "all.arrow").num_records == 2
        assert ps.convert(ps.open(files, columns=["a"]), "a.arrow").num_records == 2

    return Case(lambda: ps.convert(files, "first.arrow"), advised)


def _wider_integers(ending: str) -> Case:
    ps.write(pa.table({"a": pa.array([1], pa.int32())}), f"0.{ending}")
    ps.write({"a": [1 << 40]}, f"1.{ending}")
    files = [f"0.{ending}", f"1.{ending}"]
    case = twice(rows, files, gives=[{"a": 1}, {"a": 1 << 40}], types={"a": "int64"})
    hint = "open(..., types={'a': 'int64'}) reads all files with the wider type"
    return case._replace(hint=hint)


def wider_integers_in_parquet() -> Case:
    return _wider_integers("parquet")


def floats_after_integers() -> Case:
    ps.write(pa.table({"a": pa.array([1], pa.int32())}), "0.parquet")
    ps.write({"a": [2.5]}, "1.parquet")
    files = ["0.parquet", "1.parquet"]
    case = twice(rows, files, gives=[{"a": 1}, {"a": 2.5}], types={"a": "float64"})
    return case._replace(
        hint="open(..., types={'a': 'double'}) reads all files with the wider type"
    )


def text_after_integers() -> Case:
    ps.write({"a": [1]}, "0.parquet"), ps.write({"a": ["x"]}, "1.parquet")
    files = ["0.parquet", "1.parquet"]
    case = twice(rows, files, gives=[{"a": "1"}, {"a": "x"}], types={"a": "string"})
    return case._replace(
        hint="open(..., types={'a': 'string'}) reads all files with the wider type"
    )


def wider_integers_in_tar() -> Case:
    return _wider_integers("tar")


def required_column_of_some_files() -> Case:
    load = _two_of_columns()

    def with_b(**how: Any) -> Any:
        return load(schema=pa.schema([("a", pa.int64()), pa.field("b", pa.int64(), **how)]))

    def advised() -> None:
        assert with_b(nullable=True) == [{"a": 1, "b": 2}, {"a": 3, "b": None}]

    return Case(lambda: with_b(nullable=False), advised)


def folders_of_no_key() -> Case:
    os.mkdir("k=1")
    ps.write({"a": [1]}, "a.arrow")
    ps.write({"a": [2]}, "k=1/b.arrow")

    def load(hive: bool) -> Any:
        return rows(["a.arrow", "k=1/b.arrow"], hive=hive)

    def advised() -> None:
        assert load(hive=False) == [{"a": 1}, {"a": 2}]

    return Case(lambda: load(hive=True), advised)


CASES: Cases = {
    "'open(..., hive=False), which leaves the names of folders alone'": folders_of_no_key,
    "'open(..., infer_records=\"all\") gives nulls for columns that a file lacks'": (
        column_of_some_files
    ),
    "'open(..., infer_records=\"all\") for the columns of all files, or name the columns to keep with columns='": (
        further_column_of_a_later_file
    ),
    "wider_hint(field, array.type)": (
        wider_integers_in_parquet,
        floats_after_integers,
        text_after_integers,
    ),
    "wider_hint(self.column, values.type)": wider_integers_in_tar,
    "f'schema= with pa.field({field.name!r}, ..., nullable=True), for nulls'": (
        required_column_of_some_files
    ),
    "'open(..., schema=...) with the fields of all files, or open each kind of file separately'": (
        late_file_of_another_kind
    ),
}
