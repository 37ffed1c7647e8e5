"""If a file is truncated, overwritten, replaced or removed while a loader reads it, that is an error. It never gives
zeros, records of another file, or a signal."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from loader.torturing import CONTAINERS, ids_of, write
from penstock import _core

COUNT = 4000
ORDER = ps.Shuffled(seed=1)
ERRORS = (ps.ChangedError, ps.StaleIndexError, ps.FormatError)


def truncated(path: Path, other: bytes) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_to_nothing(path: Path, other: bytes) -> None:
    os.truncate(path, 0)


def zeroed(path: Path, other: bytes) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 4)
        file.write(bytes(size // 2))


def overwritten(path: Path, other: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(other)
        file.truncate()


def replaced(path: Path, other: bytes) -> None:
    path.with_suffix(".new").write_bytes(other)
    os.replace(path.with_suffix(".new"), path)


def removed(path: Path, other: bytes) -> None:
    path.unlink()


CHANGES = (truncated, cut_to_nothing, zeroed, overwritten, replaced, removed)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", [name for name in CONTAINERS if "{" not in name])
def test_a_changed_file_is_an_error(name: str, change: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    path = Path(write(name, tmp_path, COUNT))
    other = Path(write(name, tmp_path / "other", COUNT, reverse=True)).read_bytes()
    expected = ORDER.take(COUNT, 0, 0, COUNT).tolist()
    loader = ps.Loader(ps.open(path), 64, order=ORDER, threads=2, memory_bytes=1)
    batches = iter(loader)
    seen = ids_of(next(batches))
    time.sleep(0.01)  # the clock of file systems ticks a few times in this period
    change(path, other)
    with pytest.raises(ERRORS) as caught:
        for batch in batches:
            seen += ids_of(batch)
    assert caught.value.file == str(path)
    assert seen == expected[: len(seen)]
    assert len(seen) <= 64 * 6, "only batches that were made before the change"
    assert loader.state_dict()["position"] == len(seen)


@pytest.mark.parametrize("name", ["stored.npz", "plain.tfrecord"])
def test_a_shard_that_is_changed_before_it_is_read_is_an_error(name: str, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        write(name, tmp_path / str(number), 100)
    paths = [tmp_path / str(number) / name for number in range(3)]
    loader = ps.Loader(ps.open([str(path) for path in paths]), 50, threads=0)
    batches = iter(loader)
    assert len([ids_of(next(batches)) for _ in range(2)]) == 2
    os.truncate(paths[2], 64)
    assert len([ids_of(next(batches)) for _ in range(2)]) == 2
    with pytest.raises(ERRORS, match=name):
        next(batches)


def test_skipping_damage_does_not_skip_a_changed_file(tmp_path: Path) -> None:
    path = Path(write("stored.npz", tmp_path, COUNT))
    batches = iter(ps.Loader(ps.open(path, damage="skip"), 64, threads=0))
    next(batches)
    os.truncate(path, 1000)
    with pytest.raises(ps.ChangedError):
        next(batches)


@pytest.mark.parametrize("name", ["plain.tfrecord", "x.tar"])
def test_many_damaged_records_do_not_each_read_the_whole_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(write(name, tmp_path, COUNT))
    loader = ps.Loader(ps.open(path, damage="skip"), 64, order=ORDER, threads=0)
    batches = iter(loader)
    next(batches)
    then = path.stat()
    zeroed(path, b"")
    # A failing disk does not change the times.
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    looks: list[Any] = []
    walk_headers = _core.index_file

    def look(*arguments: Any) -> Any:
        looks.append(arguments)
        return walk_headers(*arguments)

    monkeypatch.setattr(_core, "index_file", look)
    for _ in range(3):
        next(batches)
    assert len(loader.damage) > 10
    # No frame of a tar has a checksum, so reading the file could not reveal anything.
    assert len(looks) == (0 if name == "x.tar" else 1)


@pytest.mark.parametrize("name", ["plain.tfrecord", "gzip.tfrecord"])
def test_a_truncated_end_is_a_change_not_damage(name: str, tmp_path: Path) -> None:
    path = Path(write(name, tmp_path, COUNT))
    batches = iter(ps.Loader(ps.open(path, damage="skip"), 64, order=ORDER, threads=0))
    next(batches)
    os.truncate(path, path.stat().st_size // 3)
    with pytest.raises(ps.ChangedError):
        for _ in batches:
            pass


@pytest.mark.parametrize("name", ["plain.tfrecord", "gzip.tfrecord"])
def test_records_that_are_added_do_not_disturb_a_loader(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path, COUNT)
    batches = iter(ps.Loader(ps.open(path), 64, order=ORDER, threads=2, memory_bytes=1))
    seen = ids_of(next(batches))
    (tmp_path / "more").mkdir()
    ps.append(ps.open(write(name, tmp_path / "more", 50)), path)
    assert len(ps.open(path)) == COUNT + 50
    for batch in batches:
        seen += ids_of(batch)
    assert seen == ORDER.take(COUNT, 0, 0, COUNT).tolist()


def test_reading_continues_if_only_the_times_of_a_file_change(tmp_path: Path) -> None:
    path = write("plain.tfrecord", tmp_path, COUNT)
    batches = iter(ps.Loader(ps.open(path), 64, threads=2, memory_bytes=1))
    seen = ids_of(next(batches))
    os.utime(path)
    for batch in batches:
        seen += ids_of(batch)
    assert seen == list(range(COUNT))
