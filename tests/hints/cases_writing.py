"""Hints of write and convert."""

from __future__ import annotations

import pyarrow as pa
from steps import Case, Cases, rows

import penstock as ps


def lists_of_lists() -> Case:
    data = {"a": [[[1], [2, 3]]]}

    def as_sequence() -> None:
        ps.write(data, "a.tfrecord", payload="sequence")
        assert rows("a.tfrecord") == [{"a": [[1], [2, 3]]}]

    return Case(lambda: ps.write(data, "a.tfrecord", payload="example"), as_sequence)


def wrong_payload() -> Case:
    data = {"a": [1], "b": [2]}

    def as_maps() -> None:
        ps.write(data, "a.msgpack", payload="map")
        assert rows("a.msgpack") == [{"a": 1, "b": 2}]

    return Case(lambda: ps.write(data, "a.msgpack", payload="raw"), as_maps)


def twins() -> Case:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], ["a", "a"])
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)

    def scanned() -> None:
        (found,) = ps.open("a.arrow").scan()
        assert found.equals(batch)

    return Case(lambda: ps.convert("a.arrow", "b.parquet"), scanned)


CASES: Cases = {
    "'payload=\"sequence\"'": lists_of_lists,
    "'payload=\"map\"'": wrong_payload,
    "'scan() gives both'": twins,
}
