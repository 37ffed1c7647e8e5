"""Copies of the data that a loader reads: the batches are the same, and an incomplete or wrong copy is never used."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.loader import _caching as caching
from reading import index_of

COUNT = 500


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "n.tfrecord"
    columns = {
        "id": range(COUNT),
        "name": [f"n{n}" for n in range(COUNT)],
        "words": pa.array([list(range(n % 4)) for n in range(COUNT)], pa.list_(pa.int64())),
    }
    ps.write(pa.table(columns), path)
    return path


def loader(data: Path, cache: Any, **more: Any) -> ps.Loader:
    return ps.Loader(ps.open(data), 32, order=ps.Shuffled(5), cache=cache, **more)


def seen(one: ps.Loader) -> list[Any]:
    """Everything in the batches of an epoch."""
    return [
        [[part.tolist() for part in v] if isinstance(v, tuple) else v.tolist() for v in b.values()]
        for b in one
    ]


def epoch(data: Path, number: int) -> list[Any]:
    return seen(loader(data, None, epoch=number))


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def made(one: ps.Loader) -> ps.Loader:
    """Start the copy and wait until it is complete."""
    next(iter(one))
    wait_until(lambda: one.cache.is_ready)
    return one


def given_up(one: ps.Loader) -> None:
    """Loop until the loader reports why it will make no copy."""
    iterator = iter(one)
    next(iterator)
    wait_until(lambda: one.cache._copying.reason is not None)
    list(iterator)


def cut_off(one: ps.Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every further read from the source fail."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("read from the source")

    monkeypatch.setattr(one.source, "take", refuse)


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_batches_are_the_same_before_and_from_the_copy(
    data: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = loader(data, place if place == "memory" else tmp_path / place)
    assert seen(one) == epoch(data, 0)
    wait_until(lambda: one.cache.is_ready)
    cut_off(one, monkeypatch)
    assert seen(one) == epoch(data, 1)
    one.load_state_dict({**one.state_dict(), "epoch": 0, "position": 96})
    assert seen(one) == epoch(data, 0)[3:]


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_every_type_comes_back_as_it_was(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table(
        {
            "i8": pa.array(range(100), pa.int8()),
            "u64": pa.array([2**63 + n for n in range(100)], pa.uint64()),
            "f64": np.random.default_rng(0).random(100),
            "flag": [n % 3 == 0 for n in range(100)],
            "text": [None if n % 5 == 0 else "ä" * n for n in range(100)],
            "deep": pa.array([[[1.5] * (n % 2)] * (n % 3) for n in range(100)]),
            "struct": [{"a": n, "b": [1.0] * (n % 2)} for n in range(100)],
            "when": pa.array(range(100), pa.timestamp("us")),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(
                np.arange(600, dtype=np.int16).reshape(100, 2, 3)
            ),
        }
    )
    ps.write(table, tmp_path / "t.arrow")
    where = place if place == "memory" else tmp_path / place
    given = {"cache": where, "ragged": "list", "order": ps.Shuffled(1)}
    one = made(ps.Loader(ps.open(tmp_path / "t.arrow"), 100, **given))
    plain = next(iter(ps.Loader(ps.open(tmp_path / "t.arrow"), 100, **{**given, "cache": None})))
    cut_off(one, monkeypatch)
    one.set_epoch(0)
    found = next(iter(one))
    for name, column in plain.items():
        np.testing.assert_equal(found[name], column)
        if isinstance(column, np.ndarray):
            assert found[name].dtype == column.dtype


def test_memory_in_several_pieces_gives_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "PIECE_BYTES", 1000)
    monkeypatch.setattr(caching, "BLOCK_BYTES", 1000)
    one = made(loader(data, "memory"))
    assert len(one.cache._copying.copy._pieces) > 5
    cut_off(one, monkeypatch)
    assert seen(one) == epoch(data, 1)


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_a_copy_that_does_not_fit_is_given_up_with_a_warning(
    data: Path, tmp_path: Path, place: str
) -> None:
    folder = tmp_path / place
    one = loader(data, place if place == "memory" else folder, cache_bytes=5000)
    with pytest.warns(UserWarning, match="5,000 are allowed; the records are read from the source"):
        given_up(one)
    assert seen(one) == epoch(data, 1)
    assert place == "memory" or os.listdir(folder) == []


def test_the_first_batch_does_not_wait_for_the_copy(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    blocks = caching._blocks

    def held(*given: Any) -> Any:
        gate.wait(20)
        return blocks(*given)

    monkeypatch.setattr(caching, "_blocks", held)
    one = loader(data, "memory")
    assert seen(one) == epoch(data, 0)
    assert not one.cache.is_ready
    gate.set()
    wait_until(lambda: one.cache.is_ready)


def test_a_folder_is_used_again_and_has_nothing_else_in_it(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    made(loader(data, folder))
    names = sorted(os.listdir(folder))
    assert len(names) == 2
    inode = (folder / names[0]).stat().st_ino
    made(loader(data, folder))
    made(pickle.loads(pickle.dumps(loader(data, folder, rank=1, world_size=2))))
    assert sorted(os.listdir(folder)) == names
    assert (folder / names[0]).stat().st_ino == inode
    made(loader(data, folder, columns=["id"]))
    assert len(os.listdir(folder)) == 4


def test_a_copy_of_an_older_state_is_made_again(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    made(loader(data, folder))
    old = set(os.listdir(folder))
    columns = ps.open(data).take(range(COUNT)).to_pydict()
    columns["id"] = [n + 1000 for n in columns["id"]]
    columns["name"] = ["m" + name[1:] for name in columns["name"]]
    ps.write(pa.table(columns), data, overwrite=True)
    one = made(loader(data, folder))
    assert min(n for batch in one for n in batch["id"]) == 1000
    assert not old & set(os.listdir(folder))
    assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "index"])
def test_a_damaged_copy_is_made_again(data: Path, tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "cache"
    made(loader(data, folder))
    (path,) = [folder / name for name in os.listdir(folder) if not name.endswith(".penstock")]
    whole = path.read_bytes()
    if harm == "flip":
        path.write_bytes(whole.replace(b"n250", b"m250"))
    elif harm == "index":
        index_of(path).unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2] if harm == "cut" else b"")
    one = loader(data, folder)
    assert [seen(one), seen(one), seen(one)] == [epoch(data, n) for n in range(3)]
    wait_until(lambda: one.cache.is_ready)
    assert [seen(one), seen(one)] == [epoch(data, n) for n in (3, 4)]
    wait_until(lambda: one.cache.is_ready and path.exists() and path.read_bytes() == whole)


def test_a_copy_truncated_while_it_is_read_changes_nothing(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    one = made(loader(data, folder))
    (path,) = [folder / name for name in os.listdir(folder) if not name.endswith(".penstock")]
    os.truncate(path, 1000)
    assert seen(one) == epoch(data, 1)


def test_files_of_a_killed_writer_are_deleted(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    script = (
        "import sys, time, penstock as ps\n"
        "from penstock.loader import _disk_copy as disk_copy\n"
        "def slow(folder, batches):\n"
        "    for n, batch in enumerate(batches):\n"
        "        yield batch\n"
        "        if n == 2: print('written', flush=True); time.sleep(60)\n"
        "disk_copy._while_there_is_room = slow\n"
        f"one = ps.Loader(ps.open({str(data)!r}), 8, cache={str(folder)!r})\n"
        "next(iter(one))\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        names = os.listdir(folder)
        assert names
        assert all(name.startswith(".") for name in names)
        # While it writes, other loaders read from the source and write nothing.
        other = loader(data, folder)
        assert seen(other) == epoch(data, 0)
        time.sleep(0.5)
        assert os.listdir(folder) == names
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        wait_until(lambda: other.cache.is_ready)
    assert len(os.listdir(folder)) == 2
    assert not set(names) & set(os.listdir(folder))


def test_many_processes_at_once_make_one_copy(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    script = (
        "import sys, time, penstock as ps\n"
        f"one = ps.Loader(ps.open({str(data)!r}), 8, cache={str(folder)!r}, order=ps.Shuffled(1))\n"
        "while not one.cache.is_ready: list(one)\n"
        "print(sum(int(b['id'].sum()) for b in one))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert {one.communicate(timeout=60)[0] for one in running} == {b"124750\n"}
    assert len(os.listdir(folder)) == 2


def test_damaged_records_are_skipped_without_a_copy(data: Path) -> None:
    data.write_bytes(data.read_bytes().replace(b"n250", b"m250"))
    given = {"cache": "memory", "order": ps.Sequential()}
    one = ps.Loader(ps.open(data, damage="skip"), 50, **given)
    with pytest.warns(UserWarning, match="damaged records are skipped"):
        given_up(one)
    assert sum(len(batch["id"]) for batch in one) == COUNT - 1


def test_a_copy_works_in_a_forked_process(data: Path) -> None:
    one = made(loader(data, "memory"))
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, b"1" if seen(one) == epoch(data, 1) else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    os.close(writer)
    assert seen(one) == epoch(data, 1)


def test_several_sets_have_one_copy(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(ps.Loader([ps.open(data), ps.open(data)], 100, cache="memory"))
    cut_off(one, monkeypatch)
    assert [n for batch in one for n in batch["id"].tolist()] == [*range(COUNT)] * 2


@pytest.mark.parametrize("order", [ps.Blocked(1, window_chunks=2, chunk_records=50)])
def test_orders_that_read_windows_read_them_from_the_copy(
    data: Path, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ps.Loader(ps.open(data), 32, order=order)
    list(plain)
    expected = [b["id"].tolist() for b in plain]
    one = made(ps.Loader(ps.open(data), 32, order=order, cache="memory"))
    cut_off(one, monkeypatch)
    assert [b["id"].tolist() for b in one] == expected


def test_mixtures_have_the_same_batches_from_a_copy(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {"a": ps.open(data), "b": ps.open(data)}
    order = ps.Mixture({"a": 0.75, "b": 0.25}, seed=1)
    plain = ps.Loader(sets, 32, order=order, epoch=1)
    one = made(ps.Loader(sets, 32, order=order, cache="memory"))
    cut_off(one, monkeypatch)
    assert [b["id"].tolist() for b in one] == [b["id"].tolist() for b in plain]


def test_the_copying_ends_with_its_loader(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "BLOCK_BYTES", 1)
    one = loader(data, "memory")
    next(iter(one))
    thread = one.cache._copying._thread
    assert thread.is_alive()
    del one
    wait_until(lambda: not thread.is_alive())
