"""Iterators of tf.data: their errors, threads, copies and forks."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from test_data_verbs import Data, numbers

import penstock.tf as ours


def test_errors_come_in_their_place() -> None:
    def fail_at_five(x: Any) -> Any:
        if x == 5:
            raise KeyError("five")
        return x + 0

    for dataset in (
        Data.range(9).map(fail_at_five),
        Data.range(9).map(fail_at_five, num_parallel_calls=3),
        Data.range(9).map(fail_at_five).prefetch(2),
        Data.range(9).filter(lambda x: fail_at_five(x) >= 0),
    ):
        seen: list[int] = []
        with pytest.raises(KeyError):
            seen.extend(int(x) for x in dataset)
        assert list(itertools.islice(dataset, 5)) == [0, 1, 2, 3, 4]


def test_a_shuffle_gives_what_came_before_an_error() -> None:
    def stream(fails: bool) -> Any:
        yield from range(6)
        if fails:
            raise RuntimeError("over")

    def first(dataset: Any) -> list[int]:
        found: list[int] = []
        try:
            for x in dataset.shuffle(3, seed=1):
                found.append(int(x))
        except RuntimeError:
            return found
        raise AssertionError("no error")

    made = Data.from_generator(lambda: stream(True), ours.int64, [])
    assert len(first(made)) == 4
    cut = Data.range(6).batch(1).unbatch().concatenate(made.skip(6))
    assert first(cut) == first(made)


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("penstock")}


def slow(x: Any) -> Any:
    time.sleep(0.002)
    return x + 1


def test_iterators_dropped_in_the_middle_leave_no_thread() -> None:
    datasets = [
        Data.range(10**6).map(lambda x: x + 1).prefetch(5),
        Data.range(10**6).map(slow, num_parallel_calls=2),
        Data.range(10**6).map(slow, num_parallel_calls=2).shuffle(9).batch(2).prefetch(3),
        Data.range(10**6).map(lambda x: x + 1).prefetch(2).prefetch(2),
    ]
    for dataset in datasets:
        iterator = iter(dataset)
        next(iterator), next(iterator), next(iterator)
        assert threads()
        del iterator
        gc.collect()
        deadline = time.monotonic() + 10
        while threads() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not threads(), dataset


def test_a_generator_of_the_users_is_closed_with_the_iterator() -> None:
    closed = threading.Event()

    def stream() -> Any:
        try:
            yield from range(10**6)
        finally:
            closed.set()

    iterator = iter(Data.from_generator(stream, ours.int64, []).prefetch(2))
    next(iterator)
    del iterator
    gc.collect()
    assert closed.wait(10)


def test_prefetch_reads_no_further_than_it_may() -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    iterator = iter(Data.range(100).map(note).prefetch(3))
    next(iterator)
    time.sleep(0.2)
    assert 1 <= len(seen) <= 5


def test_elements_are_not_views_into_the_users_arrays() -> None:
    mine = np.arange(6)
    dataset = Data.from_tensor_slices(mine)
    mine[0] = 99
    assert numbers(dataset) == [0, 1, 2, 3, 4, 5]
    batch = next(iter(dataset.batch(3)))
    batch.numpy()[:] = 7
    assert numbers(dataset) == [0, 1, 2, 3, 4, 5]
    cached = Data.range(4).cache()
    list(cached)
    next(iter(cached.batch(4))).numpy()[:] = 7
    assert numbers(cached) == [0, 1, 2, 3]


def test_a_forked_child_iterates_anew_and_refuses_to_go_on() -> None:
    dataset = Data.range(100).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2)
    iterator = iter(dataset)
    next(iterator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions warn of a fork
        child = os.fork()
    if not child:
        status = 1
        try:
            fine = numbers(dataset) == list(range(1, 101))
            try:
                next(iterator)
            except RuntimeError:
                status = 0 if fine else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(iterator)) == 99
