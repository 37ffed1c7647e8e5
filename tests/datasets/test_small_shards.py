"""Shards of one or a few records: the types are inferred from several shards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import frames
import penstock as ps


def write(folder: Path, shards: list[list[bytes]]) -> None:
    for number, payloads in enumerate(shards):
        (folder / f"a-{number:05d}.tfrecord").write_bytes(frames.file_of(payloads))


def test_fields_and_lists_that_only_later_files_have_are_seen(tmp_path: Path) -> None:
    rows: list[dict[str, list[int]]] = [
        {"a": [1]},
        {"a": [2, 3]},
        {"b": [4]},
        {},
        {"a": [5], "b": [6]},
    ]
    write(tmp_path, [[frames.example(row)] for row in rows])
    dataset = ps.open(tmp_path)
    assert dataset.schema.field("a").type == pa.list_(pa.int64())
    table = pa.table(dataset)
    assert table["a"].to_pylist() == [[1], [2, 3], None, None, [5]]
    assert table["b"].to_pylist() == [None, None, 4, None, 6]
    assert dataset.take([4, 1])["a"].to_pylist() == [[5], [2, 3]]
    told = (dataset.schema.metadata or {})[b"penstock.inferred_from"]
    assert told == b"all 5 records of 5 files"


def test_empty_files_between_them_do_not_end_the_search(tmp_path: Path) -> None:
    write(tmp_path, [[], [frames.example({"a": [1]})], [], [frames.example({"a": [1, 2]})]])
    assert pa.table(ps.open(tmp_path))["a"].to_pylist() == [[1], [1, 2]]


def test_scalars_that_all_records_have_are_still_recognised(tmp_path: Path) -> None:
    write(tmp_path, [[frames.example({"a": [n], "b": [n]})] for n in range(3)])
    described = ps.features.describe(ps.open(tmp_path).schema)
    assert "'a': tf.io.FixedLenFeature([], tf.int64)" in described


def test_a_large_first_file_is_enough(tmp_path: Path) -> None:
    write(tmp_path, [[frames.example({"a": [1]})] * 1001, [frames.example({"b": [1]})]])
    assert ps.open(tmp_path).schema.names == ["a"]


@pytest.mark.parametrize("later", [b"no example at all", b""])
def test_a_fault_in_a_later_file_is_reported_when_it_is_read(tmp_path: Path, later: bytes) -> None:
    write(tmp_path, [[frames.example({"a": [1]})], [frames.example({"a": [2]})]])
    (tmp_path / "a-00002.tfrecord").write_bytes(frames.file_of([later])[:-1])
    dataset = ps.open(tmp_path)
    read = []
    with pytest.raises(ps.PenstockError):
        for batch in dataset.scan():
            read += batch["a"].to_pylist()
    assert read == [1, 2]


def test_values_of_several_kinds_are_reported_when_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, [[frames.example({"a": [1]})], [frames.example({"a": [b"x"]})]])
    dataset = ps.open(tmp_path)
    assert dataset.take([0])["a"].to_pylist() == [1]
    with pytest.raises(ps.SchemaError, match="holds bytes values"):
        list(dataset.scan())
