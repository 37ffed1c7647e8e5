"""Objects are read by their names, and paths of other file systems are errors, never missing files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
import penstock.tf as tf
from remote.servers.seaweed import Seaweed


@pytest.mark.parametrize("path", ["hdfs://host/x*", b"ram://x"])
def test_other_file_systems_are_refused_by_every_function(path: Any, tmp_path: Path) -> None:
    gfile = tf.io.gfile
    names = set(gfile.__all__) - {
        "GFile",
        "copy",
        "get_registered_schemes",
        "join",
        "rename",
        "walk",
    }
    calls: list[Callable[[], Any]] = [partial(getattr(gfile, name), path) for name in sorted(names)]
    calls += [
        lambda: list(gfile.walk(path)),
        lambda: gfile.copy(path, tmp_path / "a"),
        lambda: gfile.rename(tmp_path / "a", path),
        lambda: gfile.GFile(path),
        lambda: gfile.glob([str(tmp_path), path]),
        lambda: tf.io.read_file(path),
        lambda: tf.io.write_file(path, b""),
        lambda: tf.io.matching_files(path),
    ]
    for call in calls:
        with pytest.raises(tf.errors.UnimplementedError, match="File system scheme"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def base(seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a store, whose options are in the environment."""
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    return f"s3://{prefix}"


def test_gfile_reads_and_writes_objects(base: str, tmp_path: Path) -> None:
    gfile = tf.io.gfile
    name = f"{base}/a/lines.txt"
    assert not gfile.exists(name) and not gfile.isdir(f"{base}/a")
    gfile.makedirs(f"{base}/a")
    with gfile.GFile(name, "w") as file:
        file.write("one\n")
        file.write("two\n")
    assert gfile.GFile(name).read() == "one\ntwo\n"
    assert list(gfile.GFile(name, "rb")) == [b"one\n", b"two\n"]
    with gfile.GFile(name, "rb") as file:
        file.seek(4)
        assert (file.read(2), file.tell(), file.size()) == (b"tw", 6, 8)
    assert gfile.exists(name) and gfile.exists(f"{base}/a") and gfile.isdir(f"{base}/a")
    assert gfile.stat(name).length == 8 and gfile.stat(name).mtime_nsec > 1e18
    gfile.copy(name, f"{base}/b/deep/x.txt")
    gfile.copy(name, tmp_path / "x.txt")
    gfile.copy(tmp_path / "x.txt", f"{base}/b/y.txt")
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.copy(name, f"{base}/b/y.txt")
    assert gfile.listdir(f"{base}/b") == ["deep/", "y.txt"]
    assert gfile.glob(f"{base}/b/*.txt") == [f"{base}/b/y.txt"]
    assert gfile.glob(f"{base}/*/*.txt") == [f"{base}/a/lines.txt", f"{base}/b/y.txt"]
    assert list(gfile.walk(f"{base}/b")) == [
        (f"{base}/b", ["deep"], ["y.txt"]),
        (f"{base}/b/deep", [], ["x.txt"]),
    ]
    gfile.rename(f"{base}/b/y.txt", f"{base}/b/z.txt")
    assert tf.io.read_file(f"{base}/b/z.txt") == b"one\ntwo\n"
    gfile.rmtree(f"{base}/b")
    gfile.remove(name)
    assert not gfile.exists(name)
    for call in (gfile.remove, gfile.stat, gfile.listdir, lambda n: gfile.GFile(n).read()):
        with pytest.raises(tf.errors.NotFoundError):
            call(name)
    with pytest.raises(tf.errors.UnimplementedError, match="object store"):
        gfile.GFile(name, "a").write("x")


def test_an_object_is_not_made_if_writing_it_failed(base: str) -> None:
    with pytest.raises(ZeroDivisionError), tf.io.gfile.GFile(f"{base}/x", "wb") as file:
        file.write(b"half")
        _ = 1 // 0
    assert not tf.io.gfile.exists(f"{base}/x")


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_datasets_of_files_read_objects(base: str, tmp_path: Path, compression: str) -> None:
    options: Any = {"compression": compression.lower()} if compression else {}
    for number in range(3):
        records = {"record": [b"%d-%d" % (number, n) for n in range(50)]}
        ps.write(records, tmp_path / f"x-{number}.tfrecord", payload="raw", **options)
        tf.io.gfile.copy(tmp_path / f"x-{number}.tfrecord", f"{base}/x-{number}.tfrecord")
    here = tf.data.Dataset.list_files(f"{tmp_path}/x-*.tfrecord", shuffle=False)
    there = tf.data.Dataset.list_files(f"{base}/x-*.tfrecord", shuffle=False)
    names = [name.decode() for name in there.as_numpy_iterator()]
    assert names == [f"{base}/x-{number}.tfrecord" for number in range(3)]

    def records_of(files: Any) -> list[bytes]:
        return list(tf.data.TFRecordDataset(files, compression).as_numpy_iterator())

    assert records_of(there) == records_of(here) and len(records_of(there)) == 150
    with pytest.raises(tf.errors.NotFoundError):
        records_of([f"{base}/none.tfrecord"])


def test_fixed_records_and_lines_of_objects(base: str) -> None:
    tf.io.write_file(f"{base}/fixed.bin", b"hh" + bytes(range(100)) * 3 + b"f")
    fixed = tf.data.FixedLengthRecordDataset(f"{base}/fixed.bin", 100, 2, 1)
    assert list(fixed.as_numpy_iterator()) == [bytes(range(100))] * 3
    tf.io.write_file(f"{base}/lines.txt", b"a\r\nb\n")
    lines = tf.data.TextLineDataset(f"{base}/lines.txt")
    assert list(lines.as_numpy_iterator()) == [b"a", b"b"]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.data.Dataset.list_files(f"{base}/none-*")


def test_paths_that_say_that_they_are_local_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    assert tf.io.gfile.glob(f"file://{tmp_path}/*.txt") == [f"{tmp_path}/a.txt"]
    assert tf.io.gfile.GFile(f"file://{tmp_path}/a.txt").read() == "one"


@pytest.mark.parametrize("kind", ["", "GZIP", "ZLIB"])
def test_a_writer_of_records_writes_an_object_when_it_is_closed(base: str, kind: str) -> None:
    name = f"{base}/a.tfrecord"
    records = [bytes([n]) * n for n in range(50)]
    with tf.io.TFRecordWriter(name, kind) as writer:
        for record in records:
            writer.write(record)
        assert not tf.io.gfile.exists(name)
    found = tf.data.TFRecordDataset(name, compression_type=kind)
    assert [one.numpy() for one in found] == records

    def failing() -> None:
        with tf.io.TFRecordWriter(name, kind) as writer:
            writer.write(b"other")
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert [one.numpy() for one in found] == records
