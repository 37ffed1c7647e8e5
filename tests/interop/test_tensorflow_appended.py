"""TensorFlow reads files to which records were appended, and loses no old record while an append is running."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

import penstock as ps  # noqa: E402

NAMES = {"x.tfrecord": "", "x.tfrecord.gz": "GZIP"}


def payloads(path: Path, compression: str) -> tuple[list[bytes], bool]:
    """The records up to the first error, and whether there is one."""
    found: list[bytes] = []
    try:
        for record in tf.data.TFRecordDataset(str(path), compression_type=compression):
            found.append(record.numpy())
    except tf.errors.DataLossError:
        return found, True
    return found, False


def ids(records: list[bytes]) -> list[int]:
    examples = [tf.train.Example.FromString(record) for record in records]
    return [example.features.feature["id"].int64_list.value[0] for example in examples]


@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_reads_what_was_appended(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write({"id": range(3000), "text": ["old"] * 3000}, path, member_bytes=5000)
    for first in range(3000, 6000, 1000):
        new = {"id": range(first, first + 1000), "text": ["new"] * 1000}
        ps.append(new, path, member_bytes=5000)
    ps.append({"id": [], "text": []}, path, schema=ps.open(path).schema)
    found, broke = payloads(path, NAMES[name])
    assert not broke
    assert ids(found) == list(range(6000))
    assert found == ps.open(path, raw=True).take(range(6000))["record"].to_pylist()


@pytest.mark.parametrize("foreign", [False, True])
def test_tensorflow_reads_what_follows_its_gzip_files_and_empty_gzip_files(
    tmp_path: Path, foreign: bool
) -> None:
    path = tmp_path / "x.tfrecord.gz"
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[0]))
    example = tf.train.Example(features=tf.train.Features(feature={"id": feature}))
    records = [example.SerializeToString()] * foreign
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for record in records:
            writer.write(record)
    ps.append({"id": range(50)}, path)
    found, broke = payloads(path, "GZIP")
    assert not broke
    assert ids(found) == [0] * foreign + list(range(50))


@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_loses_no_old_record_during_an_append(tmp_path: Path, name: str) -> None:
    """Wherever the new bytes are truncated, the old records come first and are complete."""
    path = tmp_path / name
    ps.write({"id": range(100)}, path)
    before = path.read_bytes()
    ps.append({"id": range(100, 140)}, path, member_bytes=300)
    more = path.read_bytes()[len(before) :]
    seen = set()
    for cut in [*range(60), *range(60, len(more), 37), len(more)]:
        path.write_bytes(before + more[:cut])
        found, broke = payloads(path, NAMES[name])
        assert ids(found) == list(range(len(found)))
        assert len(found) >= 100, cut
        seen.add((len(found) > 100, broke))
    assert (True, False) in seen
    if name.endswith(".gz"):
        assert gzip.decompress(before)
