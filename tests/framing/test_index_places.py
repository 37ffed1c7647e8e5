"""Where indexes are stored: reading writes nothing next to the data, unless the user asks for that or an index is
already there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import frames
import penstock as ps
from penstock.framing.index import _index_cache as index_cache
from penstock.framing.index import indexing
from reading import index_of

PAYLOADS = [b"record %d" % n for n in range(500)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache of indexes, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "penstock" / "index"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file from another writer."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train-00000-of-00001").write_bytes(frames.file_of(PAYLOADS))
    return str(folder / "train-00000-of-00001")


def kept_in(cache: Path) -> list[Path]:
    return sorted(cache.glob(".*.penstock")) if cache.exists() else []


def test_reading_writes_nothing_next_to_the_data(path: str, cache: Path) -> None:
    for _ in range(2):
        dataset = ps.open(path, raw=True)
        assert len(dataset) == len(PAYLOADS)
        assert dataset.take([7]).column(0).to_pylist() == [PAYLOADS[7]]
        ps.info(dataset)
        assert ps.verify(path).ok
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    assert len(kept_in(cache)) == 1
    assert ps.open(path, raw=True).files.reader(0).has_index


def test_verbs_put_cached_indexes_next_to_the_data(path: str, cache: Path) -> None:
    len(ps.open(path, raw=True))
    assert ps.index(path) == [str(index_of(path))]
    kept = index_of(path).read_bytes()
    assert ps.index(path) == [str(index_of(path))]
    assert index_of(path).read_bytes() == kept


def test_an_index_next_to_the_data_is_refreshed_there(path: str, cache: Path) -> None:
    ps.index(path)
    time.sleep(0.03)
    Path(path).write_bytes(frames.file_of(PAYLOADS[::-1]))
    assert ps.open(path, raw=True)[0]["record"] == PAYLOADS[-1]
    assert ps.info(ps.open(path, raw=True)).shards[0].index_path == str(index_of(path))
    assert not kept_in(cache)


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_given_place_decides_where_the_index_goes(
    path: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def told(place: str) -> None:
        if way == "environment":
            monkeypatch.setenv("PENSTOCK_INDEX", place)
        assert len(ps.open(path, raw=True, index=place if way == "argument" else "auto")) == 500

    told("never")
    assert not index_of(path).exists()
    assert not kept_in(cache)
    told(str(tmp_path / "folder"))
    assert len(list((tmp_path / "folder").iterdir())) == 1
    assert not index_of(path).exists()
    told("beside")
    assert index_of(path).exists()
    assert not kept_in(cache)


def test_an_argument_beats_the_environment(
    path: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_INDEX", "beside")
    len(ps.open(path, raw=True, index="never"))
    assert not index_of(path).exists()
    monkeypatch.setenv("PENSTOCK_INDEX", path)
    with pytest.raises(NotADirectoryError, match="PENSTOCK_INDEX"):
        ps.open(path, raw=True)


def test_the_environment_does_not_decide_for_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_INDEX", "never")
    ps.write({"a": [1]}, tmp_path / "a.tfrecord")
    assert index_of(tmp_path / "a.tfrecord").exists()


def test_old_names_are_not_read(path: str, cache: Path) -> None:
    ps.index(path)
    os.rename(index_of(path), f"{path}.penstock")
    assert not ps.open(path, raw=True).files.reader(0).has_index
    assert ps.open(os.path.dirname(path), raw=True).paths == (path,), "nor is it data"


def test_the_cache_stays_small_and_the_oldest_leave(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "MOST_BYTES", 60_000)
    paths = [tmp_path / f"{n}.tfrecord" for n in range(40)]
    for number, each in enumerate(paths):
        each.write_bytes(frames.file_of([b"%d %d" % (number, n) for n in range(500)]))
        assert len(ps.open(each, raw=True)) == 500
        assert sum(kept.stat().st_size for kept in cache.iterdir()) <= 60_000
    assert ps.open(paths[-1], raw=True).files.reader(0).has_index
    assert not ps.open(paths[0], raw=True).files.reader(0).has_index
    monkeypatch.setattr(index_cache, "MOST_BYTES", 100)
    assert len(ps.open(paths[0], raw=True)) == 500


def test_what_takes_long_says_once_how_it_is_kept(
    path: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(index_cache._Known, "has_told", False)
    with pytest.warns(UserWarning, match=f"penstock index {path}"):
        len(ps.open(path, raw=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept_in(cache)[0].unlink()
        len(ps.open(path, raw=True))


def _count(path: str, made: object) -> None:
    found = indexing._found_index

    def slow(shard: object) -> object:
        with made.get_lock():  # type: ignore[attr-defined]
            made.value += 1  # type: ignore[attr-defined]
        time.sleep(0.5)
        return found(shard)  # type: ignore[arg-type]

    indexing._found_index = slow  # type: ignore[assignment]
    assert len(ps.open(path, raw=True)) == len(PAYLOADS)


def test_processes_make_an_index_once(path: str, cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    made = context.Value("i", 0)
    workers = [context.Process(target=_count, args=(path, made)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert made.value == 1
    assert len(list(cache.iterdir())) == 1, "no lock is left"


DIES = """
import sys, time
import penstock as ps
from penstock.framing.index import indexing
indexing._found_index = lambda shard: (print("begun", flush=True), time.sleep(60))
len(ps.open(sys.argv[1], raw=True))
"""


def test_waiting_ends_when_the_maker_dies(path: str, cache: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", DIES, path], stdout=subprocess.PIPE)
    assert maker.stdout is not None
    assert maker.stdout.readline() == b"begun\n"
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    begun = time.monotonic()
    assert len(ps.open(path, raw=True)) == len(PAYLOADS)
    assert time.monotonic() - begun < 20
    assert len(list(cache.iterdir())) == 1, "the lock of the dead is taken away"


def test_a_folder_for_indexes_may_be_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=False)
    assert ps.open(path, index=tmp_path / "new")[1] == {"a": 2}
    assert len(list((tmp_path / "new").iterdir())) == 1
    words: list[Any] = [None, 5, False, b"new"]
    for word in words:
        with pytest.raises(TypeError, match=r"'auto', 'beside', 'never' or a folder|as text"):
            ps.open(path, index=word)
    with pytest.raises(NotADirectoryError, match="or a folder"):
        ps.open(path, index=str(path))


def test_a_folder_for_indexes_is_made_by_every_verb(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=tmp_path / "of_write")
    ps.convert(path, tmp_path / "b.tfrecord", index=str(tmp_path / "of_convert"))
    ps.repair(path, into=tmp_path / "c.tfrecord", index=str(tmp_path / "of_repair"))
    ps.index(path, folder=tmp_path / "of_index")
    ps.append({"a": [3]}, path, index=str(tmp_path / "of_append"))
    made = sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir())
    assert made == ["of_append", "of_convert", "of_index", "of_repair", "of_write"]
    assert all(len(list((tmp_path / name).iterdir())) == 1 for name in made)
