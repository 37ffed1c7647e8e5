"""Hints of open and of the loader."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from steps import Case, Cases, rows, twice

import penstock as ps


def foreign_checksums() -> Case:
    head = (1).to_bytes(8, "little") + bytes(4)
    Path("a").write_bytes((head + b"x" + bytes(4)) * 3)

    def unchecked() -> None:
        found = ps.open("a", format="tfrecord", checksums="none", raw=True).take([0, 1, 2])
        assert found.column(0).to_pylist() == [b"x"] * 3

    return Case(lambda: rows("a"), unchecked)


def packed() -> Case:
    pq.write_table(pa.table({"a": [1]}), "plain.parquet")
    Path("a.parquet").write_bytes(gzip.compress(Path("plain.parquet").read_bytes()))

    def unpack() -> None:
        Path("b.parquet").write_bytes(gzip.decompress(Path("a.parquet").read_bytes()))
        assert rows("b.parquet") == [{"a": 1}]

    return Case(lambda: rows("a.parquet"), unpack)


def no_python_value() -> Case:
    days = pa.array([date.max.toordinal()], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"a": days}), "a.parquet")

    def as_arrow() -> None:
        assert ps.open("a.parquet").take([0]).column("a").equals(days)
        assert next(ps.open("a.parquet").scan()).column("a").equals(days)

    return Case(lambda: ps.open("a.parquet")[0], as_arrow)


def numbers_of_two_kinds() -> Case:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    Path("c.tfrecord").write_bytes(
        Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    )
    schema = pa.schema([("a", pa.float64())])
    return twice(rows, "c.tfrecord", schema=schema, gives=[{"a": 1.0}, {"a": 0.5}])


def files_of_two_kinds() -> Case:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    names = ["a.tfrecord", "b.tfrecord"]

    def with_a_schema() -> None:
        found = rows(names, schema=pa.schema([("a", pa.float64())]))
        assert found == [{"a": 1.0}, {"a": 0.5}]

    return Case(lambda: ps.open(names, infer_records="all"), with_a_schema)


def class_names_of_bytes() -> Case:
    labels = pa.array(["a", "b"]).dictionary_encode()
    ps.write({"label": labels, "x": [1, 2]}, "a.parquet")
    names = {"label": ["a", "\udcff"]}  # as `os.listdir` gives a folder whose name is no UTF-8

    def without_it() -> None:
        (batch,) = ps.Loader(ps.open("a.parquet", columns=["x"]), 2)
        assert {name: values.tolist() for name, values in batch.items()} == {"x": [1, 2]}

    return Case(lambda: ps.Loader(ps.open("a.parquet"), 2, class_names=names), without_it)


CASES: Cases = {
    '\'open(..., format="tfrecord", checksums="none")\'': foreign_checksums,
    "'unpack it first'": packed,
    "'take or scan, which give it as Arrow'": no_python_value,
    "f'open(..., schema=...) {_how_to_read([kind[1] for kind in kinds])}, and the other fields you want'": (
        numbers_of_two_kinds
    ),
    "f'open(..., schema=...) {_how_to_read(kinds)}, and the other fields you want'": (
        files_of_two_kinds
    ),
    "'leave it out: columns=[...]'": class_names_of_bytes,
}
