"""In every published file of Examples, a field is added, replaced, renamed and dropped; TensorFlow must read all
other fields unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

from test_corpus import CORPUS, FILES, Stated  # noqa: E402

import penstock as ps  # noqa: E402
from penstock.payloads.example.plans import IN_LISTS_KEY  # noqa: E402
from reading import ROOT  # noqa: E402

COMPRESSIONS = {"": "", "gzip": "GZIP", "zlib": "ZLIB"}
SEQUENCES = {"tfrecord/tfds/starcraft_video-train_0.tfrecords"}
# The manifest does not count one of its payloads as an Example: it is empty, which protobuf accepts.
PARTLY = {"tfrecord/peer-made/tf_extremes.tfrecord"}
NUMBER, SPLIT = "new/number", "new/split"

ROWS = [row for row in FILES if row.is_example or row.path in PARTLY]
each_file = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path.split("/", 1)[1])


def payloads(path: Path, compression: str) -> list[bytes]:
    data = tf.data.TFRecordDataset(str(path), compression_type=COMPRESSIONS[compression])
    return [record.numpy() for record in data]


def message(row: Stated, payload: bytes) -> Any:
    kind = tf.train.SequenceExample if row.path in SEQUENCES else tf.train.Example
    return kind.FromString(payload)


def fields(found: Any) -> dict[str, bytes]:
    """The features of an Example or of a context, as bytes, so that NaN equals itself and 0.0 differs from -0.0."""
    one = found.context if hasattr(found, "context") else found.features
    return {key: value.SerializeToString(deterministic=True) for key, value in one.feature.items()}


def lists(found: Any) -> dict[str, bytes]:
    if not hasattr(found, "context"):
        return {}
    items = found.feature_lists.feature_list.items()
    return {key: value.SerializeToString(deterministic=True) for key, value in items}


def longest(found: Any) -> str:
    """The field with the most bytes."""
    known = fields(found)
    return max(known, key=lambda key: len(known[key]))


def number(value: int) -> bytes:
    made = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return made.SerializeToString(deterministic=True)


def text(value: bytes) -> bytes:
    made = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    return made.SerializeToString(deterministic=True)


def batched(row: Stated, path: Path) -> tuple[list[int], list[bytes]]:
    """The new fields, as TensorFlow's parser of batches reads them."""
    spec = {
        NUMBER: tf.io.FixedLenFeature([], tf.int64),
        SPLIT: tf.io.FixedLenFeature([], tf.string),
    }
    data = payloads(path, row.compression)
    if row.path in SEQUENCES:
        parsed, _, _ = tf.io.parse_sequence_example(data, context_features=spec)
    else:
        parsed = tf.io.parse_example(data, spec)
    return parsed[NUMBER].numpy().tolist(), parsed[SPLIT].numpy().tolist()


def test_all_rows_of_examples_are_taken() -> None:
    assert len(ROWS) >= 20
    assert {row.path for row in ROWS} > SEQUENCES | PARTLY
    assert not [row.path for row in ROWS if not (CORPUS / row.path).exists()]


@each_file
def test_a_field_is_added_replaced_renamed_and_dropped(row: Stated, tmp_path: Path) -> None:
    source = tmp_path / Path(row.path).name
    source.write_bytes((CORPUS / row.path).read_bytes())
    old_payloads = payloads(source, row.compression)
    old = [message(row, payload) for payload in old_payloads]
    added, replaced, renamed, dropped, again = (
        tmp_path / str(step) / source.name for step in range(5)
    )
    for path in (added, replaced, renamed, dropped, again):
        path.parent.mkdir()

    def read(path: Path) -> list[Any]:
        return [message(row, payload) for payload in payloads(path, row.compression)]

    def check(path: Path, new: list[dict[str, bytes]]) -> None:
        found = read(path)
        assert len(found) == len(old)
        for before, after, more in zip(old, found, new, strict=True):
            assert fields(after) == {**fields(before), **more}
            assert lists(after) == lists(before)

    count = len(old)
    values = np.arange(count) * 7 - 3
    what = {NUMBER: values, SPLIT: "train"}
    made = ps.add_fields(source, what, into=added.parent, verify=True)
    assert made.paths == (str(added),)
    assert made.num_records == count
    check(added, [{NUMBER: number(v), SPLIT: text(b"train")} for v in values.tolist()])
    assert batched(row, added) == (values.tolist(), [b"train"] * count)

    ps.replace_fields(added, {NUMBER: -values}, into=replaced.parent, verify=True)
    check(replaced, [{NUMBER: number(-v), SPLIT: text(b"train")} for v in values.tolist()])
    assert batched(row, replaced) == ((-values).tolist(), [b"train"] * count)

    ps.rename_fields(replaced, {NUMBER: "other"}, into=renamed.parent, verify=True)
    check(renamed, [{"other": number(-v), SPLIT: text(b"train")} for v in values.tolist()])

    ps.drop_fields(renamed, ["other", SPLIT], into=dropped.parent, verify=True)
    check(dropped, [{}] * count)

    ps.drop_fields(added, [NUMBER, SPLIT], into=again.parent)
    for before, after, parsed in zip(
        old_payloads, payloads(again, row.compression), old, strict=True
    ):
        # If protobuf writes the same number of bytes, the payload had no duplicate fields and no
        # unused bytes.
        if before and len(parsed.SerializeToString()) == len(before):
            assert after == before
        # An empty payload has no message of features.
        assert message(row, after) == parsed or after == b"\n\0"
    assert source.read_bytes() == (CORPUS / row.path).read_bytes()


