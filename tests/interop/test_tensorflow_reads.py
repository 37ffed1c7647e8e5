"""TensorFlow, the reference, reads every kind of TFRecord file that penstock writes, with equal values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

from penstock.verbs.write.write import write  # noqa: E402

COMPRESSIONS: dict[str | None, str] = {None: "", "gzip": "GZIP", "zlib": "ZLIB"}


def payloads(path: Path, compression: str | None) -> list[bytes]:
    data = tf.data.TFRecordDataset(str(path), compression_type=COMPRESSIONS[compression])
    return [record.numpy() for record in data]


def value_of(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    return None if kind is None else (kind, list(getattr(feature, kind).value))


def features_of(features: Any) -> dict[str, Any]:
    return {key: value_of(feature) for key, feature in features.feature.items()}


def examples(path: Path, compression: str | None = None) -> list[dict[str, Any]]:
    return [
        features_of(tf.train.Example.FromString(payload).features)
        for payload in payloads(path, compression)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_every_type(tmp_path: Path, compression: str | None) -> None:
    rows = 5000
    draw = np.random.default_rng(3)
    numbers = draw.integers(-(2**63), 2**63 - 1, rows)
    floats = draw.random((rows, 3), dtype=np.float32)
    floats[0] = [np.nan, np.inf, -0.0]
    text = [None if n % 7 == 0 else f"text {n} é" * (n % 30) for n in range(rows)]
    lists = [list(range(n % 5)) for n in range(rows)]
    blobs = [[bytes([n % 256]) * (n % 200)] * (n % 3) for n in range(rows)]
    table = pa.table(
        {
            "number": numbers,
            "floats": pa.FixedSizeListArray.from_arrays(pa.array(floats.ravel()), 3),
            "text": text,
            "lists": lists,
            "blobs": pa.array(blobs, pa.list_(pa.binary())),
        }
    )
    path = tmp_path / "x.tfrecord"
    extra: dict[str, Any] = {"member_bytes": 5000} if compression == "gzip" else {}
    write(table, path, compression=compression, **extra)
    found = examples(path, compression)
    assert len(found) == rows
    for n, record in enumerate(found):
        assert record["number"] == ("int64_list", [numbers[n]])
        kind, values = record["floats"]
        assert kind == "float_list"
        assert np.array_equal(np.array(values, np.float32), floats[n], equal_nan=True)
        assert record.get("text") == (
            None if text[n] is None else ("bytes_list", [text[n].encode()])  # type: ignore[union-attr]
        )
        assert record["lists"] == ("int64_list", lists[n])
        assert record["blobs"] == ("bytes_list", blobs[n])


def test_bytes_equal_deterministic_protobuf(tmp_path: Path) -> None:
    """The bytes are equal if no key is the beginning of another key. (For such keys, protobuf's own implementations
    differ in the order.)"""
    train = tf.train
    rows = 300
    table = pa.table(
        {
            "z": pa.array([n * 1_000_003 - 77 for n in range(rows)]),
            "a": [[n / 4] * (n % 40) for n in range(rows)],
            "long name of a feature that takes more than forty eight bytes": [
                "x" * n for n in range(rows)
            ],
            "é": [[b"b" * n] * (n % 4) for n in range(rows)],
        }
    )
    path = tmp_path / "x.tfrecord"
    write(table, path)
    for payload, row in zip(payloads(path, None), table.to_pylist(), strict=True):
        feature = {
            "z": train.Feature(int64_list=train.Int64List(value=[row["z"]])),
            "a": train.Feature(float_list=train.FloatList(value=row["a"])),
            "é": train.Feature(bytes_list=train.BytesList(value=row["é"])),
        }
        name = table.schema.names[2]
        feature[name] = train.Feature(bytes_list=train.BytesList(value=[row[name].encode()]))
        example = train.Example(features=train.Features(feature=feature))
        assert payload == example.SerializeToString(deterministic=True)


def test_the_file_equals_the_file_that_tensorflow_writes(tmp_path: Path) -> None:
    records = [os.urandom(n) for n in range(300)]
    write(records, tmp_path / "ours.tfrecord")
    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "ours.tfrecord").read_bytes() == (tmp_path / "theirs.tfrecord").read_bytes()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_parse_example_gives_the_columns_back(tmp_path: Path, compression: str | None) -> None:
    rows = 2000
    images = np.arange(rows * 6, dtype=np.float32).reshape(rows, 2, 3)
    tokens = [list(range(n % 9)) for n in range(rows)]
    path = tmp_path / "x.tfrecord"
    write(
        {"image": images, "label": np.arange(rows), "tokens": tokens}, path, compression=compression
    )
    data = tf.data.TFRecordDataset(str(path), COMPRESSIONS[compression]).batch(rows)
    parsed = tf.io.parse_example(
        next(iter(data)),
        {
            "image": tf.io.FixedLenFeature((2, 3), tf.float32),
            "label": tf.io.FixedLenFeature((), tf.int64),
            "tokens": tf.io.RaggedFeature(tf.int64),
        },
    )
    assert np.array_equal(parsed["image"].numpy(), images)
    assert np.array_equal(parsed["label"].numpy(), np.arange(rows))
    assert parsed["tokens"].to_list() == tokens


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_sequence_examples(tmp_path: Path, compression: str | None) -> None:
    rows = 500
    steps = [[list(range(k)) for k in range(n % 5)] for n in range(rows)]
    words = [["a" * k for k in range(n % 4)] for n in range(rows)]
    table = pa.table(
        {
            "steps": pa.array(steps, pa.list_(pa.list_(pa.int32()))),
            "feature_lists/words": pa.array(words, pa.list_(pa.string())),
            "context/words": [f"row {n}" for n in range(rows)],
            "weights": [[0.5] * (n % 3) for n in range(rows)],
        }
    )
    path = tmp_path / "x.tfrecord"
    write(table, path, compression=compression)
    for n, payload in enumerate(payloads(path, compression)):
        example = tf.train.SequenceExample.FromString(payload)
        assert features_of(example.context) == {
            "words": ("bytes_list", [f"row {n}".encode()]),
            "weights": ("float_list", [0.5] * (n % 3)),
        }
        lists = {
            key: [value_of(feature) for feature in lists.feature]
            for key, lists in example.feature_lists.feature_list.items()
        }
        assert lists == {
            "steps": [("int64_list", step) for step in steps[n]],
            "words": [("bytes_list", [word.encode()]) for word in words[n]],
        }
        assert example.SerializeToString(deterministic=True) == payload
    context, lists, _ = tf.io.parse_sequence_example(
        payloads(path, compression),
        {"weights": tf.io.RaggedFeature(tf.float32)},
        {"steps": tf.io.RaggedFeature(tf.int64), "words": tf.io.RaggedFeature(tf.string)},
    )
    assert context["weights"].to_list() == table["weights"].to_pylist()
    assert lists["steps"].to_list() == steps


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_empty_shards(tmp_path: Path, compression: str | None) -> None:
    table = pa.table({"x": pa.array([1], pa.int64())})
    summary = write(table, tmp_path / "x.tfrecord", num_shards=3, compression=compression)
    assert [len(examples(Path(path), compression)) for path in summary.paths] == [1, 0, 0]


def test_tensorflow_reads_joined_gzip_shards(tmp_path: Path) -> None:
    """No member is empty, so nothing is lost if files of penstock are concatenated."""
    table = pa.table({"x": range(3000)})
    summary = write(
        table, tmp_path / "x.tfrecord", num_shards=3, compression="gzip", member_bytes=1
    )
    joined = tmp_path / "joined"
    joined.write_bytes(b"".join(Path(path).read_bytes() for path in summary.paths))
    found = examples(joined, "gzip")
    assert [record["x"][1][0] for record in found] == list(range(3000))


def test_records_with_nothing_in_them_are_read(tmp_path: Path) -> None:
    write({"x": pa.array([None, 1, None])}, tmp_path / "x.tfrecord")
    assert examples(tmp_path / "x.tfrecord") == [{}, {"x": ("int64_list", [1])}, {}]
