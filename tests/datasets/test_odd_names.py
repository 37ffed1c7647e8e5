"""Files whose names are not UTF-8, as old disks and other systems leave them, are read like any others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from reading import index_of

ENDINGS = ["tfrecord", "tfrecord.gz", "parquet", "arrow", "tar", "npy", "npz", "msgpack", "h5", "beton"]  # fmt: skip


def odd(name: str) -> str:
    return os.fsdecode(b"caf\xe9.") + name


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_verb_takes_such_a_name(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"a": [1, 2, 3]})
    name = odd(ending)
    ps.write(table, name)
    dataset = ps.open(name)
    assert pa.table(dataset)["a"].to_pylist() == [1, 2, 3]
    assert ps.open(name, mmap=True).take([2])["a"].to_pylist() == [3]
    assert pa.table(ps.open(".")).num_rows == 3
    assert ps.info(name).shards[0].path == name
    assert ps.verify(name).ok
    assert ps.stats(name).num_records == 3
    ps.convert(name, odd("copy.tfrecord"))
    assert ps.diff(name, odd("copy.tfrecord")).equal


@pytest.mark.parametrize("command", ["info", "head", "schema", "stats", "verify", "index"])
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_every_command_takes_such_a_name(command: str, json: list[str], tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/" + os.fsencode(odd("tfrecord"))
    ps.write({"a": [1, 2, 3]}, os.fsdecode(name))
    words = [sys.executable, "-m", "penstock", command, *json, name]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    done.stdout.decode("utf-8")


def test_the_error_for_a_missing_file_says_that_it_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ps.open(tmp_path / odd("tfrecord"))


def test_a_name_may_be_nearly_as_long_as_file_systems_allow(tmp_path: Path) -> None:
    """File systems allow 255 bytes, and the name of a sidecar is a few bytes longer than that of its file."""
    for name in ("x" * 226 + ".tfrecord", "é" * 115 + ".parquet"):
        ps.write({"a": [1]}, tmp_path / name, index=False)
        assert pa.table(ps.open(tmp_path / name, index="never"))["a"].to_pylist() == [1]
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.tfrecord"
    os.mkfifo(pipe)
    with pytest.raises(ps.UnsupportedError, match="pipe or a device"):
        ps.write({"a": [1]}, pipe, overwrite=True)
    with pytest.raises(ps.UnsupportedError, match="pipe or a device"):
        ps.write({"a": [1]}, "/dev/null", format="tfrecord", overwrite=True)
    assert pipe.is_fifo()


def test_compression_may_be_given_in_tensorflows_terms(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for word in ("GZIP", "ZLIB", ""):
        ps.write({"a": [1]}, path, compression=word, overwrite=True)
        assert ps.info(path).shards[0].compression == word.lower()
        assert ps.open(path, compression=word)[0] == {"a": 1}


def test_the_version_is_reported() -> None:
    from importlib.metadata import version

    assert ps.__version__ == version("penstock")


@pytest.mark.parametrize("length", [240, 247, 255])
@pytest.mark.parametrize("ending", ["tfrecord", "tfrecord.gz", "parquet", "tar"])
def test_files_of_the_longest_names_are_written_and_read(
    ending: str, length: int, tmp_path: Path
) -> None:
    """No sidecar or other file can exist next to a file with such a name."""
    path = tmp_path / ("x" * (length - len(ending) - 1) + "." + ending)
    ps.write({"a": [1, 2, 3]}, path, index=False)
    found = ps.open(path)
    assert pa.table(found)["a"].to_pylist() == [1, 2, 3]
    assert found.take([2])["a"].to_pylist() == [3]
    assert ps.verify(path).ok
    assert ps.info(path).shards[0].num_records == 3
    assert ps.overlays(path) == []
    assert ps.stats(path).num_records == 3
    ps.write({"a": [4]}, path, index=False, overwrite=True)
    assert ps.open(path)[0]["a"] == 4


def test_names_of_the_greatest_length_have_indexes_and_overlays(tmp_path: Path) -> None:
    paths = [tmp_path / ("é" * 120 + end + ".tfrecord") for end in ("xxxxxx", "xxxxxy")]
    for path in paths:
        ps.write({"a": [1, 2, 3]}, path)
        ps.add_fields(path, {"b": [path.name[-10]] * 3})
        assert ps.info(path).shards[0].index == "found"
    for path in paths:
        assert ps.open(path)[2] == {"a": 3, "b": path.name[-10]}
    assert len({index_of(path) for path in paths}) == 2
    assert all(len(os.fsencode(name)) <= 255 for name in os.listdir(tmp_path))


def test_an_impossible_file_name_is_reported_as_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ps.open(tmp_path / ("x" * 300 + ".tfrecord"))


def _images(folder: bytes, *names: bytes) -> str:
    data = ps.encode_images(np.zeros((1, 4, 4, 3), np.uint8), "png")[0].as_py()
    for name in names:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return os.fsdecode(folder)


def test_a_class_name_that_is_not_text_is_the_same_error_in_every_format(tmp_path: Path) -> None:
    folder = _images(os.fsencode(tmp_path / "images"), b"cat/a.png", b"d\xffg/a.png")
    target = tmp_path / "a.parquet"
    verbs: list[Callable[[], Any]] = [
        lambda: ps.open(folder, format="imagefolder"),
        lambda: ps.Loader(ps.open(folder, format="imagefolder"), 2),
        lambda: ps.convert(folder, target),
        lambda: ps.stats(folder),
        lambda: ps.diff(folder, folder),
    ]
    for verb in verbs:
        with pytest.raises(ps.FormatError, match="name of a class is not UTF-8") as caught:
            verb()
        assert caught.value.file == os.path.join(folder, "d\udcffg")
    for report in (ps.verify(folder), ps.repair(folder, into=tmp_path / "whole")):
        (finding,) = report.findings
        assert not report.ok and "name of a class is not UTF-8" in finding.message
    assert not target.exists() and not (tmp_path / "whole").exists()


def test_a_file_name_that_is_not_text_is_an_error_if_it_is_a_value(tmp_path: Path) -> None:
    folder = _images(os.fsencode(tmp_path / "images"), b"a\xff.png")
    with pytest.raises(ps.FormatError, match="leave it out with file_names=False") as caught:
        ps.open(folder, format="imagefolder")
    assert caught.value.file == os.path.join(folder, "a\udcff.png")
    assert len(ps.open(folder, format="imagefolder", file_names=False)) == 1
    folder = _images(os.fsencode(tmp_path / "classes"), b"cat/a\xff.png")
    assert [row["label"] for row in ps.open(folder, format="imagefolder")] == ["cat"]
