"""What a source means: numbered sets and the files that lie beside them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.paths import expand
from penstock.storage import LocalStorage


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": range(10)}, "people.tfrecord", num_shards=2)
    return tmp_path


def names(source: str) -> list[str]:
    return expand(source, LocalStorage())


@pytest.mark.parametrize("source", ["people@2.tfrecord", "people@*.tfrecord", "people-*.tfrecord"])
def test_a_set_is_its_shards_without_their_sidecars(folder: Path, source: str) -> None:
    assert names(source) == ["people-00000-of-00002.tfrecord", "people-00001-of-00002.tfrecord"]


def test_a_count_taken_from_the_files_needs_the_whole_name(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        names("people@*")


@pytest.mark.parametrize("source", ["people@2.tfrecord", "people@*.tfrecord", "people-*.tfrecord"])
def test_a_set_that_lacks_a_shard_is_an_error(folder: Path, source: str) -> None:
    (folder / "people-00001-of-00002.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match=r"00001|shard 1 of 2"):
        names(source)


def test_a_pipe_is_refused_and_never_taken_for_an_empty_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ps.UnsupportedError, match="a pipe or a device"):
            ps.open(path, index="never")


@pytest.mark.parametrize("name", ["a.npy.gz", "a.beton.gz", "a.msgpack.gz", "a.h5.gz", "a.gz"])
def test_a_packed_file_is_told_to_be_unpacked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"some bytes" * 9))
    with pytest.raises(ps.UnsupportedError, match="packed with gzip") as caught:
        ps.open(tmp_path / name)
    assert caught.value.hint == "unpack it first"


def test_a_folder_of_splits_is_told_to_be_opened_one_by_one(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat" / "a.jpg").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="open one of them: train, val"):
        ps.open(tmp_path)
    assert len(ps.open(tmp_path / "train")) == 1
