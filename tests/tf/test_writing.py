"""`tf.io.TFRecordWriter`: files equal TensorFlow's, and flushed records can be read."""

from __future__ import annotations

import gc
import gzip
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
import penstock.tf as tf

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tensorflow = pytest.importorskip("tensorflow")


def records(count: int, most_bytes: int = 200) -> list[bytes]:
    rng = random.Random(count)
    return [rng.randbytes(rng.randrange(most_bytes)) for _ in range(count)]


def write(path: Path, payloads: list[Any], options: Any = None, module: Any = tf) -> Path:
    with module.io.TFRecordWriter(str(path), options) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


def in_tensorflow(path: Path, compression: str = "") -> list[bytes]:
    found = tensorflow.data.TFRecordDataset(str(path), compression_type=compression)
    return [record.numpy() for record in found]


def here(path: Path) -> list[bytes]:
    return list(tf.python_io.tf_record_iterator(path))


@pytest.mark.parametrize("count", [0, 1, 3, 60_000])
def test_plain_files_are_the_same_bytes_as_tensorflows(tmp_path: Path, count: int) -> None:
    payloads = records(count)
    ours = write(tmp_path / "ours", payloads)
    theirs = write(tmp_path / "theirs", payloads, module=tensorflow)
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("count", [0, 1, 30_000])
def test_compressed_files_hold_the_same_for_tensorflow(
    tmp_path: Path, compression: str, count: int
) -> None:
    payloads = records(count)
    path = write(tmp_path / "x", payloads, compression)
    plain = write(tmp_path / "plain", payloads).read_bytes()
    inflate = gzip.decompress if compression == "GZIP" else zlib.decompress
    assert inflate(path.read_bytes()) == plain
    assert in_tensorflow(path, compression) == payloads == here(path)


def test_gzip_files_are_read_from_their_middle(tmp_path: Path) -> None:
    payloads = records(30_000)
    path = write(tmp_path / "x.gz", payloads, tf.io.TFRecordOptions("GZIP"))
    dataset = ps.open(str(path), raw=True, index="never")
    assert dataset[20_000]["record"] == payloads[20_000]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_flushed_records_can_be_read_before_the_file_is_closed(
    tmp_path: Path, compression: str
) -> None:
    path = tmp_path / "x"
    writer = tf.io.TFRecordWriter(path, compression)
    assert path.exists()
    for part in range(3):
        writer.write(b"record %d" % part)
        writer.flush()
        wanted = [b"record %d" % n for n in range(part + 1)]
        if compression == "ZLIB":
            plain = zlib.decompressobj().decompress(path.read_bytes())
            assert len(plain) == sum(len(record) + 16 for record in wanted)
        else:
            assert in_tensorflow(path, compression) == wanted
    writer.close()
    assert in_tensorflow(path, compression) == wanted == here(path)


def test_a_closed_writer_takes_no_more(tmp_path: Path) -> None:
    writer = tf.io.TFRecordWriter(str(tmp_path / "x"))
    writer.close()
    writer.close()
    for act in (lambda: writer.write(b"x"), writer.flush):
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"Writer is closed\."):
            act()


def test_a_writer_that_was_not_closed_leaves_its_records(tmp_path: Path) -> None:
    writer = tf.io.TFRecordWriter(tmp_path / "x")
    writer.write(b"left behind")
    del writer
    gc.collect()
    assert here(tmp_path / "x") == [b"left behind"]


def test_only_bytes_are_records(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(bytearray(b"array"))
        writer.write("é")
        for wrong in (None, 3, memoryview(b"x"), tf.constant(b"x"), tf.train.Example()):
            with pytest.raises(TypeError, match="incompatible function arguments"):
                writer.write(wrong)
        with pytest.raises(TypeError, match=r"write its \.SerializeToString\(\)"):
            writer.write(tf.train.Example())
    assert here(path) == [b"array", "é".encode()]


def test_places_where_no_file_can_be_are_reported(tmp_path: Path) -> None:
    missing = str(tmp_path / "no" / "such")
    with pytest.raises(tf.errors.NotFoundError, match=r"such; No such file or directory"):
        tf.io.TFRecordWriter(missing)
    with pytest.raises(FileNotFoundError):
        tf.io.TFRecordWriter(missing)
    with pytest.raises(tf.errors.FailedPreconditionError, match="Is a directory"):
        tf.io.TFRecordWriter(tmp_path)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full on this system")
    writer = tf.io.TFRecordWriter("/dev/full")
    writer.write(b"x")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="/dev/full; No space left"):
        writer.close()
    writer.close()


def test_options_equal_tensorflows(tmp_path: Path) -> None:
    for ours, theirs in ((tf, tensorflow), (tf.python_io, tensorflow.compat.v1.python_io)):
        options = getattr(ours, "io", ours).TFRecordOptions
        others = getattr(theirs, "io", theirs).TFRecordOptions
        for value in (None, "", "GZIP", "ZLIB", 0, 1, 2):
            wanted = others.get_compression_type_string(others(value))
            assert options.get_compression_type_string(options(value)) == wanted
    for wrong in ("gzip", "NONE", 5):
        for act in (tf.io.TFRecordOptions, lambda o: tf.io.TFRecordWriter(tmp_path / "x", o)):
            with pytest.raises(ValueError, match=f'Not a valid compression_type: "{wrong}"'):
                act(wrong)
    assert tf.io.TFRecordOptions("GZIP", 0, 1, 2, 3, 4, 5, 6, 7).mem_level == 6
    with pytest.raises(tf.errors.InvalidArgumentError, match="0 to 9"):
        tf.io.TFRecordWriter(tmp_path / "x", tf.io.TFRecordOptions("GZIP", compression_level=99))
    with pytest.raises(tf.errors.InvalidArgumentError, match="mem_level=77"):
        tf.io.TFRecordWriter(tmp_path / "x", tf.io.TFRecordOptions("ZLIB", mem_level=77))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_levels_make_files_smaller(tmp_path: Path, compression: str) -> None:
    payloads = [b"all work and no play %d" % (n % 37) for n in range(20_000)]
    sizes = []
    for level in (0, 1, 9):
        options = tf.io.TFRecordOptions(compression, compression_level=level)
        path = write(tmp_path / f"{level}", payloads, options)
        assert in_tensorflow(path, compression) == payloads
        sizes.append(path.stat().st_size)
    assert sizes[0] > sizes[1] > sizes[2]


def test_old_names_lead_to_the_same_classes(tmp_path: Path) -> None:
    assert tf.compat.v1.python_io.TFRecordWriter is tf.io.TFRecordWriter
    path = write(tmp_path / "x", [b"a", b"b"])
    assert list(tf.compat.v1.io.tf_record_iterator(path)) == [b"a", b"b"]
    with pytest.raises(tf.errors.NotFoundError):
        list(tf.compat.v1.io.tf_record_iterator(tmp_path / "nowhere"))
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(tf.errors.DataLossError):
        list(tf.compat.v1.io.tf_record_iterator(path))
