"""Keys and parts of messages that the names and types of columns do not fully show. They must survive a conversion to
other formats and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf

import frames
import penstock as ps

tf_any: Any = tf


def features(values: dict[str, list[int]]) -> Any:
    made = {
        key: tf_any.train.Feature(int64_list=tf_any.train.Int64List(value=value))
        for key, value in values.items()
    }
    return tf_any.train.Features(feature=made)


def example(values: dict[str, list[int]]) -> bytes:
    return tf_any.train.Example(features=features(values)).SerializeToString()


def sequence(context: dict[str, list[int]], lists: dict[str, list[list[int] | None]]) -> bytes:
    """`None` is a frame whose feature has no type."""
    made = {}
    for key, rows in lists.items():
        cells = [
            tf_any.train.Feature()
            if row is None
            else tf_any.train.Feature(int64_list=tf_any.train.Int64List(value=row))
            for row in rows
        ]
        made[key] = tf_any.train.FeatureList(feature=cells)
    parts = tf_any.train.FeatureLists(feature_list=made)
    message = tf_any.train.SequenceExample(context=features(context), feature_lists=parts)
    return message.SerializeToString()


def messages(path: Path) -> list[Any]:
    records = ps.open(path, raw=True)[:]["record"].to_pylist()
    return [tf_any.train.SequenceExample.FromString(record) for record in records]


CASES = {
    "a key like a context's": [example({"context/q": [1], "id": [5]})],
    "a key like a feature list's": [example({"feature_lists/q": [1, 2], "id": [5]})],
    "one that is in no other name": [example({"context/q": [1], "q": [2], "feature_lists/q": [3]})],
    "a feature list so called": [sequence({"id": [1]}, {"feature_lists/q": [[1], [2]]})],
    "one called like a context's": [sequence({"id": [1]}, {"context/q": [[1, 2], [2]]})],
    "a context so called": [sequence({"context/q": [1], "feature_lists/r": [2]}, {"a": [[1]]})],
    "the same key in both": [sequence({"q": [1]}, {"q": [[1], [2]]})],
    "a list without frames": [sequence({"id": [1]}, {"a": [], "b": [[1]]})],
    "and in no record any": [sequence({"id": [1]}, {"a": []}), sequence({"id": [1]}, {})],
    "frames without a type": [sequence({"id": [1]}, {"a": [None, None], "b": [[2]]})],
}


@pytest.mark.parametrize("way", ["parquet", "arrow", "table"])
@pytest.mark.parametrize("case", CASES)
def test_they_come_back(case: str, way: str, tmp_path: Path) -> None:
    first, last = tmp_path / "first.tfrecord", tmp_path / "last.tfrecord"
    first.write_bytes(frames.file_of(CASES[case]))
    if way == "table":
        ps.write(pa.table(ps.open(first)), last)
    else:
        between = tmp_path / f"between.{way}"
        ps.convert(first, between, prove=True)
        ps.convert(between, last, prove=True)
    assert messages(last) == messages(first)
    assert ps.diff(first, last).equal


def test_a_list_without_frames_is_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(CASES["and in no record any"]))
    assert pa.table(ps.open(path))["a"].to_pylist() == [[], None]


def test_a_renamed_column_goes_by_its_new_name(tmp_path: Path) -> None:
    first, last = tmp_path / "first.tfrecord", tmp_path / "last.tfrecord"
    first.write_bytes(frames.file_of(CASES["a feature list so called"]))
    ps.convert(first, last, rename={"feature_lists/q": "seen"})
    (message,) = messages(last)
    assert set(message.feature_lists.feature_list) == {"seen"}


@pytest.mark.parametrize("records", [[[[1], None, [3]]], [[[1], [2]], [[1], None]]])
def test_a_frame_without_a_type_among_frames_of_one_value(
    records: list[list[list[int] | None]], tmp_path: Path
) -> None:
    """Such a frame has no value, so the frames do not all have one value."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([sequence({}, {"x": rows}) for rows in records]))
    found = pa.table(ps.open(path))["x"].to_pylist()
    assert found == [[row or [] for row in rows] for rows in records]