@each_file
def test_an_old_field_is_replaced_renamed_and_dropped(row: Stated, tmp_path: Path) -> None:
    source = tmp_path / Path(row.path).name
    source.write_bytes((CORPUS / row.path).read_bytes())
    old = [message(row, payload) for payload in payloads(source, row.compression)]
    listed = {f.name for f in ps.open(source).schema if IN_LISTS_KEY in (f.metadata or {})}
    name = longest(old[0])
    assert name not in listed

    def check(path: Path, wanted: Any) -> None:
        for before, data in zip(old, payloads(path, row.compression), strict=True):
            after = message(row, data)
            assert fields(after) == wanted(fields(before))
            assert lists(after) == lists(before)

    into = tmp_path / "replaced.tfrecord"
    ps.replace_fields(source, {name: "here"}, into=into, verify=True)
    check(into, lambda known: {**known, name: text(b"here")})

    def moved(known: dict[str, bytes]) -> dict[str, bytes]:
        return {"moved" if key == name else key: value for key, value in known.items()}

    into = tmp_path / "renamed.tfrecord"
    ps.rename_fields(source, {name: "moved"}, into=into, verify=True)
    check(into, moved)

    if len(fields(old[0])) > 1:
        into = tmp_path / "dropped.tfrecord"
        ps.drop_fields(source, name, into=into, verify=True)
        check(into, lambda known: {key: v for key, v in known.items() if key != name})


def test_a_list_of_features_is_renamed_replaced_and_dropped(tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.path in SEQUENCES)
    source, into = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    source.write_bytes((CORPUS / row.path).read_bytes())
    (old,) = (message(row, payload) for payload in payloads(source, ""))
    (frames,) = lists(old)
    ps.rename_fields(source, {frames: "frames"}, into=into, verify=True)
    (new,) = (message(row, payload) for payload in payloads(into, ""))
    assert (lists(new), fields(new)) == ({"frames": lists(old)[frames]}, fields(old))
    ps.replace_fields(into, {"frames": [[[1, 2], [3]]]}, in_place=True, verify=True)
    (new,) = (message(row, payload) for payload in payloads(into, ""))
    found = new.feature_lists.feature_list["frames"].feature
    assert [list(feature.int64_list.value) for feature in found] == [[1, 2], [3]]
    ps.drop_fields(into, "frames", in_place=True, verify=True)
    (new,) = (message(row, payload) for payload in payloads(into, ""))
    assert (lists(new), fields(new)) == ({}, fields(old))


PARSE = """
import json, sys
import numpy as np
import tensorflow as tf
for path, names in json.loads(sys.argv[1]).items():
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    kind = "GZIP" if open(path, "rb").read(2) == b"\\x1f\\x8b" else ""
    data = [record.numpy() for record in tf.data.TFRecordDataset(path, compression_type=kind)]
    parsed = [tf.io.parse_example(data, spec)]
    parsed += [tf.io.parse_single_example(record, spec) for record in data]
    for found in parsed:
        assert {v for name in names for v in np.ravel(found[name].numpy())} == {b"here"}
"""
WARNING = "multiple concatenated"


def told_by_tensorflow(names: dict[str, list[str]]) -> str:
    """TensorFlow's output on stderr while it parses the named fields, each called "here", of some files."""
    done = subprocess.run(
        [sys.executable, "-c", PARSE, json.dumps(names)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_tensorflow_warns_of_nothing_shadowed(tmp_path: Path) -> None:
    names: dict[str, list[str]] = {}
    for place, row in enumerate(ROWS):
        if row.path in SEQUENCES | PARTLY or row.compression == "zlib":
            continue
        path = tmp_path / f"{place}.tfrecord"
        path.write_bytes((CORPUS / row.path).read_bytes())
        name = longest(message(row, payloads(path, row.compression)[0]))
        ps.add_fields(path, {NUMBER: 1, SPLIT: "train"}, in_place=True)
        ps.replace_fields(path, {SPLIT: "here", name: "here"}, in_place=True)
        ps.rename_fields(path, {NUMBER: "number"}, in_place=True)
        ps.add_fields(path, {NUMBER: "here"}, in_place=True)
        names[str(path)] = [NUMBER, SPLIT, name]
    assert len(names) >= 20
    assert WARNING not in told_by_tensorflow(names)


def test_tensorflow_would_warn_of_a_key_that_is_shadowed(tmp_path: Path) -> None:
    """This shows that the warning that the test above looks for appears if a field is added without removing the old
    one."""
    feature = {SPLIT: tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"here"]))}
    payload = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    ps.write([payload * 2], tmp_path / "a.tfrecord")
    assert WARNING in told_by_tensorflow({str(tmp_path / "a.tfrecord"): [SPLIT]})
