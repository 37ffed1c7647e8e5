"""Children of a process that reads from a store read, too, and nothing hangs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from remote.servers.seaweed import Seaweed

COUNT = 3000
SECONDS = 60
"""A child that hangs is ended after this."""


@pytest.fixture(scope="module")
def url(seaweed: Seaweed, common_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("forks")
    data = pa.table({"id": range(COUNT), "blob": [os.urandom(1000) for _ in range(COUNT)]})
    for made in ps.write(data, folder / "x.tfrecord", num_shards=3, index=False).paths:
        seaweed.client.put(f"{common_bucket}/forks/{Path(made).name}", Path(made).read_bytes())
    return f"s3://{common_bucket}/forks/x@3.tfrecord"


@pytest.fixture(autouse=True)
def store_in_environment(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)


@contextmanager
def busy(url: str) -> Generator[None]:
    """Threads that scan again and again."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def scan() -> None:
        try:
            while not stop.is_set():
                assert ps.open(url).to_table(["id"]).num_rows == COUNT
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=scan) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)


def status_of_child(dataset: ps.Dataset, number: int) -> int:
    """Read in a forked child: what was opened before the fork, and what the child opens itself."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        wanted = [number % COUNT, COUNT - 1, 0]
        right = dataset.take(wanted)["id"].to_pylist() == wanted
        again = ps.open(dataset.paths[number % 3]).to_table(["id"])
        status = 0 if right and again.num_rows == COUNT // 3 else 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def fork_often(url: str, count: int) -> None:
    dataset = ps.open(url)
    assert dataset.take([7])["id"].to_pylist() == [7]
    with busy(url):
        statuses = [status_of_child(dataset, 997 * number) for number in range(count)]
    assert statuses == [0] * count
    assert dataset.take([COUNT - 1])["id"].to_pylist() == [COUNT - 1]


def test_forked_children_read_while_threads_of_the_parent_are_busy(url: str) -> None:
    fork_often(url, 10)


@pytest.mark.stress
def test_a_hundred_forked_children_read(url: str) -> None:
    fork_often(url, 100)


def ids_of(loader: Any) -> list[int]:
    return sorted(int(one) for batch in loader for one in batch["id"])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.stress)])
def test_workers_of_torchs_data_loader_read(url: str, method: str) -> None:
    from torch.utils.data import DataLoader

    def alarm(*_: object) -> None:
        raise TimeoutError("a worker hangs")

    dataset = ps.open(url, columns=["id"])
    assert dataset.take([7])["id"].to_pylist() == [7]
    old = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(3 * SECONDS)
    try:
        with busy(url):
            given: Any = dataset
            loader = DataLoader(
                given, batch_size=100, num_workers=2, multiprocessing_context=method
            )
            assert ids_of(loader) == list(range(COUNT))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
