"""Threads: order, errors in their place, and a consumer that stops."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

import frames
import penstock as ps
from penstock.engine.pipeline import Pushed, Tasks, in_order
from penstock.storage import MemoryStorage
from reading import records_of

THREADS = (1, 2, 5)


def numbers(stream: int, count: int) -> Iterator[int]:
    """A stream of tasks: stream * 1000 + 0, 1, 2 ..."""
    for number in range(count):
        yield stream * 1000 + number


def threads_of_ours() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("penstock-")]


@pytest.mark.parametrize("threads", THREADS)
def test_results_come_in_the_order_of_streams_and_tasks(threads: int) -> None:
    rng = random.Random(threads)
    delays = {s * 1000 + n: rng.random() / 500 for s in range(7) for n in range(20)}

    def run(task: int) -> Iterator[int]:
        time.sleep(delays[task])
        for part in range(task % 3):
            yield task * 10 + part

    streams = [partial(numbers, s, 20 if s != 3 else 0) for s in range(7)]
    found = list(in_order(streams, run, lambda _: 1, threads))
    tasks = [t for s in range(7) if s != 3 for t in numbers(s, 20)]
    assert found == [t * 10 + part for t in tasks for part in range(t % 3)]


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_comes_where_its_result_would_have(threads: int) -> None:
    def run(task: int) -> Iterator[int]:
        yield task
        if task == 1005:
            raise ValueError("here")
        yield -task

    found: list[int] = []
    with pytest.raises(ValueError, match="here"):
        found.extend(in_order([partial(numbers, s, 10) for s in range(4)], run, abs, threads))
    tasks = [*numbers(0, 10), *numbers(1, 5)]
    assert found == [r for task in tasks for r in (task, -task)] + [1005]
    assert not threads_of_ours()


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_of_a_stream_comes_after_its_tasks(threads: int) -> None:
    def broken() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("gone")

    found: list[int] = []
    with pytest.raises(OSError, match="gone"):
        found.extend(in_order([broken, partial(numbers, 1, 5)], lambda t: [t], abs, threads))
    assert found == [1, 2, 3]
    assert not threads_of_ours()


@pytest.mark.parametrize("threads", THREADS)
def test_a_consumer_that_stops_leaves_no_threads(threads: int) -> None:
    started: list[int] = []

    def run(task: int) -> list[int]:
        started.append(task)
        return [task]

    results = in_order([partial(numbers, 0, 10_000)], run, lambda _: 1, threads)
    assert [next(results), next(results)] == [0, 1]
    results.close()  # type: ignore[attr-defined]
    assert not threads_of_ours()
    assert len(started) < 200, "work goes on only a little ahead"


@pytest.mark.parametrize("threads", THREADS)
def test_a_consumer_that_stops_closes_the_streams_without_a_garbage_collection(
    threads: int,
) -> None:
    closed = threading.Event()

    def tasks() -> Iterator[int]:
        try:
            yield from numbers(0, 1000)
        finally:
            closed.set()

    gc.disable()
    try:
        results = in_order([tasks], lambda task: (task,), lambda _: 1, threads)
        assert next(results) == 0
        del results
        assert closed.is_set()
    finally:
        gc.enable()


@pytest.mark.parametrize("threads", [2, 5])
def test_what_waits_stays_within_the_budget(threads: int) -> None:
    """A slow consumer: finished results may hold the budget and one result a thread beyond it."""
    waiting = 0
    most = 0
    lock = threading.Lock()

    def run(task: int) -> list[int]:
        nonlocal waiting, most
        with lock:
            waiting += 10
            most = max(most, waiting)
        return [task]

    count = 0
    for _ in in_order([partial(numbers, 0, 300)], run, lambda _: 10, threads, budget_bytes=50):
        count += 1
        time.sleep(0.0005)
        with lock:
            waiting -= 10
    assert count == 300
    assert most <= 50 + 10 * threads + 10


@pytest.mark.parametrize("threads", THREADS)
def test_hundreds_of_empty_and_tiny_streams(threads: int) -> None:
    streams = [partial(numbers, s, s % 2) for s in range(300)]
    found = list(in_order(streams, lambda t: [t], lambda _: 0, threads))
    assert found == [s * 1000 for s in range(300) if s % 2]


def test_zero_threads_are_an_error() -> None:
    with pytest.raises(ValueError, match="threads"):
        list(in_order([], lambda t: [t], lambda _: 0, 0))


def shards(count: int) -> tuple[MemoryStorage, list[str], list[bytes]]:
    rng = random.Random(count)
    files, records = {}, []
    for number in range(count):
        payloads = [rng.randbytes(30_000) for _ in range(rng.randrange(60))]
        files[f"s{number:02}.tfrecord"] = frames.file_of(payloads)
        records += payloads
    return MemoryStorage(files), sorted(files), records


def test_a_scan_left_early_leaves_no_threads() -> None:
    storage, paths, _ = shards(6)
    dataset = ps.open(paths, storage=storage, raw=True, index="never")
    scanning = dataset.scan(threads=4)
    next(scanning)
    scanning.close()  # type: ignore[attr-defined]
    assert not threads_of_ours()


def test_many_simultaneous_scans_of_one_dataset() -> None:
    storage, paths, records = shards(4)
    dataset = ps.open(paths, storage=storage, raw=True, index="never")
    found: list[object] = []

    def scan() -> None:
        found.append(records_of(dataset, threads=2) == records)

    readers = [threading.Thread(target=scan) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [True] * 4


def test_small_jobs_become_tasks_of_some_milliseconds() -> None:
    tasks: Tasks[int] = Tasks(8)
    sizes = []
    for task in tasks.of(iter(range(100))):
        sizes.append(len(task))
        tasks.lasted(0.0001 * len(task), len(task))
    assert sizes[:4] == [1, 2, 4, 8]
    assert sum(sizes) == 100
    tasks.lasted(1.0, 8)
    assert tasks.size == 1


@pytest.mark.parametrize("threads", [2, 3])
def test_the_caller_runs_a_task_instead_of_waiting(threads: int) -> None:
    doers = set()

    def run(task: int) -> list[int]:
        doers.add(threading.current_thread())
        time.sleep(0.002)
        if task == 150:
            raise ValueError("the 150th")
        return [task]

    found = []
    streams = [partial(numbers, 0, 200)]
    with pytest.raises(ValueError, match="150th"):
        for number in in_order(streams, run, lambda _: 1, threads):
            found.append(number)
    assert found == list(range(150))
    assert len(doers) == threads
    assert threading.main_thread() in doers
    assert not threads_of_ours()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_ahead_of_the_caller_run_all_tasks(threads: int) -> None:
    doers = set()

    def run(task: int) -> list[int]:
        doers.add(threading.current_thread())
        time.sleep(0.002)
        return [task]

    found = in_order([partial(numbers, 0, 100)], run, lambda _: 1, threads, ahead=True)
    assert list(found) == list(range(100))
    assert len(doers) == threads
    assert threading.main_thread() not in doers


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_never_more_tasks_run_than_there_are_threads(threads: int) -> None:
    lock = threading.Lock()
    running = most = 0

    def run(task: int) -> list[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return [task]

    for ahead in (False, True):
        running = most = 0
        streams = [partial(numbers, s, 30) for s in range(3)]
        found = list(in_order(streams, run, lambda _: 1, threads, ahead=ahead))
        assert len(found) == 90
        assert most == threads


@pytest.mark.parametrize("threads", THREADS)
def test_results_of_pushed_tasks_come_in_order(threads: int) -> None:
    work, found, lock = Pushed(threads, 2 * threads + 1), [], threading.Lock()
    running = most = 0

    def task(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(random.random() / 500)
        with lock:
            running -= 1
        return number

    def then(number: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        found.append(number)

    for number in range(100):
        work.put(partial(task, number), then)
        assert number - len(found) <= 2 * threads + 1
    work.drain()
    assert found == list(range(100))
    assert most == threads
    work.close()
    assert not threads_of_ours()


@pytest.mark.parametrize("threads", THREADS)
def test_two_that_push_share_their_threads(threads: int) -> None:
    """As a writer of gzip does: what becomes of a task is a task of the other."""
    first = Pushed(threads, 2 * threads)
    second = Pushed(threads, 4 * threads, beside=first)
    found: list[int] = []
    for number in range(200):
        first.put(
            lambda number=number: number,
            lambda half: second.put(lambda: 2 * half, found.append),
        )
        assert len(threads_of_ours()) <= threads - 1
    first.drain()
    second.drain()
    assert found == list(range(0, 400, 2))
    first.close()
    assert not threads_of_ours()


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_of_a_pushed_task_comes_in_its_place(threads: int) -> None:
    work, found = Pushed(threads, 2), []

    def task(number: int) -> int:
        if number == 5:
            raise ValueError("the fifth")
        return number

    def push() -> None:
        for number in range(20):
            work.put(partial(task, number), found.append)
        work.drain()

    with pytest.raises(ValueError, match="the fifth"):
        push()
    assert found == [0, 1, 2, 3, 4]
    work.close()
    assert not threads_of_ours()


def test_a_thread_stays_with_its_stream() -> None:
    """The state of a stream is in the caches of the core that read it last."""
    log: list[int] = []
    is_second_open, is_second_read = threading.Event(), threading.Event()

    def first() -> Iterator[int]:
        for number in range(20):
            is_second_open.wait(10)
            log.append(0)
            yield number

    def second() -> Iterator[int]:
        for number in range(20, 40):
            log.append(1)
            is_second_open.set()
            if number == 24:
                is_second_read.set()
            yield number

    def run(task: int) -> Iterator[int]:
        if task == 0:
            is_second_read.wait(10)
        if task == 20:
            time.sleep(0.05)  # the first stream is free by now, with a task on its way
        yield task

    assert list(in_order([first, second], run, lambda _: 1, 2)) == list(range(40))
    fifth = [place for place, stream in enumerate(log) if stream][4]
    assert log[:fifth].count(0) == 1
